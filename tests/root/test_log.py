"""The root's log: what was committed is there after any crash, and nothing else is believed."""

from __future__ import annotations

import errno
import os
import random
import shutil
import tempfile
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater_root import log as log_module
from headwater_root import segments
from headwater_root.log import Fenced, Log, LogClosed, LogHeld, LogStopped, LogTruncated
from headwater_root.segments import LogDamaged, NewerFormat, RecordTooLarge
from tests.root.disk import LOSSES, Died, Disk, Loss


def records(log: Log) -> list[bytes]:
    found = list(log.read(log.first - 1))
    assert [position for position, _ in found] == list(range(log.first, log.committed + 1))
    return [payload for _, payload in found]


def written(directory: Path, *payloads: bytes) -> Path:
    """A log with one segment; its path."""
    with Log.open(directory) as log:
        committed(log, *payloads)
    return newest(directory)


def committed(log: Log, *payloads: bytes) -> None:
    log.append(payloads)
    log.sync()


def newest(directory: Path) -> Path:
    return max(directory.glob("*.log"))


@pytest.fixture
def unbuffered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every append reaches the file with the next one."""
    monkeypatch.setattr(log_module, "SPILL", 0)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing waits for the disk, where a test opens the log often and the power does not fail."""
    monkeypatch.setattr(os, "fsync", lambda _: None)


# Reading what was written


def test_positions_run_on_over_segments_and_openings(tmp_path: Path) -> None:
    with Log.open(tmp_path) as log:
        assert (log.epoch, log.first, log.committed, log.size, log.snapshot) == (1, 1, 0, 0, (0, b""))
        assert log.append([b"a", b""]) == range(1, 3)
        assert (log.committed, log.end, list(log.read(0))) == (0, 2, [])
        assert log.sync() == 2
        log.roll(b"state at 2")
        assert log.tail_size == 0
        assert log.append([b"c"]) == range(3, 4)
        log.sync()
        tail = log.tail_size
        assert log.size == sum(path.stat().st_size for path in tmp_path.glob("*.log"))
    with Log.open(tmp_path) as log:
        assert (log.epoch, log.committed, log.torn) == (2, 3, 0)
        # The control state goes on, with the position at which it held.
        assert log.snapshot == (2, b"state at 2")
        committed(log, b"d")
        assert log.snapshot == (2, b"state at 2")
        # Behind the snapshot, not in the segment alone: whoever restarts often must come to roll too.
        assert log.tail_size == 2 * tail > 0
        assert list(log.read(1)) == [(2, b""), (3, b"c"), (4, b"d")]
        assert list(log.read(4)) == []
    assert sorted(path.name for path in tmp_path.glob("*.log")) == [
        "00000000000000000001-0000000001.log",
        "00000000000000000003-0000000001.log",
        "00000000000000000004-0000000002.log",
    ]


def test_a_segment_without_records_is_begun_again(tmp_path: Path) -> None:
    with Log.open(tmp_path) as log:
        log.roll(b"one")
        log.roll(b"two")
        assert len(list(tmp_path.glob("*.log"))) == 1
    for turn in range(2):
        with Log.open(tmp_path) as log:
            log.roll(b"%d" % turn)
    with Log.open(tmp_path) as log:
        assert log.snapshot == (0, b"1")
        committed(log, b"a")
        log.truncate(2)
        assert records(log) == [b"a"]
    with Log.open(tmp_path) as log:
        assert records(log) == [b"a"]


def test_what_is_not_synced_is_not_kept(tmp_path: Path) -> None:
    with Log.open(tmp_path) as log:
        committed(log, b"a")
        log.append([b"b"])
    with Log.open(tmp_path) as log:
        assert records(log) == [b"a"]
        log.close()
        with pytest.raises(LogClosed):
            log.append([b"c"])
        log.close()


