"""Sinks beside each other: who fails is told once, by a name of its own, and so is that it works again."""

from __future__ import annotations

import asyncio
import logging
import threading
from pathlib import Path

import pytest

from headwater.errors import Invalid
from headwater.topology import Sink
from headwater_root import delivery
from headwater_root.delivery import Deliveries, Overtaken, Trouble, catch_up, groups, sinks_of
from headwater_root.log import Log
from headwater_root.outbox import Outbox
from tests.patience import PATIENCE


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
        async with asyncio.timeout(PATIENCE):
            while not deliveries.failing or deliveries.lags["1-jsonlines"]:
                await asyncio.sleep(0.01)
            assert list(deliveries.failing) == ["0-jsonlines"]
            assert deliveries.lags == {"0-jsonlines": 1, "1-jsonlines": 0}
            assert deliveries.behind == 1
            while deliveries.failing["0-jsonlines"].attempts < 3:
                await asyncio.sleep(0.01)
            assert deliveries.failures["0-jsonlines"] >= 3
            assert deliveries.failing_seconds["0-jsonlines"] > deliveries.failing_seconds["1-jsonlines"] == 0
            healed = True
            while deliveries.failing:
                await asyncio.sleep(0.01)
        await deliveries.stop()

    asyncio.run(run())
    told = [(record.getMessage(), vars(record)["sink"]) for record in caplog.records]
    assert told == [("a sink fails", "0-jsonlines"), ("a sink has recovered", "0-jsonlines")]
    assert (tmp_path / "sinks" / "one" / "results.jsonl").read_bytes() == b"{}\n"


def test_a_sink_that_hangs_is_told_and_does_not_hold_the_end_up(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = [Sink("jsonlines", "one"), Sink("jsonlines", "two")]
    outbox, sinks = Outbox(tmp_path / "outbox"), sinks_of(asked, tmp_path / "sinks")
    outbox.write(1, 1, b"{}\n")
    read, hangs = threading.Event(), threading.Event()

    def hanging(position: int, rows: bytes) -> None:
        hangs.set()
        read.wait()

    sinks[0].deliver = hanging  # type: ignore[method-assign]  # a pipe that nobody reads

    async def run() -> None:
        deliveries = Deliveries(outbox, sinks, patience=2.0)
        deliveries.start()
        assert await asyncio.to_thread(hangs.wait, 20)
        assert deliveries.failing == {}
        async with asyncio.timeout(PATIENCE):
            while deliveries.lags["1-jsonlines"]:
                await asyncio.sleep(0.01)
            # Its delivery may not have come to its end, though the cursor has.
            while deliveries._serving[1]._begun is not None:
                await asyncio.sleep(0.01)
        monkeypatch.setattr(delivery, "HANGS", 0.0)
        assert list(deliveries.failing) == ["0-jsonlines"]
        assert "one delivery has not come to an end" in str(deliveries.failing["0-jsonlines"])
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
        async with asyncio.timeout(PATIENCE):
            while deliveries.behind:
                await asyncio.sleep(0.01)
        await deliveries.stop()

    asyncio.run(run())
    assert tried == 2


def test_what_is_told_of_a_trouble(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery, "monotonic", lambda: 112.4)
    assert str(Trouble("no room", 100.0)) == "for 12 s, tried once: no room"
    assert str(Trouble("no room", 100.0, 7)) == "for 12 s, tried 7 times: no room"


def test_files_of_the_outbox_are_taken_together() -> None:
    files = [(1, b"a\n"), (4, b"bb\n"), (5, b""), (9, b"c" * 20 + b"\n"), (10, b"d\n")]
    assert list(groups(files, 100)) == [(10, b"a\nbb\n" + b"c" * 20 + b"\nd\n")]
    assert list(groups(files, 6)) == [(5, b"a\nbb\n"), (9, b"c" * 20 + b"\n"), (10, b"d\n")]
    assert list(groups([], 6)) == []
    assert list(groups([(3, b"")], 6)) == [(3, b"")]


def test_a_root_that_was_overtaken_delivers_nothing_more(tmp_path: Path) -> None:
    outbox, (sink,) = Outbox(tmp_path / "outbox"), sinks_of([Sink("jsonlines", "one")], tmp_path / "sinks")
    outbox.write(1, 1, b"{}\n")
    with pytest.raises(Overtaken):
        catch_up(outbox, sink, lambda: True)
    assert sink.cursor == 0
    catch_up(outbox, sink, lambda: False)
    assert sink.cursor == 1
    sink.close()


def test_without_pyarrow_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery, "find_spec", lambda name: None)
    with pytest.raises(Invalid, match=r"spec\.root\.sinks\[0\].*pip install 'headwater\[arrow\]'"):
        sinks_of([Sink("parquet", "tables")], tmp_path)


def test_a_log_knows_that_it_was_overtaken(tmp_path: Path) -> None:
    log = Log.open(tmp_path)
    assert not log.overtaken
    # As a later opening does on a volume where the lock does not reach.
    (tmp_path / "epoch").write_text(f"{log.epoch + 1} another\n")
    assert log.overtaken
    log.close()


def test_an_error_of_the_moment_does_not_end_the_trimming(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(delivery, "TRIM", 0.0)
    monkeypatch.setattr(delivery, "LOOK_FULL", 0.01)
    outbox = Outbox(tmp_path / "outbox")
    sinks = sinks_of([Sink("jsonlines", "lines")], tmp_path / "sinks")
    troubles = [OSError(24, "Too many open files"), RuntimeError("of another kind")]
    trimming = threading.Event()

    def overtaken() -> bool:
        if troubles and trimming.is_set() and threading.current_thread().name.startswith("asyncio"):
            raise troubles.pop(0)
        return False

    async def run() -> None:
        deliveries = Deliveries(outbox, sinks, overtaken=overtaken)
        deliveries.start()
        trimming.set()
        async with asyncio.timeout(PATIENCE):
            while troubles:
                await asyncio.sleep(0.01)
            outbox.write(1, 1, b"{}\n")
            while outbox.trimmed < 1:
                await asyncio.sleep(0.01)
        await deliveries.stop()

    asyncio.run(run())
    told = [vars(record)["problem"] for record in caplog.records]
    assert told == ["[Errno 24] Too many open files", "of another kind"]


def test_whoever_is_overtaken_trims_nothing(tmp_path: Path) -> None:
    outbox = Outbox(tmp_path / "outbox")
    sinks = sinks_of([Sink("jsonlines", "one")], tmp_path / "sinks")
    outbox.write(1, 1, b"{}\n")
    catch_up(outbox, sinks[0])
    deliveries = Deliveries(outbox, sinks, overtaken=lambda: True)
    deliveries._trim()
    assert outbox.trimmed == 0
    assert list(outbox.read(0)) == [(1, b"{}\n")]
    Deliveries(outbox, sinks)._trim()
    assert outbox.trimmed == 1
    sinks[0].close()
