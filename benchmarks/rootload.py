"""What a root is fed by a benchmark, and what is measured of it.

Two nodes of the top layer send what 1,000 children make in slices of 100 ms: each batch is one slice, merged
from 500 children with a source each. They are made before the clock starts and given to the root in this
process, so that what is measured is the root: log, acknowledgement, merging, outbox and sink. CPU is that of
all its processes.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import perf_counter, time

import numpy as np

from headwater.events import Batch
from headwater.machines.messages import Ack, Challenge, Delivery, Hello, Register, Registered, Stream, Welcome
from headwater.machines.root import Settings
from headwater.node import Node
from headwater.partials import Partial
from headwater.prefix import Prefix
from headwater.queries import Query
from headwater.topology import Sink
from headwater.windows import Tumbling
from headwater_root.runtime import RootRuntime
from headwater_spark.runtime import SparkRoot
from headwater_spark.settings import SparkSettings
from headwater_wire import partials
from usage import cpu_by_kind, processes

SECOND, SLICE = 1_000_000, 100_000
CHILDREN, SENDERS = 1_000, ("a", "b")
# Events of a child in a slice.
EVENTS = 2
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