@pytest.mark.parametrize("spill", [0, 1_000, 2**20])
def test_closing_drops_also_what_has_reached_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spill: int
) -> None:
    monkeypatch.setattr(log_module, "SPILL", spill)
    with Log.open(tmp_path) as log:
        committed(log, b"a")
        size = log.size
        for payload in (b"b" * 2_000, b"c" * 2_000, b"d"):
            log.append([payload])
    assert newest(tmp_path).stat().st_size == size
    with Log.open(tmp_path) as log:
        assert (records(log), log.torn) == ([b"a"], 0)
        committed(log, b"e")
        assert records(log) == [b"a", b"e"]


def test_reading_finds_its_place_without_reading_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segments, "STRIDE", 100)
    payloads = [b"%d" % n * (n % 7) for n in range(300)]
    written(tmp_path, *payloads)
    with Log.open(tmp_path) as log:
        log.append(payloads)
        log.sync()
        for after in range(0, 600, 7):
            assert [payload for _, payload in log.read(after)] == [*payloads, *payloads][after:]


def test_a_record_has_a_bound_and_a_group_is_taken_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segments, "RECORD_BOUND", 10)
    with Log.open(tmp_path) as log:
        with pytest.raises(RecordTooLarge, match="11 bytes"):
            log.append([b"a", b"b" * 11])
        assert log.append([b"c" * 10]) == range(1, 2)
        log.sync()
        assert records(log) == [b"c" * 10]


def test_truncating_drops_whole_segments_that_the_snapshot_covers(tmp_path: Path) -> None:
    with Log.open(tmp_path) as log:
        log.truncate(5)
        for number in range(1, 5):
            log.append([b"%d" % number, b"and more"])
            log.roll(b"state %d" % number)
        committed(log, b"5")
        before = log.size
        log.truncate(4)  # inside the second one
        assert (log.first, next(log.read(2))) == (3, (3, b"2"))
        assert log.size < before
        with pytest.raises(LogTruncated, match="record 1 was asked for, but the log begins with 3"):
            next(log.read(0))
    with Log.open(tmp_path) as log:
        assert (log.first, log.committed) == (3, 9)
        committed(log, b"6")
        log.truncate(1_000)
        # The snapshot holds at 8, and is in a segment of the opening before and in that of this one.
        assert (log.first, log.snapshot) == (9, (8, b"state 4"))
        log.roll(b"state at the end")
        log.truncate(1_000)
        assert (log.first, records(log)) == (11, [])
    with Log.open(tmp_path) as log:
        assert (log.first, log.committed, log.snapshot) == (11, 10, (10, b"state at the end"))


def test_readers_follow_a_writer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segments, "STRIDE", 500)
    total = 1_500
    seen: list[tuple[int, bytes]] = []

    def write(log: Log) -> None:
        draw = random.Random(7)
        while log.end < total:
            log.append([b"%d" % n * 20 for n in range(log.end + 1, log.end + draw.randrange(2, 9))])
            if draw.random() < 0.7:
                log.sync()
            if draw.random() < 0.1:
                log.roll(b"")
                # No reader is there any more.
                log.truncate(seen[-1][0] if seen else 0)
        log.sync()

    with Log.open(tmp_path) as log, mock.patch("os.fsync"):
        writer = threading.Thread(target=write, args=(log,))
        writer.start()
        while writer.is_alive() or len(seen) < log.committed:
            for position, payload in log.read(len(seen)):
                assert position <= log.committed
                seen.append((position, payload))
        writer.join()
    assert seen == [(n, b"%d" % n * 20) for n in range(1, len(seen) + 1)]
    assert len(seen) >= total


def test_appending_goes_on_during_a_sync(tmp_path: Path) -> None:
    with Log.open(tmp_path) as log:
        log.append([b"a"])

        def fsync(_: int) -> None:
            other = threading.Thread(target=log.append, args=([b"b"],))
            other.start()
            other.join(5)
            assert not other.is_alive()

        with mock.patch("os.fsync", fsync):
            assert log.sync() == 1
        assert log.end == 2
        assert log.sync() == 2


