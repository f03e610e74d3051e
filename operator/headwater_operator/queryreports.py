"""What is told of a query: whether it is computed, where, and why not."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from headwater.durations import SECOND
from headwater.errors import Problem
from headwater_operator.reporting import SPACING, Status, listed, rounded
from headwater_wire.v1 import control_pb2 as pb

# What changes all the time, and of how many queries that alone is written at once: there may be thousands of
# them, and each is a request.
LIVE, AT_ONCE = ("lag",), 50


def taken(document: Mapping[str, Any], found: pb.ListedQuery | None, now: str) -> Status:
    """Of a query that can be computed; `found` is what the root says of it, None: it has not got it yet."""
    if found is None:
        return _status(document, False, "NotYet", "the root has not got it yet", now)
    computed: Status = {"computed": "central" if found.central else "distributed"}
    if found.central:
        computed["why"] = found.central
    said = "it is computed at the root" if found.central else "it is computed by all nodes"
    computed["lane"] = found.lane
    if found.HasField("group"):
        computed["group"] = str(found.group)
    if found.HasField("lag"):
        computed["lag"] = f"{rounded(found.lag / SECOND):g}s"
    return {**_status(document, True, "Accepted", said, now), **computed}


@dataclass(slots=True)
class Written:
    """When the live numbers of queries were written last: of any, and of each by its name; by the clock that
    never goes back."""

    at: float = float("-inf")
    each: dict[str, float] = field(default_factory=dict)

    def due(self, told: Mapping[str, tuple[Mapping[str, Any], Status]], now: float) -> list[str]:
        """Which of them are to be written: by name, the status that it has and the one that it is to have.
        Where live numbers alone have changed, a few now and then, those that have waited longest."""
        for name in list(self.each):
            if name not in told:
                del self.each[name]
        found = [name for name, (before, after) in told.items() if _lasting(before) != _lasting(after)]
        if now - self.at >= SPACING:
            live = [
                name
                for name, (before, after) in told.items()
                if before != after and _lasting(before) == _lasting(after)
            ]
            live.sort(key=lambda name: self.each.get(name, float("-inf")))
            if live:
                self.at = now
            found += live[:AT_ONCE]
        self.each |= dict.fromkeys(found, now)
        return found


def _lasting(status: Mapping[str, Any]) -> Status:
    return {name: value for name, value in status.items() if name not in LIVE}


def refused(document: Mapping[str, Any], problems: Iterable[Problem], now: str) -> Status:
    return _status(document, False, "Invalid", listed(problems), now)


def rejected(document: Mapping[str, Any], words: str, now: str) -> Status:
    return _status(document, False, "Refused", words, now)


def orphaned(document: Mapping[str, Any], topology: str, now: str) -> Status:
    return _status(document, False, "NoTopology", f"there is no topology {topology!r} in this namespace", now)


def _status(document: Mapping[str, Any], holds: bool, reason: str, message: str, now: str) -> Status:
    status = "True" if holds else "False"
    before = {each["type"]: each for each in (document.get("status") or {}).get("conditions") or ()}
    held = before.get("Accepted", {})
    generation = document["metadata"].get("generation", 0)
    condition = {
        "type": "Accepted",
        "status": status,
        "reason": reason,
        "message": message[:4_096],
        "observedGeneration": generation,
        "lastTransitionTime": held.get("lastTransitionTime", now) if held.get("status") == status else now,
    }
    return {"observedGeneration": generation, "conditions": [condition]}
