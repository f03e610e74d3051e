"""Windows by rank: the n-th event of the total order closes a window, whatever the time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from headwater.merging.closed import Closed
from headwater.merging.closings import Closings
from headwater.merging.ranktimes import RankTimes
from headwater.merging.timeline import Timeline
from headwater.operators import Operator
from headwater.rows import Rows
from headwater.slicing.edges import Edges, Periodic


class Ranks:
    """One stream of ranks: slices and windows as in time, with the rank for the time."""

    def __init__(self, operators: Sequence[Operator], windows: Sequence[tuple[int, Periodic]]) -> None:
        self._operators = operators
        self._edges = Edges(window for _, window in windows)
        self._closings = Closings(windows)
        self._timeline = Timeline(operators)
        self._times = RankTimes()
        self.reached = 0

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if "_times" not in state:
            # A release before has counted without times.
            self._times = RankTimes(known_from=self.reached)

    def __len__(self) -> int:
        return len(self._timeline)

    @property
    def wanted(self) -> int:
        """How many more events complete the next window, at least."""
        return self._closings.next - self.reached

    @property
    def uncut(self) -> int:
        """How many more events belong to the slice that the last one was in."""
        return self._edges.span(self.reached)[1] - self.reached

    def add(self, rows: Rows) -> None:
        """The next rows of the total order; within one slice in any order."""
        size = len(rows.value)
        low, high = self._edges.span(self.reached)
        if self.reached + size <= high:
            self._timeline.add_one(low, [operator.whole(rows) for operator in self._operators])
            self._times.add_one(low, rows)
        else:
            places, slices = self._edges.cut(np.arange(self.reached, self.reached + size))
            self._timeline.add(slices, [operator.runs(rows, places) for operator in self._operators])
            self._times.add(slices, rows, places)
        self.reached += size

    def due(self) -> Closed | None:
        """Windows whose last rank has been reached."""
        if self.reached < self._closings.next:
            return None
        starts = self._timeline.starts
        query, start, end = self._closings.due(self.reached, starts)
        if not len(query):
            return None
        low, high = self._timeline.between(start, end)
        states = self._timeline.fold(low, high, int(high[-1]))
        first, last = self._times.between(start, end)
        before = self.reached - self._closings.longest
        self._timeline.trim(before)
        self._times.trim(before)
        return Closed(query, np.zeros(len(query), np.int64), start, end, states, first, last)
