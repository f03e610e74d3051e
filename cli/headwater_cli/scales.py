"""What a run is scripted to do: so many sources for so long, then so many others."""

from __future__ import annotations

import copy
from collections import Counter
from dataclasses import dataclass, replace
from typing import Any

from headwater.durations import SECOND, microseconds
from headwater.planning.asked import demands_of, scaled
from headwater.topology import Topology
from headwater_cli.generator import Sensor

MOST_SOURCES, MOST_SECONDS, MOST_RATE = 10_000, 86_400, 1_000.0


@dataclass(frozen=True, slots=True)
class Phase:
    """So many sources, for whole seconds; each sends `rate` events a second if it is given."""

    sources: int
    seconds: int
    rate: float | None = None


def read(text: str) -> list[Phase]:
    """`200:10s,1000:20s`, also with a rate: `200@2.5:10s`; raises `ValueError`."""
    found = []
    for part in text.split(","):
        count, colon, length = part.strip().partition(":")
        count, at, rate = count.partition("@")
        if not colon or not count.isdecimal() or (at and not _is_rate(rate)):
            raise ValueError(f"{part.strip()!r} is no phase; give sources and how long, such as 200:10s")
        lasts = microseconds(length)
        seconds = -(-lasts // SECOND)
        if not 1 <= int(count) <= MOST_SOURCES or lasts < SECOND or seconds > MOST_SECONDS:
            said = f"give 1 to {MOST_SOURCES} sources for 1s or more"
            raise ValueError(f"{part.strip()!r} is out of reach; {said}")
        found.append(Phase(int(count), seconds, float(rate) if at else None))
    return found


def _is_rate(text: str) -> bool:
    try:
        return 0 < float(text) <= MOST_RATE
    except ValueError:
        return False


class Cast:
    """Who sends in each phase of a script: a slot of a class has the same sensor for as long as it is wanted,
    and another one when it is wanted again."""

    def __init__(self, topology: Topology) -> None:
        self._topology = topology
        self._slots: dict[tuple[int, int], Sensor] = {}
        # The class of each sensor, and how many have sent in each slot.
        self._kinds: dict[str, int] = {}
        self._times: Counter[tuple[int, int]] = Counter()

    def sensors(self, phase: Phase) -> list[Sensor]:
        """From now on, in the order of their slots."""
        slots = wanted(self._topology, phase.sources)
        self._slots = {slot: self._slots.get(slot) or self._fresh(slot, phase) for slot in slots}
        self._kinds = {sensor.name: slot[0] for slot, sensor in self._slots.items()}
        return list(self._slots.values())

    def rate(self, name: str, phase: Phase) -> float:
        """What a sensor that is there sends in a phase."""
        return phase.rate or self._topology.sources[self._kinds[name]].rate

    def _fresh(self, slot: tuple[int, int], phase: Phase) -> Sensor:
        kind, times = self._topology.sources[slot[0]], self._times[slot]
        self._times[slot] += 1
        name = f"{kind.name}-{kind.site}-{slot[1]}" + (f".{times + 1}" if times else "")
        seed = (slot[0] * 1_000_003 + slot[1]) * 1_009 + times
        return Sensor(name, kind.site, phase.rate or kind.rate, kind.lateness, seed)


def wanted(topology: Topology, count: int) -> list[tuple[int, int]]:
    """Which sources so many are, each class by its share: the class, and the number in it."""
    kept = {each.field: each.count for each in scaled(demands_of(topology), count)}
    return [
        (place, number)
        for place in range(len(topology.sources))
        for number in range(kept.get(f"spec.sources[{place}]", 0))
    ]


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
