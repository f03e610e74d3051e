"""The root under load: the embedded one and the Spark job, with the same partials; and plain Spark beside it.

`rootload` says what the load is. Prints tables; `--quick` is a look, not a measurement.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import plain
from bucketcosts import bucket_costs, logged
from headwater.queries import Query
from headwater_spark.settings import SparkSettings
from rootload import CHILDREN, SENDERS, Bench, Measured, asked
from usage import cpu_by_kind

HERE = SparkSettings(master="local[2,4]", ui=False)
ROOTS: tuple[tuple[str, SparkSettings | None], ...] = (("embedded", None), ("Spark, local[2]", HERE))


class Table:
    """Printed row by row, as they are measured: a run takes minutes."""

    def __init__(self, title: str, *head: str) -> None:
        print(f"\n{title}\n\n| {' | '.join(head)} |\n|{'---|' * len(head)}", flush=True)

    def add(self, *row: object) -> None:
        print(f"| {' | '.join(str(each) for each in row)} |", flush=True)


def quantiles(latencies: Sequence[float]) -> str:
    if not latencies:
        return "-"
    return f"{np.quantile(latencies, 0.5):.2f} / {np.quantile(latencies, 0.99):.2f}"


async def one(
    queries: Sequence[Query], spark: SparkSettings | None, slices: int, pace: float, keys: int
) -> Measured:
    bench = Bench(queries, spark=spark, keys=keys)
    try:
        await bench.start()
        return await bench.run(slices, pace)
    finally:
        await bench.stop()


async def sustained(quick: bool) -> None:
    """Load as it comes, and as fast as it goes."""
    queries, slices = asked(100, keyed=True), 150 if quick else 600
    table = Table(
        "1,000 children x 10 slices/s through 2 senders, 100 queries, 1,000 keys",
        "root",
        "load",
        "partials/s",
        "windows/s",
        "seconds",
        "records left when fed",
        "latency p50 / p99 s",
        "cores used",
        "memory MiB",
    )
    for name, spark in ROOTS:
        # Minutes as it comes: what is left at their end would have grown.
        for told, pace, times in (("as it comes", 1.0, 3), ("as fast as it goes", 0.0, 1)):
            found = await one(queries, spark, slices * times, pace, 1_000)
            table.add(
                name,
                told,
                f"{found.partials:,.0f}",
                f"{found.windows / found.seconds:,.0f}",
                f"{found.seconds:.1f}",
                f"{found.left} ({found.drained:.1f} s)",
                quantiles(found.latencies),
                shares(found.cpu_by_kind, found.seconds),
                ", ".join(f"{kind} {size}" for kind, size in found.memory.items()),
            )


async def many_queries(quick: bool) -> None:
    """Cost of a window, by how many queries there are."""
    table = Table("Concurrent queries", "root", "queries", "windows", "CPU us a window", "of one query's")
    for name, spark in ROOTS:
        first = 0.0
        for count in (1, 100) if quick else (1, 100, 10_000):
            found = await one(asked(count, keyed=False), spark, 600, 0.0, 1)
            cost = 1e6 * found.cpu / max(found.windows, 1)
            first = first or cost
            table.add(name, f"{count:,}", f"{found.windows:,}", f"{cost:,.0f}", f"{cost / first:.3f}")


async def resting(quick: bool) -> None:
    """Half of the load, a minute of it, and then nothing."""
    bench = Bench(asked(100, keyed=True, spread=True), spark=HERE, keys=1_000)
    try:
        await bench.start()
        # The JVM compiles what is used often: that is not what is asked for.
        await bench.run(150, 0.0)
        bench.forget()
        found = await bench.run(150 if quick else 450, 0.5)
        await asyncio.sleep(5)
        idle = await bench.idle(10 if quick else 60)
    finally:
        await bench.stop()
    head = ("windows", "latency p50 / p99 s", "cores used", "idle: cores used", "memory MiB")
    Table("Half load, then nothing", *head).add(
        f"{len(found.latencies):,}",
        quantiles(found.latencies),
        shares(found.cpu_by_kind, found.seconds),
        shares(idle, 1.0),
        ", ".join(f"{kind} {size}" for kind, size in found.memory.items()),
    )


def shares(cpu: dict[str, float], seconds: float) -> str:
    each = ", ".join(f"{kind} {spent / seconds:.3f}" for kind, spent in cpu.items())
    return f"{sum(cpu.values()) / seconds:.3f} ({each})"


async def scaling(quick: bool) -> None:
    """Executors: one and two as they run here, and more by what each bucket costs."""
    queries, slices = asked(100, keyed=True), 150 if quick else 600
    head: tuple[str, ...] = ("executors of a core", "partials/s", "of one", "cores used")
    table = Table("Executors in local-cluster, on the cores of this machine", *head)
    first = 0.0
    for executors in (1, 2):
        spark = SparkSettings(master=f"local-cluster[{executors},1,1024]", ui=False)
        found = await one(queries, spark, slices, 0.0, 1_000)
        first = first or found.partials
        table.add(
            executors,
            f"{found.partials:,.0f}",
            f"{found.partials / first:.2f}",
            shares(found.cpu_by_kind, found.seconds),
        )
    head = ("executors", "buckets", "to read ms", "a bucket ms", "home ms", "driver ms")
    told = f"By what a batch of {CHILDREN // len(SENDERS)} children costs, without what Spark itself takes"
    table = Table(told, *head, "partials/s at most", "bound by")
    records, driver = await logged(queries, slices // 2)
    for executors in (1, 2, 4, 8, 16, 32, 64):
        cost = bucket_costs(queries, records, 2 * executors)
        bounds = {
            "driver": driver,
            "executors": (cost.feed + sum(cost.buckets)) / executors,
            "home bucket": max(cost.buckets),
        }
        bound = max(bounds, key=lambda name: bounds[name])
        capacity = CHILDREN / len(SENDERS) * len(records) / bounds[bound]
        table.add(
            executors,
            2 * executors,
            f"{1e3 * cost.feed / len(records):.2f}",
            f"{1e3 * float(np.median(cost.buckets)) / len(records):.2f}",
            f"{1e3 * max(cost.buckets) / len(records):.2f}",
            f"{1e3 * driver / len(records):.2f}",
            f"{capacity:,.0f}",
            bound,
        )


def beside(
    events: int, paced: bool, found: Measured | plain.Done, bytes_a_second: float, total: int
) -> tuple[str, ...]:
    """What both have in the table."""
    return (
        f"{CHILDREN * events * 10:,}",
        "as it comes" if paced else "as fast as it goes",
        f"{total / found.seconds:,.0f}",
        f"{bytes_a_second / 1e6:.2f}",
        quantiles(found.latencies) if paced else "-",
        f"{1e6 * found.cpu / total:.1f}",
    )


async def plainly(quick: bool) -> None:
    """Raw events into Spark's own windows, beside partials into the root."""
    seconds, lengths = 30 if quick else 60, [10 + 5 * n for n in range(10)]
    head = ("", "events/s that come", "load", "events/s", "MB/s into the cluster", "latency p50 / p99 s")
    table = Table("Windows of ten lengths, 1,000 keys", *head, "CPU us an event")
    for events in (2,) if quick else (2, 20):
        with tempfile.TemporaryDirectory(prefix="headwater-plain-") as made:
            files = Path(made) / "files"
            size = plain.written(files, seconds, CHILDREN, events, 1_000)
            for paced in (False, True):
                done = plain.run(files, Path(made) / f"{paced}", lengths, cpu_by_kind, paced=paced)
                table.add("plain Spark", *beside(events, paced, done, size / seconds, done.events))
        for pace in (0.0, 1.0):
            bench = Bench(asked(100, keyed=True), spark=HERE, keys=1_000, events=events)
            try:
                await bench.start()
                found = await bench.run(seconds * 10, pace)
            finally:
                await bench.stop()
            total = seconds * 10 * CHILDREN * events
            table.add("Headwater", *beside(events, pace > 0, found, bench.bytes / seconds, total))


CASES: dict[str, Any] = {
    "sustained": sustained,
    "queries": many_queries,
    "half": resting,
    "scaling": scaling,
    "plain": plainly,
}


def main(given: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", nargs="*", choices=[[], *CASES], help="all of them otherwise")
    parser.add_argument("--quick", action="store_true", help="less of everything")
    options = parser.parse_args(given)
    np.seterr(over="ignore", invalid="ignore")
    for name in options.cases or CASES:
        asyncio.run(CASES[name](options.quick))
    return 0


if __name__ == "__main__":
    sys.exit(main())
