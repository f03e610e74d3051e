"""The processes of one layer, and what they say together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headwater_cli.processes import Process


@dataclass(frozen=True, slots=True)
class Nodes:
    """The processes of one layer."""

    layer: str
    processes: Sequence[Process]

    def total(self, figure: str) -> int:
        return sum(process.figure(figure) for process in self.processes)

    def rate(self, figure: str, over: float | None) -> float:
        """Of late, or of so many seconds in all."""
        if over is not None:
            return self.total(figure) / over
        return sum(process.rates.rate(figure) for process in self.processes)

    @property
    def low(self) -> int | None:
        """The lowest time that they stand at, if all stand at one."""
        lows = [process.last.get("low") for process in self.processes if process.last.get("sources")]
        known = [low for low in lows if low is not None]
        return min(known) if known and len(known) == len(lows) else None
