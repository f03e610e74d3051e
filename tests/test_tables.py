"""`aggregate()` over whatever holds events: columns, lists, Arrow tables, data frames, rows."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from dataclasses import make_dataclass
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from headwater import Query, Session, Sliding, aggregate, oracle
from headwater.aggregates import UserDefined
from headwater.errors import InvalidEvents, InvalidQuery, InvalidSource
from headwater.results import Result
from headwater.root import Root
from headwater.timeunits import decimal_to_microseconds
from headwater.windows import Punctuation, Tumbling
from tests.harness import assert_exact, batch_of, expected_rows

SECOND = 1_000_000
# Columns as plain lists; every other form is made of these.
PLAIN: dict[str, list[Any]] = {
    "ts": [n * SECOND // 2 for n in range(40)],
    "value": [float(n % 7) for n in range(40)],
    "machine": [f"m{n % 3}" for n in range(40)],
}
QUERIES = [
    Query("temp", Sliding("10s", "1s"), ["avg", "max"], key_by="machine"),
    Query("visits", Session(gap="30s"), "count"),
    Query("middle", Tumbling(count=5), "median"),
]


class Reading(NamedTuple):
    ts: int
    value: float
    machine: str


DataReading = make_dataclass("DataReading", [("ts", int), ("value", float), ("machine", str)])


def rows(columns: dict[str, list[Any]]) -> list[dict[str, Any]]:
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def dates(zone: timezone | None) -> list[datetime]:
    return [datetime(1970, 1, 1, tzinfo=zone) + timedelta(microseconds=ts) for ts in PLAIN["ts"]]


FORMS: dict[str, Callable[[], Any]] = {
    "numpy": lambda: {name: np.array(column) for name, column in PLAIN.items()},
    "numpy small types": lambda: {
        "ts": np.array(PLAIN["ts"], np.uint32),
        "value": np.array(PLAIN["value"], np.int8),
        "machine": np.array(PLAIN["machine"], object),
    },
    "numpy seconds": lambda: PLAIN | {"ts": np.array(PLAIN["ts"], "datetime64[us]").astype("datetime64[ns]")},
    "lists": lambda: PLAIN,
    "other columns too": lambda: PLAIN | {"note": [object()] * 40},
    "arrow": lambda: pa.table(PLAIN),
    "arrow dictionary": lambda: pa.table(PLAIN | {"machine": pa.array(PLAIN["machine"]).dictionary_encode()}),
    "arrow timestamp": lambda: pa.table(PLAIN | {"ts": pa.array(PLAIN["ts"], pa.timestamp("us", tz="UTC"))}),
    "arrow nanoseconds": lambda: pa.table(PLAIN | {"ts": pa.array(dates(None), pa.timestamp("ns"))}),
    "arrow chunks": lambda: pa.concat_tables([pa.table(PLAIN).slice(0, 7), pa.table(PLAIN).slice(7)]),
    "arrow record batch": lambda: pa.RecordBatch.from_pydict(PLAIN),
    "pandas": lambda: pd.DataFrame(PLAIN),
    "pandas dates": lambda: pd.DataFrame(PLAIN | {"ts": pd.to_datetime(PLAIN["ts"], unit="us")}),
    "pandas dates with zone": lambda: pd.DataFrame(
        PLAIN | {"ts": pd.to_datetime(PLAIN["ts"], unit="us", utc=True).tz_convert("Asia/Tokyo")}
    ),
    "pandas categories": lambda: pd.DataFrame(PLAIN | {"machine": pd.Categorical(PLAIN["machine"])}),
    "pandas own types": lambda: pd.DataFrame(PLAIN).convert_dtypes(),
    "pandas shuffled index": lambda: pd.DataFrame(PLAIN, index=list(reversed(range(40)))),
    "polars": lambda: pl.DataFrame(PLAIN),
    "dicts": lambda: rows(PLAIN),
    "generator": lambda: (row for row in rows(PLAIN)),
    "dicts with dates": lambda: rows(PLAIN | {"ts": dates(None)}),
    "dicts with text without zone": lambda: rows(PLAIN | {"ts": [each.isoformat() for each in dates(None)]}),
    "dicts with dates and zone": lambda: rows(PLAIN | {"ts": dates(UTC)}),
    "named tuples": lambda: [Reading(**row) for row in rows(PLAIN)],
    "data classes": lambda: [DataReading(**row) for row in rows(PLAIN)],
}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_every_form_gives_the_same_results(form: Callable[[], Any]) -> None:
    events = [
        oracle.Event("events", n + 1, row["ts"], row["machine"], row["value"])
        for n, row in enumerate(rows(PLAIN))
    ]
    found = list(aggregate(form(), QUERIES))
    assert_exact(QUERIES, expected_rows(QUERIES, [(oracle.Source("events", 1 << 62), events)]), found)
    assert found == list(aggregate(PLAIN, QUERIES))


def test_the_example_of_the_documentation() -> None:
    events = pa.table(PLAIN)
    results = aggregate(events, [Query("temp", Sliding("10s", "1s"), ["avg", "max"], key_by="machine"),
                                 Query("visits", Session(gap="30s"), "count")])  # fmt: skip
    #  one session of 40 events, half a second apart: [0, 19.5s + 30s)
    assert [r for r in results if r.query == "visits"] == [
        Result("visits", "", None, 0, 49_500_000, 40, {"count": 40})
    ]
    # [-9s, 1s) holds the events at 0 s (m0) and 0.5 s (m1)
    assert list(results)[:2] == [
        Result("temp", "", "m0", -9 * SECOND, SECOND, 1, {"avg": 0.0, "max": 0.0}),
        Result("temp", "", "m1", -9 * SECOND, SECOND, 1, {"avg": 1.0, "max": 1.0}),
    ]


def test_columns_by_other_names() -> None:
    renamed = {"at": PLAIN["ts"], "celsius": PLAIN["value"], "machine": PLAIN["machine"]}
    assert list(aggregate(renamed, QUERIES, ts="at", value="celsius")) == list(aggregate(PLAIN, QUERIES))


def test_keys_need_not_be_strings() -> None:
    numbered = PLAIN | {"machine": [7, 8] * 20}
    found = aggregate(numbered, Query("q", Tumbling("1h"), key_by="machine"))
    assert [(r.key, r.count) for r in found] == [("7", 20), ("8", 20)]


@pytest.mark.parametrize(
    "events",
    [
        {"ts": [1, 2], "machine": ["a", None]},
        pa.table({"ts": [1, 2], "machine": ["a", None]}),
        pd.DataFrame({"ts": [1, 2], "machine": ["a", None]}),
        pd.DataFrame({"ts": [1, 2], "machine": pd.array(["a", None], "string")}),
        [{"ts": 1, "machine": "a"}, {"ts": 2}],
    ],
    ids=["lists", "arrow", "pandas", "pandas strings", "rows"],
)
def test_no_key_is_the_empty_key(events: Any) -> None:
    found = aggregate(events, Query("q", Tumbling(10), key_by="machine"))
    assert [(r.key, r.count) for r in found] == [("", 1), ("a", 1)]


@pytest.mark.parametrize("form", [dict, pa.table, pd.DataFrame, pl.DataFrame, rows])
def test_marks_may_stand_without_a_value(form: Callable[[Any], Any]) -> None:
    #  ts     0   1   2   3   4
    #  mark       S       E
    #  value  1       2       4       the window [1, 3) holds the 2
    columns: dict[str, Any] = {
        "ts": [0, 1, 2, 3, 4],
        "value": [1.0, None, 2.0, None, 4.0],
        "mark": [None, "S", None, "E", None],
    }
    found = list(aggregate(form(columns), Query("q", Punctuation("S", "E"), "sum")))
    assert found == [Result("q", "events", None, 1, 3, 1, {"sum": 2.0}, ordinal=0)]


@pytest.mark.parametrize(
    "value, counted, rejected",
    [
        ([1.0, None, math.nan], 1, 1),
        ([1.0, pd.NA, math.nan], 1, 1),
        ([np.float32(1), None, np.nan], 1, 1),
        (np.array([1.0, np.nan, np.nan]), 1, 2),
        (pa.array([1.0, None, math.nan]), 1, 1),
        (pa.array([1, None, 2]), 2, 0),
        (pa.nulls(3), 0, 0),
        (pd.Series([1.0, None, math.nan]), 1, 2),
        (pd.Series([1, None, 2], dtype="Int64"), 2, 0),
        (pl.Series([1.0, None, math.nan]), 1, 1),
    ],
)
def test_no_value_is_a_heartbeat_but_nan_is_rejected(value: Any, counted: int, rejected: int) -> None:
    seen: list[Root] = []

    class Watched(Root):
        def finish(self) -> None:
            seen.append(self)
            super().finish()

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("headwater.tables.Root", Watched)
        found = list(aggregate({"ts": [1, 2, 3], "value": value}, Query("q", Tumbling(10), "sum")))
    assert [r.count for r in found] == [counted] * bool(counted)
    assert seen[0].account("events").rejected == rejected


@pytest.mark.parametrize(
    "ts",
    [
        pd.Series([pd.Timestamp(0, tz="UTC"), pd.NaT]),
        pd.Series([pd.Timestamp(0), pd.NaT]),
        pa.array([0, None], pa.timestamp("s")),
        pl.Series([datetime(1970, 1, 1), None]),  # UTC is what a date without zone is
        [datetime(1970, 1, 1, 9, tzinfo=timezone(timedelta(hours=9))), pd.NaT],
        [date(1970, 1, 1), np.datetime64("NaT")],
    ],
)
def test_no_date_is_rejected_by_itself(ts: Any) -> None:
    assert [(r.start, r.count) for r in aggregate({"ts": ts}, Query("q", Tumbling(10)))] == [(0, 1)]


@pytest.mark.parametrize(
    "key, wanted",
    [
        (["a", math.nan, "a\0"], ["", "a", "a\0"]),
        ([1, True, 1.0], ["1", "1.0", "True"]),
        ([[1], [2], [3]], ["[1]", "[2]", "[3]"]),
        (np.array(["a", "b", "c"]), ["a", "b", "c"]),
        (pa.array([1, None, 2]), ["", "1", "2"]),
        (
            pa.DictionaryArray.from_arrays(pa.array([2, None, 0], pa.uint8()), np.array(["a", "b", "c"])),
            ["", "a", "c"],
        ),
        (
            pa.chunked_array([pa.array(["a"]).dictionary_encode(), pa.array(["b", "c"]).dictionary_encode()]),
            ["a", "b", "c"],
        ),
        (pa.array([[1], [2], [3]]), ["[1]", "[2]", "[3]"]),
        (pd.Series(["a", None, "b"], dtype="category"), ["", "a", "b"]),
        (pd.Series([1, None, 2], dtype="Int64"), ["", "1", "2"]),
        (pd.Series(["a", pd.NA, "b"], dtype=object), ["", "a", "b"]),
        (pl.Series(["a", None, "b"], dtype=pl.Categorical), ["", "a", "b"]),
        (pl.Series([1, None, 2]), ["", "1", "2"]),
    ],
)
def test_keys_of_every_kind(key: Any, wanted: list[str]) -> None:
    found = aggregate({"ts": [1, 2, 3], "k": key}, Query("q", Tumbling(10), key_by="k"))
    assert [r.key for r in found] == wanted


def test_names_that_stand_in_no_row_are_no_sources() -> None:
    source = pd.Series(pd.Categorical(["b", "b"], categories=["a", "b"]))
    found = aggregate({"ts": [1, 2], "source": source}, Query("q", Punctuation("S"), "count"))
    assert list(found) == []
    assert [r.count for r in aggregate({"ts": [1, 2], "source": source}, Query("q", Tumbling(10)))] == [2]


def test_no_source_is_the_source_of_the_whole_table() -> None:
    found = aggregate({"ts": [1, 2, 3], "source": ["events", None, ""]}, Query("q", Tumbling(10)))
    assert [r.count for r in found] == [3]


# Several sources

MIXED: dict[str, list[Any]] = {
    "ts": [n // 2 for n in range(60)],
    "value": [float(n) for n in range(60)],
    "source": ["a" if n % 3 else "b" for n in range(60)],
    "site": ["north" if n % 3 else "south" for n in range(60)],
    "mark": ["S" if n % 10 < 2 else None for n in range(60)],
}
MIXED_QUERIES = [
    Query("everywhere", Sliding(10, 3), ["sum", "first"]),
    Query("site", Tumbling(10), "count", scope="local"),
    Query("ranks", Tumbling(count=7), ["first", "last"]),
    Query("marks", Punctuation("S", merge="order"), "sum"),
]


def mixed_streams() -> list[tuple[oracle.Source, list[oracle.Event]]]:
    streams = {
        name: (oracle.Source(name, 1 << 62, site), list[oracle.Event]())
        for name, site in (("a", "north"), ("b", "south"))
    }
    for row in rows(MIXED):
        _, events = streams[row["source"]]
        events.append(
            oracle.Event(row["source"], len(events) + 1, row["ts"], None, row["value"], row["mark"])
        )
    return list(streams.values())


@pytest.mark.parametrize("form", [dict, pa.table, pd.DataFrame, rows])
def test_sources_may_be_interleaved(form: Callable[[Any], Any]) -> None:
    found = aggregate(form(MIXED), MIXED_QUERIES)
    assert_exact(MIXED_QUERIES, expected_rows(MIXED_QUERIES, mixed_streams()), found)
    assert {r.site for r in found if r.query == "site"} == {"north", "south"}


def test_the_order_of_results_does_not_depend_on_the_order_of_arrival() -> None:
    found = []
    for seed in range(5):
        root = Root(MIXED_QUERIES, expected=2)
        waiting = {}
        for source, events in mixed_streams():
            root.admit(source.name, lateness=source.lateness, site=source.site)
            waiting[source.name] = [events[n : n + 4] for n in range(0, len(events), 4)]
        chance = random.Random(seed)
        while waiting:
            name = chance.choice(sorted(waiting))
            root.push(batch_of(waiting[name].pop(0)))
            waiting = {name: left for name, left in waiting.items() if left}
        root.finish()
        found.append(list(root.take()))
    assert all(results == found[0] for results in found)
    assert [(r.end, r.query) for r in found[0] if r.query != "ranks"] == sorted(
        [(r.end, r.query) for r in found[0] if r.query != "ranks"],
        key=lambda place: (place[0], [q.id for q in MIXED_QUERIES].index(place[1])),
    )


def test_many_batches_are_one_table() -> None:
    size = 200_000
    source = np.arange(size) % 3
    table = {"ts": np.arange(size), "value": np.ones(size), "source": source.astype(str)}
    found = aggregate(table, Query("q", Tumbling(50_000), "sum"))
    assert [(r.start, r.values["sum"]) for r in found] == [(n, 50_000.0) for n in range(0, size, 50_000)]


@pytest.mark.parametrize("lateness, counted", [(None, 4), (7, 4), ("5us", 3), (0, 2)])
def test_lateness(lateness: Any, counted: int) -> None:
    #  10, then 7 (3 behind), 10, and 4 (6 behind)
    found = aggregate({"ts": [10, 7, 10, 4]}, Query("q", Tumbling(100)), lateness=lateness)
    assert [r.count for r in found] == [counted]


# Results as columns


def frame_and_table(columns: dict[str, Any]) -> tuple[pd.DataFrame, pa.Table]:
    return pd.DataFrame(columns), pa.table(columns)


def test_results_are_columns_for_a_data_frame_and_for_arrow() -> None:
    results = aggregate(PLAIN, QUERIES)
    columns = results.columns("temp")
    assert list(columns) == ["site", "key", "start", "end", "avg", "max", "count"]
    frame, table = frame_and_table(columns)
    mine = [r for r in results if r.query == "temp"]
    assert frame["avg"].tolist() == table["avg"].to_pylist() == [r.values["avg"] for r in mine]
    assert frame["key"].tolist() == table["key"].to_pylist() == [r.key for r in mine]
    assert table.schema.field("start").type == pa.int64()
    assert frame["count"].sum() == sum(r.count for r in mine)


@pytest.mark.parametrize("name", ["top(3)", "bottom(100)", "quantile(0.5)", "first", "distinct"])
def test_every_kind_of_value_fits_into_a_column(name: str) -> None:
    #  10 events to a window, 4 windows; the last one, of a single event, is shorter than top(3)
    results = aggregate(PLAIN | {"ts": [*PLAIN["ts"][:-1], 60 * SECOND]}, Query("q", Tumbling("5s"), name))
    frame, table = frame_and_table(results.columns("q"))
    wanted = [r.values[name] for r in results]
    assert [r.count for r in results] == frame["count"].tolist() == [10, 10, 10, 9, 1]
    assert [_plain(value) for value in frame[name]] == [_plain(value) for value in wanted]
    assert [_plain(value) for value in table[name].to_pylist()] == [_plain(value) for value in wanted]


def _plain(value: Any) -> Any:
    """Tuples, lists and arrays alike as lists."""
    return list(value) if isinstance(value, tuple | list | np.ndarray) else value


@pytest.mark.parametrize("ends", [[1, 2, 11, 12], [1, 2, 11, 23]], ids=["equal sizes", "different sizes"])
def test_tuples_stay_tuples_in_a_column(ends: list[int]) -> None:
    pair = UserDefined("pair", lambda v: (v, v), lambda a, b: (min(a[0], b[0]), max(a[1], b[1])), tuple)
    results = aggregate(
        {"ts": ends, "value": [1.0, 2.0, 3.0, 4.0]}, Query("q", Tumbling(10), ["top(2)", pair])
    )
    columns = results.columns("q")
    for name in ("top(2)", "pair"):
        assert (columns[name].ndim, str(columns[name].dtype)) == (1, "object")
        assert columns[name].tolist() == [r.values[name] for r in results]


def test_columns_are_in_the_order_of_the_rows() -> None:
    queries = [
        *MIXED_QUERIES,
        Query("keys", Sliding(20, 5), ["sum", "count"], key_by="site", scope="local"),
        Query("empty", Tumbling(3), ["max", "sum", "product"], emit_empty=True),
    ]
    results = aggregate(MIXED | {"ts": [7 * ts for ts in MIXED["ts"]]}, queries)
    for query in queries:
        columns = results.columns(query.id)
        mine = [r for r in results if r.query == query.id]
        assert mine
        for field in ("site", "key", "start", "end", "count"):
            assert columns[field].tolist() == [getattr(r, field) for r in mine]
        for name in mine[0].values:
            assert columns[name].tolist() == [r.values[name] for r in mine]


def test_empty_windows_have_no_average() -> None:
    query = Query("q", Tumbling(10), ["avg", "sum"], emit_empty=True)
    frame, table = frame_and_table(aggregate({"ts": [5, 25], "value": [1.0, 3.0]}, query).columns("q"))
    assert frame["count"].tolist() == [1, 0, 1]
    assert table["avg"].to_pylist() == [1.0, None, 3.0]
    assert table["sum"].to_pylist() == [1.0, 0.0, 3.0]


def test_columns_of_nothing() -> None:
    results = aggregate({"ts": [], "value": []}, Query("q", Tumbling(1), "sum"))
    assert (len(results), list(results)) == (0, [])
    frame, _ = frame_and_table(results.columns("q"))
    assert len(frame) == 0
    assert frame["start"].dtype == frame["end"].dtype == frame["count"].dtype == np.int64


def test_columns_of_an_unknown_query() -> None:
    columns = aggregate(PLAIN, QUERIES).columns("other")
    assert {name: (len(column), str(column.dtype)) for name, column in columns.items()} == {
        "site": (0, "object"),
        "key": (0, "object"),
        "start": (0, "int64"),
        "end": (0, "int64"),
        "count": (0, "int64"),
    }


def test_no_rows_are_no_events() -> None:
    assert list(aggregate([], QUERIES)) == []


# What is wrong with a table


def error_of(events: Any, *queries: Query, **names: Any) -> dict[str, str]:
    with pytest.raises(InvalidEvents) as caught:
        aggregate(events, queries or QUERIES, **names)
    return {problem.field: str(problem) for problem in caught.value.problems}


def test_missing_columns_are_all_named_with_those_there_are() -> None:
    told = error_of({"time": [1], "x": [1.0]})
    assert list(told) == ["ts", "key", "value"]
    assert told["ts"] == "ts: there is no column 'ts'; name it with ts= (columns: time, x)"
    assert "no column 'machine'" in told["key"]
    assert "key_by" in told["key"]  # the key column is named by the queries
    assert "no column 'value'" in told["value"]


def test_a_column_in_place_of_its_name_is_refused() -> None:
    events = {"ts": [1], "value": [1.0], "machine": ["a"]}
    problems = error_of(events, value=[1.0], ts=np.array([1]))
    assert problems["value"] == 'value: is of type list; name a column of events, such as value="value"'
    assert problems["ts"] == 'ts: is of type ndarray; name a column of events, such as ts="ts"'


@pytest.mark.parametrize(
    "unit, number",
    [("s", 1_700_000_000), ("ms", 1_700_000_000_000), ("ns", 1_700_000_000_000_000_000)],
)
@pytest.mark.parametrize("form", [list, np.array, pa.array])
def test_times_of_another_unit_are_refused_unless_it_is_given(
    unit: Any, number: int, form: Callable[[Any], Any]
) -> None:
    query = Query("q", Tumbling("1s"))
    events = {"ts": form([number])}
    refused = error_of(events, query)["ts"]
    assert f'unit="{unit}"' in refused
    assert f"begins with {number}" in refused
    start = 1_700_000_000_000_000
    assert [r.start for r in aggregate(events, query, unit=unit)] == [start]
    # Whoever says microseconds means them.
    assert [r.count for r in aggregate(events, query, unit="us")] == [1]
    assert "unit" in error_of(events, query, unit="minutes")


@pytest.mark.parametrize("form", [list, np.array, pa.array, pd.Series, pl.Series])
def test_times_may_be_floats_of_a_unit(form: Callable[[Any], Any]) -> None:
    """As `time.time()` gives them: each is read as the decimal number that Python prints for it."""
    query = Query("q", Session(gap=1))
    seconds = [1_700_000_000.1, 1_700_000_000.123457, 1_700_000_001.0]
    starts = [1_700_000_000_100_000, 1_700_000_000_123_457, 1_700_000_001_000_000]
    assert [r.start for r in aggregate({"ts": form(seconds)}, query, unit="s")] == starts
    assert [r.start for r in aggregate({"ts": form([0.25])}, query, unit="ms")] == [250]
    told = error_of({"ts": form(seconds)}, query)["ts"]
    assert 'with a fraction; this looks like seconds: unit="s"' in told
    assert 'these look like seconds: unit="s"' in error_of({"ts": form(seconds[2:])}, query)["ts"]
    mixed = [1_700_000_000_000_000_999, 1_700_000_000_000_002_000.0, 1 << 1_100]
    found = [r.start for r in aggregate({"ts": mixed}, query, unit="ns")]
    assert found == [1_700_000_000_000_000, 1_700_000_000_000_002]
    whole = [1_700_000_000_000_000.0]
    assert [r.start for r in aggregate({"ts": form(whole)}, query)] == [1_700_000_000_000_000]


@pytest.mark.parametrize(
    "ts, said",
    [
        ([1.5, None], "has no time in row 1"),
        (np.array([math.nan]), "has no time in row 0"),
        (["2026-05-01T00:00:00Z", math.nan], "has no time in row 1"),
        ([Decimal("1"), Decimal("sNaN")], "has no time in row 1"),
        ([1.5, math.inf], "holds inf (row 1)"),
        (np.array([1.5, -math.inf]), "holds -inf (row 1)"),
        (pd.Series([1.5, pd.NA], dtype=object), "has no time in row 1"),
        (pd.Series([1.5, None], dtype="Float64"), "has no time in row 1"),
        (pa.array([1.5, None]), "has no time in row 1"),
        ([1.5, True], "holds True beside numbers (row 1)"),
        ([1.5, "2026-05-01"], "holds '2026-05-01' beside numbers (row 1)"),
        ([Decimal("NaN")], "has no time in row 0"),
        (np.array([0.7], np.float32), "has dtype float32, whose numbers are too far apart for times"),
        ([np.float32(0.7)], "holds a float32 (row 0), whose numbers are too far apart for times"),
    ],
)
def test_floats_that_are_no_times_are_named_with_their_row(ts: Any, said: str) -> None:
    assert said in error_of({"ts": ts}, Query("q", Tumbling("1s")), unit="s")["ts"]


@pytest.mark.parametrize("text, expected", [("1e-99999999", 0), ("-1e-99999999", -1), ("0e-99999999", 0)])
def test_a_decimal_time_that_is_almost_nothing_is_read_at_once(text: str, expected: int) -> None:
    assert decimal_to_microseconds(Decimal(text), "s") == expected


def test_times_may_be_decimals_beside_integers_of_any_size() -> None:
    query = Query("q", Session(gap=1))
    decimals = [Decimal("1.000001"), Decimal(2)]
    for given in (decimals, pa.array(decimals), [*decimals, 10**5_000]):
        results = aggregate({"ts": given}, query, unit="s")
        assert [r.start for r in results] == [1_000_001, 2_000_000]
    assert "with a fraction" in error_of({"ts": decimals}, query)["ts"]


@pytest.mark.parametrize("ts", [0, 1_000_000, 90_000_000, 1_700_000_000_000_000])
def test_small_times_and_microseconds_need_no_unit(ts: int) -> None:
    assert [r.count for r in aggregate({"ts": [ts]}, Query("q", Tumbling("1s")))] == [1]


@pytest.mark.parametrize(
    "text", ["2023-11-14T22:13:20Z", "2023-11-14 23:13:20+01:00", "20231114T221320Z", "2023-11-14T22:13:20"]
)
@pytest.mark.parametrize("form", [list, np.array, pa.array])
def test_times_may_be_iso_8601(text: str, form: Callable[[Any], Any]) -> None:
    (result,) = aggregate({"ts": form([text])}, Query("q", Tumbling("1s")))
    assert result.start == 1_700_000_000_000_000


def test_counting_needs_no_values() -> None:
    assert [r.count for r in aggregate({"ts": [1, 2]}, Query("q", Tumbling(10)))] == [2]


def test_every_problem_of_a_table_at_once() -> None:
    told = error_of({"ts": [1.5, 2.5], "value": ["x"], "machine": ["k" * 1_025]})
    assert set(told) == {"events", "ts", "value", "machine"}
    assert "ts 2, value 1, machine 1" in told["events"]


@pytest.mark.parametrize(
    "events, field",
    [
        ("ts,value", "events"),
        (5, "events"),
        ([(1, 2.0)], "events[0]"),
        ([Reading(1, 2.0, "a"), 5], "events[1]"),
        ({"ts": ["soon"], "value": [1.0], "machine": ["a"]}, "ts"),
        ({"ts": [True], "value": [1.0], "machine": ["a"]}, "ts"),
        ({"ts": [1, None], "value": [1.0, 1.0], "machine": ["a", "a"]}, "ts"),
        ({"ts": [1], "value": [True], "machine": ["a"]}, "value"),
        ({"ts": [1], "value": [1j], "machine": ["a"]}, "value"),
        ({"ts": 1, "value": 1.0, "machine": "a"}, "ts"),
        ({"ts": 1, "value": 1.0, "machine": "a"}, "machine"),
        ({"ts": np.array([[1]]), "value": [1.0], "machine": ["a"]}, "ts"),
        ({"ts": pa.array([1, None]), "value": [1.0, 1.0], "machine": ["a", "a"]}, "ts"),
        ({"ts": [1], "value": [10**400], "machine": ["a"]}, "value"),
        ({"ts": [1, 2], "value": [True, None], "machine": ["a", "a"]}, "value"),
        ({"ts": [1], "value": [1.0], "machine": ["\ud800"]}, "machine"),
        (pd.DataFrame([[1, 2, 1.0, "a"]], columns=["ts", "ts", "value", "machine"]), "ts"),
        (pa.table([pa.array([1])] * 4, names=["ts", "ts", "value", "machine"]), "ts"),
        (
            {
                "ts": [1, 1],
                "value": [1.0, 1.0],
                "machine": ["a"] * 2,
                "source": ["s"] * 2,
                "site": ["x", "y"],
            },
            "site",
        ),
    ],
)
def test_bad_tables(events: Any, field: str) -> None:
    assert field in error_of(events)


def test_bad_queries_and_bad_lateness_are_found_before_the_events() -> None:
    def events() -> Iterator[dict[str, Any]]:
        raise AssertionError("nothing should be read")
        yield {}

    with pytest.raises(InvalidQuery):
        aggregate(events(), Query("q", Tumbling(0)))
    with pytest.raises(InvalidSource, match="lateness"):
        aggregate(PLAIN, QUERIES, lateness="soon")


def test_the_accounts_say_what_was_left_out() -> None:
    events = {"ts": [1, 2, 1 << 70, 9, 3], "value": [1.0, float("nan"), 1.0, 1.0, 1.0]}
    results = aggregate(events, Query("q", Tumbling(10)), lateness=2)
    ((_, account),) = results.accounts.items()
    assert (account.accepted, account.counted, account.late, account.rejected) == (5, 2, 1, 2)
    assert account.refused == {"late": 1, "ts out of range": 1, "value not finite": 1}
