"""The root and its outbox: what every sink has is trimmed, and no restart delivers it again."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from pyarrow.dataset import dataset

from headwater.machines.root import Settings
from headwater.topology import Sink
from headwater_root.delivery import AheadOfLog, catch_up
from headwater_root.runtime import BEAT, RootRuntime
from headwater_root.sinks.jsonlines import JsonLines
from tests.patience import PATIENCE
from tests.root.disk import LOSSES, Died, Disk, Loss
from tests.root.pump import QUERIES, Pump

LINES, TABLES = Sink("jsonlines", "lines"), Sink("parquet", "tables")


def opened(directory: Path, *sinks: Sink, keep_results: bool = False) -> RootRuntime:
    return RootRuntime(QUERIES, directory, Settings(), sinks, keep_results=keep_results)


def closed(root: RootRuntime) -> None:
    asyncio.run(root.stop())


def starts(directory: Path) -> list[int]:
    """The windows that the sink of JSON lines holds."""
    path = directory / "sinks" / "lines" / "results.jsonl"
    return [json.loads(line)["start"] for line in path.read_bytes().splitlines()]


def held(root: RootRuntime) -> list[str]:
    return sorted(path.name for path in root.outbox.directory.glob("*-*"))


def test_what_every_sink_has_is_trimmed_and_not_delivered_again(tmp_path: Path) -> None:
    pump, root = Pump(), opened(tmp_path, LINES, TABLES)
    pump.introduce(root)
    pump.send(root, 6)
    assert len(held(root)) == 5
    closed(root)
    assert (held(root), root.outbox.bytes) == ([], 0)
    first = (tmp_path / "sinks" / "lines" / "results.jsonl").read_bytes()
    for sent in (11, 16):
        root = opened(tmp_path, LINES, TABLES)
        # The replay has come by every window, and written none that is delivered.
        assert (root.windows, held(root)) == (sent - 6, [])
        assert root.deliveries.behind == 0
        pump.send(root, 5)
        assert len(held(root)) == 5
        closed(root)
    assert starts(tmp_path) == list(range(10, 160, 10))
    assert (tmp_path / "sinks" / "lines" / "results.jsonl").read_bytes().startswith(first)
    found = dataset(tmp_path / "sinks" / "tables").to_table().to_pylist()
    assert sorted(row["start"] for row in found) == list(range(10, 160, 10))
    assert len({row["id"] for row in found}) == len(found)


def test_the_slowest_sink_holds_the_outbox(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pump, root = Pump(), opened(tmp_path, LINES, TABLES)
    pump.introduce(root)
    pump.send(root, 4)
    closed(root)
    root = opened(tmp_path, LINES, TABLES)
    pump.send(root, 4)
    with monkeypatch.context() as fault:
        fault.setattr(JsonLines, "deliver", _no_room)
        closed(root)
    assert len(held(root)) == 4
    assert dataset(tmp_path / "sinks" / "tables").count_rows() == 7
    root = opened(tmp_path, LINES, TABLES)
    assert len(held(root)) == 4
    closed(root)
    assert starts(tmp_path) == list(range(10, 80, 10))
    assert dataset(tmp_path / "sinks" / "tables").count_rows() == 7
    assert held(root) == []


def _no_room(self: JsonLines, position: int, rows: bytes) -> None:
    raise OSError(28, "no room")


def test_at_the_bound_nothing_is_acknowledged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        pump, root = Pump(), opened(tmp_path, LINES)
        pump.introduce(root)
        root.outbox.bound = 1
        fault = pytest.MonkeyPatch()
        fault.setattr(JsonLines, "deliver", _no_room)
        try:
            await root.start("127.0.0.1:0")
            pump.offer(root, 3)
            # The first beat takes what waits; its results are more than fits.
            await _until(lambda: root.outbox.full)
            position = root.machine.position
            pump.offer(root, 3)
            # For several beats nothing happens.
            await asyncio.sleep(10 * BEAT)
            assert root.figures()["outbox_full"] == 1
            assert (root.machine.position, root.failed) == (position, None)
            fault.undo()
            await _until(lambda: root.machine.position == position + 3)
        finally:
            fault.undo()
            await root.stop()
        assert root.outbox.bytes == 0

    monkeypatch.setattr("headwater_root.delivery.FIRST_WAIT", 0.02)
    asyncio.run(run())
    assert starts(tmp_path) == list(range(10, 60, 10))


async def _until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not holds():
            await asyncio.sleep(0.01)


def test_without_sinks_the_newest_stay_and_nothing_waits(tmp_path: Path) -> None:
    async def run() -> None:
        pump, root = Pump(), opened(tmp_path)
        pump.introduce(root)
        await root.start("127.0.0.1:0")
        try:
            pump.offer(root, 2)
            await _until(lambda: root.outbox.bytes > 0)
            root.outbox.bound = 4 * root.outbox.bytes
            for _ in range(20):
                pump.unanswered.clear()
                wanted = root.machine.position + 1
                pump.offer(root, 1)
                await _until(lambda wanted=wanted: root.machine.position == wanted)  # type: ignore[misc]  # bound now
        finally:
            await root.stop()
        assert not root.outbox.full
        newest = [json.loads(rows)["start"] for _, rows in root.outbox.read(0)]
        assert newest == list(range(10, 220, 10))[-len(newest) :]
        assert 2 <= len(newest) <= 4

    asyncio.run(run())
    root = opened(tmp_path)
    assert root.windows == 21
    assert 2 <= len(held(root)) <= 4
    closed(root)


def test_results_are_kept_if_asked_for(tmp_path: Path) -> None:
    pump, root = Pump(), opened(tmp_path, LINES, keep_results=True)
    pump.introduce(root)
    pump.send(root, 6)
    names = held(root)
    closed(root)
    root = opened(tmp_path, LINES, keep_results=True)
    assert (held(root), len(names), root.outbox.full) == (names, 5, False)
    closed(root)
    assert starts(tmp_path) == list(range(10, 60, 10))


def test_files_bear_the_epoch_of_the_log(tmp_path: Path) -> None:
    pump, root = Pump(), opened(tmp_path)
    pump.introduce(root)
    pump.send(root, 4)
    closed(root)
    first = held(root)
    assert {name[-10:] for name in first} == {"0000000001"}
    # As if the root had died between the log and the outbox.
    (root.outbox.directory / first[-1]).unlink()
    root = opened(tmp_path)
    assert root.log.epoch == 2
    pump.send(root, 1)
    assert [name[-1] for name in held(root)] == ["1", "1", "2", "2"]
    assert [json.loads(rows)["start"] for _, rows in root.outbox.read(0)] == [10, 20, 30, 40]
    closed(root)


def test_a_log_that_ends_before_what_was_delivered_is_refused(tmp_path: Path) -> None:
    pump, root = Pump(), opened(tmp_path, LINES)
    pump.introduce(root)
    pump.send(root, 4)
    closed(root)
    (tmp_path / "inbox").rename(tmp_path / "lost")
    with pytest.raises(AheadOfLog, match="newest copy of its log"):
        opened(tmp_path, LINES)


def test_a_sink_that_comes_later_begins_with_what_is_there(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    pump, root = Pump(), opened(tmp_path, TABLES)
    pump.introduce(root)
    pump.send(root, 4)
    closed(root)
    root = opened(tmp_path, TABLES, LINES)
    assert "a sink begins behind results that are gone" in caplog.messages
    pump.send(root, 2)
    closed(root)
    assert starts(tmp_path) == [40, 50]
    assert held(root) == []


@pytest.mark.parametrize("loss", LOSSES)
def test_a_crash_at_any_step_delivers_everything_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, loss: Loss
) -> None:
    for step in range(1, 200):
        directory = tmp_path / str(step)
        directory.mkdir()
        pump, root = Pump(), opened(directory, LINES)
        pump.introduce(root)
        pump.send(root, 3)
        disk = Disk(monkeypatch, directory, dies_at=step)
        try:
            for sink in root.deliveries._sinks:
                catch_up(root.outbox, sink)
            root.deliveries._trim()
        except Died:
            pass
        disk.recover(monkeypatch, loss)
        root.log.close()
        root = opened(directory, LINES)
        closed(root)
        assert starts(directory) == [10, 20]
        assert held(root) == []
        if not disk.died:
            return
    raise AssertionError("it never came to an end")
