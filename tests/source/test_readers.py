"""Readers: every format gives the same events, the quick way and record by record; a bad record is told."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
from collections.abc import Iterable
from decimal import Decimal
from pathlib import Path
from typing import IO, Any, cast
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.errors import HeadwaterError, Invalid, InvalidEvents
from headwater_source.columns import Coded, Events
from headwater_source.readers import BadRecord, columns_of, open_input
from headwater_source.readers.csvlines import CsvReader
from headwater_source.readers.inputs import FORMATS
from headwater_source.readers.jsonlines import JsonReader

Row = tuple[int, float | None, str, str | None, str | None]
ROWS: list[Row] = [
    (1_700_000_000_000_000, 1.5, "a", None, "s1"),
    (1_700_000_000_000_001, None, "", "begin", "s2"),
    (1_700_000_000_000_002, -0.25, "é,x", "end", "s1"),
    (1_700_000_000_000_003, None, "a", None, None),
    (-5, 3.0, "a", None, "s1"),
]


def rows(parts: Iterable[Events]) -> list[Row]:
    found: list[Row] = []
    for events in parts:
        for place in range(len(events)):
            bare = events.bare is not None and bool(events.bare[place])
            key, mark, source = (
                None if column is None else column.at(place)
                for column in (events.key, events.mark, events.source)
            )
            value = None if bare else float(events.value[place])
            found.append((int(events.ts[place]), value, key or "", mark, source))
    return found


def csv_of(given: Iterable[Row]) -> bytes:
    def quoted(text: str | None) -> str:
        return '"' + (text or "").replace('"', '""') + '"' if text else ""

    lines = ["ts,value,key,mark,source"]
    for ts, value, key, mark, source in given:
        lines.append(
            f"{ts},{'' if value is None else repr(value)},{quoted(key)},{quoted(mark)},{quoted(source)}"
        )
    return ("\n".join(lines) + "\n").encode()


def json_of(given: Iterable[Row]) -> bytes:
    names = ("ts", "value", "key", "mark", "source")
    objects = (
        {name: each for name, each in zip(names, row, strict=True) if each is not None} for row in given
    )
    return b"".join(json.dumps(each).encode() + b"\n" for each in objects)


def table_of(given: Iterable[Row]) -> pa.Table:
    names = ["ts", "value", "key", "mark", "source"]
    types = [pa.int64(), pa.float64(), pa.string(), pa.string(), pa.string()]
    columns = list(zip(*given, strict=True))
    return pa.table(
        {name: pa.array(column, type) for name, type, column in zip(names, types, columns, strict=True)}
    )


def written(directory: Path, format: str, given: list[Row]) -> str:
    path = directory / f"events.{format}"
    if format == "csv":
        path.write_bytes(csv_of(given))
    elif format == "jsonl":
        path.write_bytes(json_of(given))
    elif format == "parquet":
        pq.write_table(table_of(given), path)
    else:
        with pa.ipc.new_file(str(path), table_of(given).schema) as writer:
            writer.write_table(table_of(given))
    return str(path)


@pytest.mark.parametrize("format", FORMATS)
def test_every_format_gives_the_same_events(tmp_path: Path, format: str) -> None:
    assert rows(open_input(written(tmp_path, format, ROWS))) == ROWS


@pytest.mark.parametrize("format", ["csv", "jsonl"])
def test_text_is_read_without_arrow_too(tmp_path: Path, format: str) -> None:
    path = written(tmp_path, format, ROWS)
    with patch.dict(sys.modules, {"pyarrow": None}):
        assert rows(open_input(path)) == ROWS
    with (
        patch.dict(sys.modules, {"pyarrow": None}),
        pytest.raises(HeadwaterError, match=r"headwater\[arrow\]"),
    ):
        open_input(written(tmp_path, "arrow", ROWS))


def test_an_arrow_stream_is_read_like_a_file(tmp_path: Path) -> None:
    path = tmp_path / "stream.arrow"
    with pa.ipc.new_stream(str(path), table_of(ROWS).schema) as writer:
        writer.write_table(table_of(ROWS), max_chunksize=2)
    parts = list(open_input(str(path)))
    assert [len(part) for part in parts] == [2, 2, 1]
    assert rows(parts) == ROWS


NAMES = st.text(st.characters(codec="utf-8", exclude_characters="\n\r\0"), max_size=4).filter(
    lambda text: text == text.strip()
)
SOURCES = st.sampled_from(["s1", "s2", "é"])
ANY = st.lists(
    st.tuples(
        st.integers(-(1 << 60), 1 << 60),
        st.none() | st.floats(allow_nan=False),
        NAMES,
        st.none() | NAMES.filter(bool),
        st.none() | SOURCES,
    ),
    min_size=1,
    max_size=8,
)


@settings(max_examples=60, deadline=None)
@given(ANY, st.integers(1, 40), st.booleans())
def test_however_the_bytes_come_the_events_are_the_same(events: list[Row], size: int, quick: bool) -> None:
    """In chunks of any size, the quick way and line by line."""
    for reader, data in ((CsvReader, csv_of(events)), (JsonReader, json_of(events))):
        chunks = [data[low : low + size] for low in range(0, len(data), size)]
        with patch.dict(sys.modules, {} if quick else {"pyarrow": None}):
            found = rows(reader("x", chunks, columns_of(""), skip_bad=False))
        assert found == events, reader


@pytest.mark.parametrize(
    "format, quick", [*((each, True) for each in FORMATS), ("csv", False), ("jsonl", False)]
)
def test_a_column_may_be_several_fields(tmp_path: Path, format: str, quick: bool) -> None:
    table = pa.table({"time": [1, 2], "temperature": [1.5, 2.5], "device": ["a", "b"]})
    path = tmp_path / f"x.{format}"
    if format == "csv":
        path.write_text("time,temperature,device\n1,1.5,a\n2,2.5,b\n")
    elif format == "jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in table.to_pylist()))
    elif format == "arrow":
        with pa.ipc.new_file(str(path), table.schema) as writer:
            writer.write_table(table)
    else:
        pq.write_table(table, path)
    columns = columns_of("ts=time,value=temperature,key=device,source=device")
    with patch.dict(sys.modules, {} if quick else {"pyarrow": None}):
        found = rows(open_input(str(path), columns=columns))
    assert found == [(1, 1.5, "a", None, "a"), (2, 2.5, "b", None, "b")]


@pytest.mark.parametrize("quick", [True, False])
@pytest.mark.parametrize("format", ["csv", "jsonl"])
@pytest.mark.parametrize(
    "unit, number, microseconds",
    [
        ("s", "1700000000", 1_700_000_000_000_000),
        ("s", "1700000000.25", 1_700_000_000_250_000),
        ("ms", "1700000000001", 1_700_000_000_001_000),
        ("ns", "1700000000000001999", 1_700_000_000_000_001),
    ],
)
def test_times_of_another_unit(
    tmp_path: Path, unit: Any, number: str, microseconds: int, format: str, quick: bool
) -> None:
    path = tmp_path / f"x.{format}"
    path.write_text(f"ts,value\n{number},1\n" if format == "csv" else f'{{"ts": {number}, "value": 1}}\n')
    with patch.dict(sys.modules, {} if quick else {"pyarrow": None}):
        found = rows(open_input(str(path), time_unit=unit))
        assert [row[0] for row in found] == [microseconds]
        with pytest.raises(HeadwaterError) as refused:
            rows(open_input(str(path), strict_times=True))
    if "." not in number:
        assert f"begins with {number}" in str(refused.value)
        assert f"--time-unit {unit}" in str(refused.value)


@pytest.mark.parametrize("quick", [True, False])
@pytest.mark.parametrize(
    "unit, number, meant",
    [
        ("ms", "1767225659990297", "us"),
        ("s", "1767225659990", "ms"),
        # Beyond 64 bits as microseconds.
        ("s", "1767225659990297", "us"),
        ("ms", "1767225659990297123", "ns"),
        ("s", "1767225659990297.5", "us"),
    ],
)
def test_a_unit_that_gives_times_after_2100_is_refused_with_the_one_they_look_like(
    tmp_path: Path, unit: Any, number: str, meant: str, quick: bool
) -> None:
    path = tmp_path / "x.csv"
    path.write_text(f"ts,value\n{number},1\n")
    with patch.dict(sys.modules, {} if quick else {"pyarrow": None}):
        with pytest.raises(HeadwaterError, match=f"looks? like .*seconds: --time-unit {meant}"):
            rows(open_input(str(path), time_unit=unit))
        if "." not in number:
            assert len(rows(open_input(str(path), time_unit=cast(Any, meant)))) == 1


@pytest.mark.parametrize(
    "unit, number", [("us", 1_767_225_659_990_297_123), ("ms", 1_700_000_000), ("ns", 5)]
)
def test_microseconds_and_small_numbers_of_any_unit_are_what_they_are_said_to_be(
    tmp_path: Path, unit: Any, number: int
) -> None:
    path = tmp_path / "x.csv"
    path.write_text(f"ts,value\n{number},1\n")
    assert len(rows(open_input(str(path), time_unit=unit, strict_times=True))) == 1


@pytest.mark.parametrize("quick", [True, False])
def test_first_times_before_1990_are_refused_where_asked(tmp_path: Path, quick: bool) -> None:
    path = tmp_path / "x.csv"
    path.write_text("ts,value\n5,1\n6,1\n")
    with patch.dict(sys.modules, {} if quick else {"pyarrow": None}):
        assert len(rows(open_input(str(path)))) == 2
        assert len(rows(open_input(str(path), time_unit="us", strict_times=True))) == 2
        with pytest.raises(InvalidEvents, match="if they are microseconds: --time-unit us"):
            rows(open_input(str(path), strict_times=True))
        # Text says itself what it is, and one wrong clock among others refuses nothing.
        for lines in ("1975-01-01T00:00:00Z,1\n", "5,1\n1700000000000000,1\n"):
            path.write_text("ts,value\n" + lines)
            assert rows(open_input(str(path), strict_times=True))


def test_times_as_text_and_other_names_of_columns(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("device,time,temp,rest\n7,2026-01-01T00:00:00Z,1,x\n8,2026-01-01T01:00:00.25+01:00,2,x\n")
    columns = columns_of("ts=time, value=temp,key=device")
    midnight = 1_767_225_600_000_000
    assert rows(open_input(str(path), columns=columns)) == [
        (midnight, 1.0, "7", None, None),
        (midnight + 250_000, 2.0, "8", None, None),
    ]
    path = tmp_path / "x.jsonl"
    path.write_text(
        '{"time": "2026-01-01T00:00:00Z", "temp": 1, "device": 7}\n'
        '{"time": 1767225600250000, "temp": 2, "device": "8"}\n'
    )
    assert rows(open_input(str(path), columns=columns)) == [
        (midnight, 1.0, "7", None, None),
        (midnight + 250_000, 2.0, "8", None, None),
    ]
    table = pa.table({"time": pa.array([midnight * 1_000 + 999], pa.timestamp("ns", tz="UTC")), "temp": [1]})
    pq.write_table(table, tmp_path / "x.parquet")
    columns = columns_of("ts=time,value=temp")
    found = rows(open_input(str(tmp_path / "x.parquet"), columns=columns))
    assert found == [(midnight, 1.0, "", None, None)]


@pytest.mark.parametrize(
    "line, said",
    [
        ("abc,1,k,", "ts: is 'abc'"),
        (",1,k,", "ts: is missing"),
        ("2026-01-01T00:00:00,1,k,", "without a zone"),
        ("99999999999999999999,1,k,", "beyond 64 bits"),
        ("5,x1,k,", "value: is 'x1'"),
        ("5,1_0,k,", "value: is '1_0'"),
        ("5,1,k", "has 3 fields instead of 4"),
        ('5,1,"k,', "is no CSV"),
        (f"5,1,{'k' * 1_025},", "key: is 1025 bytes long"),
        ("5,1,\udcff,", "no UTF-8"),
        ("5,1,k,a\0b", "source: is 'a\\\\x00b'"),
        ("x,y,k,", "ts: is 'x'.*value: is 'y'"),
    ],
)
def test_a_bad_line_is_told_and_nothing_before_it_is_lost(tmp_path: Path, line: str, said: str) -> None:
    path = tmp_path / "x.csv"
    text = f"ts,value,key,source\n1,1,k,\n2,2,k,\n{line}\n4,4,k,\n"
    path.write_bytes(text.encode(errors="surrogateescape"))
    found: list[Events] = []
    with pytest.raises(BadRecord, match=said) as caught:
        found += open_input(str(path))
    assert str(caught.value).startswith(f"{path}, line 4: ")
    assert [row[0] for row in rows(found)] == [1, 2]
    assert caught.value.offset == len("ts,value,key,source\n1,1,k,\n2,2,k,\n")
    reader = open_input(str(path), skip_bad=True)
    assert [row[0] for row in rows(reader)] == [1, 2, 4]
    assert reader.skipped_count == 1
    assert [bad.number for bad in reader.skipped] == [4]


@pytest.mark.parametrize(
    "line, said",
    [
        ('{"ts": 1, "value": }', "is no JSON"),
        ("[1]", "is no object"),
        ('{"ts": 1.5, "value": 1}', "ts: is 1.5"),
        ('{"ts": 1700000000.5, "value": 1}', "ts: is 1700000000.5, .* looks like seconds: --time-unit s"),
        ('{"ts": true, "value": 1}', "ts: is True"),
        ('{"ts": 1, "value": [1]}', "value: is"),
        ('{"ts": 1, "key": {}}', "key: is {}"),
        ('{"ts": 1}{"ts": 2}', "is no JSON"),
        ('{"value": 1}', "ts: is missing"),
        ('{"ts": 1, "value": 1' + "0" * 400 + "}", "beyond float64"),
    ],
)
def test_a_bad_object_is_told(tmp_path: Path, line: str, said: str) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text('{"ts": 1, "value": 1}\n\n' + line + '\n{"ts": 4, "value": 4}\n')
    with pytest.raises(BadRecord, match=said) as caught:
        list(open_input(str(path)))
    assert caught.value.number == 3
    assert [row[0] for row in rows(open_input(str(path), skip_bad=True))] == [1, 4]


FRACTIONS = ["1700000000.5", "1700000000.123457", "1700000000.0000017", "-0.5", "1.7000000005e+09"]
OF_FRACTIONS = [1_700_000_000_500_000, 1_700_000_000_123_457, 1_700_000_000_000_001, -500_000]
OF_FRACTIONS.append(1_700_000_000_500_000)


@pytest.mark.parametrize("format", ["csv", "jsonl", "parquet", "decimal"])
def test_seconds_with_a_fraction_are_exact_to_the_microsecond(tmp_path: Path, format: str) -> None:
    path = tmp_path / f"x.{'parquet' if format == 'decimal' else format}"
    if format == "csv":
        path.write_text("".join(f"{line}\n" for line in ["ts,value", *(f"{ts},1" for ts in FRACTIONS)]))
    elif format == "jsonl":
        path.write_text("".join(f'{{"ts": {ts}, "value": 1}}\n' for ts in FRACTIONS))
    else:
        given: list[Any] = [(float if format == "parquet" else Decimal)(ts) for ts in FRACTIONS]
        kind = pa.float64() if format == "parquet" else pa.decimal128(30, 10)
        pq.write_table(pa.table({"ts": pa.array(given, kind), "value": [1.0] * len(given)}), path)
    assert [row[0] for row in rows(open_input(str(path), time_unit="s"))] == OF_FRACTIONS
    with pytest.raises(BadRecord, match=r"looks like seconds: --time-unit s$"):
        list(open_input(str(path)))


@pytest.mark.parametrize(
    "ts, said",
    [
        ("1700000000123.5", "this looks like milliseconds: --time-unit ms"),
        ("1700000000123456789.5", "this looks like nanoseconds: --time-unit ns"),
        ("0.25", "say which unit it is, such as --time-unit s, or give whole microseconds"),
        ("99999999999999999999.5", "say which unit it is"),
    ],
)
def test_a_time_with_a_fraction_is_judged_by_the_unit_that_it_looks_like(
    tmp_path: Path, ts: str, said: str
) -> None:
    path = tmp_path / "x.csv"
    path.write_text(f"ts,value\n{ts},1\n")
    with pytest.raises(BadRecord, match=said):
        list(open_input(str(path)))


@pytest.mark.parametrize("format", ["csv", "jsonl"])
def test_of_seconds_with_fractions_nothing_is_read_where_the_first_are_whole(
    tmp_path: Path, format: str
) -> None:
    path = tmp_path / f"x.{format}"
    times = ("1795054600.0", "1795054600.1")
    path.write_text(
        "ts,value\n" + "".join(f"{ts},1\n" for ts in times)
        if format == "csv"
        else "".join(f'{{"ts": {ts}, "value": 1}}\n' for ts in times)
    )
    with pytest.raises(InvalidEvents, match="these look like seconds: --time-unit s"):
        next(iter(open_input(str(path))))
    whole = [row[0] for row in rows(open_input(str(path), time_unit="s"))]
    assert whole == [1795054600000000, 1795054600100000]


def test_a_bad_record_of_a_table_is_told(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    table = pa.table({"ts": pa.array([1, None, 3], pa.int64()), "value": [1.0, 2.0, None]})
    pq.write_table(table, path)
    with pytest.raises(BadRecord, match="record 2: ts: is missing"):
        list(open_input(str(path)))
    assert rows(open_input(str(path), skip_bad=True)) == [(1, 1.0, "", None, None), (3, None, "", None, None)]
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(BadRecord, match="does not read"):
        list(open_input(str(path)))


@pytest.mark.parametrize(
    "header, columns, said",
    [
        ("time,value", "", "ts: has no column 'ts'; the columns are 'time', 'value'"),
        ("ts,temp", "", "neither a value nor a mark"),
        ("ts,value,ts", "", "has a column twice"),
        ("ts,value", "key=device", "key: has no column 'device'"),
    ],
)
def test_a_header_without_the_columns_is_told(tmp_path: Path, header: str, columns: str, said: str) -> None:
    path = tmp_path / "x.csv"
    path.write_text(f"{header}\n1,1\n")
    with pytest.raises(BadRecord, match=said):
        list(open_input(str(path), columns=columns_of(columns)))


def test_what_cannot_be_read_is_told(tmp_path: Path) -> None:
    with pytest.raises(Invalid, match="--format"):
        open_input("-")
    with pytest.raises(Invalid, match="--format"):
        open_input(str(tmp_path / "x.bin"))
    with pytest.raises(Invalid, match="is a directory; give one of its files"):
        open_input(str(tmp_path))
    with pytest.raises(Invalid, match="cannot be opened"):
        open_input(str(tmp_path / "x.csv"))
    for wrong in ("time", "when=x", "ts=a,ts=b"):
        with pytest.raises(Invalid):
            columns_of(wrong)


def line(pipe: IO[bytes]) -> bytes:
    """The next one, which has to come by itself."""
    assert select.select([pipe], [], [], 60)[0], "nothing comes"
    return pipe.readline()


def test_a_pipe_is_read_as_it_comes() -> None:
    code = (
        "from headwater_source.readers import open_input\n"
        "for events in open_input('-', 'csv'): print(events.ts.tolist(), flush=True)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
    ) as process:
        try:
            assert process.stdin is not None
            assert process.stdout is not None
            # Each is there though nothing follows it.
            process.stdin.write(b"ts,value\n1,1\n2,")
            assert line(process.stdout) == b"[1]\n"
            process.stdin.write(b"2\n3,3")
            assert line(process.stdout) == b"[2]\n"
            process.stdin.close()
            assert line(process.stdout) == b"[3]\n"
            assert process.wait(60) == 0
        finally:
            process.kill()


@given(
    st.lists(st.none() | st.sampled_from(["a", "b", "cc"]), max_size=20),
    st.integers(1, 7),
    st.integers(30, 200),
)
def test_parts_are_the_whole(sources: list[str | None], size: int, limit: int) -> None:
    count = len(sources)
    keys = [f"k{place % 5}" for place in range(count)]
    events = Events(np.arange(count), np.arange(count) / 2, key=Coded.of(keys), source=Coded.of(sources))
    pieces = list(events.pieces(limit, size))
    assert rows(pieces) == rows([events])
    assert all(0 < len(piece) <= size for piece in pieces)
    parts = dict(events.by_source("me"))
    wanted: dict[str, list[Any]] = {}
    for row in rows([events]):
        wanted.setdefault(row[4] or "me", []).append(row)
    assert {name: rows([part]) for name, part in parts.items()} == wanted


def test_reading_closes_the_file(tmp_path: Path) -> None:
    path = Path(written(tmp_path, "csv", ROWS))
    with path.open():
        assert is_open(path)
    list(open_input(str(path)))
    assert not is_open(path)


def is_open(path: Path) -> bool:
    """Whether this process has a file open; what other threads open meanwhile does not count."""
    return any(os.path.realpath(each) == str(path.resolve()) for each in Path("/proc/self/fd").iterdir())


@pytest.mark.parametrize(
    "line, said",
    [
        ("[" * 100_000, "record: has too many lists or objects within each other; give a flat object"),
        ('{"ts": 2, "value": ' + "[" * 100_000, "record: has too many lists"),
        ('{"ts": 2, "value": ' + "[" * 500 + "]" * 500 + "}", "value: is .*; give a number, or nothing"),
        ('{"ts": "' + "9" * 9_000 + '", "value": 1}', "ts: has 9000 digits, beyond 64 bits; give"),
        ('{"ts": "' + "9" * 90 + '", "value": 1}', "ts: is 9+[.]*9*, beyond 64 bits; give whole micro"),
        ('{"ts": 2, "value": 1, "key": ' + "[" * 500 + "]" * 500 + "}", "key: is .*; give strings"),
        ('{"ts": "' + "x" * 9_000 + '", "value": 1}', "ts: is '.*'; give whole micro"),
        ('{"ts": 2, "value": "' + "x" * 9_000 + '"}', "value: is '.*'; give a number, or nothing"),
    ],
    ids=["lists", "value", "closed", "digits", "number", "key", "time", "text"],
)
@pytest.mark.parametrize("quick", [True, False])
def test_a_line_however_deep_or_long_is_told_in_few_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, said: str, quick: bool
) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text(f'{{"ts": 1, "value": 1}}\n{line}\n{{"ts": 3, "value": 3}}\n')
    if not quick:
        monkeypatch.setattr("headwater_source.readers.lines.arrow", lambda: None)
    with pytest.raises(BadRecord, match=f"line 2: {said}") as caught:
        list(open_input(str(path)))
    assert len(str(caught.value)) < 600
    assert [row[0] for row in rows(open_input(str(path), skip_bad=True))] == [1, 3]
