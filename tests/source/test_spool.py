"""The spool: what is accepted survives, what is torn is cut, what is damaged is told."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.errors import InvalidEvents, InvalidSource
from headwater.events import Batch, Record
from headwater.machines.messages import Columns, Stream
from headwater.machines.records import Merged
from headwater.machines.root import RootMachine, Settings
from headwater.machines.source import Settings as SourceSettings
from headwater.machines.source import SourceMachine
from headwater.node import Node
from headwater.queries import Query
from headwater.sources import EARLIER
from headwater.windows import Tumbling
from headwater_source.spool import (
    Spool,
    SpoolClosed,
    SpoolDamaged,
    SpoolFull,
    SpoolLocked,
    SpoolTrimmed,
)
from headwater_wire.messages import Codec
from headwater_wire.outgoing import MESSAGE_LIMIT
from tests.machines.world import Disk

LIMIT = 1 << 20
SMALL = 64 << 10
ROWS: list[Record] = [
    (10, "k", 1.5, None),
    (11, None, None, "start"),
    (12, "é", -0.0, "end"),
    (13, None, None, None),
    (14, "k", float("inf"), None),
]


@pytest.fixture
def spool(tmp_path: Path) -> Iterator[Spool]:
    with Spool.open(tmp_path / "spool", limit_bytes=LIMIT, source="s") as spool:
        yield spool


def _append(spool: Spool, rows: list[Record], *, sync: bool = True) -> range:
    batch = Batch.from_records("s", 1, rows)
    return spool.append(
        batch.ts,
        batch.value,
        key=batch.key,
        keys=batch.keys,
        mark=batch.mark,
        marks=batch.marks,
        bare=batch.bare,
        sync=sync,
    )


def _rows(batch: Batch | None) -> list[Record]:
    """A batch as rows; no key and an empty one are the same."""
    if batch is None:
        return []
    return [
        (
            int(batch.ts[row]),
            (batch.keys[batch.key[row]] or None) if batch.key is not None else None,
            None if batch.bare is not None and batch.bare[row] else float(batch.value[row]),
            batch.marks[batch.mark[row]] if batch.mark is not None and batch.mark[row] >= 0 else None,
        )
        for row in range(len(batch))
    ]


def _all(spool: Spool, limit: int = 1_000_000) -> list[Record]:
    """Every record from the base on, in reads of at most `limit`."""
    rows: list[Record] = []
    after = spool.base
    while (batch := spool.read(after, limit)) is not None:
        assert batch.first == after + 1
        assert 1 <= len(batch) <= limit
        rows += _rows(batch)
        after += len(batch)
    assert after == spool.head
    return rows


def _numbered(count: int, first: int = 1) -> list[Record]:
    return [(number, f"k{number % 3}", float(number), None) for number in range(first, first + count)]


def _crashed(spool: Spool, to: Path, **options: Any) -> Spool:
    """The spool as another process finds it after this one was killed."""
    shutil.copytree(spool.directory, to, dirs_exist_ok=True)
    return Spool.open(to, limit_bytes=spool.limit_bytes, source="s", **options)


def _last_segment(directory: Path) -> Path:
    return max(directory.glob("*.seg"))


# Accepting and reading


def test_records_are_numbered_from_one_and_come_back(spool: Spool) -> None:
    assert (spool.base, spool.head) == (0, 0)
    assert _append(spool, ROWS) == range(1, 6)
    assert _append(spool, ROWS[:2]) == range(6, 8)
    assert (spool.base, spool.head) == (0, 7)
    found = spool.read(0, 100)
    assert found is not None
    assert (found.source, found.first) == ("s", 1)
    assert _rows(found) == ROWS + ROWS[:2]
    assert np.signbit(found.value[2])


@pytest.mark.parametrize("limit", [1, 2, 3, 7, 100])
def test_reads_join_and_cut_blocks(spool: Spool, limit: int) -> None:
    for count in (1, 4, 2, 5):
        _append(spool, ROWS[:count])
    spool.append([20, 21], [2.0, 3.0])  # neither keys nor marks
    expected = [*ROWS[:1], *ROWS[:4], *ROWS[:2], *ROWS, (20, None, 2.0, None), (21, None, 3.0, None)]
    assert _all(spool, limit) == expected
    assert spool.read(spool.head, limit) is None
    assert spool.read(3, 0) is None


def test_reads_jump_anywhere(tmp_path: Path) -> None:
    with patch("os.fsync"), Spool.open(tmp_path, limit_bytes=LIMIT, segment_bytes=4_096) as spool:
        for first in range(1, 2_001, 10):
            _append(spool, _numbered(10, first))
        assert len(list(tmp_path.glob("*.seg"))) > 3
        for after in (1_990, 0, 999, 1_000, 1_001, 5, 1_500, 1_499, 3):
            batch = spool.read(after, 3)
            assert batch is not None
            assert batch.ts.tolist() == [after + 1, after + 2, after + 3]


def test_a_segment_of_many_blocks_is_found_by_its_index(tmp_path: Path) -> None:
    rows = _numbered(1_000)
    with patch("os.fsync"), Spool.open(tmp_path, limit_bytes=8 << 20) as spool:
        for first in range(60):
            _append(spool, rows if first % 2 else rows[:1])
        [segment] = spool._segments
        assert 1 < len(segment.offsets) < 60
        for after in (0, 1, 15_014, 30_000, 20_000):
            batch = spool.read(after, 1)
            assert batch is not None
            assert batch.first == after + 1
        assert len(_all(spool, 777)) == 30 * 1_001


@settings(max_examples=30, deadline=None)
@given(
    rows=st.integers(1, 3_000),
    length=st.sampled_from([4, 100, 1_024]),
    calls=st.integers(1, 3),
    marked=st.booleans(),
)
def test_what_is_read_at_once_is_one_message(rows: int, length: int, calls: int, marked: bool) -> None:
    names = [f"{n:0{length}}" for n in range(rows)]
    codes = np.arange(rows)
    mark: dict[str, Any] = {"mark": codes, "marks": names} if marked else {}
    with (
        tempfile.TemporaryDirectory() as directory,
        Spool.open(Path(directory), limit_bytes=1 << 26, source="s") as spool,
    ):
        for _ in range(calls):
            spool.append(codes, np.ones(rows), key=codes, keys=names, **mark)
        found: list[str] = []
        while (batch := spool.read(len(found), 10_000)) is not None:
            sent = Codec().encode("s", "c", Columns(Stream("s", 1, 1), "s/1/1", batch, spool.opening))
            assert sent.ByteSize() <= MESSAGE_LIMIT
            assert batch.key is not None
            found += [batch.keys[code] for code in batch.key]
            assert (batch.mark is not None) == marked
            if batch.mark is not None:
                assert [batch.marks[code] for code in batch.mark] == found[-len(batch) :]
    assert found == calls * names


def test_only_what_is_durable_is_seen(spool: Spool) -> None:
    assert _append(spool, ROWS, sync=False) == range(1, 6)
    assert _append(spool, ROWS[:1], sync=False) == range(6, 7)
    assert (spool.head, spool.pending, spool.read(0, 10)) == (0, 6, None)
    assert spool.sync() == 6
    assert (spool.head, spool.pending) == (6, 0)
    assert _all(spool) == ROWS + ROWS[:1]


def test_a_group_is_one_block(spool: Spool) -> None:
    with patch("os.fsync") as fsync:
        for _ in range(50):
            _append(spool, ROWS, sync=False)
        spool.sync()
    assert fsync.call_count == 1
    assert _all(spool) == ROWS * 50


def test_arrays_may_be_used_again_before_the_sync(spool: Spool) -> None:
    ts, value, key = np.array([1, 2]), np.array([1.0, 2.0]), np.array([0, 1], np.int32)
    spool.append(ts, value, key=key, keys=("a", "b"), sync=False)
    ts[:], value[:], key[:] = 9, 9.0, 0
    spool.sync()
    assert _all(spool) == [(1, "a", 1.0, None), (2, "b", 2.0, None)]


def test_names_that_no_row_uses_are_not_kept(spool: Spool) -> None:
    names = [f"key {number}" for number in range(10_000)]
    mark = [-1, 7]
    spool.append([1, 2], [1.0, 2.0], key=[9_999, 5], keys=names, mark=mark, marks=names)
    assert _all(spool) == [(1, "key 9999", 1.0, None), (2, "key 5", 2.0, "key 7")]
    assert spool.size < 500


def test_a_heartbeat_is_a_record(spool: Spool) -> None:
    assert spool.append([5], [float("nan")], bare=[True]) == range(1, 2)
    assert _all(spool) == [(5, None, None, None)]


def test_nothing_has_no_number(spool: Spool) -> None:
    assert spool.append([], []) == range(1, 1)
    assert _append(spool, ROWS) == range(1, 6)


@pytest.mark.parametrize(
    "columns",
    [
        {"ts": [1], "value": [1.0, 2.0]},
        {"ts": [1.5], "value": [1.0]},
        {"ts": [1], "value": [1.0], "key": [1], "keys": ["a"]},
        {"ts": [1], "value": [1.0], "key": [0], "keys": ["\ud800"]},
        {"ts": np.zeros(400_000, np.int64), "value": np.zeros(400_000)},
    ],
    ids=["lengths", "times", "codes", "names", "size"],
)
def test_what_is_no_event_gets_no_number(spool: Spool, columns: dict[str, Any]) -> None:
    with pytest.raises(InvalidEvents):
        spool.append(**columns)
    assert _append(spool, ROWS) == range(1, 6)


# Opening


def test_it_is_all_there_again(tmp_path: Path) -> None:
    with Spool.open(tmp_path, limit_bytes=LIMIT) as spool:
        id, opening = spool.id, spool.opening
        _append(spool, ROWS)
        _append(spool, ROWS, sync=False)
    with Spool.open(tmp_path, limit_bytes=LIMIT) as spool:
        assert spool.id == id
        assert spool.opening != opening
        assert _all(spool) == ROWS * 2
        assert _append(spool, ROWS) == range(11, 16)


def test_randomness_is_an_argument(tmp_path: Path) -> None:
    drawn = iter(["11" * 16, "22" * 16, "33" * 16])
    with Spool.open(tmp_path, limit_bytes=LIMIT, token=lambda size: next(drawn)) as spool:
        assert (spool.id, spool.opening) == ("11" * 16, "22" * 16)
    with Spool.open(tmp_path, limit_bytes=LIMIT, token=lambda size: next(drawn)) as spool:
        assert (spool.id, spool.opening) == ("11" * 16, "33" * 16)


def test_opened_at_is_the_head_of_the_oldest_opening_that_nobody_confirmed(tmp_path: Path) -> None:
    def reopened() -> Spool:
        return Spool.open(tmp_path, limit_bytes=LIMIT)

    with reopened() as spool:
        assert (spool.opened_at, spool.confirmed) == (0, False)
        _append(spool, ROWS)
        first = spool.opening
    with reopened() as spool:
        assert spool.opened_at == 0  # the first is not confirmed either
        spool.confirm(first)
        spool.confirm("")
        assert (spool.opened_at, spool.confirmed) == (0, False)
        spool.confirm(spool.opening)
        assert (spool.opened_at, spool.confirmed) == (5, True)
        _append(spool, ROWS)
        assert spool.opened_at == 5
        spool.confirm(spool.opening)
        assert spool.opened_at == 5
    with reopened() as spool:
        assert (spool.opened_at, spool.confirmed) == (10, False)
        _append(spool, ROWS)
    with reopened() as spool:
        assert spool.opened_at == 10
        _append(spool, ROWS)
        spool.trim(20)
    with reopened() as spool:
        assert spool.opened_at == 10
        spool.confirm(spool.opening)
        assert spool.opened_at == 20


def test_it_tells_of_the_openings_that_may_have_been_confirmed_in_another_copy(tmp_path: Path) -> None:
    def reopened() -> Spool:
        return Spool.open(tmp_path, limit_bytes=LIMIT)

    with reopened() as spool:
        first = spool.opening
        assert spool.earlier == ()
        _append(spool, ROWS)
    with reopened() as spool:
        second = spool.opening
        assert spool.earlier == ((first, 5),)
        _append(spool, ROWS)
    with reopened() as spool:
        assert (spool.opened_at, spool.earlier) == (0, ((first, 5), (second, 10)))
        spool.confirm(spool.opening)
    with reopened() as spool:
        assert (spool.opened_at, spool.earlier) == (10, ())
    for _ in range(EARLIER + 3):
        with reopened() as spool:
            last = spool.opening
    with reopened() as spool:
        assert len(spool.earlier) == EARLIER
        assert spool.earlier[-1] == (last, 10)


def test_a_copy_that_was_not_confirmed_is_counted_once(tmp_path: Path) -> None:
    """A backup from before the first answer of the root comes back when all of it was counted."""
    drawn = iter(map(str, range(99)))
    root = RootMachine(
        [Query("q", Tumbling(10))], Settings(), Disk(), lambda: next(drawn), lambda at, found: None
    )
    root.begin()

    def greeted(spool: Spool, now: int) -> SourceMachine:
        machine = SourceMachine("s", spool, SourceSettings(), "c")
        said = machine.tick(now)
        while said:
            heard = [send for each in said for send in root.step("c", each.message, now)]
            said = [send for each in heard for send in machine.step("c", each.message, now)]
        return machine

    with Spool.open(tmp_path / "spool", limit_bytes=LIMIT) as spool:
        _append(spool, ROWS)
        shutil.copytree(tmp_path / "spool", tmp_path / "copy")
        source = greeted(spool, 0).source
        assert source is not None
        node = Node(root.queries)
        node.admit(source, lateness=0, prefix=root.engine.sources[source].prefix)
        batch = spool.read(0, 9)
        assert batch is not None
        node.push(batch.numbered(source, 1))
        root._commits.decide(Merged(node.flush()))
    with Spool.open(tmp_path / "copy", limit_bytes=LIMIT) as copy:
        assert (copy.head, copy.opened_at) == (5, 0)
        # It goes on behind what was counted of it, as the source that it is.
        machine = greeted(copy, 9_000_000)
        assert (machine.source, machine._offset) == (source, 0)
        assert root.committed == {source: 5}


def test_a_confirmation_is_durable_at_once(spool: Spool, tmp_path: Path) -> None:
    spool.confirm(spool.opening)
    _append(spool, ROWS)
    with _crashed(spool, tmp_path / "again") as again:
        assert again.opened_at == 5


def test_an_opening_is_durable_before_anything_is_appended(spool: Spool, tmp_path: Path) -> None:
    spool.confirm(spool.opening)
    with _crashed(spool, tmp_path / "b") as second:
        _append(second, ROWS)
        with _crashed(second, tmp_path / "c") as third:
            assert (third.opened_at, third.head) == (0, 5)


def test_two_cannot_have_it_open(spool: Spool) -> None:
    with pytest.raises(SpoolLocked, match="is open already"):
        Spool.open(spool.directory, limit_bytes=LIMIT)


def test_nor_can_two_processes(spool: Spool) -> None:
    code = (
        "import sys; from headwater_source.spool import Spool; Spool.open(sys.argv[1], limit_bytes=1 << 20)"
    )
    found = subprocess.run(
        [sys.executable, "-c", code, str(spool.directory)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == 1
    assert "SpoolLocked" in found.stderr


def test_a_closed_spool_says_so(spool: Spool) -> None:
    spool.close()
    spool.close()
    calls: list[Callable[[], object]] = [
        lambda: _append(spool, ROWS),
        spool.sync,
        lambda: spool.read(0, 1),
        lambda: spool.trim(0),
        lambda: spool.confirm(spool.opening),
    ]
    for call in calls:
        with pytest.raises(SpoolClosed):
            call()


@pytest.mark.parametrize("options", [{"limit_bytes": 10}, {"limit_bytes": LIMIT, "source": ""}])
def test_what_cannot_be_opened(tmp_path: Path, options: dict[str, Any]) -> None:
    with pytest.raises(InvalidSource):
        Spool.open(tmp_path / "spool", **options)
    assert not (tmp_path / "spool").exists()


# Crashes


def test_a_tail_torn_at_any_byte_is_cut(spool: Spool, tmp_path: Path) -> None:
    _append(spool, ROWS)
    whole = spool.size
    _append(spool, ROWS[:3])
    segment = _last_segment(spool.directory)
    data = segment.read_bytes()
    copy = tmp_path / "copy"
    shutil.copytree(spool.directory, copy)
    state = (copy / "state").read_bytes()
    with patch("os.fsync"):
        for size in range(whole, len(data)):
            # As much of it as was written, and the same in a file that had grown already.
            for tail in (b"", bytes(len(data) - size)):
                torn = data[:size] + tail
                if torn == data:
                    continue
                (copy / segment.name).write_bytes(torn)
                (copy / "state").write_bytes(state)
                with Spool.open(copy, limit_bytes=LIMIT) as again:
                    assert (again.head, again.size) == (5, whole)
                    assert (copy / segment.name).stat().st_size == whole
                    assert _append(again, ROWS[3:]) == range(6, 8)
                    assert _all(again) == ROWS + ROWS[3:]


def test_a_segment_torn_while_it_was_made_is_made_again(tmp_path: Path) -> None:
    with Spool.open(tmp_path / "a", limit_bytes=SMALL, segment_bytes=100) as spool:
        _append(spool, ROWS)
        _append(spool, ROWS)
        segment = _last_segment(spool.directory)
        header = segment.read_bytes()[:44]
        shutil.copytree(spool.directory, tmp_path / "b")
    state = (tmp_path / "b" / "state").read_bytes()
    with patch("os.fsync"):
        for torn in (*(header[:size] for size in range(44)), bytes(44), header):
            (tmp_path / "b" / segment.name).write_bytes(torn)
            (tmp_path / "b" / "state").write_bytes(state)
            with Spool.open(tmp_path / "b", limit_bytes=SMALL, segment_bytes=100) as again:
                assert again.head == 5
                assert _append(again, ROWS[:1]) == range(6, 7)
                assert _all(again) == ROWS + ROWS[:1]
            (tmp_path / "b" / segment.name).unlink()


class _Killed(BaseException):
    """The process ends here."""


def _killed_at(step: int) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Wrap system calls: the one with that number, counted over all of them, does not happen."""
    calls = iter(range(1_000_000))

    def wrap(call: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*args: Any, **options: Any) -> Any:
            if next(calls) >= step:
                raise _Killed
            return call(*args, **options)

        return counted

    return wrap


