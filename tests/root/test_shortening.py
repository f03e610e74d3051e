"""The root's log stays short: it goes on with a snapshot, old segments go, and a restart begins there."""

from __future__ import annotations

import asyncio
import errno
from pathlib import Path

import pytest

from headwater.aggregates import UserDefined
from headwater.machines.root import LogDiffers, Settings
from headwater.queries import Query
from headwater.windows import Tumbling
from headwater_root import snapshots
from headwater_root.log import Log
from headwater_root.runtime import RootRuntime, StateUnreadable
from headwater_root.segments import LogDamaged
from tests.root.pump import QUERIES, Pump

WINDOWS = 20


def opened(directory: Path, *, segment_bytes: int = 1, keep_results: bool = False) -> RootRuntime:
    return RootRuntime(QUERIES, directory, Settings(), keep_results=keep_results, segment_bytes=segment_bytes)


def closed(root: RootRuntime) -> None:
    asyncio.run(root.stop())


def contents(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (directory / "outbox").iterdir()}


def filled(directory: Path, *, rounds: int = 12, keep_results: bool = False) -> Pump:
    """A directory that a root has filled, shortening its log on the way."""
    pump, root = Pump(), opened(directory, keep_results=keep_results)
    pump.introduce(root)
    for _ in range(rounds):
        pump.send(root, WINDOWS)
        root.shorten()
    closed(root)
    return pump


def test_old_segments_go_and_nothing_else_changes(tmp_path: Path) -> None:
    whole, short = tmp_path / "whole", tmp_path / "short"
    roots = {whole: 2**30, short: 1}
    pumps = {whole: Pump(), short: Pump()}
    for turn in range(4):
        for directory, segment_bytes in roots.items():
            root, pump = opened(directory, segment_bytes=segment_bytes), pumps[directory]
            if turn == 0:
                pump.introduce(root)
            else:
                assert root.windows == turn * 5 * WINDOWS - 1
            assert (root.restored > 0) == (turn > 0 and directory == short)
            for _ in range(5):
                pump.send(root, WINDOWS)
                root.shorten()
            # The state and as many bytes of records, whatever was there before.
            assert root.log.size < 2.5 * len(root.log.snapshot[1]) or directory == whole
            assert (root.log.first > 1) == (directory == short)
            assert bool(root.machine.engine.decisions) == (directory == whole)
            figures, counted = root.figures(), root.machine.committed
            closed(root)
            again = opened(directory, segment_bytes=segment_bytes)
            assert again.machine.committed == counted
            # Each opening is a record itself.
            # Items are those that this process has taken.
            expected = {**figures, "position": root.machine.position + 1, "items": 0}
            assert again.figures() == expected
            closed(again)
        # The same bytes under the same names.
        assert contents(whole) == contents(short)
    assert len(contents(short)) == 20 * WINDOWS - 1


def test_a_log_of_many_restarts_is_shortened_too(tmp_path: Path) -> None:
    pump, firsts = Pump(), []
    for turn in range(8):
        root = opened(tmp_path, segment_bytes=12_000)
        if turn == 0:
            pump.introduce(root)
        pump.send(root, 10)
        root.shorten()
        firsts.append(root.log.first)
        closed(root)
    # No opening alone comes to a segment.
    assert firsts[0] == 1 < firsts[-1]


def test_whoever_keeps_results_keeps_the_log(tmp_path: Path) -> None:
    pump = filled(tmp_path, keep_results=True)
    with Log.open(tmp_path / "inbox") as log:
        assert (log.first, len(list(log.read(0)))) == (1, log.committed)
        assert log.snapshot[0] > 1
    # What a root that died behind a snapshot has left goes with the next one.
    root = opened(tmp_path)
    assert 1 < root.restored < root.log.first
    pump.send(root, WINDOWS)
    closed(root)


def test_what_waits_is_in_no_snapshot(tmp_path: Path) -> None:
    pump, root = Pump(), opened(tmp_path)
    pump.introduce(root)
    pump.offer(root, 1)
    root.shorten()
    assert root.log.snapshot == (0, b"")
    root.machine.tick(0)
    root.shorten()
    assert root.log.snapshot[0] == root.machine.position
    closed(root)


def test_records_stay_until_their_results_are_in_the_outbox(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*given: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    pump, root = Pump(), opened(tmp_path)
    pump.introduce(root)
    pump.send(root, 2)
    pump.offer(root, 3)
    monkeypatch.setattr(root.outbox, "write", full)
    with pytest.raises(OSError, match="No space"):
        root.machine.tick(0)
    root.shorten()
    assert (root.log.snapshot, len(contents(tmp_path))) == ((0, b""), 1)
    root.log.close()
    root = opened(tmp_path)
    assert len(contents(tmp_path)) == 4
    root.shorten()
    assert root.log.first > 1
    closed(root)


def test_a_snapshot_that_is_damaged_is_seen(tmp_path: Path) -> None:
    filled(tmp_path)
    newest = max((tmp_path / "inbox").glob("*.log"))
    data = bytearray(newest.read_bytes())
    data[200] ^= 1
    newest.write_bytes(data)
    with pytest.raises(LogDamaged, match="the snapshot has a wrong checksum"):
        opened(tmp_path)


def test_a_snapshot_of_another_format(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    short, whole = tmp_path / "short", tmp_path / "whole"
    filled(short)
    filled(whole, keep_results=True)
    files = contents(whole)
    written = snapshots.FORMAT
    monkeypatch.setattr(snapshots, "FORMAT", written + 1)
    with pytest.raises(StateUnreadable) as told:
        opened(short)
    sentence = f"wrote the state of the root in format {written}, and this one reads format {written + 1}"
    assert sentence in str(told.value)
    assert "start the release that wrote it" in str(told.value)
    root = opened(whole)
    assert (root.restored, root.windows) == (0, 12 * WINDOWS - 1)
    closed(root)
    assert contents(whole) == files
    monkeypatch.undo()
    # The halt has changed nothing, and let go of the log.
    root = opened(short)
    assert root.windows == 12 * WINDOWS - 1
    closed(root)


def test_other_queries_than_those_of_a_log_that_does_not_tell_are_refused(tmp_path: Path) -> None:
    filled(tmp_path)
    # Releases before did not write it.
    (tmp_path / "queries.json").unlink()
    with pytest.raises(LogDiffers, match=r"other queries to begin with \(q\) than were given \(other\)"):
        RootRuntime([Query("other", Tumbling(10))], tmp_path, Settings())
    closed(opened(tmp_path))


def test_a_state_that_cannot_be_written_holds_nothing_up(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    pump, root = Pump(), opened(tmp_path)
    pump.introduce(root)
    unknown = UserDefined("unknown", lambda value: 1, lambda one, two: one, lambda state: state)
    root.machine.add(Query("u", Tumbling(10), unknown))
    for _ in range(3):
        root.shorten()
    assert [record.message for record in caplog.records] == ["the log cannot be shortened"]
    assert root.log.snapshot == (0, b"")
    closed(root)
