"""The Parquet sink: what it writes, what becomes one file, and what a reader sees while it grows."""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import tarfile
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from math import inf, isnan, nan
from pathlib import Path

import duckdb
import pandas as pd
import polars
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.results import Result
from headwater_root import files, resultlines
from headwater_root.files import Damaged
from headwater_root.sinks import columns, compaction
from headwater_root.sinks.compaction import due
from headwater_root.sinks.generations import Generations
from headwater_root.sinks.parquet import Parquet
from headwater_root.sinks.texts import restored, storable, storable_in
from tests.root.earlier import earlier


def rows(*numbers: int) -> bytes:
    return resultlines.encode(
        Result("q", "", f"k{n}", 10 * n, 10 * n + 10, 1, {"sum": n / 7}) for n in numbers
    )


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in (directory / "results").iterdir())


def numbered(home: Path) -> list[str]:
    """The generations; beside them is the mirror from before the last merge."""
    return sorted(path.name for path in home.iterdir() if path.name != "mirror-before")


# Columns


def test_numbers_and_others_have_a_column_each(tmp_path: Path) -> None:
    values = {"avg": 0.5, "nan": nan, "inf": -inf, "distinct": 7, "none": None}
    others = {"top(2)": (3.0, nan), "long": 2**60 + 1, "longer": 10**400, "text": "ä", "yes": True}
    sink = Parquet(tmp_path / "t")
    sink.deliver(1, resultlines.encode([Result("q", "", None, 0, 10, 1, {**values, **others})]))
    sink.deliver(2, resultlines.encode([Result("p", "hall", "m", 0, 5, 2, {}, 3, 2)]))
    first, second = ds.dataset(tmp_path / "t" / "results").to_table().to_pylist()
    found = dict(first["values"])
    assert isnan(found.pop("nan"))
    assert found == {"avg": 0.5, "inf": -inf, "distinct": 7.0, "none": None}
    assert dict(first["others"]) == {
        "top(2)": '[3.0,"NaN"]',
        "long": str(2**60 + 1),
        "longer": str(10**400),
        "text": '"ä"',
        "yes": "true",
    }
    assert (second["site"], second["key"], second["ordinal"], second["incarnation"]) == ("hall", "m", 3, 2)
    assert (first["key"], first["ordinal"], second["values"]) == (None, None, [])


def test_a_count_window_has_ranks_and_times(tmp_path: Path) -> None:
    begin = 1_700_000_000_000_000
    counted = Result("q", "", None, 6, 9, 3, {}, measure="count", first_time=begin, last_time=2**62)
    sink = Parquet(tmp_path / "t")
    sink.deliver(1, resultlines.encode([counted, Result("p", "", None, 6, 9, 1, {})]))
    sink.deliver(2, earlier(resultlines.encode([counted])))
    found = ds.dataset(tmp_path / "t" / "results").to_table().to_pylist()
    assert [(row["start"], row["end"], row["measure"]) for row in found] == [
        (6, 9, "count"),
        (6, 9, "time"),
        (6, 9, None),
    ]
    # Beyond the year 9999 no reader has a time.
    first = datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)
    assert [row["first_time"] for row in found] == [first, None, None]
    assert [row["last_time"] for row in found] == [None, None, None]


def written_before(directory: Path) -> None:
    """A sink as the release before has left it."""
    sink = Parquet(directory)
    sink._timed = False
    for position in (1, 2):
        sink.deliver(position, rows(position))
    assert all("measure" not in pq.read_schema(path).names for path in (directory / "results").iterdir())