WORK: dict[str, Callable[[Spool], object]] = {
    "append": lambda spool: _append(spool, ROWS),
    "group": lambda spool: (_append(spool, ROWS[:2], sync=False), _append(spool, ROWS[2:])),
    "many": lambda spool: [_append(spool, ROWS) for _ in range(3)],
    "trim": lambda spool: spool.trim(12),
    "trim all": lambda spool: spool.trim(20),
    "confirm": lambda spool: spool.confirm(spool.opening),
    "close": lambda spool: spool.close(),
}


@pytest.mark.parametrize("work", [None, *WORK], ids=str)
@pytest.mark.parametrize("made", [False, True])
def test_a_crash_between_any_two_steps(tmp_path: Path, work: str | None, made: bool) -> None:
    """Whatever was accepted is there afterwards and nothing is that was never given; the spool goes on."""
    options: dict[str, Any] = {"limit_bytes": SMALL, "segment_bytes": 200}
    for step in range(200):
        directory = tmp_path / str(step)
        kept = 0
        if made:
            with patch("os.fsync"), Spool.open(directory, **options) as spool:
                kept = [_append(spool, ROWS) for _ in range(4)][-1][-1]
        done, opened = _until_killed(directory, options, step, work)
        accepted = kept if opened is None else max(kept, opened.head)
        with patch("os.fsync"), Spool.open(directory, **options) as again:
            assert accepted <= again.head <= accepted + 5
            assert again.head % 5 == 0
            assert again.base <= (20 if work == "trim all" else 12 if work == "trim" else 0)
            assert _all(again) == (ROWS * 8)[again.base : again.head]
            if work == "confirm" and done:
                assert again.opened_at == kept
            elif work != "confirm":
                assert again.opened_at == 0
            head = again.head
            assert _append(again, ROWS)[0] == head + 1
        if done:
            assert step > 0
            return
    pytest.fail("the work never ended")


