"""The topology of `headwater run` when none is given: a small factory."""

from __future__ import annotations

from typing import Any

from headwater.topology import Topology, topology_of

DOCUMENT: dict[str, Any] = {
    "apiVersion": "headwater.dev/v1alpha1",
    "kind": "AggregationTopology",
    "metadata": {"name": "demo"},
    "spec": {
        "sources": [
            {"class": "machine", "site": "hall-1", "expected": 4, "rate": 100, "lateness": "500ms"},
            {"class": "machine", "site": "hall-2", "expected": 4, "rate": 100, "lateness": "500ms"},
        ],
        "startTimeout": "10s",
        "node": {"ingestLimit": 500},
        "queries": [
            {
                "id": "temp-avg",
                "aggregate": "avg",
                "window": {"type": "sliding", "length": "10s", "slide": "1s"},
                "keyBy": "key",
            },
            {
                "id": "per-second",
                "aggregate": ["count", "min", "max"],
                "window": {"type": "tumbling", "length": "1s"},
            },
        ],
        "root": {"engine": "spark", "sinks": [{"type": "console"}]},
    },
}


def topology() -> Topology:
    return topology_of(DOCUMENT)
