"""The tree over real gRPC on the loopback: how fast a child reads, what goes up, how late results come.

A child is measured against a server that takes the same messages and only counts their bytes. Everything
runs as processes of this machine, so speeds are those of as many cores as there are.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from itertools import count
from pathlib import Path
from time import perf_counter

import grpc.aio
import numpy as np

from frame import Case, Clock, Row, against, main
from headwater.queries import Query
from headwater.root import Root
from headwater.topology import query_document
from headwater.windows import Sliding, Tumbling
from headwater_cli.processes import Process
from headwater_root import resultlines
from headwater_source import Source
from headwater_wire import events
from headwater_wire.v1 import control_pb2, control_pb2_grpc
from headwater_wire.v1 import tree_pb2 as pb
from raw import SECOND, SOURCE, START, Feeder, Load

SUM = [Query("sum", Tumbling("1s"), "sum")]
COUNTED = [Query("count", Tumbling(count=1_000_000), "sum")]
WIDTHS = (13, 7, 4, 2)
# As many queries a manifest holds.
INLINE = 256


class Tree:
    """A root with layers of nodes below it, on a directory of its own."""

    def __init__(self, queries: Sequence[Query], expected: int = 1) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="headwater-bench-"))
        self._queries, self._expected = queries, expected
        self.processes: list[Process] = []

    async def start(self, *widths: int) -> list[Process]:
        """The root, then layers, whose widths are given from the children up; gives the children."""
        path = self.directory / "topology.json"
        kind = {"class": "device", "site": "hall", "expected": self._expected, "rate": 1, "lateness": "0s"}
        spec = {
            "sources": [kind],
            "node": {"ingestLimit": 1_000_000},
            "queries": [query_document(query) for query in self._queries[:INLINE]],
            "root": {"engine": "embedded"},
        }
        document = {"apiVersion": "headwater.dev/v1alpha1", "kind": "AggregationTopology"}
        path.write_text(json.dumps({**document, "metadata": {"name": "bench"}, "spec": spec}))
        command = [
            "-m",
            "headwater_root",
            "--topology",
            str(path),
            "--directory",
            str(self.directory / "root"),
        ]
        above = [await self._begin("root", [*command, "--keep-results", "--status"])]
        for layer, width in zip(range(len(widths), 0, -1), reversed(widths), strict=True):
            role = "child" if layer == 1 else "intermediate"
            names = ["child"] if (layer, width) == (1, 1) else [f"l{layer}-{n}" for n in range(width)]
            starting = (self._node(name, role, above[n % len(above)]) for n, name in enumerate(names))
            above = list(await asyncio.gather(*starting))
        return above

    async def _node(self, name: str, role: str, parent: Process) -> Process:
        address = f"127.0.0.1:{parent.port}"
        given = {"name": name, "role": role, "listen": "127.0.0.1:0", "parent": parent.name}
        path = self.directory / f"{name}.json"
        path.write_text(json.dumps({**given, "parent_address": address}))
        return await self._begin(name, ["-m", "headwater_node", "--config", str(path), "--status"])

    async def _begin(self, name: str, command: Sequence[str]) -> Process:
        process = Process(name, command)
        self.processes.append(process)
        await process.start()
        return process

    async def add(self, queries: Sequence[Query]) -> None:
        """Queries that do not fit into a manifest."""
        async with grpc.aio.insecure_channel(f"127.0.0.1:{self.processes[0].port}") as channel:
            stub = control_pb2_grpc.ControlStub(channel)  # type: ignore[no-untyped-call]  # generated
            for query in queries:
                document = json.dumps(query_document(query))
                await stub.AddQuery(control_pb2.AddQueryRequest(document=document))

    async def stop(self) -> None:
        for process in reversed(self.processes):
            await process.stop()
        shutil.rmtree(self.directory, ignore_errors=True)


@asynccontextmanager
async def fed(queries: Sequence[Query], *widths: int) -> AsyncIterator[tuple[Tree, Process, Feeder]]:
    """A tree with one child, and a source that the root knows."""
    tree = Tree(queries)
    try:
        (child,) = await tree.start(*widths)
        await tree.add(queries[INLINE:])
        feeder = Feeder(f"127.0.0.1:{child.port}")
        try:
            async with asyncio.timeout(60):
                await feeder.introduce()
            yield tree, child, feeder
        finally:
            await feeder.close()
    finally:
        await tree.stop()


async def speed(queries: Sequence[Query], load: Load) -> float:
    """Events a second through a child."""
    async with fed(queries, 1) as (_, _, feeder):
        warm = max(len(load.encoded) // 10, 1)
        await feeder.feed(load, 0, warm)
        seconds = await feeder.feed(load, warm)
        return load.events * (len(load.encoded) - warm) / len(load.encoded) / seconds


async def counting(load: Load) -> float:
    """Events a second through a server that counts bytes."""
    server = Process("count", [str(Path(__file__).with_name("raw.py"))])
    try:
        await server.start()
        feeder = Feeder(f"127.0.0.1:{server.port}")
        try:
            warm = max(len(load.encoded) // 10, 1)
            await feeder.feed(load, 0, warm)
            seconds = await feeder.feed(load, warm)
            return load.events * (len(load.encoded) - warm) / len(load.encoded) / seconds
        finally:
            await feeder.close()
    finally:
        await server.stop()


def alone(queries: Sequence[Query], load: Load) -> float:
    """Events a second in one process that does everything: the same messages decoded, then the engine."""
    root = Root(queries)
    root.admit(SOURCE, lateness=0)
    begin = perf_counter()
    for data in load.encoded:
        root.push(events.decode(pb.Envelope.FromString(data).columns.events))
    root.take()
    return load.events / (perf_counter() - begin)


def many(size: int) -> list[Query]:
    """Queries of different lengths that share one pass."""
    return [Query(f"q{n}", Tumbling(f"{n + 1}s"), "sum") for n in range(size)]


def _keyed(queries: Sequence[Query]) -> list[Query]:
    return [Query(query.id, query.window, query.aggregate, key_by="key") for query in queries]


# Cases


def ingest(quick: bool) -> Iterable[Case]:
    size = 6_000_000 if quick else 30_000_000
    for queries in (1, 10, 1_000):
        for keys in (1, 1_000):
            name = f"child, {queries} quer{'y' if queries == 1 else 'ies'}, {keys} key{'s' * (keys > 1)}"
            yield Case(name, partial(_ingest, name, queries, keys, size))


def _ingest(name: str, queries: int, keys: int, size: int, clock: Clock) -> Iterable[Row]:
    load = Load(size, keys)
    asked = many(queries) if keys == 1 else _keyed(many(queries))
    bare = max(asyncio.run(counting(load)) for _ in range(2))
    # To add a thousand takes a while: once is enough then.
    ours = max(asyncio.run(speed(asked, load)) for _ in range(2 if queries < INLINE else 1)) / 1e6
    yield Row(name, ours, "M events/s", target=">= 10 M")
    yield against(name, ours, "M events/s", "counting bytes", bare / 1e6, ">= 1/2")
    yield Row(f"{name}: bytes an event", load.bytes / load.events, "B")


def upwards(quick: bool) -> Iterable[Case]:
    seconds = 5 if quick else 15
    windows = {"tumbling 1 s": SUM, "sliding 60 s / 1 s": [Query("sum", Sliding("60s", "1s"), "sum")]}
    yield Case("bytes upward", lambda clock: _upwards(windows, seconds))


def _upwards(windows: dict[str, list[Query]], seconds: int) -> Iterable[Row]:
    found = {name: asyncio.run(_sent_up(queries, seconds)) for name, queries in windows.items()}
    for name, (up, raw) in found.items():
        yield Row(f"bytes upward, {name}, 1 M events/s", 100 * up / raw, "% of raw", target="<= 1 %")
    (tumbling, _), (sliding, _) = found.values()
    yield Row(
        "bytes upward, sliding",
        sliding / 1e3,
        "kB",
        "tumbling",
        sliding / tumbling,
        "<= 1.05x",
        tumbling / 1e3,
    )


async def _sent_up(queries: Sequence[Query], seconds: int) -> tuple[int, int]:
    load = Load(seconds * 1_000_000, rows=10_000)
    async with fed(queries, 1) as (_, child, feeder):
        await feeder.feed(load, pace=0.01)
        await asyncio.sleep(1.5)
        return int(child.last["bytes_up"]), load.bytes


def lateness(quick: bool) -> Iterable[Case]:
    yield Case("latency", lambda clock: asyncio.run(_latency(6 if quick else 12)))


async def _latency(seconds: int) -> list[Row]:
    """At half of what the tree takes, in messages of at most 5 ms: from the record behind a window on."""
    full = await speed(SUM, Load(6_000_000))
    rate = int(full / 2)
    queries = [Query("sum", Tumbling("100ms"), "sum")]
    rows = min(rate // 200, 50_000)
    load = Load(rate * seconds, rate=rate, rows=rows)
    async with fed(queries, 1, 1) as (tree, _, feeder):
        await feeder.feed(load, pace=rows / rate)
        await asyncio.sleep(1)
        found = list(_delays(tree.directory / "root" / "outbox", load, feeder.handed))
    p50, p99 = np.quantile(found, [0.5, 0.99]) * 1e3
    name = f"latency of {len(found)} windows, 3 layers, {rate / 1e6:.1f} M events/s"
    return [
        Row(f"{name}, p50", float(p50), "ms", target="<= 60 ms"),
        Row(f"{name}, p99", float(p99), "ms", target="<= 250 ms"),
    ]


def _delays(outbox: Path, load: Load, handed: Sequence[float]) -> Iterable[float]:
    until = np.array(load.until)
    for path in sorted(outbox.glob("*-*")):
        if path.suffix:
            continue
        at = path.stat().st_mtime
        for row in resultlines.decode(path.read_bytes()):
            # The first message with a record at or behind the end makes the window final.
            yield at - handed[int(until.searchsorted(row["end"]))]


def idle(quick: bool) -> Iterable[Case]:
    yield Case("idle child", lambda clock: asyncio.run(_idle()))


async def _idle() -> list[Row]:
    async with fed(SUM, 1) as (_, child, _):
        await asyncio.sleep(2)
        resident = _resident(child.pid) / 1e6
    return [Row("idle child, resident", resident, "MB", target="<= 80 MB")]


def fleet(quick: bool) -> Iterable[Case]:
    yield Case("500 sources", lambda clock: asyncio.run(_fleet(500, 10 if quick else 30)))


async def _fleet(sources: int, seconds: int) -> list[Row]:
    """Sources at 0.5 events/s through [13, 7, 4, 2, 1] processes: what these need of the processors."""
    queries = [Query("avg", Tumbling("10s"), "avg"), Query("max", Sliding("10s", "2s"), "max", key_by="key")]
    tree = Tree(queries, expected=sources)
    opened: list[Source] = []
    try:
        children = await tree.start(*WIDTHS)
        for n in range(sources):
            address = f"127.0.0.1:{children[n % len(children)].port}"
            source = Source(f"s{n}", address, spool=tree.directory / "spools" / f"s{n}", lateness="1s")
            source.open()
            source.start()
            opened.append(source)
        sending = [asyncio.create_task(_tick(source, n, sources)) for n, source in enumerate(opened)]
        try:
            root = tree.processes[0]
            async with asyncio.timeout(240):
                while root.last.get("sources", 0) < sources or root.last.get("watermark") is None:
                    await asyncio.sleep(0.5)
            await asyncio.sleep(5)
            before, counted, begin = tree_seconds(tree), root.last["counted"], perf_counter()
            await asyncio.sleep(seconds)
            took = perf_counter() - begin
            used = (tree_seconds(tree) - before) / took
            rate = (root.last["counted"] - counted) / took
        finally:
            for task in sending:
                task.cancel()
            await asyncio.gather(*sending, return_exceptions=True)
    finally:
        for source in opened:
            await source.close()
        await tree.stop()
    name = f"{sources} sources through {[*WIDTHS, 1]}"
    return [Row(name, used, "cores", target="<= 1 cores"), Row(f"{name}: counted", rate, "events/s")]


async def _tick(source: Source, number: int, sources: int) -> None:
    await asyncio.sleep(2 * number / sources)
    for step in count():
        ts = START + 2 * step * SECOND + 2 * number * SECOND // sources
        await source.send(ts, float(step % 7), keys=f"k{number % 20}")
        await asyncio.sleep(2)


def central(quick: bool) -> Iterable[Case]:
    yield Case("the same events otherwise", lambda clock: _central(4_000_000 if quick else 12_000_000))


def _central(size: int) -> Iterable[Row]:
    load = Load(size)
    name = "tree, 1 s windows"
    tree = asyncio.run(speed(SUM, load)) / 1e6
    yield Row(name, tree, "M events/s")
    raw = asyncio.run(_through(COUNTED, load)) / 1e6
    yield against(name, tree, "M events/s", "central: all events raw to the root", raw, None)
    yield against(name, tree, "M events/s", "one process does everything", alone(SUM, load) / 1e6, None)


async def _through(queries: Sequence[Query], load: Load) -> float:
    """Events a second until the root has counted them all."""
    async with fed(queries, 1) as (tree, _, feeder):
        begin = perf_counter()
        await feeder.feed(load)
        while tree.processes[0].last.get("counted", 0) < load.events:
            await asyncio.sleep(0.05)
        return load.events / (perf_counter() - begin)


# What processes use


def tree_seconds(tree: Tree) -> float:
    """Processor time of all processes of a tree so far."""
    return sum(_seconds(process.pid) for process in tree.processes)


def _seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _resident(pid: int) -> int:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def cases(quick: bool) -> list[Case]:
    parts = (ingest, upwards, lateness, idle, fleet, central)
    return [case for part in parts for case in part(quick)]


if __name__ == "__main__":
    main("tree", cases, "The tree over gRPC on the loopback: speed, bytes, latency, memory.")
