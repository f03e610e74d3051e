"""A node that runs: it drains under load, waits for the clock, and halts rather than limp on."""

from __future__ import annotations

import asyncio
import logging
import shutil
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.aggregates import UserDefined
from headwater.errors import FunctionFailed
from headwater.machines import holds
from headwater.machines import source as sources
from headwater.machines.messages import Message, Registered, Silent
from headwater.machines.root import Settings
from headwater.queries import Query
from headwater.windows import Tumbling
from headwater_node.configuration import FUTURE
from headwater_node.runtime import BEAT, NodeRuntime, divide_interval
from headwater_root.runtime import RootRuntime
from headwater_source.client import SourceClient
from headwater_source.spool import Spool
from headwater_wire.clock import wall
from headwater_wire.messages import Codec
from headwater_wire.v1 import tree_pb2 as pb
from tests.patience import PATIENCE

SECOND = 1_000_000
SUM = [Query("q", Tumbling("1s"), "sum")]


@dataclass
class Tree:
    """A root, a child and a source, all in this process."""

    root: RootRuntime
    child: NodeRuntime
    client: SourceClient
    spool: Spool

    async def until(self, reached: Callable[[], object]) -> None:
        async with asyncio.timeout(PATIENCE):
            while not reached():
                await asyncio.sleep(0.01)


@asynccontextmanager
async def tree(
    directory: Path,
    queries: Sequence[Query] = SUM,
    *,
    codec: Codec | None = None,
    keys_per_source: int = 0,
    flush_interval: float = 0.02,
) -> AsyncIterator[Tree]:
    """`codec` and `flush_interval` are the child's."""
    root = RootRuntime(queries, directory / "root", Settings(expected=1, keys_per_source=keys_per_source))
    port = await root.start("127.0.0.1:0")
    child = NodeRuntime("c", "root", child=True, flush_interval=flush_interval, codec=codec)
    below = await child.start("127.0.0.1:0", f"127.0.0.1:{port}")
    spool = Spool.open(directory / "s", limit_bytes=1 << 24)
    client = SourceClient("s", "c", spool, sources.Settings(rows=500))
    client.start(f"127.0.0.1:{below}")
    try:
        yield Tree(root, child, client, spool)
    finally:
        await client.stop()
        await child.stop()
        await root.stop()
        spool.close()


def test_a_running_source_goes_back_with_a_root_that_has_an_older_log(tmp_path: Path) -> None:
    """All nodes were stopped too: nobody but the source knows better."""
    log, copy = tmp_path / "log", tmp_path / "copy"

    async def run() -> None:
        root_at = child_at = "127.0.0.1:0"
        with Spool.open(tmp_path / "s", limit_bytes=1 << 24) as spool:
            client = SourceClient("s", "c", spool)
            for number, directory in enumerate((log, log, copy)):
                root = RootRuntime(SUM, directory, Settings(expected=1))
                root_at = f"127.0.0.1:{await root.start(root_at)}"
                child = NodeRuntime("c", "root", child=True, flush_interval=0.02)
                child_at = f"127.0.0.1:{await child.start(child_at, root_at)}"
                if not number:
                    client.start(child_at)
                spool.append([SECOND * number], [1.0])
                async with asyncio.timeout(PATIENCE):
                    while list(root.machine.committed.values()) != [number + 1]:
                        client.push()
                        await asyncio.sleep(0.01)
                    while not client.done:
                        await asyncio.sleep(0.01)
                await child.stop()
                await root.stop()
                if not number:
                    shutil.copytree(log, copy)
            await client.stop()

    asyncio.run(run())


def test_a_child_that_flushes_rarely_is_heard_all_the_same(tmp_path: Path) -> None:
    """Else the status would call it silent between its flushes."""

    async def run() -> None:
        async with tree(tmp_path, flush_interval=60.0) as grown:
            moments: list[int] = []

            def is_heard_again() -> bool:
                heard = grown.root.machine.vitals.heard("c")
                if heard is not None and moments[-1:] != [heard]:
                    moments.append(heard)
                return len(moments) >= 4

            await grown.until(is_heard_again)
            # The first ones are of its registration.
            assert moments[-1] - moments[-2] < holds.PATIENCE

    asyncio.run(run())


def test_a_child_that_flushes_rarely_drains_at_once(tmp_path: Path) -> None:
    async def run() -> None:
        async with tree(tmp_path, flush_interval=60.0) as grown:
            machine = grown.child.machine

            def has_something_to_flush() -> bool:
                grown.spool.append([100], [1.0])
                grown.client.push()
                return not machine.drained

            await grown.until(has_something_to_flush)
            assert await grown.child.drain(30.0)

    asyncio.run(run())


