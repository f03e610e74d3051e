"""Sinks and their lines: after any crash nothing is lost, and nothing there twice where that is promised."""

from __future__ import annotations

import io
import json
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction
from math import inf, isnan, nan
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.dataset as ds
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.results import Result
from headwater.sources import SourceId
from headwater_root import resultlines
from headwater_root.delivery import groups
from headwater_root.files import Damaged
from headwater_root.sinks import Sink, columns
from headwater_root.sinks.console import Console
from headwater_root.sinks.jsonlines import JsonLines
from headwater_root.sinks.parquet import Parquet
from tests.root.disk import LOSSES, Died, Disk, Loss
from tests.root.earlier import earlier


def result(values: dict[str, Any], number: int = 0) -> Result:
    return Result("q", "", None, 10 * number, 10 * number + 10, 1, values)


ROWS = {
    1: resultlines.encode([result({"sum": 1.5}, 1), result({"sum": -0.0}, 2)]),
    4: resultlines.encode([result({"top(2)": (3.0, 1.0)}, 3)]),
    5: b"",
    9: resultlines.encode([result({"avg": n / 7}, n) for n in range(4, 40)]),
}
EXPECTED = [json.loads(line) for rows in ROWS.values() for line in rows.splitlines()]


# Lines


def test_a_line_has_every_field_in_order() -> None:
    line = resultlines.encode([Result("load", "hall", "m7", 10, 20, 3, {"sum": 6.0, "max": 3.0}, 2, 4)])
    assert line == (
        b'{"id":"load/4/hall/m7/2","query":"load","incarnation":4,"site":"hall","key":"m7","start":10,"end":20,"count":3,'
        b'"values":{"sum":6.0,"max":3.0},"ordinal":2,'
        b'"measure":"time","first_time":null,"last_time":null}\n'
    )


def test_a_count_window_has_ranks_and_times() -> None:
    counted = Result("lots", "", None, 6, 9, 3, {}, measure="count", first_time=1_000, last_time=5_000)
    older = replace(counted, first_time=None)
    line, unknown = resultlines.encode([counted]), resultlines.encode([older])
    assert line.endswith(b'"ordinal":null,"measure":"count","first_time":1000,"last_time":5000}\n')
    assert unknown.endswith(b'"measure":"count","first_time":null,"last_time":5000}\n')
    for data, first in ((line, 1_000), (unknown, None)):
        (row,) = resultlines.decode(data)
        assert (row["start"], row["end"]) == (6, 9)
        assert resultlines.bounds_of(row) == resultlines.Bounds("count", first, 5_000)


def test_a_rank_of_an_earlier_release_is_no_time() -> None:
    window = Result("q", "", None, 10, 20, 3, {})
    for result, expected in (
        (window, resultlines.Bounds("time", 10, 20)),
        (replace(window, count=10), resultlines.Bounds(None, None, None)),
        # Punctuation windows have no ranks.
        (replace(window, count=10, ordinal=0), resultlines.Bounds("time", 10, 20)),
    ):
        (row,) = resultlines.decode(earlier(resultlines.encode([result])))
        assert "measure" not in row
        assert resultlines.bounds_of(row) == expected


def test_a_source_for_a_site_is_written_as_its_label() -> None:
    sources = [SourceId("pump", 1), SourceId("pump", 2), SourceId("pump#2", 1), SourceId("pump")]
    lines = resultlines.encode([Result("q", str(source), None, 0, 5, 1, {}, 1) for source in sources])
    assert [row["site"] for row in resultlines.decode(lines)] == ["pump", "pump#2", "pump#2#1", "pump"]


def test_numbers_that_json_has_not() -> None:
    line = resultlines.encode(
        [result({"a": nan, "b": inf, "c": -inf, "d": (nan, 1), "e": None, "f": "text"})]
    )
    assert b'"a":"NaN","b":"Infinity","c":"-Infinity","d":["NaN",1],"e":null,"f":"text"' in line
    (row,) = resultlines.decode(line)
    assert isnan(row["values"].pop("a"))
    assert isnan(row["values"]["d"].pop(0))
    assert row["values"] == {"b": inf, "c": -inf, "d": [1], "e": None, "f": "text"}


def test_values_of_other_types() -> None:
    class Opaque:
        pass

    values = {
        "scalar": (np.float64(0.5), np.int64(3), np.bool_(True)),
        "array": np.array([[1.0, nan]]),
        "set": {"b", "a", "c"},
        "counter": Counter("bba"),
        "mixed": {2.5: (1, None), 1: "x"},
        "fraction": Fraction(1, 3),
        "object": Opaque(),
        "long": 1 << 20_000,
        "surrogate": "\udc80",
    }
    (row,) = resultlines.decode(resultlines.encode([result(values)]))
    found = row["values"]
    assert isnan(found.pop("array")[0].pop())
    assert found == {
        "scalar": [0.5, 3, True],
        "set": ["a", "b", "c"],
        "counter": {"a": 1, "b": 2},
        "mixed": {"1": "x", "2.5": [1, None]},
        "fraction": "1/3",
        "object": "<test_values_of_other_types.<locals>.Opaque>",
        "long": hex(1 << 20_000),
        "surrogate": "\udc80",
    }


NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)


@settings(max_examples=100)
@given(
    st.lists(
        st.builds(
            Result,
            NAMES,
            NAMES,
            st.none() | NAMES,
            st.integers(-(2**63), 2**63 - 1),
            st.integers(-(2**63), 2**63 - 1),
            st.integers(0, 2**63 - 1),
            st.dictionaries(NAMES, st.none() | st.integers() | st.floats(allow_nan=False), max_size=3),
            st.none() | st.integers(0, 2**62),
            st.integers(1, 5),
        ),
        max_size=4,
    )
)
def test_lines_come_back_as_they_were(results: list[Result]) -> None:
    rows = list(resultlines.decode(resultlines.encode(results)))
    assert len(rows) == len(results)
    for row, each in zip(rows, results, strict=True):
        assert row.pop("id") == resultlines.id_of(each)
        assert row == {name: getattr(each, name) for name in row}
        assert list(map(repr, row["values"].values())) == list(map(repr, each.values.values()))


# Every sink


Content = Callable[[Path], Sequence[Any]]
Make = Callable[[Path], Sink]


def lines_of(directory: Path) -> Sequence[Any]:
    path = directory / "results.jsonl"
    return [json.loads(line) for line in path.read_bytes().splitlines()] if path.exists() else []


def table_of(directory: Path) -> Sequence[Any]:
    results = directory / "tables" / "results"
    rows: list[dict[str, Any]] = ds.dataset(results, SCHEMA).to_table().sort_by("start").to_pylist()
    for row in rows:
        others = {name: json.loads(value) for name, value in row.pop("others")}
        row["values"] = dict(row["values"]) | others
    return rows


SCHEMA = columns.schema()


def tables(directory: Path) -> Parquet:
    return Parquet(directory / "tables")


def merged_tables(directory: Path) -> Parquet:
    """Two files become one at once."""
    return Parquet(directory / "tables", period=0, fewest=2)


EXACT = [
    pytest.param(JsonLines, lines_of, id="jsonlines"),
    pytest.param(tables, table_of, id="parquet"),
    pytest.param(merged_tables, table_of, id="merged"),
]


def offer(sink: Sink, delivered: list[int]) -> None:
    for position, rows in ROWS.items():
        if position > sink.cursor:
            sink.deliver(position, rows)
            delivered.append(position)
            sink.tidy()


def offer_together(sink: Sink, delivered: list[int]) -> None:
    for position, rows in groups((p, rows) for p, rows in ROWS.items() if p > sink.cursor):
        sink.deliver(position, rows)
        delivered.append(position)
        sink.tidy()


@pytest.mark.parametrize("make, content", EXACT)
def test_results_are_delivered_once(tmp_path: Path, make: Make, content: Content) -> None:
    sink = make(tmp_path)
    assert sink.cursor == 0
    offer(sink, [])
    for position, rows in ROWS.items():
        sink.deliver(position, rows)
    assert sink.cursor == 9
    assert content(tmp_path) == EXPECTED
    sink.close()
    sink = make(tmp_path)
    assert sink.cursor == 9
    sink.deliver(10, ROWS[4])
    assert len(content(tmp_path)) == len(EXPECTED) + 1
    sink.close()


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("make, content", EXACT)
def test_a_crash_at_any_step_and_another_in_the_next_life(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Make, content: Content, loss: Loss
) -> None:
    for step in range(1, 100):
        directory = tmp_path / str(step)
        directory.mkdir()
        delivered = [0]
        died = []
        # The second one falls on all the early steps in turn: those that mend what the first one has left.
        for dies_at in (step, 1 + step * 5 % 13):
            disk = Disk(monkeypatch, directory, dies_at=dies_at)
            sink = None
            try:
                sink = make(directory)
                assert sink.cursor >= delivered[-1]
                offer(sink, delivered)
            except Died:
                pass
            died.append(disk.died)
            disk.recover(monkeypatch, loss)
            if sink is not None:
                sink.close()
        sink = make(directory)
        assert sink.cursor >= delivered[-1]
        offer(sink, delivered)
        sink.close()
        assert content(directory) == EXPECTED
        if not died[0]:
            return
    raise AssertionError("it never came to an end")