def _until_killed(
    directory: Path, options: dict[str, Any], step: int, work: str | None
) -> tuple[bool, Spool | None]:
    """Open a spool and work with it up to that step: whether all was done, and the spool if it opened."""
    wrap = _killed_at(step)
    opened: Spool | None = None
    with ExitStack() as stack:
        stack.enter_context(patch("os.fsync", wrap(lambda file: None)))
        for name in ("open", "write", "pwrite", "ftruncate", "unlink"):
            stack.enter_context(patch.object(os, name, wrap(getattr(os, name))))
        try:
            opened = Spool.open(directory, **options)
            if work is not None:
                WORK[work](opened)
        except _Killed:
            return False, opened
        finally:
            if opened is not None:
                opened._release()
    return True, opened


# Damage


def _damaged(directory: Path, name: str, offset: int) -> None:
    path = directory / name
    data = bytearray(path.read_bytes())
    data[offset] ^= 0x10
    path.write_bytes(data)


def test_damage_in_the_middle_is_told_with_file_and_offset(spool: Spool, tmp_path: Path) -> None:
    _append(spool, ROWS)
    start, end = 44, spool.size
    _append(spool, ROWS)
    name = _last_segment(spool.directory).name
    for offset in range(end):
        copy = tmp_path / str(offset)
        shutil.copytree(spool.directory, copy)
        _damaged(copy, name, offset)
        with pytest.raises(SpoolDamaged) as caught:
            Spool.open(copy, limit_bytes=LIMIT)
        assert caught.value.file == copy / name
        assert caught.value.offset == (0 if offset < start else start)
        assert f"{name} at byte {caught.value.offset}" in str(caught.value)