# Torn tails and damage


@pytest.mark.usefixtures("unbuffered", "quick")
def test_a_tail_that_is_torn_at_any_byte_is_cut(tmp_path: Path) -> None:
    with Log.open(tmp_path / "log") as log:
        committed(log, b"first", b"second")
        whole = log.size
        log.append([b"the last one"])
        log.append([])
        for size in range(whole, log.size + 1):
            copy = tmp_path / str(size)
            shutil.copytree(tmp_path / "log", copy)
            os.truncate(newest(copy), size)
            with Log.open(copy) as again:
                complete = size == log.size
                assert again.torn == (0 if complete else size - whole)
                assert records(again) == [b"first", b"second", *[b"the last one"][: int(complete)]]
            with Log.open(copy) as again:
                assert again.torn == 0
                again.append([b"next"])
                again.sync()
            with Log.open(copy) as again:
                assert (again.torn, records(again)[-1]) == (0, b"next")


@pytest.mark.usefixtures("unbuffered")
def test_pages_that_reached_the_disk_in_another_order_are_a_torn_tail(tmp_path: Path) -> None:
    with Log.open(tmp_path / "log") as log:
        committed(log, b"first")
        whole = log.size
        log.append([b"x" * 100, b"y" * 100, b"z" * 100])
        log.append([])
        shutil.copytree(tmp_path / "log", tmp_path / "copy")
        with newest(tmp_path / "copy").open("r+b") as file:
            file.seek(whole)
            file.write(bytes(100))
    with Log.open(tmp_path / "copy") as log:
        assert records(log) == [b"first"]
        assert log.torn > 300


@pytest.mark.usefixtures("quick")
def test_a_flipped_bit_in_a_committed_record_is_damage(tmp_path: Path) -> None:
    path = written(tmp_path / "log", b"first", b"second", b"third")
    whole = path.read_bytes()
    begin = whole.index(b"\xf5HWr")
    for offset in range(begin, len(whole)):
        path.write_bytes(whole[:offset] + bytes([whole[offset] ^ 0x10]) + whole[offset + 1 :])
        with pytest.raises(LogDamaged, match="restore the directory") as raised:
            Log.open(tmp_path / "log")
        assert raised.value.path == path
        assert begin <= raised.value.offset <= offset


@pytest.mark.parametrize("proof", [b"", b"torn"])
def test_later_groups_prove_that_a_record_was_committed(tmp_path: Path, proof: bytes) -> None:
    with Log.open(tmp_path) as log:
        for payload in (b"first", b"second", b"third"):
            log.append([payload])
            log.sync()
    (tmp_path / "committed").write_bytes(proof)
    path = newest(tmp_path)
    whole = path.read_bytes()
    for name, expected in ((b"first", LogDamaged), (b"second", LogDamaged)):
        path.write_bytes(whole.replace(name, name.upper()))
        with pytest.raises(expected, match="wrong checksum, and it was committed"):
            Log.open(tmp_path)
    # Nothing but a later record could tell that the last one is not torn.
    path.write_bytes(whole.replace(b"third", b"THIRD"))
    with Log.open(tmp_path) as log:
        assert records(log) == [b"first", b"second"]


def test_a_committed_record_that_is_gone_is_damage(tmp_path: Path) -> None:
    path = written(tmp_path, b"first", b"second")
    os.truncate(path, path.stat().st_size - 1)
    with pytest.raises(LogDamaged, match="record 2 is incomplete, and it was committed"):
        Log.open(tmp_path)
    path.unlink()
    with pytest.raises(LogDamaged, match="no segment, but record 2 was committed"):
        Log.open(tmp_path)


