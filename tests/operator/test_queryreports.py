"""What is told of a query, and how often."""

from __future__ import annotations

from typing import Any

import pytest

from headwater.errors import Problem
from headwater_operator import queryreports
from headwater_operator.crds import status as schema
from headwater_operator.queryreports import AT_ONCE, Written, taken
from headwater_operator.reporting import SPACING
from headwater_wire.v1 import control_pb2 as pb
from tests.manifests import query_object

NOW = "2026-01-01T00:00:00Z"


def document(**status: Any) -> dict[str, Any]:
    found = query_object()
    found["metadata"]["generation"] = 2
    return {**found, "status": status} if status else found


def listed(**more: Any) -> pb.ListedQuery:
    return pb.ListedQuery(id="q", state=pb.ListedQuery.STATE_ACTIVE, **more)


def condition(status: dict[str, Any]) -> tuple[str, str]:
    (found,) = status["conditions"]
    return found["status"], found["reason"]


def test_a_query_that_is_computed_says_where_with_whom_and_how_far_behind() -> None:
    found = taken(document(), listed(group=3, lane=0, lag=1_234_567), NOW)
    assert condition(found) == ("True", "Accepted")
    assert {name: found[name] for name in ("computed", "group", "lane", "lag")} == {
        "computed": "distributed",
        "group": "3",
        "lane": 0,
        "lag": "1.2s",
    }
    assert "why" not in found
    central = taken(document(), listed(group=0, central="it counts in the order of all events"), NOW)
    assert (central["computed"], central["why"]) == ("central", "it counts in the order of all events")
    assert central["group"] == "0"


def test_what_is_not_known_is_not_told() -> None:
    found = taken(document(), listed(), NOW)
    assert not {"group", "lag"} & found.keys()
    assert condition(taken(document(), None, NOW)) == ("False", "NotYet")


def test_every_field_is_one_of_the_definition() -> None:
    found = taken(document(), listed(group=3, lag=1, central="why"), NOW)
    assert set(found) == set(schema.of_query()["properties"])


@pytest.mark.parametrize(
    "found, reason",
    [
        (queryreports.refused(document(), [Problem("spec.x", "is y", "do z")], NOW), "Invalid"),
        (queryreports.rejected(document(), "no room", NOW), "Refused"),
        (queryreports.orphaned(document(), "factory", NOW), "NoTopology"),
    ],
)
def test_one_that_is_not_computed_says_why(found: dict[str, Any], reason: str) -> None:
    assert condition(found) == ("False", reason)


def test_a_condition_holds_since_it_changed() -> None:
    before = taken(document(), listed(), NOW)
    after = taken(document(**before), listed(lag=5_000_000), "2027-01-01T00:00:00Z")
    assert after["conditions"] == before["conditions"]


def told(before: int | None, after: int, *names: str, group: int = 0) -> dict[str, Any]:
    """Statuses of queries that were so far behind, and are."""
    had = {} if before is None else taken(document(), listed(group=0, lag=before), NOW)
    has = taken(document(**had), listed(group=group, lag=after), NOW)
    return dict.fromkeys(names, (had, has))


def test_what_lasts_is_written_at_once_and_live_numbers_now_and_then() -> None:
    written = Written()
    assert written.due(told(None, 1_000_000, "a", "b"), 0.0) == ["a", "b"]
    assert written.due(told(1_000_000, 1_000_000, "a", "b"), 1_000.0) == []
    assert written.due(told(1_000_000, 2_000_000, "a", "b"), 1_000.0) == ["a", "b"]
    assert written.due(told(2_000_000, 3_000_000, "a", "b"), 1_000.0 + SPACING - 1) == []
    assert written.due(told(2_000_000, 3_000_000, "a", group=1), 1_000.0 + SPACING - 1) == ["a"]
    assert written.due(told(2_000_000, 3_000_000, "a", "b"), 1_000.0 + SPACING) == ["b", "a"]
    # To two digits it is the same.
    assert written.due(told(2_000_000, 2_040_000, "a", "b"), 2_000.0) == []


def test_of_thousands_a_few_are_written_at_a_time_and_each_in_its_turn() -> None:
    names = [f"q{n}" for n in range(4_096)]
    written, seen = Written(), list[str]()
    assert len(written.due(told(None, 1, *names), 0.0)) == len(names)
    looks = -(-len(names) // AT_ONCE)
    for look in range(1, looks + 1):
        found = written.due(told(1_000_000, 2_000_000, *names), look * SPACING)
        assert len(found) <= AT_ONCE
        assert written.due(told(1_000_000, 2_000_000, *names), look * SPACING + 1) == []
        seen += found
    assert set(seen) == set(names)
    assert not written.due({}, 0.0)
    assert written.each == {}