def test_damage_at_the_end_of_a_full_segment_is_no_torn_tail(tmp_path: Path) -> None:
    with Spool.open(tmp_path, limit_bytes=SMALL, segment_bytes=100) as spool:
        _append(spool, ROWS)
        size = spool.size
        _append(spool, ROWS)
    _damaged(tmp_path, f"{1:020d}.seg", size - 1)
    with pytest.raises(SpoolDamaged, match=f"{1:020d}.seg at byte 44"):
        Spool.open(tmp_path, limit_bytes=SMALL)


def test_damage_is_told_when_it_is_read(spool: Spool) -> None:
    _append(spool, ROWS)
    _damaged(spool.directory, _last_segment(spool.directory).name, 100)
    with pytest.raises(SpoolDamaged, match="wrong CRC"):
        spool.read(0, 1)


def test_a_durable_end_that_is_missing_is_told(tmp_path: Path) -> None:
    with Spool.open(tmp_path, limit_bytes=LIMIT) as spool:
        _append(spool, ROWS)
    path = _last_segment(tmp_path)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(SpoolDamaged, match="ends with record 0, but 5 were durable"):
        Spool.open(tmp_path, limit_bytes=LIMIT)


@pytest.mark.parametrize("missing", ["state", "first", "middle", "all"])
def test_a_missing_file_is_told(tmp_path: Path, missing: str) -> None:
    with Spool.open(tmp_path, limit_bytes=SMALL, segment_bytes=100) as spool:
        for _ in range(3):
            _append(spool, ROWS)
    segments = sorted(tmp_path.glob("*.seg"))
    gone = {"state": [tmp_path / "state"], "first": segments[:1], "middle": segments[1:2], "all": segments}
    for path in gone[missing]:
        path.unlink()
    left = sorted(tmp_path.iterdir())
    with pytest.raises(SpoolDamaged):
        Spool.open(tmp_path, limit_bytes=SMALL)
    assert sorted(tmp_path.iterdir()) == left