def test_an_older_segment_must_be_whole(tmp_path: Path) -> None:
    path = written(tmp_path, b"first", b"second")
    with Log.open(tmp_path) as log:
        log.roll(b"state")
    (tmp_path / "committed").unlink()
    whole = path.read_bytes()
    for broken in (whole[:-1], whole.replace(b"second", b"SECOND"), whole[:-40]):
        path.write_bytes(broken)
        with pytest.raises(LogDamaged, match=f"{path.name}, offset "):
            Log.open(tmp_path)
    path.unlink()
    with Log.open(tmp_path) as log:
        assert log.first == 3


def test_damage_that_comes_later_is_found_when_it_is_read(tmp_path: Path) -> None:
    path = written(tmp_path, b"first", b"second")
    with Log.open(tmp_path) as log:
        path.write_bytes(path.read_bytes().replace(b"second", b"SECOND"))
        reader = log.read(0)
        assert next(reader) == (1, b"first")
        with pytest.raises(LogDamaged, match="record 2 has a wrong checksum"):
            next(reader)


@pytest.mark.usefixtures("quick")
def test_headers_and_snapshots_are_checked(tmp_path: Path) -> None:
    with Log.open(tmp_path) as log:
        log.roll(b"the control state")
    path = newest(tmp_path)
    whole = path.read_bytes()
    for offset in range(len(whole)):
        path.write_bytes(whole[:offset] + bytes([whole[offset] ^ 1]) + whole[offset + 1 :])
        # The version is looked at first: how the rest of a later one is checked is not known here.
        with pytest.raises((LogDamaged, NewerFormat)):
            Log.open(tmp_path)
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        with pytest.raises(LogDamaged):
            Log.open(tmp_path)
    path.write_bytes(whole)
    path.rename(path.with_name("00000000000000000002-0000000001.log"))
    with pytest.raises(LogDamaged, match="the header is that of position 1 and epoch 1"):
        Log.open(tmp_path)


def test_a_later_format_is_refused_and_nothing_is_taken_from_its_writer(tmp_path: Path) -> None:
    with Log.open(tmp_path, format_version=2) as log:
        committed(log, b"a")
    with pytest.raises(NewerFormat, match="start the release that wrote it, or a later one"):
        Log.open(tmp_path)
    assert (tmp_path / "epoch").read_bytes().startswith(b"1 ")


def test_an_epoch_that_is_none(tmp_path: Path) -> None:
    for text in (b"", b"three"):
        (tmp_path / "epoch").write_bytes(text)
        with pytest.raises(LogDamaged, match="is no epoch"):
            Log.open(tmp_path)


# One writer


def test_a_second_writer_is_refused(tmp_path: Path) -> None:
    with Log.open(tmp_path):
        with pytest.raises(LogHeld, match="another process has this log open"):
            Log.open(tmp_path)
        assert (tmp_path / "epoch").read_bytes().startswith(b"1 ")
    with Log.open(tmp_path) as log:
        assert log.epoch == 2


ACTIONS: list[Callable[[Log], object]] = [Log.sync, lambda log: log.roll(b""), lambda log: log.truncate(1)]


@pytest.mark.parametrize("act", ACTIONS)
@pytest.mark.parametrize("epoch", [b"2\n", b"1 another opening\n"])
def test_a_writer_that_finds_another_epoch_is_fenced(
    tmp_path: Path, act: Callable[[Log], object], epoch: bytes
) -> None:
    with Log.open(tmp_path) as log:
        committed(log, b"a")
        size = log.size
        log.append([b"b"])
        (tmp_path / "epoch").write_bytes(epoch)
        for _ in range(2):
            with pytest.raises(Fenced, match="it must exit"):
                act(log)
        assert newest(tmp_path).stat().st_size == size
        with pytest.raises(Fenced):
            log.append([b"c"])
        assert log.committed == 1
        assert records(log) == [b"a"]


def test_the_epoch_is_looked_at_after_the_fsync_too(tmp_path: Path) -> None:
    with Log.open(tmp_path) as log:
        log.append([b"a"])

        def fsync(_: int) -> None:
            (tmp_path / "epoch").write_bytes(b"2\n")

        with mock.patch("os.fsync", fsync), pytest.raises(Fenced):
            log.sync()
        assert log.committed == 0


