"""Bad input: a typed error that lists every problem with field and remedy, and a state that is as before."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import numpy as np
import pytest

from headwater import aggregate, oracle
from headwater.aggregates import UserDefined
from headwater.errors import (
    FunctionFailed,
    HeadwaterError,
    Invalid,
    InvalidEvents,
    InvalidQuery,
    InvalidSource,
    OutOfSequence,
)
from headwater.events import Batch, Record
from headwater.node import Node
from headwater.prefix import SAMPLE_LIMIT
from headwater.queries import Query, Where
from headwater.results import Result
from headwater.root import Root
from headwater.windows import NEVER, TS_LIMIT, Merge, Punctuation, Session, Sliding, Tumbling, Window
from tests.harness import assert_exact, batch_of, expected_rows

COUNT = Query("count", Tumbling(10))
LONG = "é" * 513  # 1,026 bytes, 513 characters


def fields(caught: pytest.ExceptionInfo[Invalid]) -> list[str]:
    """The fields that are complained about; each problem says what is wrong and what to do."""
    assert all(p.message and p.remedy for p in caught.value.problems)
    assert all(str(p) in str(caught.value) for p in caught.value.problems)
    return [p.field for p in caught.value.problems]


def root_of(*queries: Query, **options: Any) -> Root:
    root = Root(queries or (COUNT,), **options)
    root.admit("s", lateness=0)
    return root


def batch(first: int, *ts: int, source: str = "s") -> Batch:
    return Batch.from_records(source, first, [(t, None, 1.0, None) for t in ts])


# Batches


@pytest.mark.parametrize(
    "columns, wrong",
    [
        ({"ts": [1, 2], "value": [1.0]}, ["columns"]),
        ({"key": [0], "keys": ["a"]}, ["columns"]),
        ({"mark": [0, -1, -1], "marks": ["S"]}, ["columns"]),
        ({"bare": [True]}, ["columns"]),
        ({"ts": [1.0, 2.0]}, ["ts"]),
        ({"ts": ["1", "2"]}, ["ts"]),
        ({"ts": [True, False]}, ["ts"]),
        ({"ts": [1, None]}, ["ts"]),
        ({"ts": [1, 2**64]}, ["ts"]),
        ({"ts": np.array(["2024-01-01", "2024-01-02"], "datetime64[us]")}, ["ts"]),
        ({"ts": [[1], [2]]}, ["ts"]),
        ({"ts": [[1], [2, 3]]}, ["ts"]),
        ({"value": ["x", "y"]}, ["value"]),
        ({"value": [1j, 2j]}, ["value"]),
        ({"value": [True, False]}, ["value"]),
        ({"value": [None, 1.0]}, ["value"]),
        ({"value": np.ones((2, 2))}, ["value"]),
        ({"key": [0.0, 0.0], "keys": ["a"]}, ["key"]),
        ({"key": [0, 1], "keys": ["a"]}, ["key"]),
        ({"key": [-1, 0], "keys": ["a"]}, ["key"]),
        ({"key": [0, 0]}, ["key"]),
        ({"key": np.zeros((2, 2), np.int32), "keys": ["a"]}, ["key"]),
        ({"key": np.array(0, np.int32), "keys": ["a"]}, ["key"]),
        ({"key": [0, 0], "keys": 5}, ["keys", "key"]),
        ({"key": [0, 0], "keys": "ab"}, ["keys", "key"]),
        ({"key": [0, 0], "keys": ["\ud800"]}, ["keys[0]"]),
        ({"key": [0, 0], "keys": [LONG]}, ["keys[0]"]),
        ({"key": [0, 0], "keys": ["a", 5, LONG]}, ["keys[1]", "keys[2]"]),
        ({"mark": [-2, 0], "marks": ["S"]}, ["mark"]),
        ({"mark": [-1, 0], "marks": [LONG]}, ["marks[0]"]),
        ({"bare": [0, 1]}, ["bare"]),
        ({"source": ""}, ["source"]),
        ({"source": None}, ["source"]),
        ({"first": 0}, ["first"]),
        ({"first": 1.0}, ["first"]),
        ({"source": "", "first": -1, "ts": [1.5], "value": ["x"]}, ["source", "first", "ts", "value"]),
        ({"value": [1.0], "key": [0, 0], "keys": [LONG]}, ["keys[0]", "columns"]),
        ({"ts": [1.5], "value": [1.0, 2.0]}, ["ts", "columns"]),
        ({"ts": [[1], [2]], "key": [0], "keys": ["a"]}, ["ts", "columns"]),
    ],
)
def test_a_batch_says_everything_that_is_wrong_with_it(columns: dict[str, Any], wrong: list[str]) -> None:
    given: dict[str, Any] = {"source": "s", "first": 1, "ts": [1, 2], "value": [1.0, 2.0]} | columns
    with pytest.raises(InvalidEvents) as caught:
        Batch(given.pop("source"), given.pop("first"), given.pop("ts"), given.pop("value"), **given)
    assert fields(caught) == wrong


@pytest.mark.parametrize("size, taken", [(1_024, True), (1_025, False)])
def test_a_key_is_at_most_a_kibibyte(size: int, taken: bool) -> None:
    records: list[Record] = [(1, "k" * size, 1.0, None)]
    if taken:
        assert len(Batch.from_records("s", 1, records)) == 1
    else:
        with pytest.raises(
            InvalidEvents, match=r"keys\[0\]: is 1025 bytes long; keep names within 1024 bytes"
        ):
            Batch.from_records("s", 1, records)


@pytest.mark.parametrize(
    "records, wrong",
    [
        ([(1.0, None, 1.0, None), (2, None, 1.0, None), (True, None, 1.0, None)], ["ts[0]", "ts[2]"]),
        ([("1", None, 1.0, None)], ["ts[0]"]),
        ([(1, 5, 1.0, None)], ["keys[0]"]),
        ([(1, None, 1.0, 5)], ["marks[0]"]),
        ([(1, None, 1.0, None), (1, None, "x", None)], ["value[1]"]),
        ([(1, None, "1.5", None)], ["value[0]"]),
        ([(1, None)], ["records[0]"]),
        ([(1, None, True, None), (1, None, 10**400, None)], ["value[0]", "value[1]"]),
        ([(1, "a", 1.0, None), (1, "\ud800", 1.0, "\udfff")], ["keys[1]", "marks[1]"]),
        ([(1, [], 1.0, {})], ["keys[0]", "marks[0]"]),
        (
            [5, (1.5, 5, "x", 5), (2, LONG, 1.0, LONG)],
            ["records[0]", "ts[1]", "keys[1]", "keys[2]", "value[1]", "marks[1]", "marks[2]"],
        ),
    ],
)
def test_a_bad_record_is_named(records: list[Any], wrong: list[str]) -> None:
    with pytest.raises(InvalidEvents) as caught:
        Batch.from_records("s", 1, records)
    assert fields(caught) == wrong


def test_bad_records_do_not_hide_a_bad_source() -> None:
    with pytest.raises(InvalidEvents) as caught:
        Batch.from_records("", 0, [("1", None, 1.0, None)])  # type: ignore[list-item]  # what a user may try
    assert fields(caught) == ["source", "first", "ts[0]"]


# What is read but does not count


@pytest.mark.parametrize(
    "ts, value, reason",
    [
        (5, math.nan, "value not finite"),
        (5, math.inf, "value not finite"),
        (5, -math.inf, "value not finite"),
        (TS_LIMIT + 1, 1.0, "ts out of range"),
        (-TS_LIMIT - 1, 1.0, "ts out of range"),
        (2**63 - 1, 1.0, "ts out of range"),
        (2**63, 1.0, "ts out of range"),
        (-(2**63), 1.0, "ts out of range"),
        (2**64 + 7, 1.0, "ts out of range"),
        (-(10**30), 1.0, "ts out of range"),
        (10**30, math.nan, "ts out of range"),
    ],
)
def test_a_bad_event_goes_to_the_ledger(ts: int, value: float, reason: str) -> None:
    root = root_of(Query("q", Tumbling(10), ["sum", "count"]), Query("n", Tumbling(count=2)))
    root.push(
        Batch.from_records("s", 1, [(4, None, 1.0, None), (ts, None, value, None), (6, None, 2.0, None)])
    )
    assert root.watermark == 6  # it did not move the watermark
    account = root.account("s")
    assert (account.accepted, account.counted, account.late, account.rejected) == (3, 2, 0, 1)
    assert [(refused.seq, refused.reason) for refused in account.sample] == [(2, reason)]
    root.finish()
    assert {r.query: r.count for r in root.take()} == {"q": 2, "n": 2}


def test_a_column_of_unsigned_times_does_not_wrap_round() -> None:
    root = root_of()
    root.push(Batch("s", 1, np.array([1, 2**63, 2**64 - 5], np.uint64), [1.0, 1.0, 1.0]))
    assert (root.account("s").counted, root.account("s").rejected, root.watermark) == (1, 2, 1)


@pytest.mark.parametrize(
    "ts",
    [
        [1, 2**70, 3, -(2**70)],
        [1, 2**63, 3, -(2**63) - 1],
        [1, 2**63, 3, 2**64 - 1],
        np.array([1, 2**63, 3, 2**64 - 1], np.uint64),
        np.array([1, 2**63 - 1, 3, -(2**63)], np.int64),
    ],
    ids=["big", "mixed", "unsigned list", "uint64", "int64"],
)
def test_a_table_leaves_out_what_is_beyond_int64(ts: Any) -> None:
    columns = aggregate({"ts": ts, "value": [1.0, 2.0, 4.0, 8.0]}, Query("q", Tumbling(10), "sum"))
    assert [(r.start, r.values) for r in columns] == [(0, {"sum": 5.0})]
    rows = [{"ts": t, "value": v} for t, v in zip(ts, [1.0, 2.0, 4.0, 8.0], strict=True)]
    assert list(aggregate(rows, Query("q", Tumbling(10), "sum"))) == list(columns)


def test_a_date_beyond_int64_does_not_wrap_round() -> None:
    # 600,000 years are more than 2^64 microseconds, and come out as a plausible date if they wrap.
    ts = np.array([0, 2**64 // 1_000_000 + 1], "datetime64[s]")
    assert [r.count for r in aggregate({"ts": ts}, Query("q", Tumbling("1h")))] == [1]


@pytest.mark.parametrize("unit", ["Y", "M", "W", "D", "h", "m", "s", "ms", "us", "ns"])
def test_dates_of_every_unit_and_no_date(unit: str) -> None:
    ts = np.array([0, 2**63 - 1, -(2**63) + 1, "NaT"], f"datetime64[{unit}]")
    results = aggregate({"ts": ts}, Query("q", Tumbling("1h")))
    # The largest number of nanoseconds is a time in 2262 and counts.
    assert sum(r.count for r in results) == (3 if unit == "ns" else 1)
    assert list(aggregate({"ts": list(ts)}, Query("q", Tumbling("1h")))) == list(results)


def test_the_ledger_keeps_a_bounded_sample() -> None:
    root = root_of()
    for first in range(1, 101, 10):
        root.push(Batch("s", first, np.arange(10), np.full(10, np.nan)))
    assert root.account("s").rejected == 100
    assert [refused.seq for refused in root.account("s").sample] == list(range(1, SAMPLE_LIMIT + 1))


# Times beyond the horizon are not read yet


def test_what_lies_beyond_the_horizon_is_read_later() -> None:
    #        0    10   20   30   40   50   60   70
    #  a     .                   40        60?      horizon: W + 50
    #  b     0              30                      W follows b
    root = Root([COUNT], expected=2, horizon=50)
    root.admit("a", lateness=0)
    root.admit("b", lateness=0)
    root.push(batch(1, 0, source="b"))
    root.push(batch(1, 0, source="a"))
    assert root.push(batch(2, 40, 60, 45, source="a")) == 1
    assert (root.watermark, root.account("a").accepted, root.sources["a"].position) == (0, 2, 2)
    assert root.push(batch(3, 60, 45, source="a")) == 0
    root.push(batch(2, 30, source="b"))
    assert root.push(batch(3, 60, 61, source="a")) == 2
    root.finish()
    assert [(r.start, r.count) for r in root.take()] == [(0, 2), (30, 1), (40, 1), (60, 2)]


def test_a_heartbeat_beyond_the_horizon_does_not_move_the_watermark() -> None:
    root = root_of(horizon="1s")
    root.push(batch(1, 5))
    assert root.push(Batch.from_records("s", 2, [(10**12, None, None, None)])) == 0
    assert root.watermark == 5


def test_an_event_at_the_horizon_is_read() -> None:
    root = root_of(horizon=10)
    root.push(batch(1, 5))
    assert root.push(batch(2, 15)) == 1


@pytest.mark.parametrize("given", ["soon", -1, True])
def test_a_bad_horizon(given: Any) -> None:
    with pytest.raises(Invalid) as caught:
        Root([COUNT], horizon=given)
    assert fields(caught) == ["horizon"]


@pytest.mark.parametrize("given", [None, "s", [(1, None, 1.0, None)], {"ts": [1], "value": [1.0]}])
@pytest.mark.parametrize("kind_of_node", [Node, Root])
def test_what_is_no_batch(kind_of_node: type[Node], given: Any) -> None:
    node = kind_of_node([COUNT])
    node.admit("s", lateness=0)
    with pytest.raises(InvalidEvents, match=type(given).__name__) as caught:
        node.push(given)
    assert fields(caught) == ["batch"]
    assert node.push(batch(1, 1, 2)) == 2


# Numbering


@pytest.mark.parametrize("first, kind", [(1, "a repeat"), (2, "a repeat"), (4, "a gap"), (99, "a gap")])
@pytest.mark.parametrize("kind_of_node", [Node, Root])
def test_gaps_and_repeats(kind_of_node: type[Node], first: int, kind: str) -> None:
    node = kind_of_node([COUNT])
    node.admit("s", lateness=0)
    node.push(batch(1, 1, 2))
    with pytest.raises(
        OutOfSequence, match=f"source 's': {kind} in the numbering.* again from record 3"
    ) as caught:
        node.push(batch(first, 3))
    assert (caught.value.source, caught.value.expected, caught.value.found) == ("s", 3, first)


# Queries


@pytest.mark.parametrize(
    "window, wrong",
    [
        (Tumbling(0), ["window.length"]),
        (Tumbling("-1s"), ["window.length"]),
        (Tumbling(timedelta(0)), ["window.length"]),
        (Tumbling("10 parsecs"), ["window.length"]),
        (Tumbling(1 << 60), ["window.length"]),
        (Tumbling(), ["window.length"]),
        (Tumbling(1.5), ["window.length"]),  # type: ignore[arg-type]  # what a user may try
        (Tumbling("1s", offset="x"), ["window.offset"]),
        (Tumbling(-1, offset=1 << 60), ["window.length", "window.offset"]),
        (Tumbling(count=0), ["window.count"]),
        (Tumbling(count=2.5), ["window.count"]),  # type: ignore[arg-type]  # what a user may try
        (Tumbling(count=True), ["window.count"]),
        (Tumbling(count=np.float64(5)), ["window.count"]),  # type: ignore[arg-type]  # what a user may try
        (Tumbling(np.timedelta64(5, "s")), ["window.length"]),  # type: ignore[arg-type]  # what a user may try
        (Tumbling("1s", count=5), ["window.length"]),
        (Tumbling(count=5, offset="1s"), ["window.offset"]),
        (Tumbling(count=5, offset="x"), ["window.offset"]),
        (Sliding(count=5, every=1, offset=3), ["window.offset"]),
        (Sliding(0, 0), ["window.length", "window.slide"]),
        (Sliding(10, 0), ["window.slide"]),
        (Sliding(10, -5), ["window.slide"]),
        (Sliding(10, 11), ["window.slide"]),
        (Sliding("1s"), ["window.slide"]),
        (Sliding("1s", "1s", every=5), ["window.every"]),
        (Sliding(count=5, every=6), ["window.every"]),
        (Sliding(count=-5, every=0), ["window.count", "window.every"]),
        (Sliding(count=5), ["window.every"]),
        (Sliding("1s", count=5, every=1), ["window.length"]),
        (Session(0), ["window.gap"]),
        (Session("-1ms"), ["window.gap"]),
        (Session(None), ["window.gap"]),  # type: ignore[arg-type]  # what a user may try
        (Punctuation(""), ["window.start"]),
        (Punctuation("S", ""), ["window.end"]),
        (Punctuation("S", "E", "union"), ["window.merge"]),  # type: ignore[arg-type]  # what a user may try
        (Punctuation("S", max_open=0), ["window.max_open"]),
        (Punctuation("S", max_open=1.5), ["window.max_open"]),  # type: ignore[arg-type]  # what a user may try
        (Punctuation("S", max_open=True), ["window.max_open"]),
        (Punctuation("S", merge="overlap"), ["window.merge"]),
        (Punctuation("S", "S", "overlap"), ["window.merge"]),
        ("10s", ["window"]),
        (Tumbling, ["window"]),
    ],
)
def test_bad_windows(window: Any, wrong: list[str]) -> None:
    with pytest.raises(InvalidQuery) as caught:
        Root([Query("q", window)])
    assert fields(caught) == [f"queries[q].{field}" for field in wrong]


MEAN = UserDefined("mean", float, max, float)
OTHER_MEAN = UserDefined("mean", float, min, float)
IN_ORDER = UserDefined("path", str, str.__add__, str, commutative=False)


@pytest.mark.parametrize(
    "more, wrong",
    [
        ({"aggregate": "mean"}, ["aggregate"]),
        ({"aggregate": []}, ["aggregate"]),
        ({"aggregate": None}, ["aggregate"]),
        ({"aggregate": ["sum", "median of medians", 5]}, ["aggregate", "aggregate"]),
        ({"aggregate": ["sum", "sum"]}, ["aggregate"]),
        ({"aggregate": "quantile(1.5)"}, ["aggregate"]),
        ({"aggregate": "quantile(-0.1)"}, ["aggregate"]),
        ({"aggregate": "quantile(nan)"}, ["aggregate"]),
        ({"aggregate": "quantile(half)"}, ["aggregate"]),
        ({"aggregate": "quantile()"}, ["aggregate"]),
        ({"aggregate": "top(0)"}, ["aggregate"]),
        ({"aggregate": "top(-1)"}, ["aggregate"]),
        ({"aggregate": "top(2.5)"}, ["aggregate"]),
        ({"aggregate": "bottom(1001)"}, ["aggregate"]),
        ({"where": Where(above=5, below=5)}, ["where"]),
        ({"where": Where(at_least=5, below=5)}, ["where"]),
        ({"where": Where(above=6, at_most=5)}, ["where"]),
        ({"where": Where(above=math.inf)}, ["where"]),
        ({"where": Where(above=math.nan)}, ["where.above"]),
        ({"where": Where(keys=frozenset())}, ["where.keys"]),
        ({"where": Where(above=5, below=5, keys=frozenset())}, ["where", "where.keys"]),
        ({"where": Where(above="1", below="2")}, ["where.above", "where.below"]),  # type: ignore[arg-type]  # tried
        ({"where": Where(keys=[5])}, ["where.keys"]),  # type: ignore[arg-type]  # tried
        ({"where": Where(keys=5)}, ["where.keys"]),  # type: ignore[arg-type]  # tried
        ({"where": Where(keys=[[5]])}, ["where.keys"]),  # type: ignore[arg-type]  # tried
        ({"where": Where(above=math.nan, keys=frozenset())}, ["where.above", "where.keys"]),
        ({"where": Where(at_most=10**400)}, ["where.at_most"]),
        ({"where": "value > 5"}, ["where"]),
        ({"scope": "regional"}, ["scope"]),
        ({"emit_empty": True, "key_by": "k"}, ["emit_empty"]),
        ({"emit_empty": True, "window": Session(5)}, ["emit_empty"]),
        ({"emit_empty": True, "window": Tumbling(count=5)}, ["emit_empty"]),
        ({"window": Punctuation("S"), "deduplicate": True}, ["window"]),
        ({"window": Punctuation("S"), "aggregate": IN_ORDER}, ["window"]),
        ({"id": ""}, ["id"]),
        ({"id": "x" * 254}, ["id"]),
        ({"id": 7}, ["id"]),
        ({"id": []}, ["id"]),
        ({"key_by": 5}, ["key_by"]),
        ({"key_by": []}, ["key_by"]),
        ({"window": "10s", "aggregate": "avrg", "scope": "here"}, ["window", "aggregate", "scope"]),
    ],
)
def test_bad_queries(more: dict[str, Any], wrong: list[str]) -> None:
    given: dict[str, Any] = {"id": "q", "window": Tumbling(10)} | more
    with pytest.raises(InvalidQuery) as caught:
        Root([Query(**given)])
    assert fields(caught) == [f"queries[{given['id']}].{field}" for field in wrong]


@pytest.mark.parametrize(
    "queries, wrong",
    [
        ([COUNT, COUNT], ["queries[count].id"]),
        ([COUNT, COUNT, COUNT], ["queries[count].id"] * 2),
        ([Query("a", Tumbling(1), key_by="x"), Query("b", Tumbling(1), key_by="y")], ["queries.key_by"]),
        ([Query("a", Tumbling(1), MEAN), Query("b", Tumbling(1), OTHER_MEAN)], ["queries[b].aggregate"]),
        (["count"], ["queries[0]"]),
        (5, ["queries"]),
    ],
)
def test_queries_that_contradict_each_other(queries: list[Any], wrong: list[str]) -> None:
    with pytest.raises(InvalidQuery) as caught:
        Root(queries)
    assert fields(caught) == wrong


def test_every_problem_of_every_query_at_once() -> None:
    with pytest.raises(InvalidQuery) as caught:
        Root(
            [
                Query("a", Tumbling(-1), ["sum", "avrg", "quantile(2)"], key_by="machine"),
                Query("b", Sliding("1s", "2s"), "top(0)", key_by="line", where=Where(above=1, below=0)),
                Query("a", Session(0), "count", scope="here"),  # type: ignore[arg-type]  # what a user may try
                Query("c", Punctuation("S", merge="overlap"), emit_empty=True),
            ]
        )
    assert str(caught.value).splitlines() == [
        "the queries cannot be taken:",
        "  - queries[a].window.length: is -1us; give a duration above zero",
        f"  - queries[a].aggregate: 'avrg' is not known; {caught.value.problems[1].remedy}",
        "  - queries[a].aggregate: 'quantile(2)' is no quantile; give a number from 0 to 1",
        "  - queries[b].window.slide: 2s is longer than the window of 1s, so events would be lost between"
        " windows; make slide at most length",
        "  - queries[b].aggregate: 'top(0)' has no usable k; give a whole number from 1 to 1000",
        "  - queries[b].where: no value can match; widen the bounds",
        "  - queries[a].window.gap: is 0s; give a duration above zero",
        "  - queries[a].scope: is 'here'; give global or local",
        "  - queries[a].id: is there already; give each query its own id",
        "  - queries[c].emit_empty: needs a tumbling or sliding window in time without key and site; drop"
        " emit_empty, key_by or scope",
        "  - queries[c].window.merge: windows that begin where the last one ended all touch, so none would"
        " ever be final; give an end mark, or merge by bounds or order",
        "  - queries.key_by: names different columns (line, machine), but an event has one key; use one key"
        " column, or run the others apart",
    ]


# Sources


@pytest.mark.parametrize(
    "name, lateness, wrong",
    [
        ("s", 0, ["source"]),
        ("", 0, ["source"]),
        (None, 0, ["source"]),
        (["t"], 0, ["source"]),
        ("t", -1, ["lateness"]),
        ("t", "soon", ["lateness"]),
        ("t", NEVER + 1, ["lateness"]),
        ("s", "-1s", ["source", "lateness"]),
    ],
)
def test_bad_sources(name: Any, lateness: Any, wrong: list[str]) -> None:
    root = root_of()
    with pytest.raises(InvalidSource) as caught:
        root.admit(name, lateness=lateness)
    assert fields(caught) == wrong
    assert list(root.sources) == ["s"]


@pytest.mark.parametrize("name", ["push", "idle", "resume", "retire", "account", "skip"])
def test_an_unknown_source(name: str) -> None:
    root = root_of()
    more = (1,) if name == "skip" else ()
    with pytest.raises(InvalidSource, match="source: 'x' is not known; admit it first"):
        getattr(root, name)(batch(1, 1, source="x") if name == "push" else "x", *more)


@pytest.mark.parametrize("kind_of_node", [Node, Root])
@pytest.mark.parametrize("seq", [0, -1, 1.5, True, "3", None, [3], 1, 2])
def test_a_record_that_cannot_be_skipped(kind_of_node: type[Node], seq: Any) -> None:
    node = kind_of_node([COUNT])
    node.admit("s", lateness=0)
    node.push(batch(1, 1, 2))
    with pytest.raises(InvalidSource) as caught:
        node.skip("s", seq)
    assert fields(caught) == ["seq"]
    assert not node.sources["s"].skips


def test_nothing_comes_after_the_end() -> None:
    root = root_of()
    root.push(batch(1, 1))
    root.finish()
    with pytest.raises(InvalidSource, match="'s' comes after the end"):
        root.push(batch(2, 2))
    assert root.account("s").accepted == 1


# As if nothing had happened


MERGES: tuple[Merge, ...] = ("local", "bounds", "order", "overlap")
ALL_KINDS: list[Window] = [
    Tumbling(7),
    Sliding(9, 2),
    Session(3),
    Tumbling(count=3),
    *(Punctuation("S", "E", merge) for merge in MERGES),
]
QUERIES = [Query(f"q{n}", window, ["sum", "median"], key_by="k") for n, window in enumerate(ALL_KINDS)]


def events_of(source: str) -> list[oracle.Event]:
    marks = {3: "S", 8: "E", 9: "S", 15: "E"}
    return [
        oracle.Event(
            source, n, 2 * n - n % 3, "ab"[n % 2] if n not in marks else None, float(n), marks.get(n)
        )
        for n in range(1, 21)
    ]


def snapshot(root: Root) -> object:
    sources = {n: (s.prefix, s.idle, s.retired, root.account(n)) for n, s in root.sources.items()}
    return (
        root.watermark,
        root.held,
        root.largest,
        root.version,
        sources,
        list(root.decisions),
        root.executions,
    )


BAD: dict[str, Callable[[Root], object]] = {
    "gap": lambda root: root.push(batch(99, 30)),
    "repeat": lambda root: root.push(batch(1, 30)),
    "gap of an idle source": lambda root: root.push(batch(9, 30, source="idle")),
    "unknown source": lambda root: root.push(batch(1, 30, source="x")),
    "retired source": lambda root: root.push(batch(1, 30, source="gone")),
    "admitted twice": lambda root: root.admit("s", lateness=0),
    "bad lateness": lambda root: root.admit("t", lateness=-1),
    "unknown idle": lambda root: root.idle("x"),
    "unknown retire": lambda root: root.retire("x"),
    "skip of what was read": lambda root: root.skip("s", 3),
    "skip of a retired source": lambda root: root.skip("gone", 1),
    "query there already": lambda root: root.add(QUERIES[0]),
    "bad query": lambda root: root.add(Query("new", Sliding(1, 2), "avrg")),
    "another key": lambda root: root.add(Query("new", Tumbling(1), key_by="other")),
    "unknown query": lambda root: root.remove("new"),
    "long key": lambda root: root.push(Batch("s", 11, [30], [1.0], key=[0], keys=[LONG])),
    "no batch": lambda root: root.push(None),  # type: ignore[arg-type]  # as a caller might
    "lengths": lambda root: root.push(Batch("s", 11, [30, 31], [1.0])),
}


@pytest.mark.parametrize("bad", BAD.values(), ids=BAD)
def test_the_state_is_as_before_and_the_engine_goes_on(bad: Callable[[Root], object]) -> None:
    root = Root(QUERIES)
    streams = [(oracle.Source(name, lateness=3), events_of(name)) for name in ("s", "t2")]
    for source, _ in streams:
        root.admit(source.name, lateness=source.lateness)
    # These two go before the watermark is set and have said nothing, so they leave no trace in any result.
    for name in ("gone", "idle"):
        root.admit(name, lateness=0)
        root.idle(name)
    root.retire("gone")
    found: list[Result] = []
    for _, events in streams:
        root.push(batch_of(events[:10]))
    found += root.take()
    before = snapshot(root)
    with pytest.raises(HeadwaterError):
        bad(root)
    assert snapshot(root) == before
    assert not list(root.take())
    for _, events in streams:
        root.push(batch_of(events[10:]))
    root.finish()
    assert_exact(QUERIES, expected_rows(QUERIES, streams), [*found, *root.take()])


# Functions that raise


@pytest.mark.parametrize("step", ["lift", "combine", "lower"])
def test_a_function_that_raises_is_named_and_stops_the_node(step: str) -> None:
    def broken(*_: Any) -> Any:
        raise ZeroDivisionError

    steps: dict[str, Any] = {
        "lift": lambda v: v,
        "combine": lambda a, b: a + b,
        "lower": lambda s: s,
        step: broken,
    }
    root = Root([Query("q", Tumbling(10), UserDefined("mine", **steps))])
    root.admit("s", lateness=0)

    def run() -> None:
        root.push(
            Batch.from_records("s", 1, [(1, None, 1.0, None), (2, None, 1.0, None), (20, None, 1.0, None)])
        )
        root.take()

    with pytest.raises(FunctionFailed, match=f"the {step} of 'mine' raised") as raised:
        run()
    assert isinstance(raised.value.__cause__, ZeroDivisionError)
    if step != "lower":
        assert root.account("s").accepted == 0
        with pytest.raises(FunctionFailed):
            run()


@pytest.mark.parametrize("field,name,site", [("source", "\ud800", ""), ("site", "s", "\ud800")])
def test_a_name_that_is_no_text_is_refused(field: str, name: str, site: str) -> None:
    root = Root([Query("q", Tumbling(10))])
    with pytest.raises(InvalidSource) as caught:
        root.admit(name, lateness=0, site=site)
    assert [problem.field for problem in caught.value.problems] == [field]
    assert not root.sources


def test_a_source_that_is_no_name_is_not_known() -> None:
    root = Root([Query("q", Tumbling(10))])
    for call in (root.idle, root.resume, root.retire, root.account):
        with pytest.raises(InvalidSource, match="no such source"):
            call([])  # type: ignore[arg-type]  # what a user may try
