"""The inbox as a streaming source of Spark.

An offset is a position of the log and the watermark behind it: both are functions of the log alone, so a
micro-batch that is repeated reads the same. The planner's calls run in a process beside the driver, `read` in
the executors' Python workers.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxBytes

from headwater_spark.buckets import Buckets
from headwater_spark.feed import UNSET, Feed, Row, Ticks
from headwater_spark.service import Client

NAME = "headwater_inbox"
SCHEMA = "bucket int, position long, kind int, payload binary"
_COLUMNS: dict[str, Any] = {
    "bucket": pa.int32(),
    "position": pa.int64(),
    "kind": pa.int32(),
    "payload": pa.binary(),
}
_ARROW = pa.schema(_COLUMNS)
# How long the planner waits for a first record, in seconds.
WAIT = 1.0
# Rows are handed on when they come to so many bytes.
_BATCH = 4 << 20
Offset = dict[str, Any]
log = logging.getLogger(__name__)


@dataclass
class Part(InputPartition):
    """Records of the log; the first part of a micro-batch has the ticks of all of it."""

    first: int
    last: int
    ticks: bytes = b""


class InboxSource(DataSource):
    """Options: `address` and `token` of the inbox, its `ca` if it has a certificate, `buckets`, `bytes` of a
    micro-batch, `parts` of it."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> str:
        return SCHEMA

    def streamReader(self, schema: object) -> InboxReader:
        return InboxReader(dict(self.options))


class InboxReader(DataSourceStreamReader):
    """What Spark asks of a source."""

    def __init__(self, options: dict[str, str]) -> None:
        self._address, self._token, self._ca = options["address"], options["token"], options["ca"]
        self._bytes, self._parts = int(options["bytes"]), int(options["parts"])
        self._buckets = int(options["buckets"])

    @property
    def _inbox(self) -> Client:
        return _client(self._address, self._token, self._ca)

    def initialOffset(self) -> Offset:
        return {"position": 0, "watermark": UNSET}

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxBytes(self._bytes)

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        bound = 0 if isinstance(limit, ReadAllAvailable) else self._bytes
        try:
            position, watermark = self._inbox.reach(start["position"], bound, WAIT)
        # Whatever it is: what is raised here ends the query, and there is another time.
        except Exception:
            log.exception("the inbox cannot be asked")
            return start
        if position == start["position"]:
            return start
        return {"position": position, "watermark": UNSET if watermark is None else watermark}

    def partitions(self, start: Offset, end: Offset) -> list[Part]:
        first, last = start["position"] + 1, end["position"]
        if last < first:
            return []
        lasts, watermarks = self._inbox.plan(first, last, self._parts)
        ticks = Ticks(first, np.array([*watermarks, end["watermark"]], np.int64)).encode()
        begins = [first, *(each + 1 for each in lasts[:-1])]
        return [
            Part(begin, until, ticks if begin == first else b"")
            for begin, until in zip(begins, lasts, strict=True)
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Part)
        feed = Feed(_buckets(self._buckets))
        rows: list[Row] = []
        if partition.ticks:
            rows += feed.ticks(Ticks.decode(partition.ticks))
        size = 0
        for position, data in self._inbox.read(partition.first, partition.last):
            rows += feed.rows(position, data)
            size += len(data)
            if size > _BATCH:
                yield _batch(rows)
                rows, size = [], 0
        if rows:
            yield _batch(rows)

    def commit(self, end: Offset) -> None:
        try:
            self._inbox.finish(end["position"])
        except Exception:
            # It frees records; the next one frees these too.
            log.exception("the inbox cannot be told")


def _batch(rows: list[Row]) -> pa.RecordBatch:
    columns: list[list[Any]] = [
        [row.bucket for row in rows],
        [row.position for row in rows],
        [int(row.kind) for row in rows],
        [row.payload for row in rows],
    ]
    return pa.RecordBatch.from_arrays(
        [pa.array(column, field.type) for column, field in zip(columns, _ARROW, strict=True)], schema=_ARROW
    )


@lru_cache(maxsize=4)
def _client(address: str, token: str, ca: str) -> Client:
    """One for each process."""
    return Client(address, token, ca)


@lru_cache(maxsize=4)
def _buckets(count: int) -> Buckets:
    return Buckets(count)
