"""In which order a tree takes up what has changed: of nodes that run, one of each layer at a time; and
whether that gets on."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from headwater_operator import names
from headwater_operator.observation import Observed
from headwater_operator.rendering import Manifest


@dataclass(slots=True)
class Rolling:
    """A generation on its way: since when nothing more of it came to be, and what has until then."""

    generation: int
    since: float
    through: frozenset[tuple[str, int]] = frozenset()

    def stalled(self, now: float, through: frozenset[tuple[str, int]]) -> float:
        """For how many seconds nothing has. Wide layers take long, one node at a time, and that is no
        failure; what comes and goes has come once."""
        if not through <= self.through:
            self.since, self.through = now, self.through | through
        return now - self.since


def in_turn(wanted: Iterable[Manifest], observed: Observed) -> tuple[list[Manifest], list[str]]:
    """What is to be applied now, and the nodes whose turn comes later: another program or setting restarts a
    pod, and a layer never has more than one of its own missing for that."""
    running = {each["metadata"]["name"] for each in observed.of_kind("Deployment")}
    now: list[Manifest] = []
    later: list[str] = []
    begun: set[int] = {
        layer for id in running if not _ready(id, observed) and (layer := names.layer_of(id)) is not None
    }
    for each in wanted:
        id = each["metadata"]["name"]
        layer = names.layer_of(id)
        if each["kind"] != "Deployment" or id not in running or layer is None or not _ready(id, observed):
            # What is new, or does not run anyway, takes nothing away.
            now.append(each)
        elif layer in begun:
            later.append(id)
        else:
            begun.add(layer)
            now.append(each)
    return now, later


def workloads(applied: Iterable[Manifest]) -> set[str]:
    """What of it has pods, which are as before until its controller has seen it."""
    return {each["metadata"]["name"] for each in applied if each["kind"] in ("Deployment", "StatefulSet")}


def _ready(id: str, observed: Observed) -> bool:
    pod = observed.pod(id)
    return pod is not None and pod.ready