def test_a_segment_of_another_spool_is_told(tmp_path: Path) -> None:
    for name in ("a", "b"):
        with Spool.open(tmp_path / name, limit_bytes=LIMIT) as spool:
            _append(spool, ROWS)
    shutil.copy(_last_segment(tmp_path / "a"), _last_segment(tmp_path / "b"))
    with pytest.raises(SpoolDamaged, match="of another spool"):
        Spool.open(tmp_path / "b", limit_bytes=LIMIT)


def test_a_block_of_another_spool_is_none(tmp_path: Path) -> None:
    """A disk may give a file what another one left there."""
    for name in ("a", "b"):
        with Spool.open(tmp_path / name, limit_bytes=LIMIT) as spool:
            if name == "a":
                _append(spool, ROWS)
    block = _last_segment(tmp_path / "a").read_bytes()[44:]
    with _last_segment(tmp_path / "b").open("ab") as file:
        file.write(block)
    with Spool.open(tmp_path / "b", limit_bytes=LIMIT) as spool:
        assert spool.head == 0


def test_what_a_killed_process_wrote_is_made_durable(spool: Spool, tmp_path: Path) -> None:
    with patch("os.fsync"):
        _append(spool, ROWS)
    shutil.copytree(spool.directory, tmp_path / "again")
    synced = []
    with patch("os.fsync", lambda file: synced.append(os.fstat(file).st_ino)):
        Spool.open(tmp_path / "again", limit_bytes=LIMIT).close()
    assert _last_segment(tmp_path / "again").stat().st_ino in synced


