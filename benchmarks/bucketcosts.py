"""What each bucket of the Spark root costs, without Spark: what a larger cluster could do at most."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter

import numpy as np

from headwater.machines.lanes import shared
from headwater.machines.state import State
from headwater.queries import Query
from headwater.windowless import Windowless
from headwater_spark import finals
from headwater_spark.bucket import Bucket
from headwater_spark.buckets import Buckets
from headwater_spark.feed import UNSET, Feed, Row, Ticks, encoded
from headwater_wire import records
from headwater_wire.messages import Codec
from rootload import CHILDREN, Bench


async def logged(queries: Sequence[Query], slices: int) -> tuple[list[tuple[bytes, int]], float]:
    """Batches as they lie in the log, each with the watermark behind it; and what the driver spends on
    them."""
    bench = Bench(queries, spark=None, keys=1_000)
    codec, found = Codec(), []
    state = State(queries, CHILDREN, shared, Windowless)
    bench.root._keep = True
    try:
        await bench.start()
        await bench.run(slices, 0.0)
        data = [record for _, record in bench.root.log.read(0)]
    finally:
        await bench.stop()
    spent = 0.0
    for position, record in enumerate(data, 1):
        begin = perf_counter()
        # It comes as a message, is checked and taken, and goes into the log.
        read = records.decode(record, codec)
        state.apply(position, read.body)
        records.encode(read)
        spent += perf_counter() - begin
        watermark = state.engine.watermark
        found.append((record, UNSET if watermark is None else watermark))
    return found, spent


@dataclass
class Costs:
    feed: float
    buckets: list[float]


def bucket_costs(queries: Sequence[Query], given: Sequence[tuple[bytes, int]], count: int) -> Costs:
    """Seconds for all records: to part them, and in each bucket."""
    buckets, codec = Buckets(count), Codec()
    feed = Feed(buckets)
    held = {id: Bucket(queries, CHILDREN, shared, home=id == buckets.home) for id in buckets.ids}
    spent, parting = dict.fromkeys(held, 0.0), 0.0
    # As many records as in a micro-batch of a second.
    for first in range(0, len(given), 20):
        portion = given[first : first + 20]
        begin = perf_counter()
        watermarks = np.array([watermark for _, watermark in portion], np.int64)
        rows = list(feed.ticks(Ticks(first + 1, watermarks)))
        for position, (data, _) in enumerate(portion, first + 1):
            rows += feed.rows(position, data)
        parting += perf_counter() - begin
        mine: dict[int, list[Row]] = {id: [] for id in held}
        for row in rows:
            mine[row.bucket].append(row)
        for id, bucket in held.items():
            begin = perf_counter()
            finals.packed(bucket.take(mine[id], codec))
            encoded(mine[id])
            spent[id] += perf_counter() - begin
    return Costs(parting, list(spent.values()))
