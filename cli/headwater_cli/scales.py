"""What a run is scripted to do: so many sources for so long, then so many others."""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from typing import Any

from headwater.durations import SECOND, microseconds
from headwater.planning.asked import demands_of, scaled
from headwater.topology import Topology

MOST_SOURCES, MOST_SECONDS = 10_000, 86_400


@dataclass(frozen=True, slots=True)
class Phase:
    """So many sources, for whole seconds."""

    sources: int
    seconds: int


def read(text: str) -> list[Phase]:
    """`200:10s,1000:20s`; raises `ValueError`."""
    found = []
    for part in text.split(","):
        count, colon, length = part.strip().partition(":")
        if not colon or not count.isdecimal():
            raise ValueError(f"{part.strip()!r} is no phase; give sources and how long, such as 200:10s")
        lasts = microseconds(length)
        seconds = -(-lasts // SECOND)
        if not 1 <= int(count) <= MOST_SOURCES or not 1 <= seconds <= MOST_SECONDS:
            said = f"give 1 to {MOST_SOURCES} sources for 1s or more"
            raise ValueError(f"{part.strip()!r} is out of reach; {said}")
        found.append(Phase(int(count), seconds))
    return found


def expecting(topology: Topology, document: dict[str, Any], count: int) -> tuple[Topology, dict[str, Any]]:
    """The same topology with so many sources in all, each class by its share."""
    kept = {each.field: each.count for each in scaled(demands_of(topology), count)}
    places = [place for place in range(len(topology.sources)) if f"spec.sources[{place}]" in kept]
    sources = tuple(
        replace(topology.sources[place], expected=kept[f"spec.sources[{place}]"]) for place in places
    )
    changed = copy.deepcopy(document)
    changed["spec"]["sources"] = [
        changed["spec"]["sources"][place] | {"expected": each.expected}
        for place, each in zip(places, sources, strict=True)
    ]
    return replace(topology, sources=sources), changed
