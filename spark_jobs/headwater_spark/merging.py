"""The merging in Spark: one bucket, one key of a stateful operator.

It is called with the rows of a micro-batch and gives one row: the windows that they have made final. What a
bucket comes to lies in Spark's state, in pieces; a worker that had the bucket last has it in memory too, and
takes only what it has not seen.
"""

from __future__ import annotations

import json
import logging
import os
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from pyspark.sql import Row as SparkRow
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from headwater.machines.lanes import shared
from headwater.queries import Query
from headwater.topology import queries_of
from headwater_root.snapshots import Snapshots, Unreadable, Unwritable
from headwater_spark import finals
from headwater_spark.bucket import Bucket
from headwater_spark.feed import Kind, Row, decoded, encoded
from headwater_spark.pieces import OtherState, Pieces
from headwater_spark.reach import Nonce
from headwater_wire import failpoints
from headwater_wire.functions import Functions
from headwater_wire.messages import Codec

SCHEMA = "bucket int, first long, last long, finals binary, emitted string, degraded string"
# How many buckets a worker keeps in memory.
KEPT = 64
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Job:
    """What the buckets have to know from the beginning."""

    # Of the checkpoint: what a worker remembers of another one is not this one's.
    id: str
    # The queries at first, as documents.
    queries: str
    expected: int
    home: int


class Merging(StatefulProcessor):
    """Calls `Bucket` with what Spark has for it."""

    def __init__(self, job: Job, nonce: Nonce | None = None) -> None:
        """With executors of their own there is a nonce in the checkpoint."""
        self._job, self._nonce = job, nonce

    def init(self, handle: StatefulProcessorHandle) -> None:
        # A task that ends here has not written any state.
        if self._nonce is not None:
            self._nonce.check()
        # Sums beyond float64 are infinite, as results say.
        np.seterr(over="ignore", invalid="ignore")
        state = handle.getMapState("pieces", "kind string, number long", "value binary")
        self._store = _MapStore(state)

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:
        id = int(key[0])
        given = [Row(id, row.position, Kind(row.kind), bytes(row.payload)) for row in rows]
        given.sort(key=lambda row: row.kind)
        pieces, programs = Pieces(self._store), _programs(self._job)
        bucket = self._bucket(id, pieces, programs)
        first = bucket.position + 1
        found = finals.packed(bucket.take(given, programs.codec))
        failpoints.reached("spark.merging")
        pieces.append(bucket.position, encoded(given))
        if pieces.is_long:
            try:
                pieces.replace(bucket.position, programs.snapshots.encode(bucket.state))
            except Unwritable as error:
                log.warning("the state of a bucket cannot be shortened: %s", error)
                pieces.defer()
        _keep(self._job.id, id, bucket)
        yield SparkRow(
            bucket=id,
            first=first,
            last=bucket.position,
            finals=found,
            emitted=json.dumps(bucket.emitted),
            degraded=json.dumps([asdict(each) for each in bucket.degraded]),
        )
        failpoints.reached("spark.state")

    def close(self) -> None:
        """Nothing is held that would have to be let go."""

    def _bucket(self, id: int, pieces: Pieces, programs: _Programs) -> Bucket:
        """As it was behind the last micro-batch."""
        position = pieces.head.position
        kept = _KEPT.pop((self._job.id, id), None)
        if kept is not None and kept.position == position:
            return kept
        if kept is not None and pieces.head.base_position <= kept.position < position:
            made = kept
        else:
            made = self._from_base(id, pieces, programs)
        for rows in _batches(id, pieces.tail()):
            last = next(row.position for row in rows if row.kind is Kind.TICK)
            if last > made.position:
                made.take(rows, programs.codec)
        if made.position != position:
            raise OtherState(f"bucket {id} stands at record {made.position} instead of {position}")
        return made

    def _from_base(self, id: int, pieces: Pieces, programs: _Programs) -> Bucket:
        if pieces.head.base:
            try:
                return Bucket.of(programs.snapshots.decode(pieces.base()))
            except Unreadable as error:
                raise OtherState(
                    f"the checkpoint cannot be read ({error}); start the release that wrote it, with the "
                    "functions that it had, or begin anew in another directory"
                ) from error
        return Bucket(programs.queries, self._job.expected, shared, home=id == self._job.home)


class _MapStore:
    """Spark's map state as a store of pieces."""

    def __init__(self, state: Any) -> None:
        self._state = state

    def get(self, kind: str, number: int) -> bytes | None:
        found = self._state.getValue((kind, number))
        return None if found is None else bytes(found[0])

    def put(self, kind: str, number: int, value: bytes) -> None:
        self._state.updateValue((kind, number), (value,))

    def drop(self, kind: str, number: int) -> None:
        self._state.removeKey((kind, number))


@dataclass(frozen=True)
class _Programs:
    """What a worker needs beside the state, made once for each process."""

    queries: tuple[Query, ...]
    codec: Codec
    snapshots: Snapshots


@lru_cache(maxsize=2)
def _programs(job: Job) -> _Programs:
    failpoints.arm(os.environ)
    functions = Functions()
    queries = queries_of(json.loads(job.queries), functions)
    return _Programs(queries, Codec(functions), Snapshots(queries, functions, shared))


_KEPT: OrderedDict[tuple[str, int], Bucket] = OrderedDict()


def _keep(job: str, id: int, bucket: Bucket) -> None:
    _KEPT[job, id] = bucket
    while len(_KEPT) > KEPT:
        _KEPT.popitem(last=False)


def _batches(id: int, data: bytes) -> Iterator[list[Row]]:
    """The rows of each micro-batch; each begins with its tick."""
    rows: list[Row] = []
    for row in decoded(id, data):
        if row.kind is Kind.TICK and rows:
            yield rows
            rows = []
        rows.append(row)
    if rows:
        yield rows
