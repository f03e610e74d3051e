"""How long a window takes: from the moment at which it can be final to its result in the outbox.

A window can be final once every source has handed over a record that lies its lateness beyond the
window's end: before, some event of the window may yet come. That moment is taken when the spool of the last
of them has accepted the record, so everything that the tree needs is in the latency: sending, flushing on
every layer, the root's log, merging, and writing the result. Both clocks are the wall clock of one machine.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left

import numpy as np


class Latency:
    """Of the windows of one run."""

    def __init__(self, waited_for: int) -> None:
        """`waited_for` so many sources."""
        self._waited_for = waited_for
        self._low: dict[str, int] = {}
        # The lowest time that all sources have gone beyond, whenever it rose, and when that was.
        self._reached: list[int] = []
        self._at: list[float] = []
        self._found = array("d")

    def handed(self, source: str, low: int, at: float) -> None:
        """A source has handed over records up to its lateness beyond a time (microseconds), at a moment
        (seconds)."""
        if low <= self._low.get(source, low - 1):
            return
        self._low[source] = low
        self._rise(at)

    def give_up(self, source: str, at: float) -> None:
        """Nobody waits for a source any more, since a moment."""
        self._low.pop(source, None)
        self._waited_for -= 1
        self._rise(at)

    def _rise(self, at: float) -> None:
        if self._low and len(self._low) >= self._waited_for:
            lowest = min(self._low.values())
            if not self._reached or lowest > self._reached[-1]:
                self._reached.append(lowest)
                self._at.append(at)

    @property
    def reached(self) -> int | None:
        """The watermark that what was handed over comes to."""
        return self._reached[-1] if self._reached else None

    def came_out(self, end: int, at: float) -> None:
        """A window with this end is in the outbox since a moment.

        One that came before all sources were that far is left out: some source was given up.
        """
        place = bisect_left(self._reached, end)
        if place < len(self._at) and at >= self._at[place]:
            self._found.append(at - self._at[place])

    def quantiles(self, *shares: float) -> list[float]:
        """In seconds: so large a share of the windows took no longer; nothing if there is no window."""
        if not self._found:
            return []
        places = [min(int(share * len(self._found)), len(self._found) - 1) for share in shares]
        ordered = np.partition(np.array(self._found), places)
        return [float(ordered[place]) for place in places]