@pytest.mark.parametrize("make, content", EXACT)
def test_a_delivery_that_failed_is_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Make, content: Content
) -> None:
    for step in range(1, 150):
        directory = tmp_path / str(step)
        directory.mkdir()
        sink = make(directory)
        disk = Disk(monkeypatch, directory, fails_at=step)
        try:
            offer(sink, [])
        except OSError:
            sink.recall()
            offer(sink, [])
        failed = disk.failed
        # What it said to be delivered is, whatever is lost now.
        disk.recover(monkeypatch, "names")
        assert sink.cursor == 9
        sink.close()
        again = make(directory)
        assert again.cursor == 9
        again.close()
        assert content(directory) == EXPECTED
        if not failed:
            return
    raise AssertionError("it never came to an end")


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("make, content", EXACT)
def test_a_crash_while_a_delivery_is_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Make, content: Content, loss: Loss
) -> None:
    for fails_at in range(1, 10):
        for dies_at in range(fails_at + 1, fails_at + 8, 1 if make is JsonLines else 3):
            again = (offer, offer_together)[dies_at % 2]
            directory = tmp_path / f"{fails_at}-{dies_at}"
            directory.mkdir()
            delivered = [0]
            sink = make(directory)
            disk = Disk(monkeypatch, directory, fails_at=fails_at, dies_at=dies_at)
            with suppress(Died, OSError):
                offer(sink, delivered)
            with suppress(Died):
                sink.recall()
                # By now there may be more, which comes together.
                again(sink, delivered)
            disk.recover(monkeypatch, loss)
            sink.close()
            sink = make(directory)
            assert sink.cursor >= delivered[-1]
            offer_together(sink, delivered)
            sink.close()
            assert content(directory) == EXPECTED


@pytest.mark.parametrize("make", [JsonLines, Parquet, Console])
def test_a_cursor_that_is_none(tmp_path: Path, make: Make) -> None:
    for name in ("cursor.json", "_cursor.json"):
        (tmp_path / name).write_text("{}")
    with pytest.raises(Damaged, match="this is no cursor; put it back, or remove it"):
        make(tmp_path)


# JSON lines


def test_what_stands_behind_the_cursor_is_cut(tmp_path: Path) -> None:
    sink = JsonLines(tmp_path)
    sink.deliver(1, ROWS[1])
    sink.close()
    with sink.path.open("ab") as file:
        file.write(b'{"half a li')
    sink = JsonLines(tmp_path)
    sink.deliver(4, ROWS[4])
    sink.close()
    assert sink.path.read_bytes() == ROWS[1] + ROWS[4]


def test_delivered_lines_that_are_gone_are_missed(tmp_path: Path) -> None:
    sink = JsonLines(tmp_path)
    sink.deliver(1, ROWS[1])
    sink.close()
    sink.path.unlink()
    with pytest.raises(Damaged, match=r"bytes were delivered; put it back, or remove cursor\.json"):
        JsonLines(tmp_path)


# Console


def test_lines_for_the_eye(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    results = [
        Result("load", "hall", "m7", 10, 20, 12, {"avg": 1 / 3, "count": 12, "top(2)": (2.0, nan)}),
        Result("runs", "", None, 0, 5, 1, {}, 3, 2),
        Result("odd", "", "two\nlines\x1b[2J", 0, 5, 0, {"max": None}),
        Result("lots", "", None, 6, 9, 3, {}, measure="count", last_time=5_000_000),
    ]
    sink = Console(tmp_path)
    sink.deliver(3, resultlines.encode(results))
    sink.deliver(3, resultlines.encode(results))
    assert capsys.readouterr().out.split("\n") == [
        "load  site=hall key=m7  1970-01-01T00:00:00.000010+00:00 to 1970-01-01T00:00:00.000020+00:00  "
        '12 events  avg=0.333333 top(2)=[2.0,"NaN"]',
        "runs/2  1970-01-01T00:00:00+00:00 to 1970-01-01T00:00:00.000005+00:00  #3  1 event",
        "odd  key=two\\nlines\\x1b[2J  1970-01-01T00:00:00+00:00 to 1970-01-01T00:00:00.000005+00:00  "
        "0 events  max=null",
        "lots  [6, 9) from ? to 1970-01-01T00:00:05+00:00  3 events",
        "",
    ]
    assert Console(tmp_path).cursor == 3
    sink.close()


def test_the_console_repeats_rather_than_loses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = io.StringIO()
    offer(Console(tmp_path / "whole", whole), [])
    for step in range(1, 40):
        directory = tmp_path / str(step)
        directory.mkdir()
        stream = io.StringIO()
        disk = Disk(monkeypatch, directory, dies_at=step)
        with suppress(Died):
            offer(Console(directory, stream), [])
        died = disk.died
        disk.recover(monkeypatch, "names")
        offer(Console(directory, stream), [])
        assert Counter(stream.getvalue().splitlines()) >= Counter(whole.getvalue().splitlines())
        if not died:
            return
    raise AssertionError("it never came to an end")


def test_a_stream_that_is_gone_stops_the_cursor(tmp_path: Path) -> None:
    stream = io.StringIO()
    sink = Console(tmp_path, stream)
    stream.close()
    with pytest.raises(ValueError, match="closed file"):
        sink.deliver(1, ROWS[1])
    assert (sink.cursor, Console(tmp_path).cursor) == (0, 0)
