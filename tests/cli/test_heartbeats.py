"""The closing heartbeat of a run: behind every window, and not an hour of empty ones further."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from headwater.topology import Topology, topology_of
from headwater_cli.heartbeats import AFTER, closing_span

SECOND = 1_000_000
PULSE = {
    "id": "pulse",
    "aggregate": "count",
    "window": {"type": "tumbling", "length": "1s"},
    "emitEmpty": True,
}


def _topology(*queries: Mapping[str, object]) -> Topology:
    spec = {
        "sources": [
            {"class": "a", "site": "x", "expected": 1, "rate": 1, "lateness": "2s"},
            {"class": "b", "site": "x", "expected": 1, "rate": 1, "lateness": "5s"},
        ],
        "queries": list(queries),
        "root": {"engine": "embedded"},
    }
    document = {
        "apiVersion": "headwater.dev/v1alpha1",
        "kind": "AggregationTopology",
        "metadata": {"name": "plant"},
        "spec": spec,
    }
    return topology_of(document)


@pytest.mark.parametrize(
    "window, span",
    [
        ({"type": "tumbling", "length": "500ms"}, 6 * SECOND),
        ({"type": "sliding", "length": "10m", "slide": "1s"}, 605 * SECOND),
        ({"type": "session", "gap": "30s"}, 35 * SECOND),
        ({"type": "tumbling", "count": 100}, 6 * SECOND),
        # What lies too far ahead no child reads: a longer window stays open.
        ({"type": "tumbling", "length": "2d"}, AFTER),
    ],
)
def test_with_empty_windows_it_lies_behind_the_longest_window(window: dict[str, object], span: int) -> None:
    other: dict[str, object] = {"id": "other", "aggregate": "avg", "window": window}
    assert closing_span(_topology(PULSE, other)) == span


def test_without_empty_windows_queries_that_are_added_have_an_hour() -> None:
    assert closing_span(_topology({k: v for k, v in PULSE.items() if k != "emitEmpty"})) == AFTER