def test_an_epoch_file_that_was_only_touched_fences_nobody(tmp_path: Path) -> None:
    with Log.open(tmp_path) as log:
        (tmp_path / "epoch").chmod(0o600)
        log.append([b"a"])
        assert log.sync() == 1
        (tmp_path / "epoch").unlink()
        log.append([b"b"])
        with pytest.raises(LogStopped, match="looking at the epoch"):
            log.sync()


@pytest.mark.usefixtures("unbuffered")
def test_what_a_fenced_writer_still_writes_is_never_read(tmp_path: Path) -> None:
    # Where flock does not reach: the lock is another file for the second one.
    with Log.open(tmp_path) as first:
        first.append([b"a"])
        first.sync()
        first.append([b"taken over"])
        first.append([])
        (tmp_path / "lock").rename(tmp_path / "lock of the first")
        with Log.open(tmp_path) as second:
            assert records(second) == [b"a", b"taken over"]
            first.append([b"too late"])
            second.append([b"in time"])
            second.sync()
            first.append([b"and later"])
            with pytest.raises(Fenced):
                first.sync()
            assert records(second) == [b"a", b"taken over", b"in time"]
    with Log.open(tmp_path) as third:
        assert records(third) == [b"a", b"taken over", b"in time"]


@pytest.mark.usefixtures("unbuffered")
def test_a_fenced_writer_does_not_cut_what_was_taken_over(tmp_path: Path) -> None:
    with Log.open(tmp_path) as first:
        first.append([b"taken over"])
        first.append([])
        (tmp_path / "lock").rename(tmp_path / "lock of the first")
        with Log.open(tmp_path) as second:
            assert second.committed == 1
            first.append([b"too late"])
            with mock.patch("os.write", full), pytest.raises(LogStopped):
                first.append([b"and later"])
    with Log.open(tmp_path) as third:
        assert records(third) == [b"taken over"]


# A volume that fails


def full(*_: object) -> int:
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("spill", [0, 2**20])
def test_a_full_disk_stops_the_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spill: int) -> None:
    monkeypatch.setattr(log_module, "SPILL", spill)
    write = os.write
    with Log.open(tmp_path) as log:
        committed(log, b"a")
        size = log.size
        room = [10]

        def nearly_full(descriptor: int, data: bytes) -> int:
            if not room:
                full()
            return write(descriptor, bytes(data)[: room.pop()])

        monkeypatch.setattr(os, "write", nearly_full)
        with pytest.raises(LogStopped, match=r"records up to 1 are safe.*make room on the volume"):
            committed(log, b"b" * 100)
        monkeypatch.undo()
        # Also when there is room again: who is asked to start anew must find the log as it was said to be.
        for act in ACTIONS:
            with pytest.raises(LogStopped):
                act(log)
        with pytest.raises(LogStopped):
            log.append([b"c"])
        assert (log.committed, log.end, log.size, records(log)) == (1, 1, size, [b"a"])
    with Log.open(tmp_path) as log:
        assert (records(log), log.torn) == ([b"a"], 0)


def test_a_failed_fsync_is_not_tried_again(tmp_path: Path) -> None:
    with Log.open(tmp_path) as log:
        committed(log, b"a")
        log.append([b"b"])
        with mock.patch("os.fsync", side_effect=OSError(errno.EIO, "Input/output error")) as fsync:
            for _ in range(3):
                with pytest.raises(LogStopped, match=r"fsync failed .Input/output error.*see to the volume"):
                    log.sync()
            assert fsync.call_count == 1
        assert (log.committed, records(log)) == (1, [b"a"])
    with Log.open(tmp_path) as log:
        assert records(log) == [b"a"]


