"""The outbox: results are there whole, once a position, until every sink has them."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from headwater_root.files import Damaged
from headwater_root.outbox import NotTheSame, Outbox, OutboxStopped
from tests.root.disk import LOSSES, Died, Disk, Loss


def test_results_are_read_in_the_order_of_their_positions(tmp_path: Path) -> None:
    outbox = Outbox(tmp_path / "deep" / "outbox")
    for position in (12, 3, 100):
        outbox.write(position, 1, b"%d" % position)
    assert list(outbox.read(0)) == [(3, b"3"), (12, b"12"), (100, b"100")]
    assert list(outbox.read(3)) == [(12, b"12"), (100, b"100")]
    assert list(outbox.read(100)) == []
    assert (outbox.last, outbox.bytes) == (100, 6)
    assert (tmp_path / "deep" / "outbox" / "00000000000000000012-0000000001").read_bytes() == b"12"


def test_a_replay_gives_the_same_or_is_an_error(tmp_path: Path) -> None:
    outbox = Outbox(tmp_path)
    outbox.write(5, 2, b"rows")
    outbox.write(5, 2, b"rows")
    assert outbox.bytes == 4
    with pytest.raises(NotTheSame, match="a function of the log alone"):
        outbox.write(5, 2, b"other rows")
    with pytest.raises(NotTheSame):
        Outbox(tmp_path).write(5, 2, b"other rows")
    assert list(outbox.read(0)) == [(5, b"rows")]


def test_the_highest_epoch_counts(tmp_path: Path) -> None:
    outbox = Outbox(tmp_path)
    outbox.write(5, 10, b"new")
    outbox.write(5, 9, b"old")
    outbox.write(6, 9, b"next")
    for each in (outbox, Outbox(tmp_path)):
        assert list(each.read(0)) == [(5, b"new"), (6, b"next")]
        assert each.bytes == 10


def test_trimming_and_the_bound(tmp_path: Path) -> None:
    outbox = Outbox(tmp_path, bound=10)
    for position in range(1, 5):
        assert not outbox.full
        outbox.write(position, 1, b"abc")
    assert outbox.full
    outbox.trim(1)
    assert (outbox.bytes, outbox.full) == (9, False)
    outbox.trim(3)
    assert [position for position, _ in outbox.read(0)] == [4]
    again = Outbox(tmp_path, bound=3)
    assert (again.bytes, again.full, again.last) == (3, True, 4)
    again.trim(100)
    assert (again.bytes, again.full, again.last, again.trimmed) == (0, False, 4, 4)
    assert [path.name for path in tmp_path.iterdir()] == ["trimmed"]


def test_what_is_trimmed_is_not_written_again(tmp_path: Path) -> None:
    outbox = Outbox(tmp_path)
    for position in (2, 5, 7):
        outbox.write(position, 1, b"rows")
    outbox.trim(1)
    assert outbox.trimmed == 0
    outbox.trim(6)
    for each in (outbox, Outbox(tmp_path)):
        assert (each.trimmed, each.last, each.bytes) == (5, 7, 4)
        for position in (2, 5, 7):
            each.write(position, 2, b"rows")
        assert list(each.read(0)) == [(7, b"rows")]
    outbox.trim(1_000)
    # Only what was there is gone: what comes next is kept.
    outbox.write(8, 2, b"rows")
    assert (outbox.trimmed, list(outbox.read(0))) == (7, [(8, b"rows")])
    (tmp_path / "trimmed").write_text("seven")
    with pytest.raises(Damaged, match="is no position"):
        Outbox(tmp_path)


def test_a_replay_in_a_later_epoch_keeps_the_files_that_are_the_same(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    outbox = Outbox(tmp_path)
    for position in (1, 2):
        outbox.write(position, 1, b"rows")
    again = Outbox(tmp_path)
    again.write(1, 2, b"rows")
    assert (again.bytes, caplog.messages) == (8, [])
    again.write(2, 2, b"other rows")
    again.write(3, 2, b"more")
    assert caplog.messages == ["the same part of the log gave other results before"]
    for each in (again, Outbox(tmp_path)):
        assert list(each.read(0)) == [(1, b"rows"), (2, b"other rows"), (3, b"more")]
    names = sorted(path.name.replace("0", "") for path in tmp_path.iterdir())
    assert names == ["1-1", "2-1", "2-2", "3-2"]
    again.trim(2)
    assert again.bytes == 4


def test_an_outbox_that_nobody_reads_keeps_the_newest(tmp_path: Path) -> None:
    outbox = Outbox(tmp_path, bound=80)
    for position in range(1, 9):
        outbox.shrink()
        assert outbox.trimmed == 0
        outbox.write(position, 1, b"ten bytes.")
    assert outbox.full
    outbox.shrink()
    assert (outbox.bytes, outbox.full, outbox.trimmed) == (70, False, 1)
    outbox.write(10, 1, b"a" * 1_000)
    outbox.shrink()
    assert (outbox.bytes, outbox.last) == (0, 10)


def test_a_file_that_somebody_took_is_missed(tmp_path: Path) -> None:
    outbox = Outbox(tmp_path)
    outbox.write(1, 1, b"rows")
    next(tmp_path.iterdir()).unlink()
    with pytest.raises(Damaged, match="the file is gone"):
        list(outbox.read(0))


def test_other_files_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / ".00000000000000000001-0000000001.tmp").write_text("half a fi")
    outbox = Outbox(tmp_path)
    assert (list(outbox.read(0)), outbox.bytes) == ([], 0)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_threads_write_read_and_trim_at_once(tmp_path: Path) -> None:
    outbox = Outbox(tmp_path)
    seen: list[int] = []

    def write() -> None:
        for position in range(1, 200):
            outbox.write(position, 1, b"%d" % position)

    writer = threading.Thread(target=write)
    writer.start()
    while writer.is_alive() or len(seen) < 199:
        for position, rows in outbox.read(len(seen)):
            assert rows == b"%d" % position
            seen.append(position)
        outbox.trim(len(seen))
    writer.join()
    assert (seen, outbox.bytes) == (list(range(1, 200)), 0)


@pytest.mark.parametrize("loss", LOSSES)
def test_a_crash_at_any_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, loss: Loss) -> None:
    rows = {1: b"first", 4: b"second" * 100, 9: b"third"}
    for step in range(1, 100):
        directory = tmp_path / str(step)
        directory.mkdir()
        disk = Disk(monkeypatch, directory, dies_at=step)
        done = []
        try:
            outbox = Outbox(directory)
            for position in rows:
                outbox.write(position, 1, rows[position])
                done.append(position)
            outbox.trim(1)
        except Died:
            pass
        disk.recover(monkeypatch, loss)
        outbox = Outbox(directory)
        # Whole or not at all, and there if the write has returned (the first one may be trimmed).
        found = dict(outbox.read(0))
        assert found.items() <= rows.items()
        assert found.keys() >= set(done) - {1}
        if 1 not in found and 1 in done:
            assert outbox.trimmed == 1
        for position in rows:
            outbox.write(position, 1, rows[position])
        left = {position: rows[position] for position in rows if position > outbox.trimmed}
        assert dict(outbox.read(0)) == left
        if not disk.died:
            return
    raise AssertionError("it never came to an end")


def test_a_write_that_failed_can_be_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for step in range(1, 6):
        directory = tmp_path / str(step)
        directory.mkdir()
        outbox = Outbox(directory)
        disk = Disk(monkeypatch, directory, fails_at=step)
        try:
            outbox.write(1, 1, b"rows")
        except (OSError, OutboxStopped):
            outbox.write(1, 1, b"rows")
        disk.recover(monkeypatch, "names")
        assert list(outbox.read(0)) == list(Outbox(directory).read(0)) == [(1, b"rows")]
        assert outbox.bytes == 4
    assert not disk.failed
