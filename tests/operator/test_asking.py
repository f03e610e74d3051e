"""The queries of a topology and of objects beside it: one that is wrong fails alone."""

from __future__ import annotations

import json
from typing import Any

from headwater_operator.asking import asked_of
from tests.operator.test_layout import topology

WINDOW = {"type": "tumbling", "length": "1s"}


def query(name: str, created: int = 0, ref: str = "factory", **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "headwater.dev/v1alpha1",
        "kind": "AggregationQuery",
        "metadata": {"name": name, "creationTimestamp": f"2026-01-01T00:00:{created:02}Z", "uid": name},
        "spec": {"topologyRef": ref, "aggregate": "sum", "window": WINDOW, **spec},
        "status": {"conditions": []},
    }


def test_queries_come_from_the_topology_and_from_objects() -> None:
    asked = topology(queries=[{"id": "own", "aggregate": "max", "window": WINDOW}])
    found = asked_of(asked, [query("b", 2), query("a", 3), query("other", ref="another")])
    assert [each.id for each in found.queries] == ["own", "b", "a"]
    assert list(found.taken) == ["b", "a"]
    assert not found.refused
    # What the root is told says nothing of what an API server writes.
    own, b, _ = map(json.loads, found.documents)
    assert own["id"] == "own"
    assert b["metadata"] == {"name": "b"}
    assert "status" not in b


def test_where_there_is_no_plan_those_are_taken_that_are_computed() -> None:
    listed = {id: json.dumps({"id": id, "aggregate": "sum", "window": WINDOW}) for id in ("same", "edited")}
    objects = [query("same"), query("edited", aggregate="median"), query("new")]
    found = asked_of(topology(queries=[]), objects, listed)
    assert list(found.taken) == ["same"]
    assert set(found.refused) == {"edited", "new"}
    assert "there is no plan with it" in found.refused["new"][1][0].message
    # One that was changed goes on as it was, and nothing of it ends.
    assert [each.id for each in found.queries] == ["edited", "same"]
    assert listed["edited"] in found.documents


def test_one_that_is_wrong_fails_alone() -> None:
    asked = topology(queries=[{"id": "own", "aggregate": "max", "window": WINDOW}])
    objects = [
        query("fine"),
        query("bad", window={"type": "tumbling", "length": "0s"}),
        query("own"),
        query("unknown", aggregate="nothing-known"),
    ]
    found = asked_of(asked, objects)
    assert [each.id for each in found.queries] == ["own", "fine"]
    assert set(found.refused) == {"bad", "own", "unknown"}
    (problem,) = found.refused["own"][1]
    assert problem.field == "metadata.name"
    assert "a query of the topology itself" in problem.message
    assert found.refused["bad"][1][0].field == "spec.window.length"


def test_one_that_goes_is_not_asked_for() -> None:
    going = query("going")
    going["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert asked_of(topology(), [going]).queries == ()
