"""Sinks beside each other: who fails is told once, by a name of its own, and so is that it works again."""

from __future__ import annotations

import asyncio
import logging
import threading
from pathlib import Path

import pytest

from headwater.topology import Sink
from headwater_root.delivery import Deliveries, sinks_of
from headwater_root.outbox import Outbox


def test_one_of_two_sinks_of_a_type_fails_and_recovers(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    asked = [Sink("jsonlines", "one"), Sink("jsonlines", "two")]
    outbox, sinks = Outbox(tmp_path / "outbox"), sinks_of(asked, tmp_path / "sinks")
    outbox.write(1, 1, b"{}\n")
    deliver, healed = sinks[0].deliver, False

    def broken(position: int, rows: bytes) -> None:
        if not healed:
            raise OSError(28, "No space left on device")
        deliver(position, rows)

    sinks[0].deliver = broken  # type: ignore[method-assign]  # the fault

    async def run() -> None:
        nonlocal healed
        deliveries = Deliveries(outbox, sinks)
        deliveries.start()
        async with asyncio.timeout(20):
            while not deliveries.failing or deliveries.lags["1-jsonlines"]:
                await asyncio.sleep(0.01)
            assert list(deliveries.failing) == ["0-jsonlines"]
            assert deliveries.lags == {"0-jsonlines": 1, "1-jsonlines": 0}
            assert deliveries.behind == 1
            # Tried several times by then.
            await asyncio.sleep(0.5)
            healed = True
            while deliveries.failing:
                await asyncio.sleep(0.01)
        await deliveries.stop()

    asyncio.run(run())
    told = [(record.getMessage(), vars(record)["sink"]) for record in caplog.records]
    assert told == [("a sink fails", "0-jsonlines"), ("a sink has recovered", "0-jsonlines")]
    assert (tmp_path / "sinks" / "one" / "results.jsonl").read_bytes() == b"{}\n"


def test_a_sink_that_hangs_does_not_hold_the_end_up(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    asked = [Sink("jsonlines", "one"), Sink("jsonlines", "two")]
    outbox, sinks = Outbox(tmp_path / "outbox"), sinks_of(asked, tmp_path / "sinks")
    outbox.write(1, 1, b"{}\n")
    read, hangs = threading.Event(), threading.Event()

    def hanging(position: int, rows: bytes) -> None:
        hangs.set()
        read.wait()

    sinks[0].deliver = hanging  # type: ignore[method-assign]  # a pipe that nobody reads

    async def run() -> None:
        deliveries = Deliveries(outbox, sinks, patience=0.1)
        deliveries.start()
        assert await asyncio.to_thread(hangs.wait, 20)
        await deliveries.stop()

    try:
        asyncio.run(run())
    finally:
        read.set()
    told = [(record.getMessage(), vars(record)["sink"]) for record in caplog.records]
    assert told == [("a sink does not end", "0-jsonlines")]
    # The other one has everything, and nothing is trimmed that one of them has not.
    assert (tmp_path / "sinks" / "two" / "results.jsonl").read_bytes() == b"{}\n"
    assert [rows for _, rows in outbox.read(0)] == [b"{}\n"]


def test_whatever_a_sink_raises_it_is_tried_again(tmp_path: Path) -> None:
    outbox, (sink,) = Outbox(tmp_path / "outbox"), sinks_of([Sink("jsonlines", "one")], tmp_path / "sinks")
    outbox.write(1, 1, b"{}\n")
    deliver, tried = sink.deliver, 0

    def broken(position: int, rows: bytes) -> None:
        nonlocal tried
        tried += 1
        if tried == 1:
            raise ZeroDivisionError
        deliver(position, rows)

    sink.deliver = broken  # type: ignore[method-assign]  # the fault

    async def run() -> None:
        deliveries = Deliveries(outbox, [sink])
        deliveries.start()
        async with asyncio.timeout(20):
            while deliveries.behind:
                await asyncio.sleep(0.01)
        await deliveries.stop()

    asyncio.run(run())
    assert tried == 2
