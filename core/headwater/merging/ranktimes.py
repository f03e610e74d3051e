"""The times of the first and the last event of slices of ranks; windows by rank are reported with them."""

from __future__ import annotations

import numpy as np

from headwater.rows import TS_MIN, Ints, Rows

# Rows at first: there may be a stream of ranks for each key.
ROOM = 8


class RankTimes:
    """Rows `(start, first, last)` in the order of ranks, one a slice."""

    def __init__(self, known_from: int = 0) -> None:
        """Of ranks before `known_from` no time is known: a release before has counted them."""
        self._known_from = known_from
        self._start: Ints = np.empty(ROOM, np.int64)
        self._first: Ints = np.empty(ROOM, np.int64)
        self._last: Ints = np.empty(ROOM, np.int64)
        self._size = 0

    def add_one(self, start: int, rows: Rows) -> None:
        """All rows belong to the slice that begins at this rank: to the last one, or the next."""
        if rows.in_order:
            ends = rows.times_at(np.array((0, len(rows) - 1)))
            first, last = ends.item(0), ends.item(1)
        else:
            first, last = int(rows.ts.min()), int(rows.ts.max())
        row = self._size - 1
        if row >= 0 and self._start.item(row) == start:
            # Rows leave in the order of time, but for those of one slice.
            self._first[row] = min(self._first.item(row), first)
            self._last[row] = max(self._last.item(row), last)
            return
        self._append(np.array((start,)), np.array((first,)), np.array((last,)))

    def add(self, starts: Ints, rows: Rows, places: Ints) -> None:
        """The slices that begin at these ranks have the rows from these places on."""
        if rows.in_order:
            first = rows.times_at(places)
            last = rows.times_at(np.append(places[1:], len(rows)) - 1)
        else:
            first, last = np.minimum.reduceat(rows.ts, places), np.maximum.reduceat(rows.ts, places)
        row = self._size - 1
        if row >= 0 and self._start.item(row) == starts.item(0):
            self._first[row] = min(self._first.item(row), first.item(0))
            self._last[row] = max(self._last.item(row), last.item(0))
            starts, first, last = starts[1:], first[1:], last[1:]
        self._append(starts, first, last)

    def between(self, start: Ints, end: Ints) -> tuple[Ints, Ints]:
        """The times of the first and the last event of windows; TS_MIN for one that is not known."""
        starts = self._start[: self._size]
        begin, final = starts.searchsorted(start), starts.searchsorted(end) - 1
        first = self._first[begin.clip(max=self._size - 1)]
        is_first_known = (start >= self._known_from) & (begin < self._size)
        # Before the first row there are only events that a release before has counted.
        return np.where(is_first_known, first, TS_MIN), np.where(final >= 0, self._last[final], TS_MIN)

    def trim(self, before: int) -> None:
        """Forget slices that begin before a rank."""
        # Most of the time there are few, and moving them costs more than they do.
        if self._size > 16 and self._start.item(self._size // 2) < before:
            begin = int(self._start[: self._size].searchsorted(before))
            kept = self._size - begin
            for column in (self._start, self._first, self._last):
                column[:kept] = column[begin : self._size].copy()
            self._size = kept

    def _append(self, starts: Ints, first: Ints, last: Ints) -> None:
        size = self._size + len(starts)
        if size > len(self._start):
            more = np.empty(2 * size - self._size, np.int64)
            self._start, self._first, self._last = (
                np.concatenate((column[: self._size], more))
                for column in (self._start, self._first, self._last)
            )
        here = slice(self._size, size)
        self._start[here], self._first[here], self._last[here] = starts, first, last
        self._size = size
