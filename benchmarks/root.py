"""The root under load: the embedded one and the Spark job, with the same partials.

Two nodes of the top layer send what 1,000 children make in slices of 100 ms: each batch is one slice, merged
from 500 children with a source each. They are made before the clock starts and given to the root in this
process, so that what is measured is the root: log, acknowledgement, merging, outbox and sink. CPU is that of
all its processes. Prints tables; `--quick` is a look, not a measurement.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import perf_counter, time
from typing import Any

import numpy as np

import plain
from headwater.events import Batch
from headwater.machines.lanes import shared
from headwater.machines.messages import Ack, Challenge, Delivery, Hello, Register, Registered, Stream, Welcome
from headwater.machines.root import Settings
from headwater.machines.state import State
from headwater.node import Node
from headwater.partials import Partial
from headwater.prefix import Prefix
from headwater.queries import Query
from headwater.topology import Sink
from headwater.windowless import Windowless
from headwater.windows import Tumbling
from headwater_root.runtime import RootRuntime
from headwater_spark import finals
from headwater_spark.bucket import Bucket
from headwater_spark.buckets import Buckets
from headwater_spark.feed import UNSET, Feed, Row, Ticks, encoded
from headwater_spark.runtime import SparkRoot
from headwater_spark.settings import SparkSettings
from headwater_wire import partials, records
from headwater_wire.messages import Codec

SECOND, SLICE = 1_000_000, 100_000
CHILDREN, SENDERS = 1_000, ("a", "b")
# Events of a child in a slice.
EVENTS = 2
HERE = SparkSettings(master="local[2,4]", ui=False)
ROOTS: tuple[tuple[str, SparkSettings | None], ...] = (("embedded", None), ("Spark, local[2]", HERE))
ENDS = re.compile(rb'"end":(-?\d+)')
AGGREGATES: tuple[list[str], ...] = (["avg"], ["max"], ["min", "max"], ["sum"], ["count"])


def asked(count: int, *, keyed: bool, spread: bool = False) -> list[Query]:
    """So many queries, of ten lengths from 10 s to 55 s; `spread`, so that some end with every second."""
    return [
        Query(
            f"q{n}",
            Tumbling(f"{10 + 5 * (n % 10)}s", offset=f"{n // 10 % 10}s" if spread else 0),
            AGGREGATES[n % len(AGGREGATES)],
            key_by="key" if keyed else None,
        )
        for n in range(count)
    ]


@dataclass
class Sender:
    """A node of the top layer: it has the sources of its children, and makes a batch of each slice."""

    name: str
    queries: Sequence[Query]
    sources: list[str]
    keys: int
    events: int
    node: Node = field(init=False)

    def meet(self, root: RootRuntime) -> None:
        machine = root.machine
        register = Register(self.name, self.name, True)
        (first,) = machine.step(self.name, register, 0)
        assert isinstance(first.message, Registered)
        machine.step(self.name, replace(register, echo=first.message.nonce), 0)
        self.node = Node(self.queries)
        for source in self.sources:
            hello = Hello(source, f"spool {source}", "opening", 0, 0, 0, via=self.name)
            (said,) = machine.step(self.name, hello, 0)
            assert isinstance(said.message, Challenge)
            (said,) = machine.step(self.name, replace(hello, echo=said.message.nonce), 0)
            assert isinstance(said.message, Welcome)
            self.node.admit(said.message.source, lateness=0, prefix=Prefix(opening="opening"))

    def batches(self, first: int, slices: int, rng: np.random.Generator) -> list[Partial]:
        names = tuple(f"key-{n}" for n in range(self.keys))
        made = []
        for number in range(first, first + slices):
            for source in self.node.sources:
                ts = number * SLICE + np.sort(rng.integers(0, SLICE, self.events))
                value = rng.integers(0, 1_000, self.events).astype(float)
                key = rng.integers(0, self.keys, self.events).astype(np.int32)
                self.node.push(Batch(source, 1 + number * self.events, ts, value, key=key, keys=names))
            made.append(self.node.flush())
        return made


def senders(queries: Sequence[Query], keys: int, events: int) -> list[Sender]:
    each = CHILDREN // len(SENDERS)
    return [Sender(name, queries, [f"{name}-{n}" for n in range(each)], keys, events) for name in SENDERS]


@dataclass
class Measured:
    seconds: float
    batches: int
    windows: int
    cpu: float
    # Of each window, from when the watermark has passed its end to when the sink has it.
    latencies: list[float]
    # Records that are not merged when the last one was fed, and how long these took.
    left: int
    drained: float
    memory: dict[str, int]
    cpu_by_kind: dict[str, float] = field(default_factory=dict)

    @property
    def partials(self) -> float:
        """Of children, a second."""
        return self.batches * (CHILDREN / len(SENDERS)) / self.seconds


class Bench:
    """A root with a JSON lines sink, and what feeds it."""

    def __init__(
        self, queries: Sequence[Query], *, spark: SparkSettings | None, keys: int, events: int = EVENTS
    ) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="headwater-bench-"))
        settings = Settings(expected=CHILDREN, pending=1_000_000)
        sinks = [Sink("jsonlines", path="lines")]
        self.root: RootRuntime
        if spark is None:
            self.root = RootRuntime(queries, self.directory, settings, sinks)
        else:
            self.root = SparkRoot(queries, self.directory, settings, sinks, spark=spark)
        self.senders = senders(queries, keys, events)
        self._fed = 0
        # Of the batches, as messages.
        self.bytes = 0
        # When the watermark had come to where, and when the sink had so many windows of which end.
        self._passed: list[tuple[int, float]] = []
        self._delivered: list[tuple[float, Counter[int]]] = []
        self._listen()

    def _listen(self) -> None:
        (sink,) = self.root.deliveries._sinks
        deliver = sink.deliver

        def noted(position: int, rows: bytes) -> None:
            deliver(position, rows)
            at = time()
            self._delivered.append((at, Counter(map(int, ENDS.findall(rows)))))

        sink.deliver = noted  # type: ignore[method-assign]  # to see what passes

    async def start(self) -> None:
        await self.root.start("127.0.0.1:0")
        if isinstance(self.root, SparkRoot):
            while not self.root.merged:
                assert self.root.failed is None, self.root.failed
                await asyncio.sleep(0.05)
        for sender in self.senders:
            sender.meet(self.root)

    def forget(self) -> None:
        """What was measured until now."""
        self._passed.clear()
        self._delivered.clear()

    async def run(self, slices: int, pace: float) -> Measured:
        """Feed so many more slices of each sender, so many times as fast as they happen; 0: as fast as it
        goes."""
        rng = np.random.default_rng(7)
        first, self._fed = self._fed, self._fed + slices
        made = [sender.batches(first, slices, rng) for sender in self.senders]
        self.bytes = sum(partials.encode(each).ByteSize() for batches in made for each in batches)
        streams = [Stream(sender.name, 1, 1) for sender in self.senders]
        kinds = cpu_by_kind()
        begin, before = perf_counter(), self.root.windows
        for number in range(slices):
            if pace:
                await asyncio.sleep(max(begin + number * SLICE / SECOND / pace - perf_counter(), 0))
            for sender, stream, batches in zip(self.senders, streams, made, strict=True):
                self.root._take(sender.name, Delivery(stream, f"{first + number}", 0, batches[number]))
            sends = self.root.machine.commit()
            assert sum(isinstance(send.message, Ack) for send in sends) == len(SENDERS), sends
            if (watermark := self.root.machine.engine.watermark) is not None:
                self._passed.append((watermark, time()))
            await asyncio.sleep(0)
        fed, left = perf_counter(), self._left()
        while self._left() or self.root.deliveries.behind:
            assert self.root.failed is None, self.root.failed
            await asyncio.sleep(0.01)
        seconds = perf_counter() - begin
        used = {kind: spent - kinds.get(kind, 0.0) for kind, spent in cpu_by_kind().items()}
        return Measured(
            seconds,
            slices * len(SENDERS),
            self.root.windows - before,
            sum(used.values()),
            self._latencies(),
            left,
            perf_counter() - fed,
            self.memory(),
            used,
        )

    def _left(self) -> int:
        return self.root.lag if isinstance(self.root, SparkRoot) else 0

    def _latencies(self) -> list[float]:
        watermarks = np.array([watermark for watermark, _ in self._passed], np.int64)
        found: list[float] = []
        for at, ends in self._delivered:
            for end, windows in ends.items():
                place = int(watermarks.searchsorted(end))
                if place < len(watermarks):
                    found += [max(at - self._passed[place][1], 0.0)] * windows
        return found

    async def idle(self, seconds: float) -> dict[str, float]:
        """Share of a core that each kind of process uses while nothing comes."""
        cpu, begin = cpu_by_kind(), perf_counter()
        await asyncio.sleep(seconds)
        lasted = perf_counter() - begin
        return {kind: (spent - cpu.get(kind, 0.0)) / lasted for kind, spent in cpu_by_kind().items()}

    def memory(self) -> dict[str, int]:
        """MiB by kind of process."""
        found: dict[str, int] = {}
        for name, _, size in processes(os.getpid()):
            found[name] = found.get(name, 0) + size // 2**20
        return found

    async def stop(self) -> None:
        await self.root.stop()
        shutil.rmtree(self.directory)


def processes(pid: int) -> Iterator[tuple[str, float, int]]:
    """A process and all below it: kind, CPU seconds, bytes."""
    stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    command = Path(f"/proc/{pid}/cmdline").read_text()
    name = "JVM" if "java" in command.split("\0")[0] else "worker" if "pyspark" in command else "driver"
    tick = os.sysconf("SC_CLK_TCK")
    # With children that are gone.
    yield name, sum(map(int, stat[11:15])) / tick, int(stat[21]) * os.sysconf("SC_PAGE_SIZE")
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in path.read_text().split():
            try:
                yield from processes(int(child))
            except OSError:
                continue


def cpu_by_kind() -> dict[str, float]:
    """Seconds of all processes here."""
    found: dict[str, float] = {}
    for name, seconds, _ in processes(os.getpid()):
        found[name] = found.get(name, 0.0) + seconds
    return found


def table(title: str, head: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    print(f"\n{title}\n")
    print("| " + " | ".join(head) + " |")
    print("|" + "---|" * len(head))
    for row in rows:
        print("| " + " | ".join(str(each) for each in row) + " |")


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
    rows = []
    for name, spark in ROOTS:
        for told, pace in (("as it comes", 1.0), ("as fast as it goes", 0.0)):
            found = await one(queries, spark, slices, pace, 1_000)
            rows.append(
                (
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
            )
    head = (
        "root",
        "load",
        "partials/s",
        "windows/s",
        "seconds",
        "records left when fed",
        "latency p50 / p99 s",
    )
    told = "1,000 children x 10 slices/s through 2 senders, 100 queries, 1,000 keys"
    table(told, (*head, "cores used", "memory MiB"), rows)


async def many_queries(quick: bool) -> None:
    """Cost of a window, by how many queries there are."""
    rows: list[Sequence[object]] = []
    for name, spark in ROOTS:
        first = 0.0
        for count in (1, 100) if quick else (1, 100, 10_000):
            found = await one(asked(count, keyed=False), spark, 600, 0.0, 1)
            cost = 1e6 * found.cpu / max(found.windows, 1)
            first = first or cost
            rows.append((name, f"{count:,}", f"{found.windows:,}", f"{cost:,.0f}", f"{cost / first:.3f}"))
    table("Concurrent queries", ("root", "queries", "windows", "CPU us a window", "of one query's"), rows)


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
    rows = [
        (
            f"{len(found.latencies):,}",
            quantiles(found.latencies),
            shares(found.cpu_by_kind, found.seconds),
            shares(idle, 1.0),
            ", ".join(f"{kind} {size}" for kind, size in found.memory.items()),
        )
    ]
    head = ("windows", "latency p50 / p99 s", "cores used", "idle: cores used", "memory MiB")
    table("Half load, then nothing", head, rows)


def shares(cpu: dict[str, float], seconds: float) -> str:
    each = ", ".join(f"{kind} {spent / seconds:.3f}" for kind, spent in cpu.items())
    return f"{sum(cpu.values()) / seconds:.3f} ({each})"


async def scaling(quick: bool) -> None:
    """Executors: one and two as they run here, and more by what each bucket costs."""
    queries, slices = asked(100, keyed=True), 150 if quick else 600
    rows: list[Sequence[object]] = []
    for executors in (1, 2):
        spark = SparkSettings(master=f"local-cluster[{executors},1,1024]", ui=False)
        found = await one(queries, spark, slices, 0.0, 1_000)
        first = float(str(rows[0][1]).replace(",", "")) if rows else found.partials
        rows.append(
            (
                executors,
                f"{found.partials:,.0f}",
                f"{found.partials / first:.2f}",
                shares(found.cpu_by_kind, found.seconds),
            )
        )
    head: tuple[str, ...] = ("executors of a core", "partials/s", "of one", "cores used")
    table("Executors in local-cluster, on the cores of this machine", head, rows)
    records, driver = await logged(queries, slices // 2)
    rows = []
    for executors in (1, 2, 4, 8, 16, 32, 64):
        cost = bucket_costs(queries, records, 2 * executors)
        bounds = {
            "driver": driver,
            "executors": (cost.feed + sum(cost.buckets)) / executors,
            "home bucket": max(cost.buckets),
        }
        bound = max(bounds, key=lambda name: bounds[name])
        capacity = CHILDREN / len(SENDERS) * len(records) / bounds[bound]
        rows.append(
            (
                executors,
                2 * executors,
                f"{1e3 * cost.feed / len(records):.2f}",
                f"{1e3 * float(np.median(cost.buckets)) / len(records):.2f}",
                f"{1e3 * max(cost.buckets) / len(records):.2f}",
                f"{1e3 * driver / len(records):.2f}",
                f"{capacity:,.0f}",
                bound,
            )
        )
    head = ("executors", "buckets", "to read ms", "a bucket ms", "home ms", "driver ms")
    told = f"By what a batch of {CHILDREN // len(SENDERS)} children costs, without what Spark itself takes"
    table(told, (*head, "partials/s at most", "bound by"), rows)


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
    rows: list[Sequence[object]] = []
    for events in (2,) if quick else (2, 20):
        with tempfile.TemporaryDirectory(prefix="headwater-plain-") as made:
            files = Path(made) / "files"
            size = plain.written(files, seconds, CHILDREN, events, 1_000)
            for paced in (False, True):
                done = plain.run(files, Path(made) / f"{paced}", lengths, cpu_by_kind, paced=paced)
                rows.append(("plain Spark", *beside(events, paced, done, size / seconds, done.events)))
        for pace in (0.0, 1.0):
            bench = Bench(asked(100, keyed=True), spark=HERE, keys=1_000, events=events)
            try:
                await bench.start()
                found = await bench.run(seconds * 10, pace)
            finally:
                await bench.stop()
            total = seconds * 10 * CHILDREN * events
            rows.append(("Headwater", *beside(events, pace > 0, found, bench.bytes / seconds, total)))
    head = ("", "events/s that come", "load", "events/s", "MB/s into the cluster", "latency p50 / p99 s")
    table("Windows of ten lengths, 1,000 keys", (*head, "CPU us an event"), rows)


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
