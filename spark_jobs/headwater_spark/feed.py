"""From the log to the buckets: what each of them has of a record, as rows.

    bucket, position of the record, kind, payload

A *part* is what a bucket has of a batch; a *change* of the queries goes to all of them; the home bucket gets
each record whole, but for what the others have of it. And every bucket gets a *tick* with every micro-batch:
the watermark behind each record. Spark calls only those that have rows, and windows become final by the
watermark of the tree, whoever has sent something.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from headwater.rows import TS_MIN, Ints
from headwater.share import shares
from headwater_spark.buckets import Buckets
from headwater_wire import partials
from headwater_wire.v1 import log_pb2 as pb

# A watermark that is not set.
UNSET = TS_MIN


class Kind(IntEnum):
    """In the order in which rows of one position are taken."""

    TICK = 0
    CHANGE = 1
    PART = 2
    WHOLE = 3


@dataclass(frozen=True, slots=True)
class Row:
    bucket: int
    position: int
    kind: Kind
    payload: bytes


@dataclass(frozen=True, slots=True)
class Ticks:
    """The watermarks behind the records `first`, `first + 1`..."""

    first: int
    watermarks: Ints

    @property
    def last(self) -> int:
        return self.first + len(self.watermarks) - 1

    def encode(self) -> bytes:
        return self.first.to_bytes(8, "little") + self.watermarks.astype("<i8").tobytes()

    @classmethod
    def decode(cls, data: bytes) -> Ticks:
        return cls(int.from_bytes(data[:8], "little"), np.frombuffer(data, "<i8", offset=8).astype(np.int64))


class Feed:
    """Rows of records, for so many buckets."""

    def __init__(self, buckets: Buckets) -> None:
        self._buckets = buckets

    def ticks(self, ticks: Ticks) -> Iterator[Row]:
        data = ticks.encode()
        return (Row(bucket, ticks.last, Kind.TICK, data) for bucket in self._buckets.ids)

    def rows(self, position: int, data: bytes) -> Iterator[Row]:
        """A record of the log, without the tick."""
        record = pb.LogRecord()
        record.ParseFromString(data)
        kind = record.WhichOneof("body")
        if kind == "changed":
            for bucket in self._buckets.ids:
                yield Row(bucket, position, Kind.CHANGE, data)
        elif kind == "merged" and not record.lane:
            held = shares(partials.decode_sliced(record.merged), self._buckets.of)
            for bucket, partial in held.items():
                yield Row(bucket, position, Kind.PART, partials.encode(partial).SerializeToString())
            others = [part for part in record.merged.parts if part.WhichOneof("part") != "sliced"]
            del record.merged.parts[:]
            record.merged.parts.extend(others)
            data = record.SerializeToString()
        yield Row(self._buckets.home, position, Kind.WHOLE, data)


def encoded(rows: Sequence[Row]) -> bytes:
    """Rows of one bucket as bytes."""
    pieces = []
    for row in rows:
        pieces.append(row.position.to_bytes(8, "little") + bytes((row.kind,)))
        pieces.append(len(row.payload).to_bytes(8, "little") + row.payload)
    return b"".join(pieces)


def decoded(bucket: int, data: bytes) -> Iterator[Row]:
    place = 0
    while place < len(data):
        position = int.from_bytes(data[place : place + 8], "little")
        kind = Kind(data[place + 8])
        begin = place + 17
        place = begin + int.from_bytes(data[place + 9 : begin], "little")
        yield Row(bucket, position, kind, data[begin:place])
