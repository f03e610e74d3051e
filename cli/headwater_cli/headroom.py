"""How much of its limit each node of a run has left, as measured, and what was moved to keep it so."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from headwater.planning.trees import ROOT, Step
from headwater_cli.nodes import Nodes
from headwater_cli.processes import STEADY, Process

# Items a second below which nothing is concluded from what a layer sends.
FEW = 20.0
# The share of a limit below which a node is as good as full.
FULL = 0.1
# A layer is taken to send at most so much for each item that it takes.
MOST_SENT = 4.0


@dataclass(slots=True)
class Busy:
    """A node to which more came than it takes: how much it took at most, and what it may."""

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

    # Since when messages wait at a node.
    _since: dict[str, float] = field(default_factory=dict)

    def look(self, processes: Iterable[Process], now: float, since: float = 0.0) -> None:
        """`now` in seconds of the clock of rates; what was said before `since` is of a tree that begins."""
        for process in processes:
            name, waiting = process.name, process.figure("waiting")
            if waiting:
                self._since.setdefault(name, now)
            else:
                self._since.pop(name, None)
            if not process.steady.full or process.steady.since < since:
                continue
            rate, left = process.steady.rate("items"), self.of(process)
            self.least[name] = min(self.least.get(name, 1.0), left)
            # A burst waits for a moment; what does not end is an overrun.
            # Where less was taken than may be, it is somebody above who holds it back.
            if left < 0 or (left < FULL and now - self._since.get(name, now) > STEADY):
                known = self.overrun.setdefault(name, Busy(rate, self._limit(process)))
                known.rate, known.waiting = max(known.rate, rate), max(known.waiting, waiting)

    def of(self, process: Process) -> float:
        return 1 - process.steady.rate("items") / self._limit(process)

    def _limit(self, process: Process) -> float:
        return self.root_limit if process.name == ROOT else self.limit


def reductions(layers: Sequence[Nodes]) -> dict[int, float]:
    """What each layer sends for each item that it takes, where enough comes to say."""
    found = {}
    for number, nodes in enumerate(layers, start=1):
        taken = sum(process.steady.rate("items") for process in nodes.processes)
        sent = sum(process.steady.rate("items_up") for process in nodes.processes)
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