@pytest.mark.parametrize("large", [False, True])
def test_all_files_have_the_same_columns_after_an_upgrade(
    tmp_path: Path, large: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    written_before(tmp_path / "t")
    if large:
        monkeypatch.setattr(compaction, "LARGE", 1)
    sink = Parquet(tmp_path / "t", period=0, fewest=3)
    assert [record.message for record in caplog.records] == large * ["a sink keeps its columns"]
    for position in (3, 4):
        sink.deliver(position, rows(position))
        schemas = {tuple(pq.read_schema(path).names) for path in (tmp_path / "t" / "results").iterdir()}
        assert schemas == {tuple(columns.schema(timed=not large).names)}
        sink.tidy()
    assert sorted(by_pyarrow(tmp_path / "t" / "results")) == [10, 20, 30, 40]
    # Some readers refuse files of different columns.
    found = polars.read_parquet(tmp_path / "t" / "results" / "*.parquet")
    assert sorted(found["start"].to_list()) == [10, 20, 30, 40]


def test_texts_that_no_column_holds_do_not_stop_it(tmp_path: Path) -> None:
    keys = ["\ud800", "a\0b", "\\u0000", "\\", "\\ud800", "ä\U0001f600"]
    lines = resultlines.encode(
        Result("q", "\udc80", key, 0, 10, 1, {"\udfff": 1.0, "text": ["\ud800"]}, n)
        for n, key in enumerate(keys)
    )
    sink = Parquet(tmp_path / "t")
    sink.deliver(1, lines)
    table = ds.dataset(tmp_path / "t" / "results").to_table().to_pylist()
    assert [restored(row["key"]) for row in table] == keys
    assert len({row["key"] for row in table}) == len(keys)
    assert {restored(row["site"]) for row in table} == {"\udc80"}
    assert [restored(name) for name, _ in table[0]["values"]] == ["\udfff"]
    assert [restored(text) for text in json.loads(dict(table[0]["others"])["text"])] == ["\ud800"]


ODD = st.text(st.sampled_from("\0\ud800\udc00\\u0aä"), max_size=8)


@given(ODD, ODD)
def test_texts_come_back_and_no_two_are_the_same(one: str, other: str) -> None:
    stored = storable(one)
    assert restored(stored) == one
    assert (stored == storable(other)) == (one == other)
    assert "\0" not in stored
    stored.encode()
    assert storable_in({one: [other, 1, None]}) == {stored: [storable(other), 1, None]}


# What becomes one file


def test_too_few_are_left_alone() -> None:
    assert due([]) is None
    assert due([5] * 15) is None
    assert due([5] * 16) == range(16)


def test_a_larger_file_waits_until_there_is_as_much_behind_it() -> None:
    assert due([1000, *[5] * 16]) == range(1, 17)
    assert due([80, *[5] * 16]) == range(17)
    assert due([200, 160, *[5] * 16]) == range(2, 18)
    assert due([320, 160, 80, *[5] * 16]) == range(19)


def test_files_that_are_large_are_left_alone_for_good() -> None:
    assert due([100, *[5] * 16], fewest=4, large=100) == range(1, 17)
    assert due([5] * 3 + [100], fewest=2, large=100) is None
    # Not all at once: what becomes one stays small enough to be written in one go.
    assert due([60] * 10, fewest=2, large=100) == range(8, 10)


@given(st.lists(st.integers(1, 200), max_size=300))
def test_files_stay_few_and_rows_are_seldom_written_again(sizes: list[int]) -> None:
    held: list[int] = []
    written = 0
    for size in sizes:
        held.append(size)
        while (places := due(held, 4, 10_000)) is not None:
            total = sum(held[place] for place in places)
            held[places.start :] = [total]
            written += total
            assert total < 20_000
    full = sum(size >= 10_000 for size in held)
    assert len(held) - full <= 24
    assert written <= 16 * sum(sizes)


# Merging


def test_small_files_become_one_and_nothing_else_changes(tmp_path: Path) -> None:
    sink = Parquet(tmp_path / "t", period=0, fewest=3)
    seen: dict[str, bytes] = {}
    for position in range(1, 9):
        sink.deliver(10 * position, rows(position))
        for _ in range(2):
            # A name always means the same file: a reader with an old list gets no row twice.
            for path in (tmp_path / "t" / "results").iterdir():
                assert seen.setdefault(path.name, path.read_bytes()) == path.read_bytes()
            sink.tidy()
    assert names(tmp_path / "t") == [
        "00000000000000000001-0000000004.parquet",
        "00000000000000000071.parquet",
    ]
    table = ds.dataset(tmp_path / "t" / "results").to_table()
    assert table.schema.remove_metadata() == columns.schema()
    assert table["start"].to_pylist() == [10 * n for n in range(1, 9)]
    again = Parquet(tmp_path / "t", period=0, fewest=2)
    again.tidy()
    assert names(tmp_path / "t") == ["00000000000000000001-0000000005.parquet"]
    file = pq.ParquetFile(tmp_path / "t" / "results" / names(tmp_path / "t")[0])
    assert (file.num_row_groups, file.metadata.num_rows) == (1, 8)
    file.close()


def test_after_a_merge_that_failed_at_its_end_rows_can_be_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = Parquet(tmp_path / "t", period=0, fewest=2)
    for position in (1, 2):
        sink.deliver(position, rows(position))
    synced = files.sync_directory

    def broken(path: Path) -> None:
        synced(path)
        if path == tmp_path / "t":
            raise OSError(5, "the disk failed")

    with monkeypatch.context() as patch:
        patch.setattr(files, "sync_directory", broken)
        with pytest.raises(OSError, match="the disk failed"):
            sink.tidy()
    sink.recall()
    sink.deliver(3, rows(3))
    assert by_pyarrow(tmp_path / "t" / "results") == [10, 20, 30]


def test_generations_before_stay_for_a_while(tmp_path: Path) -> None:
    sets = Generations(tmp_path / "t", kept=2)
    for number in range(5):
        (sets.current / f"{number}.small").write_bytes(b"%d" % number)
        sets.replace([sets.current / f"{number}.small"], f"{number}.large", b"%d" % number)
    assert numbered(tmp_path / ".t") == [f"{n:010}" for n in (4, 5, 6)]
    assert sorted(path.name for path in (tmp_path / "t" / "results").iterdir()) == [
        f"{number}.large" for number in range(5)
    ]
    before = tmp_path / ".t" / f"{5:010}"
    assert sorted(path.name for path in before.iterdir()) == [
        *(f"{number}.large" for number in range(4)),
        "4.small",
    ]
    # One that was never finished goes.
    (tmp_path / ".t" / f"{7:010}").mkdir()
    assert Generations(tmp_path / "t", kept=0).current.name == f"{6:010}"
    assert numbered(tmp_path / ".t") == [f"{6:010}"]


def test_copies_that_are_not_whole_are_refused(tmp_path: Path) -> None:
    sink = Parquet(tmp_path / "t")
    sink.deliver(1, rows(1))
    shutil.copytree(tmp_path / "t", tmp_path / "followed")
    with pytest.raises(Damaged, match=r"this is no link.*copy links as links"):
        Parquet(tmp_path / "followed")
    shutil.copytree(tmp_path / "t", tmp_path / "away" / "t", symlinks=True)
    with pytest.raises(Damaged, match=r"the link leads nowhere; put .* back"):
        Parquet(tmp_path / "away" / "t")


def test_it_is_not_merged_all_the_time(tmp_path: Path) -> None:
    sink = Parquet(tmp_path / "t", fewest=2)
    for position in range(1, 8):
        sink.deliver(position, rows(position))
        sink.tidy()
    assert len(names(tmp_path / "t")) == 7


def test_a_file_beyond_the_cursor_is_replaced_and_not_merged(tmp_path: Path) -> None:
    sink = Parquet(tmp_path / "t", period=0, fewest=2)
    for position in (1, 2):
        sink.deliver(position, rows(position))
    cursor = (tmp_path / "t" / "_cursor.json").read_bytes()
    sink.deliver(3, rows(3))
    # As after a kill before the cursor moved.
    (tmp_path / "t" / "_cursor.json").write_bytes(cursor)
    sink = Parquet(tmp_path / "t", period=0, fewest=2)
    assert sink.cursor == 2
    sink.tidy()
    assert ds.dataset(tmp_path / "t" / "results").count_rows() == 3
    sink.deliver(5, rows(3, 4, 5))
    table = ds.dataset(tmp_path / "t" / "results").to_table()
    assert table["start"].to_pylist() == [10, 20, 30, 40, 50]


def test_the_files_of_a_release_before_are_taken_over(tmp_path: Path) -> None:
    directory = tmp_path / "t"
    directory.mkdir()
    for position in (1, 4, 7):
        (directory / f"{position:020}.parquet").write_bytes(columns.encoded(rows(position)))
    (directory / "_cursor.json").write_text('{"position": 4, "size": 0}')
    (directory / "mine.parquet").write_bytes(b"")
    sink = Parquet(directory)
    sink.deliver(7, rows(7))
    assert ds.dataset(directory / "results").to_table()["start"].to_pylist() == [10, 40, 70]
    assert sorted(path.name for path in directory.iterdir()) == [
        "_cursor.json",
        "mine.parquet",
        "results",
    ]
    assert by_pyarrow(tmp_path / "t.files") == [10, 40, 70]


# Readers


def by_duckdb(path: Path) -> list[int]:
    return [n for (n,) in duckdb.execute(f"SELECT start FROM '{path}/*.parquet'").fetchall()]


def by_pandas(path: Path) -> list[int]:
    return [int(n) for n in pd.read_parquet(path, columns=["start"])["start"]]


def by_pyarrow(path: Path) -> list[int]:
    found: list[int] = ds.dataset(path).to_table(columns=["start"]).to_pydict()["start"]
    return found


GONE = (FileNotFoundError, duckdb.IOException)
READERS = [by_duckdb, by_pandas, by_pyarrow]


# Arrow looks at each file of its list once more, through the link, and leaves out silently what is gone:
# such a reader has to resolve the link first.
@pytest.mark.parametrize("read, resolved", [*((read, True) for read in READERS), (by_duckdb, False)])
def test_a_reader_sees_every_row_once_while_it_grows(
    tmp_path: Path, read: Callable[[Path], list[int]], resolved: bool
) -> None:
    """Rows that were delivered before it began are all there, and none twice. One that goes through the link
    may find that a file of its list is gone, and begins anew."""
    results = tmp_path / "t" / "results"
    sink = Parquet(tmp_path / "t", period=0, fewest=5)
    sink.deliver(1, rows(1))
    delivered, merged, looked, over = 1, 0, 0, threading.Event()
    problems: list[BaseException] = []

    def write() -> None:
        nonlocal delivered, merged
        seen = 0
        try:
            while not over.is_set():
                # However slow the reader is, it must not be for ever that its list is old.
                if delivered > 20 * (looked + 1):
                    over.wait(0.001)
                    continue
                sink.deliver(delivered + 1, rows(delivered + 1))
                delivered += 1
                if delivered % 10 == 0 and looked > seen:
                    seen, before = looked, os.readlink(results)
                    sink.tidy()
                    merged += os.readlink(results) != before
        except BaseException as error:
            problems.append(error)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        while looked < 8 or merged < 4 or delivered < 100:
            assert not problems
            before = delivered
            try:
                found = read(results.resolve() if resolved else results)
            except GONE:
                assert not resolved
                continue
            assert len(set(found)) == len(found)
            assert sorted(found)[:before] == [10 * n for n in range(1, before + 1)]
            looked += 1
    finally:
        over.set()
        writer.join()
    assert not problems
    assert sorted(read(results)) == [10 * n for n in range(1, delivered + 1)]


def test_the_directory_above_can_be_read_too(tmp_path: Path) -> None:
    sink = Parquet(tmp_path / "t", period=0, fewest=2)
    for position in range(1, 6):
        sink.deliver(position, rows(position))
        sink.tidy()
        (tmp_path / "t" / "results" / ".00000000000000000009.parquet.tmp").write_bytes(b"half a file")
        assert ds.dataset(tmp_path / "t").count_rows() == position
    (tmp_path / "t" / "results" / ".00000000000000000009.parquet.tmp").unlink()


@pytest.mark.parametrize("pattern", ["/*/*.parquet", "/**/*.parquet", "/results/*.parquet", "/results"])
def test_no_reader_of_the_directory_finds_a_row_twice(tmp_path: Path, pattern: str) -> None:
    sink = Parquet(tmp_path / "t", period=0, fewest=3)
    for position in range(1, 6):
        sink.deliver(position, rows(position))
        sink.tidy()
    expected = [10 * number for number in range(1, 6)]
    assert sorted(by_pyarrow(tmp_path / "t.files")) == expected
    assert sorted(by_pyarrow(tmp_path / "t")) == expected
    found = polars.scan_parquet(f"{tmp_path}/t{pattern}").select("start").collect()
    assert sorted(found["start"].to_list()) == expected
    if pattern.endswith(".parquet"):
        said = duckdb.execute(f"SELECT file FROM glob('{tmp_path}/t{pattern}')").fetchall()
        # It follows no link below a double star, and finds nothing there.
        assert len(said) == (0 if "**" in pattern else len(names(tmp_path / "t")))


# Copies


def copied(source: Path, target: Path) -> Path:
    """What `kubectl cp` makes of a directory in a pod: it runs tar there, and passes over links."""
    made = subprocess.run(["tar", "cf", "-", source.name], cwd=source.parent, capture_output=True, check=True)
    target.mkdir()
    with tarfile.open(fileobj=io.BytesIO(made.stdout)) as archive:
        members = [member for member in archive if not member.issym()]
        archive.extractall(target, members, filter="data")
    return target / source.name


def test_a_copy_without_links_has_every_row_once(tmp_path: Path) -> None:
    sink = Parquet(tmp_path / "t", period=0, fewest=3)
    for position in range(1, 9):
        sink.deliver(position, rows(position))
        sink.tidy()
        copy = copied(tmp_path / "t.files", tmp_path / f"copy-{position}")
        assert sorted(by_pyarrow(copy)) == [10 * n for n in range(1, position + 1)]
        assert sorted(path.name for path in copy.iterdir()) == names(tmp_path / "t")


def test_a_copy_without_links_is_not_taken_for_a_new_sink(tmp_path: Path) -> None:
    Parquet(tmp_path / "t").deliver(1, rows(1))
    copy = copied(tmp_path / "t", tmp_path / "copy")
    with pytest.raises(
        Damaged, match=r"the link is missing, but results were delivered; copy links as links"
    ):
        Parquet(copy)
    copied(tmp_path / "t.files", tmp_path / "other").rename(tmp_path / "copy" / "t.files")
    (copy / "_cursor.json").unlink()
    with pytest.raises(Damaged, match=r"the link is missing, but .*t\.files has files.*copy links as links"):
        Parquet(copy)
    assert by_pyarrow(tmp_path / "copy" / "t.files") == [10]


def test_the_mirror_of_the_release_before_is_removed_from_the_directory(tmp_path: Path) -> None:
    Parquet(tmp_path / "t").deliver(1, rows(1))
    # As it was: in the directory, and nothing beside it.
    (tmp_path / "t.files").rename(tmp_path / "t" / "_files")
    sink = Parquet(tmp_path / "t")
    assert sorted(path.name for path in (tmp_path / "t").iterdir()) == ["_cursor.json", "results"]
    assert by_pyarrow(tmp_path / "t.files") == [10]
    sink.deliver(2, rows(2))
    assert by_pyarrow(tmp_path / "t.files") == [10, 20]


def test_a_directory_of_somebody_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "t.files").mkdir()
    (tmp_path / "t.files" / "report.txt").write_text("mine")
    with pytest.raises(
        Damaged, match=r"which holds 'report.txt'; move it away, or give the sink another path"
    ):
        Parquet(tmp_path / "t")
    assert (tmp_path / "t.files" / "report.txt").read_text() == "mine"


