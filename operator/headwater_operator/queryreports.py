"""What is told of a query: whether it is computed, where, and why not."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from headwater.errors import Problem
from headwater_operator.reporting import Status, listed
from headwater_wire.v1 import control_pb2 as pb


def taken(document: Mapping[str, Any], found: pb.ListedQuery | None, now: str) -> Status:
    """Of a query that can be computed; `found` is what the root says of it, None: it has not got it yet."""
    if found is None:
        return _status(document, False, "NotYet", "the root has not got it yet", now)
    computed: Status = {"computed": "central" if found.central else "distributed"}
    if found.central:
        computed["why"] = found.central
    said = "it is computed at the root" if found.central else "it is computed by all nodes"
    return {**_status(document, True, "Accepted", said, now), **computed}


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