@pytest.mark.usefixtures("unbuffered")
def test_a_write_that_fails_beside_an_fsync_takes_the_commit_with_it(tmp_path: Path) -> None:
    with Log.open(tmp_path) as log:
        log.append([b"a"])

        def fsync(_: int) -> None:
            log.append([b"b"])
            with mock.patch("os.write", full), pytest.raises(LogStopped):
                log.append([b"c"])

        # The failing write cut the tail, so what the fsync has written is not there.
        with mock.patch("os.fsync", fsync), pytest.raises(LogStopped):
            log.sync()
        assert log.committed == 0
    with Log.open(tmp_path) as log:
        assert records(log) == []


def test_a_full_disk_at_the_start(tmp_path: Path) -> None:
    written(tmp_path, b"a")
    with mock.patch("os.write", full), pytest.raises(LogStopped, match="opening the log failed"):
        Log.open(tmp_path)
    with Log.open(tmp_path) as log, mock.patch("os.write", full), pytest.raises(LogStopped):
        log.append([b"b"])
    with Log.open(tmp_path) as log:
        assert records(log) == [b"a"]


# Crashes


def lived(directory: Path, acknowledged: list[int]) -> None:
    """Three groups, two snapshots that name their positions, and a truncation; says what was committed."""
    log = Log.open(directory)
    try:
        log.append([b"1", b"2"])
        acknowledged.append(log.sync())
        log.roll(b"%d" % log.end)
        log.append([b"3"])
        acknowledged.append(log.sync())
        log.append([b"4", b"5"])
        log.roll(b"%d" % log.end)
        acknowledged.append(log.committed)
        log.truncate(log.end)
        log.append([b"6"])
        acknowledged.append(log.sync())
    finally:
        log.close()


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("spill", [0, 2**20])
def test_a_crash_at_any_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, loss: Loss, spill: int) -> None:
    for step in range(1, 200):
        directory = tmp_path / str(step)
        directory.mkdir()
        monkeypatch.setattr(log_module, "SPILL", spill)
        disk = Disk(monkeypatch, directory, dies_at=step)
        acknowledged = [0]
        with suppress(Died):
            lived(directory, acknowledged)
        disk.recover(monkeypatch, loss)
        with Log.open(directory) as log:
            assert log.committed >= acknowledged[-1]
            found = [b"%d" % position for position in range(log.first, log.committed + 1)]
            assert records(log) == found
            position, snapshot = log.snapshot
            assert snapshot == (b"%d" % position if position else b"")
            assert log.first <= position + 1
            log.append([b"%d" % (log.end + 1)])
            end = log.sync()
        with Log.open(directory) as log:
            assert (log.committed, log.torn) == (end, 0)
        if not disk.died:
            return
    raise AssertionError("it never came to an end")


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.usefixtures("unbuffered")
def test_a_record_that_could_not_be_applied_never_comes_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, loss: Loss
) -> None:
    """It is the last one that was appended, and however the process ends, the file has not seen it."""
    for step in range(1, 100):
        directory = tmp_path / str(step)
        directory.mkdir()
        monkeypatch.setattr(log_module, "SPILL", 0)
        disk = Disk(monkeypatch, directory, dies_at=step)
        with suppress(Died):
            log = Log.open(directory)
            try:
                committed(log, b"a")
                log.append([b"applied"])
                log.append([b"poison"])
            finally:
                log.close()
        disk.recover(monkeypatch, loss)
        with Log.open(directory) as log:
            assert [b"a", b"applied"][: log.committed] == records(log)
        if not disk.died:
            assert log.committed == 1
            return
    raise AssertionError("it never came to an end")


@pytest.mark.usefixtures("unbuffered")
def test_what_is_taken_over_is_made_durable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = Disk(monkeypatch, tmp_path)
    with Log.open(tmp_path) as first:
        committed(first, b"a")
        first.append([b"written but never synced"])
        first.append([])
        # It never closes: the lock is another file for the next one.
        (tmp_path / "lock").rename(tmp_path / "lock of the first")
        with Log.open(tmp_path) as log:
            assert log.committed == 2
    # It is written once more: after an fsync that failed its pages would be taken for clean.
    assert disk.last_written.endswith(b"written but never synced")
    disk.recover(monkeypatch, "names")
    with Log.open(tmp_path) as log:
        assert records(log) == [b"a", b"written but never synced"]


