"""A bucket: its share of the windows, as a function of the rows that the log has for it.

It holds no clock and draws nothing, and takes record by record: however the log is cut into micro-batches, a
window is final with the same record, and comes to the same bytes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from headwater.degraded import Degraded
from headwater.machines.lanes import Apart, Lanes
from headwater.machines.records import Changed
from headwater.machines.state import State
from headwater.queries import Query
from headwater.results import Results
from headwater.rows import Ints
from headwater.share import Share, Whole
from headwater_spark.feed import UNSET, Kind, Row, Ticks
from headwater_spark.pieces import OtherState
from headwater_wire import partials, records
from headwater_wire.messages import Codec
from headwater_wire.v1 import partials_pb2

Final = tuple[int, Results]


class Bucket:
    """Up to which record of the log it has come, and its windows."""

    def __init__(self, queries: Sequence[Query], expected: int, apart: Apart, *, home: bool) -> None:
        self.position = 0
        # How many windows of each query, by its number, were final here.
        self.emitted: Counter[int] = Counter()
        self._watermark = UNSET
        # What is cut by time is in lane 0.
        self._lanes = Lanes(queries, apart)
        self._share = Share(queries, serves=self._lanes.serves(0))
        self._whole = State(queries, expected, apart, Whole) if home else None

    @property
    def state(self) -> tuple[object, ...]:
        """All that it is, of objects that a snapshot can hold."""
        return self.position, self.emitted, self._watermark, self._lanes, self._share, self._whole

    @classmethod
    def of(cls, state: tuple[Any, ...]) -> Bucket:
        """A bucket as it was; the state is its own from now on."""
        made = cls.__new__(cls)
        made.position, made.emitted, made._watermark, made._lanes, made._share, made._whole = state
        return made

    @property
    def degraded(self) -> tuple[Degraded, ...]:
        """Queries of which too many windows wait, where these are made here."""
        engines = () if self._whole is None else self._whole.engines.values()
        return tuple(each for engine in engines for each in engine.degraded)

    def take(self, rows: Sequence[Row], codec: Codec) -> list[Final]:
        """The rows of a part of the log, which begins behind the last one; gives what they make final."""
        ordered = sorted(rows, key=lambda row: (row.position, row.kind))
        ticks = Ticks.decode(next(row.payload for row in ordered if row.kind is Kind.TICK))
        if ticks.first != self.position + 1:
            raise OtherState(
                f"a bucket stands at record {self.position}, and is to go on with {ticks.first}: state is "
                "lost; put back the newest copy of the checkpoint"
            )
        found = list(self._taken(ordered, ticks, codec))
        for _, results in found:
            for block in results.blocks:
                numbers, counts = np.unique(block.query, return_counts=True)
                self.emitted.update(dict(zip(numbers.tolist(), counts.tolist(), strict=True)))
        if self._whole is not None:
            for engine in self._whole.engines.values():
                # They are in the log.
                engine.decisions.clear()
        self.position = ticks.last
        return found

    def _taken(self, ordered: Sequence[Row], ticks: Ticks, codec: Codec) -> Iterator[Final]:
        done, share = ticks.first, self._share
        for row in ordered:
            if row.kind is Kind.TICK:
                continue
            yield from self._passed(ticks, done, row.position)
            done = row.position
            if row.kind is Kind.PART:
                message = partials_pb2.Partial()
                message.ParseFromString(row.payload)
                share.take_in(partials.decode_sliced(message))
            elif row.kind is Kind.CHANGE:
                self._change(row, ticks, codec)
                if (results := share.take()).blocks:
                    yield row.position, results
            elif self._whole is not None:
                results = self._whole.apply(row.position, records.decode(row.payload, codec).body)
                if results.blocks:
                    yield row.position, results
        yield from self._passed(ticks, done, ticks.last + 1)
        self._watermark = int(ticks.watermarks[-1])

    def _change(self, row: Row, ticks: Ticks, codec: Codec) -> None:
        """The queries change as the watermark stands before the record."""
        before = row.position - 1
        watermark = self._watermark if before < ticks.first else int(ticks.watermarks[before - ticks.first])
        if watermark > UNSET:
            self._share.pass_by(watermark)
        body = records.decode(row.payload, codec).body
        assert isinstance(body, Changed)
        self._lanes.apply(body.change)
        self._share.apply(body.change)

    def _passed(self, ticks: Ticks, begin: int, end: int) -> Iterator[Final]:
        """What the watermarks behind the records `[begin, end)` make final, record by record."""
        watermarks: Ints = ticks.watermarks
        place, stop = begin - ticks.first, end - ticks.first
        while place < stop:
            place = max(place, int(watermarks.searchsorted(max(self._share.next, UNSET + 1))))
            if place >= stop:
                return
            self._share.pass_by(int(watermarks[place]))
            if (results := self._share.take()).blocks:
                yield ticks.first + place, results
            place += 1