@pytest.mark.parametrize("slot", [0, 1])
def test_a_torn_slot_leaves_the_other(tmp_path: Path, slot: int) -> None:
    with Spool.open(tmp_path, limit_bytes=LIMIT) as spool:
        id = spool.id
        _append(spool, ROWS)
    _damaged(tmp_path, "state", slot * 4_096 + 10)
    with Spool.open(tmp_path, limit_bytes=LIMIT) as spool:
        assert spool.id == id
        assert _all(spool) == ROWS
    for torn in (0, 1):
        _damaged(tmp_path, "state", torn * 4_096 + 10)
    with pytest.raises(SpoolDamaged, match="no state that reads"):
        Spool.open(tmp_path, limit_bytes=LIMIT)


# Room


def _write_within(room: int) -> Callable[[int, bytes], int]:
    """`os.write` on a disk with that many bytes free."""
    real = os.write

    def write(file: int, data: bytes) -> int:
        nonlocal room
        if not room:
            raise OSError(errno.ENOSPC, "No space left on device")
        written = real(file, data[:room])
        room -= written
        return written

    return write


def _filled(spool: Spool, rows: list[Record], *, sync: bool = True) -> tuple[int, SpoolFull]:
    """Append until it is refused: the last number, and the refusal."""
    number = 0
    while True:
        try:
            number = _append(spool, rows, sync=sync)[-1]
        except SpoolFull as error:
            return number, error


