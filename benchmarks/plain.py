"""The same windows by plain Spark: raw events into Structured Streaming's own window aggregation.

One streaming query has all of it: a branch for each length of windows, and every aggregate in each group.
Events lie in Parquet files, one for each second; `paced`, a file appears when its second is over.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import reduce
from pathlib import Path
from time import perf_counter, sleep, time
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame
from pyspark.sql import functions as of

from headwater_spark import session as sessions

SECOND = 1_000_000
Usage = Callable[[], dict[str, float]]


@dataclass
class Done:
    seconds: float
    events: int
    bytes: int
    windows: int = 0
    # Of each window, from when a file had an event behind its end to when it was given out.
    latencies: list[float] = field(default_factory=list)
    cpu: float = 0.0


def written(directory: Path, seconds: int, children: int, events: int, keys: int) -> int:
    """Files of so many seconds, with so many events of each child in every 100 ms; gives their bytes."""
    rng = np.random.default_rng(7)
    directory.mkdir(parents=True)
    size = 0
    for second in range(seconds):
        count = children * events * 10
        ts = second * SECOND + np.sort(rng.integers(0, SECOND, count))
        columns = {
            "source": pa.array(rng.integers(0, children, count).astype(np.int32)),
            "ts": pa.array(ts, pa.timestamp("us", tz="UTC")),
            "key": pa.DictionaryArray.from_arrays(
                rng.integers(0, keys, count).astype(np.int32), pa.array([f"key-{n}" for n in range(keys)])
            ).cast(pa.string()),
            "value": pa.array(rng.integers(0, 1_000, count).astype(float)),
        }
        path = directory / f"{second:06}.parquet"
        pq.write_table(pa.table(columns), path)
        size += path.stat().st_size
    return size


def run(
    files: Path, scratch: Path, lengths: Sequence[int], cpu: Usage, *, paced: bool, master: str = "local[2]"
) -> Done:
    """All files through one streaming query, with windows of these lengths in seconds."""
    watched = scratch / "watched"
    watched.mkdir(parents=True)
    held = sorted(files.glob("*.parquet"))
    done = Done(0.0, sum(pq.read_metadata(path).num_rows for path in held), 0)
    appeared: dict[int, float] = {}
    if not paced:
        for path in held:
            shutil.copy(path, watched / path.name)
    with sessions.running("plain", scratch / "spark", master=master, streaming=True, partitions=4) as spark:
        schema = spark.read.parquet(str(files)).schema
        events = spark.readStream.schema(schema).parquet(str(watched))
        query = _windows(events, lengths).writeStream.outputMode("append")
        taken = _Taken(done, appeared)
        query = query.foreachBatch(taken).option("checkpointLocation", str(scratch / "checkpoint"))
        query = query.trigger(processingTime="0 seconds") if paced else query.trigger(availableNow=True)
        before, begin = sum(cpu().values()), perf_counter()
        running = query.start()
        if paced:
            _put(held, watched, appeared)
            running.processAllAvailable()
            running.stop()
        running.awaitTermination()
        done.seconds = perf_counter() - begin
        done.cpu = sum(cpu().values()) - before
    return done


def _windows(events: DataFrame, lengths: Sequence[int]) -> DataFrame:
    marked = events.withWatermark("ts", "0 seconds")
    # Spark's window has one length: there is a branch for each.
    each = [
        marked.select(
            of.window("ts", f"{length} seconds").alias("window"),
            of.lit(length).alias("length"),
            "key",
            "value",
        )
        for length in lengths
    ]
    grouped = reduce(DataFrame.union, each).groupBy("window", "length", "key").agg(*_aggregates())
    return grouped.withColumn("end", of.unix_micros("window.end"))


def _aggregates() -> list[Any]:
    return [
        of.avg("value").alias("avg"),
        of.max("value").alias("max"),
        of.min("value").alias("min"),
        of.sum("value").alias("sum"),
        of.count("value").alias("count"),
    ]


class _Taken:
    """What comes out, as it comes out."""

    def __init__(self, done: Done, appeared: dict[int, float]) -> None:
        self._done, self._appeared = done, appeared

    def __call__(self, batch: DataFrame, _: int) -> None:
        ends = np.asarray(batch.toArrow().column("end"))
        at = time()
        self._done.windows += len(ends)
        for end, windows in zip(*np.unique(ends, return_counts=True), strict=True):
            if (since := self._appeared.get(int(end) // SECOND)) is not None:
                self._done.latencies += [at - since] * int(windows)


def _put(held: Sequence[Path], watched: Path, appeared: dict[int, float]) -> None:
    """Each file at the end of its second, whole."""
    begin = perf_counter()
    for second, path in enumerate(held):
        sleep(max(begin + second + 1 - perf_counter(), 0))
        hidden = watched / f".{path.name}"
        shutil.copy(path, hidden)
        # It has events behind the end of the second before.
        appeared[second] = time()
        hidden.rename(watched / path.name)
