"""Which windows end up to a watermark: laid out ahead for a dense stream, found by the data otherwise."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

import numpy as np

from headwater.rows import TS_MIN, Array, Ints
from headwater.slicing.edges import FAR, Periodic
from headwater.windows import TS_LIMIT

AHEAD = 2_048
# Above this many windows that are mostly empty, looking at the data is the cheaper way.
MANY = 65_536
BLOCK = 1 << 20
# Behind every window that an event can be in.
FOREVER = TS_LIMIT + TS_LIMIT // 2

Due = tuple[Array, Ints, Ints]


class Closings:
    """The ends of periodic windows in order; `due` hands out each window once."""

    def __init__(self, windows: Sequence[tuple[int, Periodic]], after: int = TS_MIN) -> None:
        """Windows that end at or before `after` are not handed out."""
        self._query = np.array([query for query, _ in windows], np.int32)
        self._length = np.array([window.length for _, window in windows], np.int64)
        self._slide = np.array([window.slide for _, window in windows], np.int64)
        self._offset = np.array([window.offset for _, window in windows], np.int64)
        self._begin = np.array([max(window.begin, -FOREVER) for _, window in windows], np.int64)
        self._end = np.array([min(window.end, FOREVER) for _, window in windows], np.int64)
        rate = float((1.0 / self._slide).sum()) if windows else 0.0
        self._rate = rate
        self._each = float((self._length / self._slide + 1.0).sum()) if windows else 0.0
        # A stretch costs by the query and by the window: many queries look further ahead.
        ahead = max(AHEAD, 8 * len(windows))
        self._step = min(max(int(ahead / rate), 1), FAR) if rate else FAR
        self.longest = int(self._length.max()) if windows else 0
        self._ends: Ints = np.empty(0, np.int64)
        self._starts: Ints = self._ends
        self._queries: Array = np.empty(0, np.int32)
        # The same ends as a list, to look one up in.
        self._listed: list[int] = []
        self._at = 0
        self._laid_to = after
        # No window ends before this time: the one comparison that most batches need.
        self.next = after

    def due(self, watermark: int, slices: Ints) -> Due:
        """Windows that end at or before the watermark and were not handed out, by end and query.

        Windows that hold none of the slices (sorted starts) may be among them or left out.
        """
        found: list[Due] = []
        while self._laid_to <= watermark:
            found.append((self._queries[self._at :], self._starts[self._at :], self._ends[self._at :]))
            self._at = len(self._ends)
            if not self._lay_next(watermark, slices, found):
                break
        else:
            upto = bisect_right(self._listed, watermark, self._at)
            if upto > self._at:
                here = slice(self._at, upto)
                found.append((self._queries[here], self._starts[here], self._ends[here]))
                self._at = upto
        self.next = self._listed[self._at] if self._at < len(self._listed) else self._laid_to
        if len(found) == 1:
            return found[0]
        found = [due for due in found if len(due[0])]
        if len(found) == 1:
            return found[0]
        if not found:
            return self._queries[:0], self._starts[:0], self._ends[:0]
        return (
            np.concatenate([due[0] for due in found]),
            np.concatenate([due[1] for due in found]),
            np.concatenate([due[2] for due in found]),
        )

    def _lay_next(self, watermark: int, slices: Ints, found: list[Due]) -> bool:
        """Lay out the next stretch of ends; False once nothing more can end by the watermark."""
        low = self._laid_to
        # Windows up to `low` are done: only data that reaches into a later one matters.
        place = int(slices.searchsorted(low - self.longest, "right")) if low > TS_MIN else 0
        if place >= len(slices):
            self._clear(max(watermark, low))
            return False
        # Skip what is empty, but never beyond the watermark: data may still come from there on.
        low = max(low, min(int(slices[place]), watermark))
        reach = min(watermark, int(slices[-1]) + self.longest) - low
        if reach * self._rate > MANY and reach * self._rate > 4 * (len(slices) - place) * self._each:
            found.append(self._by_data(slices[place:], low, watermark))
            self._clear(watermark)
            return False
        high = low + self._step
        # Window k ends at offset + k * slide + length; starts stay within the query's own time.
        first = np.maximum(
            (low - self._length - self._offset) // self._slide + 1,
            -((self._offset - self._begin) // self._slide),
        )
        last = np.minimum(
            (high - self._length - self._offset) // self._slide,
            -((self._offset - self._end) // self._slide) - 1,
        )
        counts = np.maximum(last - first + 1, 0)
        steps = np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts, counts)
        starts = np.repeat(self._offset + first * self._slide, counts) + steps * np.repeat(
            self._slide, counts
        )
        ends = starts + np.repeat(self._length, counts)
        order = np.argsort(ends, kind="stable")
        self._ends, self._starts = ends[order], starts[order]
        self._queries = np.repeat(self._query, counts)[order]
        self._listed = self._ends.tolist()
        self._at, self._laid_to = 0, high
        return True

    def _clear(self, laid_to: int) -> None:
        """Nothing is laid out, and nothing ends up to a time."""
        self._ends, self._starts, self._queries = self._ends[:0], self._starts[:0], self._queries[:0]
        self._listed, self._at, self._laid_to = [], 0, laid_to

    def _by_data(self, slices: Ints, low: int, high: int) -> Due:
        """Windows that hold a slice and end in `(low, high]`."""
        found: list[Due] = []
        rows = max(BLOCK // max(len(self._query), 1), 1)
        done = np.full(len(self._query), -FOREVER, np.int64)
        for place in range(0, len(slices), rows):
            block = slices[place : place + rows, None]
            last = (block - self._offset) // self._slide
            first = (block - self._length - self._offset) // self._slide + 1
            first = np.maximum(first, (low - self._length - self._offset) // self._slide + 1)
            first = np.maximum(first, -((self._offset - self._begin) // self._slide))
            last = np.minimum(last, (high - self._length - self._offset) // self._slide)
            last = np.minimum(last, -((self._offset - self._end) // self._slide) - 1)
            # Each window once: behind what an earlier slice has opened.
            reached = np.maximum.accumulate(np.vstack((done, last)), axis=0)
            first = np.maximum(first, reached[:-1] + 1)
            done = reached[-1]
            counts = np.maximum(last - first + 1, 0).ravel()
            steps = np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts, counts)
            query = np.repeat(np.tile(np.arange(len(self._query)), len(block)), counts)
            starts = self._offset[query] + (np.repeat(first.ravel(), counts) + steps) * self._slide[query]
            found.append((query, starts, starts + self._length[query]))
        query = np.concatenate([due[0] for due in found])
        starts = np.concatenate([due[1] for due in found])
        ends = np.concatenate([due[2] for due in found])
        order = np.lexsort((query, ends))
        return self._query[query[order]], starts[order], ends[order]
