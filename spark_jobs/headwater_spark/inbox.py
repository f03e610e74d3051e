"""The inbox: the root's log as Spark reads it, by position and in bounded portions.

It knows of each record that Spark has not done with how long it is, and the watermark before it. Threads may
ask while another one appends.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from time import monotonic

import numpy as np

from headwater.rows import Ints
from headwater_root.log import Log
from headwater_spark.feed import UNSET
from headwater_wire.v1 import log_pb2 as pb

# A part of a micro-batch that is read on its own has so many bytes at least.
PART = 2 << 20
# How often it is looked whether there is room again, in seconds.
LOOK = 0.05


class Inbox:
    """Records behind a position; those that Spark has done with are forgotten."""

    def __init__(
        self,
        log: Log,
        start: int,
        watermark: Callable[[], int | None],
        full: Callable[[], bool] = lambda: False,
    ) -> None:
        """`start` is what Spark has done with; `watermark` is that of now. While it is `full` where results
        go, there is nothing to be done."""
        self._log, self._now, self._full = log, watermark, full
        self._start = start
        self._sizes: list[int] = []
        self._before: list[int] = []
        self.bytes = 0
        self._changed = threading.Condition()
        self._closed = False
        for _, data in log.read(start):
            record = pb.LogRecord()
            record.ParseFromString(data)
            self._add(len(data), record.watermark if record.HasField("watermark") else None)

    def _add(self, size: int, watermark: int | None) -> None:
        self._sizes.append(size)
        self._before.append(UNSET if watermark is None else watermark)
        self.bytes += size

    @property
    def finished(self) -> int:
        """What Spark has done with for good."""
        return self._start

    @property
    def records(self) -> int:
        """How many Spark has not done with."""
        return len(self._sizes)

    def appended(self, size: int, watermark: int | None) -> None:
        """A record was appended, and the watermark before it; it can be asked for once it is committed."""
        with self._changed:
            self._add(size, watermark)

    def committed(self) -> None:
        """More is durable than before."""
        with self._changed:
            self._changed.notify_all()

    def close(self) -> None:
        """Nobody waits any longer."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def reach(self, after: int, size: int, wait: float) -> tuple[int, int | None]:
        """The last record of at most so many bytes behind one, and the watermark behind that; the same record
        if in so many seconds there is none."""
        until = monotonic() + wait
        with self._changed:
            while (full := self._full()) or self._log.committed <= after:
                left = until - monotonic()
                if left <= 0 or self._closed:
                    break
                # Nobody tells when there is room again.
                self._changed.wait(min(left, LOOK) if full else left)
            if full:
                return after, self._behind(after)
            last = min(self._log.committed, self._start + len(self._sizes))
            place, taken = after - self._start, 0
            while self._start + place < last:
                taken += self._sizes[place]
                if taken > size > 0 and self._start + place > after:
                    break
                place += 1
            position = self._start + place
            return position, self._behind(position)

    def _behind(self, position: int) -> int | None:
        # In this order: who appends another record tells so before the watermark rises by it.
        now = self._now()
        place = position - self._start
        if place < len(self._before):
            now = self._before[place]
        return None if now is None or now == UNSET else now

    def plan(self, first: int, last: int, parts: int) -> tuple[list[int], Ints]:
        """The last record of each of at most so many parts of a range, and the watermark behind each record
        but the last."""
        with self._changed:
            begin, end = first - self._start - 1, last - self._start
            sizes = np.array(self._sizes[begin:end], np.int64)
            watermarks = np.array(self._before[begin + 1 : end], np.int64)
        total = np.cumsum(sizes)
        parts = max(min(parts, int(total[-1]) // PART), 1)
        wanted = np.arange(1, parts + 1) * (total[-1] / parts)
        places = np.minimum(np.searchsorted(total, wanted), len(total) - 1)
        places[-1] = len(total) - 1
        return (first + np.unique(places)).tolist(), watermarks

    def read(self, first: int, last: int) -> Iterator[bytes]:
        for position, data in self._log.read(first - 1):
            yield data
            if position == last:
                return

    def finish(self, position: int) -> None:
        """Spark never asks for records up to this one again."""
        with self._changed:
            gone = position - self._start
            if gone > 0:
                self.bytes -= sum(self._sizes[:gone])
                del self._sizes[:gone], self._before[:gone]
                self._start = position