OPERATIONS = st.one_of(
    st.tuples(st.just("append"), st.lists(st.binary(max_size=60), min_size=1, max_size=4)),
    st.tuples(st.just("sync"), st.none()),
    st.tuples(st.just("roll"), st.none()),
    st.tuples(st.just("truncate"), st.integers(0, 40)),
    # How much of what was never synced is left, where a page of it is missing, and how old the proof is.
    st.tuples(
        st.just("crash"), st.tuples(st.floats(0, 1), st.floats(0, 1), st.booleans(), st.integers(0, 5))
    ),
)


class Model:
    """A log beside a list of what it should hold."""

    def __init__(self, room: Path) -> None:
        self.room = room
        self.directory = room / "0"
        self.log = Log.open(self.directory)
        self.appended: list[bytes] = []
        self.committed = 0
        self.first = 1
        self.snapshots: dict[int, bytes] = {0: b""}
        self.proofs = [b""]
        self.synced = 0

    def append(self, payloads: list[bytes]) -> None:
        assert self.log.append(payloads) == range(
            len(self.appended) + 1, len(self.appended) + len(payloads) + 1
        )
        self.appended += payloads

    def sync(self, _: None) -> None:
        assert self.log.sync() == len(self.appended)
        self.note()

    def roll(self, _: None) -> None:
        self.snapshots[len(self.appended)] = b"state %d" % len(self.appended)
        self.log.roll(self.snapshots[len(self.appended)])
        self.note()

    def note(self) -> None:
        self.committed = len(self.appended)
        self.proofs.append((self.directory / "committed").read_bytes())
        self.synced = newest(self.directory).stat().st_size if self.log.size else 0

    def truncate(self, before: int) -> None:
        self.log.truncate(before)
        assert self.log.first <= max(before, self.first)

    def crash(self, what: tuple[float, float, bool, int]) -> None:
        kept, hole, holed, age = what
        last = self.log.snapshot[0]
        # What was never synced is in the file, and nobody comes to cut it.
        self.log.append([])
        copy = self.room / str(self.log.epoch)
        shutil.copytree(self.directory, copy)
        self.log.close()
        (copy / "committed").write_bytes(self.proofs[-1 - min(age, len(self.proofs) - 1)])
        if self.committed < len(self.appended):
            path = newest(copy)
            # Header and snapshot are durable before the first record comes.
            durable = max(self.synced, segments.Segment.load(path, segments.FORMAT).begin)
            data = path.read_bytes()
            data = data[: durable + int(kept * (len(data) - durable))]
            if holed:
                at = durable + int(hole * (len(data) - durable))
                data = data[:at] + bytes(len(data[at : at + 50])) + data[at + 50 :]
            path.write_bytes(data)
        self.directory, self.synced = copy, 0
        self.log = Log.open(copy)
        assert self.committed <= self.log.committed <= len(self.appended)
        del self.appended[self.log.committed :]
        self.committed = len(self.appended)
        assert self.log.snapshot[0] == last

    def check(self) -> None:
        self.first = self.log.first
        assert records(self.log) == self.appended[self.first - 1 : self.committed]
        position, snapshot = self.log.snapshot
        assert snapshot == self.snapshots[position]
        assert self.first <= position + 1


@settings(max_examples=80)
@given(st.lists(OPERATIONS, max_size=30))
def test_any_life_of_a_log(operations: list[tuple[str, object]]) -> None:
    with (
        tempfile.TemporaryDirectory() as room,
        mock.patch("os.fsync"),
        mock.patch.object(log_module, "SPILL", 0),
    ):
        model = Model(Path(room))
        try:
            for name, given_with in operations:
                getattr(model, name)(given_with)
                model.check()
        finally:
            model.log.close()
