"""The Nodes of the cluster as a planner needs them, kept by what is heard of them."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Taint:
    key: str
    value: str
    effect: str


@dataclass(frozen=True, slots=True)
class ClusterNode:
    """What matters of a Node. When it was last heard of does not, so a heartbeat changes nothing."""

    name: str
    labels: Mapping[str, str]
    ready: bool
    unschedulable: bool
    taints: tuple[Taint, ...]


def node_of(document: Mapping[str, Any]) -> ClusterNode:
    metadata, spec = document["metadata"], document.get("spec") or {}
    conditions = (document.get("status") or {}).get("conditions") or []
    return ClusterNode(
        name=metadata["name"],
        labels=dict(metadata.get("labels") or {}),
        ready=any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)
        and "deletionTimestamp" not in metadata,
        unschedulable=bool(spec.get("unschedulable")),
        taints=tuple(
            Taint(each["key"], each.get("value") or "", each["effect"]) for each in spec.get("taints") or []
        ),
    )


class Nodes:
    """All of them, from any thread; or none, where they may not be seen."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._found: dict[str, ClusterNode] = {}
        self._complete = False

    def all(self) -> Mapping[str, ClusterNode] | None:
        """By name; None if they are not known."""
        with self._lock:
            return dict(self._found) if self._complete else None

    def update(self, document: Mapping[str, Any]) -> bool:
        """One that is there; gives whether anything that matters is new."""
        node = node_of(document)
        with self._lock:
            changed = self._found.get(node.name) != node
            self._found[node.name] = node
            return changed

    def remove(self, name: str) -> bool:
        with self._lock:
            return self._found.pop(name, None) is not None

    def replace(self, documents: Iterable[Mapping[str, Any]]) -> bool:
        """All that are there, and no others."""
        found = {node.name: node for node in map(node_of, documents)}
        with self._lock:
            changed = not self._complete or found != self._found
            self._found, self._complete = found, True
            return changed

    def forget(self) -> bool:
        """They can no longer be seen."""
        with self._lock:
            changed = self._complete
            self._found, self._complete = {}, False
            return changed
