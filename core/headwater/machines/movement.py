"""When the watermark and each source last moved, by the clock of the root's process.

Lag that is measured against events alone stops growing when nothing comes; this does not. A look costs some
milliseconds at 20,000 sources and is taken once a second. Nothing here is logged.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from headwater.progress import Source
from headwater.rows import TS_MIN

# Microseconds between two looks.
INTERVAL = 1_000_000
# A source whose events are older than the newest one by more is late, in microseconds.
LATE = 5_000_000
# With less than this share of the expected sources, far fewer are there than should be.
FEW = 0.5


class Movement:
    """Times in microseconds of the clock that is passed in."""

    def __init__(self) -> None:
        self._looked: int | None = None
        self._watermark: int | None = None
        # When the watermark moved last, or when it was first looked at; None: it was not yet.
        self.watermark_moved: int | None = None
        # Since when far fewer sources are live than are expected; None: they are not.
        self.short_since: int | None = None
        self.live = 0
        # By the code of a source: its position, and when that was first seen.
        self._positions = np.empty(0, np.int64)
        self._moved = np.empty(0, np.int64)
        # By code too: since when its events are older than those of others by `LATE`; 0: they are not.
        self._late = np.empty(0, np.int64)
        # Of the sources that are waited for: codes, and how far each lets the watermark come.
        self.codes = np.empty(0, np.int64)
        self.lows = np.empty(0, np.int64)

    def is_due(self, now: int) -> bool:
        return self._looked is None or now - self._looked >= INTERVAL

    def look(
        self, present: Sequence[Source], watermark: int | None, newest: int, expected: int, now: int
    ) -> None:
        """See what has moved; `present` are the sources that are not retired, `newest` is the latest event
        time."""
        self._looked = now
        if self.watermark_moved is None or watermark != self._watermark:
            self._watermark, self.watermark_moved = watermark, now
        live = [source for source in present if not source.idle]
        count = len(live)
        codes = np.fromiter((source.code for source in live), np.int64, count)
        positions = np.fromiter((source.position for source in live), np.int64, count)
        lows = (max(source.largest - source.lateness, TS_MIN) for source in live)
        self.codes, self.lows = codes, np.fromiter(lows, np.int64, count)
        largest = np.fromiter((source.largest for source in live), np.int64, count)
        self._grow(int(codes.max(initial=-1)) + 1)
        moved = codes[positions != self._positions[codes]]
        self._moved[moved] = now
        self._positions[codes] = positions
        late = largest < max(newest - LATE, TS_MIN)
        since = self._late[codes]
        self._late[codes] = np.where(late, np.where(since > 0, since, now), 0)
        self.live = count
        if count >= max(FEW * expected, 1):
            self.short_since = None
        elif self.short_since is None:
            self.short_since = now

    def _grow(self, size: int) -> None:
        missing = size - len(self._positions)
        if missing > 0:
            # At least twice as much, so that many that come one by one do not copy all each time.
            missing = max(missing, len(self._positions))
            self._positions = np.concatenate([self._positions, np.full(missing, -1, np.int64)])
            self._moved = np.concatenate([self._moved, np.zeros(missing, np.int64)])
            self._late = np.concatenate([self._late, np.zeros(missing, np.int64)])

    def moved(self, code: int) -> int:
        """When a source that is live last moved."""
        return int(self._moved[code])

    def has_moved(self, code: int, since: int) -> bool:
        """Whether a source has moved after a time; False where it was not looked at yet."""
        return code < len(self._moved) and self.moved(code) > since

    def late_since(self, code: int) -> int:
        """Since when the events of a source are older than those of others; 0: they are not."""
        return int(self._late[code])

    def slowest(self, count: int, unmoved_since: int) -> tuple[list[int], int]:
        """Codes of the sources that hold the watermark furthest back, worst first, and how many there are:
        those that have not moved since a time, or whose events have been old since then."""
        late = self._late[self.codes]
        holds = (self._moved[self.codes] <= unmoved_since) | ((late > 0) & (late <= unmoved_since))
        codes, lows = self.codes[holds], self.lows[holds]
        found = len(codes)
        if found > count:
            lowest = np.argpartition(lows, count)[:count]
            codes, lows = codes[lowest], lows[lowest]
        return codes[np.lexsort((codes, lows))].tolist(), found
