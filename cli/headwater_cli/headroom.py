"""How much of its limit each node of a run has left, as measured, and what was moved to keep it so."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from headwater.planning.trees import ROOT, Step
from headwater_cli.nodes import Nodes
from headwater_cli.processes import Process

# Items a second below which nothing is concluded from what a layer sends.
FEW = 20.0
# A layer is taken to send at most so much for each item that it takes.
MOST_SENT = 4.0


@dataclass(slots=True)
class Busy:
    """A node that took more than it may: the most that came to it in a second or two."""

    rate: float
    limit: float
    # Messages that had to wait at once, at most.
    waiting: int = 0


@dataclass(slots=True)
class Headroom:
    """Of a run whose nodes take `limit` items a second, and its root `root_limit`."""

    limit: float
    root_limit: float
    least: dict[str, float] = field(default_factory=dict)
    overrun: dict[str, Busy] = field(default_factory=dict)

    def look(self, processes: Iterable[Process]) -> None:
        for process in processes:
            rate, waiting = process.rates.rate("items"), process.figure("waiting")
            left = self.of(process)
            self.least[process.name] = min(self.least.get(process.name, 1.0), left)
            if waiting or left < 0:
                known = self.overrun.setdefault(process.name, Busy(rate, self._limit(process)))
                known.rate, known.waiting = max(known.rate, rate), max(known.waiting, waiting)

    def of(self, process: Process) -> float:
        return 1 - process.rates.rate("items") / self._limit(process)

    def _limit(self, process: Process) -> float:
        return self.root_limit if process.name == ROOT else self.limit


def reductions(layers: Sequence[Nodes]) -> dict[int, float]:
    """What each layer sends for each item that it takes, where enough comes to say."""
    found = {}
    for number, nodes in enumerate(layers, start=1):
        taken, sent = nodes.rate("items", None), nodes.rate("items_up", None)
        if taken >= FEW and sent > 0:
            found[number] = min(sent / taken, MOST_SENT)
    return found


def told(step: Step, widths: Sequence[int], least: int = 3) -> str:
    """A step in a line: widths, nodes that come and go, sources that move."""
    parts = [f"replanned to {' '.join(map(str, widths))}"]
    for word, names in (("begins", step.begin), ("ends", step.end)):
        if names:
            parts.append(f"{len(names)} {word if len(names) == 1 else word[:-1]} ({_some(names, least)})")
    moved = [f"{move.item} {move.before}->{move.after}" for move in step.sources if move.before is not None]
    parts.append(f"{len(moved)} sources move" + (f" ({_some(moved, least)})" if moved else ""))
    if step.nodes:
        parts.append(f"{len(step.nodes)} nodes turn")
    return ", ".join(parts)


def _some(names: Sequence[str], least: int) -> str:
    more = f", {len(names) - least} more" if len(names) > least else ""
    return ", ".join(names[:least]) + more
