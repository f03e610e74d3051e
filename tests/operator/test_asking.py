"""The queries of a topology and of objects beside it: one that is wrong fails alone."""

from __future__ import annotations

import json
from typing import Any

from headwater.errors import Problem
from headwater_operator.asking import Computed, asked_of
from tests.operator.test_layout import topology
from tests.packages import example_function

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


def test_functions_of_packages_are_those_that_are_installed() -> None:
    objects = [query("a", aggregate="function:rms"), query("b", aggregate="function:other")]
    found = asked_of(topology(queries=[]), objects, functions=example_function)
    assert list(found.taken) == ["a"]
    (problem,) = found.refused["b"][1]
    assert "'other' is no function of an installed package" in problem.message
    listed = json.dumps({"id": "a", "aggregate": "function:rms", "window": WINDOW})
    computed = Computed((WHY,), {"a": listed}, example_function)
    assert computed.query("a").custom == (example_function("rms"),)


COUNT = {"type": "tumbling", "count": 100}
WHY = Problem("spec.node", "is small", "make it larger")


def test_where_there_is_no_plan_what_needs_every_event_is_refused() -> None:
    listed = {
        id: json.dumps({"id": id, "aggregate": "sum", "window": window})
        for id, window in {"same": COUNT, "edited": WINDOW, "light": WINDOW}.items()
    }
    objects = [
        query("same", window=COUNT),
        query("edited", window=COUNT),
        query("heavy", window=COUNT),
        query("light", aggregate="max"),
        query("new"),
    ]
    found = asked_of(topology(queries=[]), objects, Computed((WHY,), listed))
    assert set(found.taken) == {"same", "light", "new"}
    assert set(found.refused) == {"edited", "heavy"}
    first, *others = found.refused["heavy"][1]
    assert "needs every event at the root" in first.message
    assert others == [WHY]
    # One that was changed goes on as it was, and nothing of it ends.
    assert {each.id for each in found.queries} == {"same", "light", "new", "edited"}
    assert listed["edited"] in found.documents


def test_where_the_root_says_nothing_what_was_accepted_holds() -> None:
    def told(name: str, status: str, generation: int) -> dict[str, Any]:
        found = query(name, window=COUNT)
        found["metadata"]["generation"] = 2
        condition = {"type": "Accepted", "status": status, "observedGeneration": generation}
        return {**found, "status": {"conditions": [condition]}}

    objects = [
        told("a", "True", 2),
        told("b", "True", 1),
        told("c", "False", 2),
        query("d", window=COUNT),
        query("e"),
    ]
    found = asked_of(topology(queries=[]), objects, Computed((WHY,), None))
    assert set(found.taken) == {"a", "e"}
    assert set(found.refused) == {"b", "c", "d"}


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