def test_a_drain_ends_however_much_comes_in(tmp_path: Path) -> None:
    async def run() -> None:
        async with tree(tmp_path) as grown:
            sent = 0

            async def feed() -> None:
                nonlocal sent
                while True:
                    grown.spool.append(np.arange(sent, sent + 500) * 100, np.ones(500))
                    sent += 500
                    await asyncio.sleep(0.002)

            feeding = asyncio.create_task(feed())
            await grown.until(lambda: grown.child.tally.read > 1_000)
            assert await grown.child.drain(60)
            # Everything that the child has read is the root's; the source still has the rest.
            taken = grown.child.machine.sources["s\0" + "1".zfill(10)].position
            feeding.cancel()
            assert sum(grown.root.machine.committed.values()) == taken < sent
            assert grown.child.unready() == "it is draining"

    asyncio.run(run())


def test_an_event_from_the_future_waits_for_the_clock(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)

    async def run() -> None:
        async with tree(tmp_path) as grown:
            grown.spool.append(
                [wall(), wall() + FUTURE // 2, wall() + 2 * FUTURE, wall()], [1.0, 2.0, 4.0, 8.0]
            )
            await grown.until(lambda: grown.child.future.waiting)
            await grown.until(lambda: sum(grown.root.machine.committed.values()) == 2)
            assert not grown.client.done
            assert grown.root.machine.engine.watermark is not None
            assert grown.root.machine.engine.watermark < wall() + FUTURE
            # Time goes by.
            grown.child.future.bound = 3 * FUTURE
            await grown.until(lambda: grown.client.done)
            assert not grown.child.future.waiting

    asyncio.run(run())
    told = [record.getMessage() for record in caplog.records if "source" in vars(record)]
    assert told == ["a source waits: its next event lies too far in the future", "a source goes on"]


def knows(function: UserDefined) -> Codec:
    """Of a node where this function is installed."""
    return Codec({function.name: function}.get)


def failing(value: float) -> float:
    raise ZeroDivisionError(value)


def test_a_function_that_raises_halts_the_node(tmp_path: Path) -> None:
    bad = UserDefined("bad", failing, max, lambda state: state)

    async def run() -> None:
        async with tree(tmp_path, [Query("q", Tumbling("1s"), bad)], codec=knows(bad)) as grown:
            grown.spool.append([1, 2], [1.0, 2.0])
            async with asyncio.timeout(PATIENCE):
                await grown.child.halted.wait()
            assert isinstance(grown.child.failed, FunctionFailed)
            assert "the lift of 'bad' raised" in str(grown.child.failed)
            assert grown.child.unready() == f"it has halted: {grown.child.failed}"
            assert grown.root.failed is None

    asyncio.run(run())


def test_a_state_that_cannot_be_sent_halts_the_node(tmp_path: Path) -> None:
    odd = UserDefined("odd", lambda value: {value}, lambda left, right: left | right, len)

    async def run() -> None:
        async with tree(tmp_path, [Query("q", Tumbling("1s"), odd)], codec=knows(odd)) as grown:
            grown.spool.append([1, 2], [1.0, 2.0])
            async with asyncio.timeout(PATIENCE):
                await grown.child.halted.wait()
            assert "a state of set cannot be sent" in str(grown.child.failed)

    asyncio.run(run())


def test_a_query_that_comes_later_and_cannot_be_computed_halts_the_node(tmp_path: Path) -> None:
    late = UserDefined("late", abs, max, lambda state: state)

    async def run() -> None:
        async with tree(tmp_path) as grown:
            await grown.until(lambda: grown.child.unready() is None)
            grown.root.machine.add(Query("p", Tumbling("1s"), late))
            async with asyncio.timeout(PATIENCE):
                await grown.child.halted.wait()
            why = grown.child.unready()
            assert why is not None
            assert why.startswith("it has halted: query: cannot be computed here")
            assert "'late' is no function of an installed package" in why
            assert grown.root.failed is None

    asyncio.run(run())


def test_a_heart_that_stops_halts_the_node_and_the_root(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*_: object) -> None:
        raise ZeroDivisionError

    async def run() -> None:
        async with tree(tmp_path) as grown:
            await grown.until(lambda: grown.child.unready() is None)
            monkeypatch.setattr(grown.child.machine, "flush", failing)
            async with asyncio.timeout(PATIENCE):
                await grown.child.halted.wait()
            assert isinstance(grown.child.failed, ZeroDivisionError)
            monkeypatch.setattr(grown.root.machine, "tick", failing)
            await grown.until(lambda: grown.root.failed)
            assert str(grown.root.unready()).startswith("it has halted")
            monkeypatch.setattr(grown.client.machine, "send", failing)
            await grown.until(lambda: grown.client.failed)
            assert isinstance(grown.client.failed, ZeroDivisionError)

    asyncio.run(run())


class _Misheard(Codec):
    """A node that understands other queries than the root has told."""

    def decode(self, envelope: pb.Envelope) -> Message:
        message = super().decode(envelope)
        if isinstance(message, Registered) and message.queries:
            return replace(message, queries=(Query("q", Tumbling("2s"), "sum"),))
        return message


def test_a_child_with_other_queries_is_refused_and_the_root_goes_on(tmp_path: Path) -> None:
    async def run() -> None:
        async with tree(tmp_path, codec=_Misheard()) as grown:
            grown.spool.append([1, 2], [1.0, 2.0])
            await grown.until(lambda: grown.root.machine.refused > 3)
            assert grown.root.failed is None
            assert grown.root.unready() is None
            assert sum(grown.root.machine.committed.values()) == 0

    asyncio.run(run())


def test_only_the_child_that_reads_a_source_reports_its_silence(tmp_path: Path) -> None:
    async def run() -> None:
        async with tree(tmp_path) as grown:
            grown.spool.append([1, 2], [1.0, 2.0])
            await grown.until(lambda: grown.client.done)
            machine = grown.root.machine
            ((name, source),) = machine.engine.sources.items()
            report = Silent("c", machine.members.generation("c"), name, source.prefix)
            for sender in ("s", "d", "root"):
                assert machine.step(sender, report, 0) == []
                assert not source.idle
            for other in (replace(report, child="d"), replace(report, generation=2)):
                assert machine.step(other.child, other, 0) == []
                assert not source.idle
            machine.step("c", report, 0)
            assert machine.engine.sources[name].idle

    asyncio.run(run())


def test_a_source_that_is_far_ahead_of_another_waits_and_is_seen(tmp_path: Path) -> None:
    async def run() -> None:
        async with tree(tmp_path) as grown:
            spool = Spool.open(tmp_path / "ahead", limit_bytes=1 << 20)
            client = SourceClient("ahead", "c", spool, sources.Settings(rows=1))
            hour = 3_600 * SECOND
            try:
                grown.spool.append([SECOND], [1.0])
                await grown.until(lambda: grown.client.done)
                spool.append([SECOND, 3 * hour, 3 * hour + 1], [1.0, 1.0, 1.0])
                client.start(f"127.0.0.1:{grown.child.machine.address.rpartition(':')[2]}")
                await grown.until(lambda: len(grown.child.ahead) == 1)
                assert not client.done
                grown.spool.append([3 * hour], [1.0])
                await grown.until(lambda: client.done)
                await grown.until(lambda: len(grown.child.ahead) == 0)
            finally:
                await client.stop()
                spool.close()

    asyncio.run(run())


def test_too_many_keys_are_told_on_all_sides(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        async with tree(tmp_path, keys_per_source=2) as grown:
            grown.spool.append([1, 2, 3], [1.0, 2.0, 4.0], key=[0, 1, 2], keys=("a", "b", "c"))
            await grown.until(lambda: grown.client.machine.fenced)
            assert sum(grown.root.machine.committed.values()) == 2
            assert grown.child.machine.keys.refused > 0
            await grown.until(lambda: not grown.child.machine.keys.over)

    asyncio.run(run())
    messages = ("a source brings too many keys", "a source is fenced", "fenced: nothing is sent")
    told = [vars(record) | {"message": record.getMessage()} for record in caplog.records]
    for message in messages:
        (line,) = [each for each in told if each["message"] == message]
        assert line["source"] == "s"
    (line,) = [each for each in told if each["message"] == messages[0]]
    assert (line["keys"], line["limit"]) == (3, 2)


def test_a_fenced_source_is_told_on_both_sides(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        async with tree(tmp_path) as grown:
            grown.spool.append([1], [1.0])
            await grown.until(lambda: grown.client.done)
            spool = Spool.open(tmp_path / "other", limit_bytes=1 << 20)
            spool.append([2], [1.0])
            # Another device by the same name, at another child of the same root.
            child = NodeRuntime("d", "root", child=True, flush_interval=0.02)
            below = await child.start("127.0.0.1:0", grown.child.exchange.uplink.address)
            client = SourceClient("s", "d", spool)
            client.start(f"127.0.0.1:{below}")
            try:
                await grown.until(lambda: grown.client.machine.fenced)
                await grown.until(lambda: client.done)
            finally:
                await client.stop()
                await child.stop()
                spool.close()

    asyncio.run(run())
    told = [record.getMessage().partition(":")[0] for record in caplog.records]
    assert told.count("a source is fenced") == 1
    assert told.count("fenced") == 1


@given(st.floats(0.001, 60.0))
def test_a_flush_comes_as_often_as_was_asked_and_a_tick_often_enough(interval: float) -> None:
    pause, beats_a_flush, beats_a_tick = divide_interval(interval)
    assert pause * beats_a_flush == pytest.approx(interval)
    assert 0 < pause <= BEAT
    # Rarely flushed, a node still ticks; often flushed, it does so at most every fifth time.
    assert 1 <= beats_a_tick <= 5
    assert pause * beats_a_tick <= 1.5 * BEAT