def test_a_full_spool_refuses_before_it_numbers(tmp_path: Path) -> None:
    rows = _numbered(100)
    with patch("os.fsync"), Spool.open(tmp_path, limit_bytes=SMALL) as spool:
        head, error = _filled(spool, rows)
        assert "give the spool more room" in str(error)
        assert not error.withdrawn
        assert spool.size <= SMALL
        assert spool.head == head
        assert sum(path.stat().st_size for path in tmp_path.glob("*.seg")) == spool.size
        assert spool.trim(head // 2) <= head // 2
        assert _append(spool, rows)[0] == head + 1


def test_a_refusal_by_size_leaves_the_group(tmp_path: Path) -> None:
    rows = _numbered(100)
    with patch("os.fsync"), Spool.open(tmp_path, limit_bytes=SMALL) as spool:
        promised, error = _filled(spool, rows, sync=False)
        assert not error.withdrawn
        assert (spool.head, spool.pending) == (0, promised)
        assert spool.sync() == promised
        assert len(_all(spool)) == promised


@pytest.mark.parametrize("room", [0, 1, 31, 32, 100])
def test_a_full_disk_refuses_and_loses_nothing(spool: Spool, tmp_path: Path, room: int) -> None:
    _append(spool, ROWS)
    before = spool.size
    with patch("os.write", _write_within(room)):
        _append(spool, ROWS, sync=False)
        with pytest.raises(SpoolFull, match="records 6 to 15 were not accepted") as caught:
            _append(spool, ROWS)
        assert caught.value.withdrawn == range(6, 16)
        assert (spool.head, spool.pending) == (5, 0)
        assert _all(spool) == ROWS
        with pytest.raises(SpoolFull):
            _append(spool, ROWS)
    with _crashed(spool, tmp_path / "again") as again:
        assert _all(again) == ROWS
    assert spool.size == before
    assert _append(spool, ROWS[:2]) == range(6, 8)
    assert _all(spool) == ROWS + ROWS[:2]
    with _crashed(spool, tmp_path / "later") as again:
        assert _all(again) == ROWS + ROWS[:2]


def test_a_torn_block_that_could_not_be_cut_at_once_is_cut_later(spool: Spool) -> None:
    _append(spool, ROWS)
    full = OSError(errno.ENOSPC, "No space left on device")
    for _ in range(2):
        with (
            patch("os.fsync", side_effect=full),
            patch("os.ftruncate", side_effect=full),
            pytest.raises(SpoolFull),
        ):
            _append(spool, ROWS)
    _append(spool, ROWS[:1])
    assert _all(spool) == ROWS + ROWS[:1]
    assert _last_segment(spool.directory).stat().st_size == spool.size


def test_a_block_that_was_refused_does_not_come_back_after_a_crash(spool: Spool, tmp_path: Path) -> None:
    _append(spool, ROWS)
    full = OSError(errno.ENOSPC, "No space left on device")
    with patch("os.fsync", side_effect=[full, None]), pytest.raises(SpoolFull):
        _append(spool, ROWS)
    with _crashed(spool, tmp_path / "again") as again:
        assert _all(again) == ROWS


def test_a_full_disk_at_a_new_segment(tmp_path: Path) -> None:
    with Spool.open(tmp_path, limit_bytes=SMALL, segment_bytes=100) as spool:
        _append(spool, ROWS)
        full = OSError(errno.ENOSPC, "No space left on device")
        with patch("os.write", side_effect=full):
            with pytest.raises(SpoolFull):
                _append(spool, ROWS)
            # There is no room for the segment that would take its place.
            assert spool.trim(5) == 0
            spool.confirm(spool.opening)
        assert _append(spool, ROWS) == range(6, 11)
        assert spool.trim(10) == 10
    with Spool.open(tmp_path, limit_bytes=SMALL) as spool:
        assert (spool.base, spool.head, spool.opened_at) == (10, 10, 10)


def test_another_disk_error_closes_the_spool(spool: Spool, tmp_path: Path) -> None:
    _append(spool, ROWS)
    with (
        patch("os.fsync", side_effect=OSError(errno.EIO, "Input/output error")),
        pytest.raises(OSError, match="Input/output error"),
    ):
        _append(spool, ROWS)
    with pytest.raises(SpoolClosed):
        spool.read(0, 1)
    with Spool.open(spool.directory, limit_bytes=LIMIT) as again:
        assert _all(again)[:5] == ROWS


# Trimming


def test_trim_drops_whole_segments(tmp_path: Path) -> None:
    with Spool.open(tmp_path, limit_bytes=SMALL, segment_bytes=100) as spool:
        for _ in range(4):
            _append(spool, ROWS)
        assert spool.trim(4) == 0
        assert spool.trim(5) == 5
        assert spool.trim(3) == 5
        assert spool.trim(14) == 10
        assert len(list(tmp_path.glob("*.seg"))) == 2
        with pytest.raises(SpoolTrimmed, match="read after 10"):
            spool.read(9, 1)
        assert _all(spool) == ROWS * 2
    with Spool.open(tmp_path, limit_bytes=SMALL, segment_bytes=100) as spool:
        assert (spool.base, spool.head) == (10, 20)
        assert _all(spool) == ROWS * 2
        assert spool.trim(1_000) == 20
        assert (spool.base, spool.head, spool.read(20, 1)) == (20, 20, None)
        assert _append(spool, ROWS) == range(21, 26)


def test_a_small_segment_stays_when_it_is_all_counted(spool: Spool) -> None:
    """Or every acknowledgement would make a file."""
    _append(spool, ROWS)
    assert spool.trim(5) == 0
    assert len(list(spool.directory.glob("*.seg"))) == 1


def test_segments_that_came_back_after_a_trim_go_again(tmp_path: Path) -> None:
    """Names may be durable in another order than they were removed."""
    with Spool.open(tmp_path / "a", limit_bytes=SMALL, segment_bytes=100) as spool:
        for _ in range(4):
            _append(spool, ROWS)
        shutil.copytree(spool.directory, tmp_path / "b")
        spool.trim(15)
        shutil.copy(spool.directory / "state", tmp_path / "b" / "state")
    segments = sorted((tmp_path / "b").glob("*.seg"))
    segments[1].unlink()
    with Spool.open(tmp_path / "b", limit_bytes=SMALL) as again:
        assert (again.base, again.head) == (15, 20)
        assert _all(again) == ROWS
    assert not segments[0].exists()


def test_the_largest_append_fits_again_after_a_trim(tmp_path: Path) -> None:
    rows = _numbered(1_200)
    with patch("os.fsync"), Spool.open(tmp_path, limit_bytes=SMALL) as spool:
        for turn in range(10):
            assert _append(spool, rows)[-1] == (turn + 1) * 1_200
            spool.trim(spool.head)


# Against a list

_COUNTS = st.integers(1, 12)
_STEPS = st.one_of(
    st.tuples(st.just("append"), _COUNTS),
    st.tuples(st.just("append"), _COUNTS),
    st.tuples(st.just("gather"), _COUNTS),
    st.tuples(st.just("sync"), st.just(0)),
    st.tuples(st.just("read"), _COUNTS),
    st.tuples(st.just("trim"), st.integers(0, 60)),
    st.tuples(st.just("reopen"), st.just(0)),
    st.tuples(st.just("crash"), st.integers(0, 60)),
    st.tuples(st.just("disk full"), st.integers(0, 300)),
    st.tuples(st.just("confirm"), st.just(0)),
)
_RECORDS = st.lists(
    st.tuples(
        st.integers(-5, 5),
        st.sampled_from((None, "a", "é", "long" * 50)),
        st.sampled_from((None, 0.0, 1.5, float("inf"))),
        st.sampled_from((None, None, "S", "E")),
    ),
    min_size=12,
    max_size=12,
)


@settings(max_examples=100)
@given(st.lists(_STEPS, max_size=25), _RECORDS, st.sampled_from((100, 400, 8_192)))
def test_the_spool_is_a_list(steps: list[tuple[str, int]], records: list[Record], segment_bytes: int) -> None:
    options: dict[str, Any] = {"limit_bytes": SMALL, "segment_bytes": segment_bytes, "source": "s"}
    durable: list[Record] = []
    gathered: list[Record] = []
    opened_at: int | None = 0
    with tempfile.TemporaryDirectory() as directory, patch("os.fsync"):
        folder = Path(directory) / "0"
        spool = Spool.open(folder, **options)
        for turn, (step, size) in enumerate(steps, start=1):
            if step in ("append", "gather"):
                expected = len(durable) + len(gathered) + 1
                numbers = _append(spool, records[:size], sync=step == "append")
                assert numbers == range(expected, expected + size)
                gathered += records[:size]
            if step in ("append", "sync"):
                assert spool.sync() == len(durable) + len(gathered)
                durable, gathered = durable + gathered, []
            elif step == "read":
                assert _all(spool, size) == durable[spool.base :]
            elif step == "trim":
                before = spool.base
                base = spool.trim(size)
                assert before <= base == spool.base <= max(before, min(size, len(durable)))
                if size >= len(durable):
                    assert spool.size <= segment_bytes * 2 + 3_000
            elif step == "confirm":
                spool.confirm(spool.opening)
                opened_at = None
            elif step == "reopen":
                spool.close()
                durable, gathered = durable + gathered, []
                spool = Spool.open(folder, **options)
                opened_at = len(durable) if opened_at is None else opened_at
            elif step == "crash":
                again = Path(directory) / str(turn)
                shutil.copytree(folder, again)
                with (again / _last_segment(again).name).open("ab") as file:
                    file.write(b"HWBK" + bytes(size))
                spool._release()
                folder, gathered = again, []
                spool = Spool.open(folder, **options)
                opened_at = len(durable) if opened_at is None else opened_at
            elif step == "disk full":
                durable += _accepted_by_a_full_disk(spool, gathered, records, size)
                gathered = []
            assert (spool.head, spool.pending) == (len(durable), len(gathered))
            if opened_at is not None:
                assert spool.opened_at == opened_at
        assert _all(spool) == durable[spool.base :]
        spool.close()


def _accepted_by_a_full_disk(
    spool: Spool, gathered: list[Record], records: list[Record], room: int
) -> list[Record]:
    """Append while there is room for that many bytes; gives what became durable."""
    with patch("os.write", _write_within(room)):
        before = spool.head
        _append(spool, records, sync=False)
        _, error = _filled(spool, records[:1])
    if not error.withdrawn:
        # By the limit of the spool, not by the disk.
        spool.sync()
    rows = [*gathered, *records, *records[:1] * spool.head]
    return rows[: spool.head - before]
