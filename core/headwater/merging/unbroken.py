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

# How many empty windows in a row are reported, at most: a jump in time of years would otherwise be
# reported in more windows than memory holds.
EMPTY_LIMIT = 100_000


@dataclass(slots=True)
class Unbroken:
    """One such query: the next window that it owes, and the last one with events that it has reported."""

    query: int
    window: Periodic
    next: int | None = None
    last: int = TS_MIN

    def due(self, timeline: Timeline, operators: Sequence[Operator], watermark: int) -> Closed | None:
        """The windows that end up to the watermark and were not handed out."""
        starts, window = timeline.starts, self.window
        if self.next is None:
            self.next = self._first(starts, watermark)
            if self.next is None:
                return None
            self.last = self.next
        until = min(watermark - window.length, window.end - 1)
        if watermark >= FOREVER:
            # At the end of everything the last event is in the last window.
            until = min(until, starts.item(len(starts) - 1) if len(starts) else TS_MIN)
        if until < self.next:
            return None
        after = until - (until - self.next) % window.slide + window.slide
        start = self._owed(starts, self.next, after)
        self.next = after
        if not len(start):
            return None
        low, high = timeline.between(start, np.minimum(start + window.length, window.end))
        states = [operator.empty(len(start)) for operator in operators]
        held = np.flatnonzero(high > low)
        if len(held):
            self.last = start.item(held.item(len(held) - 1))
            folded = timeline.fold(low[held], high[held], int(high[-1]))
            for columns, new in zip(states, folded, strict=True):
                for column, values in zip(columns, new, strict=True):
                    column[held] = values
        query, code = np.full(len(start), self.query), np.zeros(len(start), np.int64)
        return Closed(query, code, start, start + window.length, states)

    def _first(self, starts: Ints, watermark: int) -> int | None:
        """The first window that holds an event, once it is due."""
        window = self.window
        seen = starts[(starts >= window.begin) & (starts < window.end)]
        if not len(seen):
            return None
        first = (
            window.offset
            + ((seen.item(0) - window.length - window.offset) // window.slide + 1) * window.slide
        )
        if first < window.begin:
            first += -((first - window.begin) // window.slide) * window.slide
        return int(first) if first + window.length <= watermark else None

    def _owed(self, slices: Ints, begin: int, after: int) -> Ints:
        """The starts of windows from `begin` to before `after` that are reported."""
        window, reach = self.window, EMPTY_LIMIT * self.window.slide
        if after - self.last <= reach:
            return np.arange(begin, after, window.slide)
        # Each window with events, and those behind it up to the limit or the next one with events.
        seen = slices[(slices >= window.begin) & (slices < window.end)]
        first = (seen - window.length - window.offset) // window.slide + 1
        last = (seen - window.offset) // window.slide
        held = np.unique(spread(first, last + 1)) * window.slide + window.offset
        anchors = np.union1d(held[(held >= begin) & (held < after)], [self.last])
        ends = np.minimum(np.append(anchors[1:], after), anchors + reach + window.slide)
        begins = np.maximum(anchors, begin)
        counts = np.maximum(-((begins - ends) // window.slide), 0)
        return (
            np.repeat(begins - (np.cumsum(counts) - counts) * window.slide, counts)
            + np.arange(int(counts.sum())) * window.slide
        )