def test_a_file_that_is_delivered_again_is_replaced_in_the_mirror_too(tmp_path: Path) -> None:
    sink = Parquet(tmp_path / "t")
    sink.deliver(1, rows(1))
    cursor = (tmp_path / "t" / "_cursor.json").read_bytes()
    sink.deliver(2, rows(2))
    (tmp_path / "t" / "_cursor.json").write_bytes(cursor)
    sink = Parquet(tmp_path / "t")
    sink.deliver(3, rows(2, 3))
    assert by_pyarrow(tmp_path / "t.files") == [10, 20, 30]


@pytest.mark.parametrize("lost", ["all", "one", "more"])
def test_a_mirror_that_differs_is_made_again(tmp_path: Path, lost: str) -> None:
    """As after a crash in the middle of a merge, or on the volume of a release that had none."""
    sink = Parquet(tmp_path / "t")
    for position in (1, 2):
        sink.deliver(position, rows(position))
    mirror = tmp_path / "t.files"
    if lost == "all":
        shutil.rmtree(mirror)
    elif lost == "one":
        next(mirror.iterdir()).unlink()
    else:
        (mirror / "00000000000000000009.parquet").write_bytes(columns.encoded(rows(9)))
    Parquet(tmp_path / "t")
    assert by_pyarrow(mirror) == [10, 20]


def test_tar_sees_one_generation_while_files_are_merged(tmp_path: Path) -> None:
    """A copy has each row once. One that is made between two renames fails, and is made again."""
    sink = Parquet(tmp_path / "t", period=0, fewest=3)
    sink.deliver(1, rows(1))
    delivered, over, problems = 1, threading.Event(), list[BaseException]()

    def write() -> None:
        nonlocal delivered
        try:
            while not over.is_set() and delivered < 400:
                sink.deliver(delivered + 1, rows(delivered + 1))
                delivered += 1
                sink.tidy()
        except BaseException as error:
            problems.append(error)

    writer = threading.Thread(target=write)
    writer.start()
    copies = 0
    try:
        while copies < 8 and not problems:
            before = delivered
            try:
                copy = copied(tmp_path / "t.files", tmp_path / f"copy-{copies}")
            except subprocess.CalledProcessError:
                continue
            found = sorted(by_pyarrow(copy))
            assert found == [10 * n for n in range(1, len(found) + 1)]
            assert len(found) >= before
            copies += 1
    finally:
        over.set()
        writer.join()
    assert not problems
