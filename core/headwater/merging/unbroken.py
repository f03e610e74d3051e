"""Queries that report windows without events too: an unbroken row of windows from the first event on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from headwater.merging.closed import Closed
from headwater.merging.closings import FOREVER
from headwater.merging.ranges import spread
from headwater.merging.timeline import Timeline
from headwater.operators import Operator
from headwater.rows import TS_MIN, Ints
from headwater.slicing.edges import Periodic

# How many empty windows of one query are reported at once, at most.
EMPTY_LIMIT = 100_000


@dataclass(slots=True)
class Unbroken:
    """One such query: the next window that it owes."""

    query: int
    window: Periodic
    next: int | None = None

    def due(self, timeline: Timeline, operators: Sequence[Operator], watermark: int) -> Closed | None:
        """The windows that end up to the watermark and were not handed out."""
        starts, window = timeline.starts, self.window
        if self.next is None:
            self.next = self._first(starts, watermark)
            if self.next is None:
                return None
        until = min(watermark - window.length, window.end - 1)
        if watermark >= FOREVER:
            # At the end of everything the last event is in the last window.
            until = min(until, starts.item(len(starts) - 1) if len(starts) else TS_MIN)
        if until < self.next:
            return None
        after = until - (until - self.next) % window.slide + window.slide
        start = _owed(starts, self.next, after, window)
        self.next = after
        low, high = timeline.between(start, np.minimum(start + window.length, window.end))
        states = [operator.empty(len(start)) for operator in operators]
        held = np.flatnonzero(high > low)
        if len(held):
            folded = timeline.fold(low[held], high[held], int(high[-1]))
            for columns, new in zip(states, folded, strict=True):
                for column, values in zip(columns, new, strict=True):
                    column[held] = values
        query, code = np.full(len(start), self.query), np.zeros(len(start), np.int64)
        return Closed(query, code, start, start + window.length, states)

    def _first(self, starts: Ints, watermark: int) -> int | None:
        """The first window that holds an event, once it is due."""
        window = self.window
        seen = starts[starts >= window.begin] if window.begin > TS_MIN else starts
        if not len(seen):
            return None
        first = (
            window.offset
            + ((seen.item(0) - window.length - window.offset) // window.slide + 1) * window.slide
        )
        if first < window.begin:
            first += -((first - window.begin) // window.slide) * window.slide
        return int(first) if first + window.length <= watermark else None


def _owed(slices: Ints, begin: int, after: int, window: Periodic) -> Ints:
    """The starts of windows from `begin` to before `after`; of a very long gap only its beginning.

    A jump in time of years would otherwise be reported in more windows than memory holds.
    """
    if (after - begin) // window.slide <= EMPTY_LIMIT:
        return np.arange(begin, after, window.slide)
    first = (slices - window.length - window.offset) // window.slide + 1
    last = (slices - window.offset) // window.slide
    held = np.unique(spread(first, last + 1)) * window.slide + window.offset
    starts = np.union1d(held, np.arange(begin, begin + EMPTY_LIMIT * window.slide, window.slide))
    return starts[(starts >= begin) & (starts < after)]
