"""The audit agrees with the engine on everything that it computes, and finds each kind of difference."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from headwater import Batch, Punctuation, Query, Result, Root, Session, Sliding, Tumbling, Where, aggregates
from headwater.errors import Invalid
from headwater.prefix import NO_SKIPS
from headwater_node.accepted import Portion
from headwater_node.archive import CLOSED, encoded
from headwater_root import resultlines
from headwater_root.sinks.parquet import Parquet
from headwater_spark.audit import Audited, Report, Span, audit
from headwater_spark.emitted import read
from tests.root.earlier import earlier

LATENESS = 30
SITES = {"a": "east", "b": "west", "c": "east"}
FUNCTIONS = [*aggregates.NAMES[:-3], "quantile(0.9)", "top(3)", "bottom(2)"]
QUERIES = [
    Query("all", Tumbling(100), FUNCTIONS),
    Query("keyed", Tumbling(100, offset=7), ["sum", "median", "mode", "first"], key_by="k"),
    Query("sliding", Sliding(100, 30, offset=-11), ["sum", "median"]),
    Query("local", Tumbling(100), ["sum", "count"], scope="local"),
    Query(
        "some", Tumbling(100), ["count", "max"], where=Where(at_least=2, below=9, keys=frozenset({"x", ""}))
    ),
    Query("once", Tumbling(100), ["sum", "count"], deduplicate=True),
    Query("busy", Session(gap=12), ["count", "first", "last"]),
    Query("busy by key", Session(gap=40), ["sum"], key_by="k", scope="local"),
    Query("lots", Tumbling(count=17), ["sum", "first"]),
    Query("lots by key", Sliding(count=10, every=3), ["avg", "last"], key_by="k"),
    Query("runs", Punctuation("begin", "end", merge="local"), ["count", "sum"]),
    Query("rounds", Punctuation("begin", merge="local"), ["count", "max"]),
    Query("pulse", Tumbling(5), ["count", "sum", "max"], emit_empty=True),
]
Row = tuple[int, str | None, float | None, str | None]


def drawn(seed: int, size: int = 200) -> dict[str, list[Row]]:
    """Events of three sources: ties, out of order, late, no numbers, heartbeats, marks."""
    draw = random.Random(seed)
    found: dict[str, list[Row]] = {}
    for source in SITES:
        rows: list[Row] = []
        at = 0
        for _ in range(size):
            at += draw.choice((0, 0, 1, 2, 3, 15))
            ts = at - draw.choice((0, 0, 0, 5, 29, 31, 60))
            value = draw.choice(
                (*map(float, range(-3, 10)), 0.25, 1e9, -0.0, float("nan"), float("inf"), None)
            )
            mark = draw.choice((None,) * 9 + ("begin", "end", "other"))
            rows.append((ts, draw.choice(("x", "y", "", None)), value, mark))
        # A heartbeat far ahead, so that everything before is final.
        found[source] = [*rows, (at + 1_000, None, None, None)]
    return found


def batches(rows: dict[str, list[Row]]) -> Iterable[Batch]:
    for source, listed in rows.items():
        for begin in range(0, len(listed), 50):
            yield Batch.from_records(source, begin + 1, listed[begin : begin + 50])


def emitted(rows: dict[str, list[Row]], queries: Sequence[Query]) -> list[Result]:
    root = Root(queries, expected=len(rows))
    for source in rows:
        root.admit(source, lateness=LATENESS, site=SITES[source])
    for batch in batches(rows):
        root.push(batch)
    return list(root.take())


def archive(directory: Path, parts: Iterable[Batch], *, closed: bool = True) -> Path:
    """An archive of one child."""
    child = directory / "child"
    child.mkdir(parents=True, exist_ok=True)
    portions = [Portion(part, "o", SITES[part.source], LATENESS, None, NO_SKIPS) for part in parts]
    for number in range(0, len(portions), 10):
        data = encoded(portions[number : number + 10], number)
        (child / f"{number:020}-000001.parquet").write_bytes(data)
    if closed:
        (child / CLOSED).touch()
    return directory


def lines(directory: Path, results: Iterable[Result]) -> Path:
    directory.mkdir(exist_ok=True)
    (directory / "results.jsonl").write_bytes(resultlines.encode(results))
    return directory


@pytest.fixture(scope="module")
def rows() -> dict[str, list[Row]]:
    return drawn(1)


@pytest.fixture(scope="module")
def results(rows: dict[str, list[Row]]) -> list[Result]:
    return emitted(rows, QUERIES)


@pytest.fixture(scope="module")
def raw(rows: dict[str, list[Row]], tmp_path_factory: pytest.TempPathFactory) -> Path:
    listed = list(batches(rows))
    # Some of it twice, as after a move.
    return archive(tmp_path_factory.mktemp("raw"), [*listed, *listed[3:7]])


def found(report: Report) -> dict[str, Audited]:
    return {audited.query: audited for audited in report.queries}


def test_it_agrees_with_the_engine(
    spark: SparkSession, raw: Path, results: list[Result], tmp_path: Path
) -> None:
    report = audit(spark, QUERIES, raw, lines(tmp_path / "lines", results))
    assert {audited.query: audited.differences for audited in report.queries if audited.differing} == {}
    assert report.complete
    assert report.extent.gaps == ()
    assert report.extent.late > 50
    assert report.extent.rejected > 50
    for query in QUERIES:
        emitted_of = sum(result.query == query.id for result in results)
        assert found(report)[query.id].equal == emitted_of, query.id
        assert emitted_of > 3, query.id


def changed(results: list[Result], query: str, change: Callable[[Result], list[Result]]) -> list[Result]:
    """Results of which the fifth of a query was changed."""
    place = [n for n, result in enumerate(results) if result.query == query][4]
    return [*results[:place], *change(results[place]), *results[place + 1 :]]


def other(result: Result, **values: Any) -> Result:
    return replace(result, values={**result.values, **values})


CHANGES: list[tuple[str, str, Callable[[Result], list[Result]]]] = [
    ("all", "different", lambda one: [other(one, sum=one.values["sum"] * (1 + 1e-6) + 1e-3)]),
    ("local", "missing", lambda one: []),
    ("keyed", "extra", lambda one: [one, replace(one, key="nobody")]),
    ("busy", "repeated", lambda one: [one, one]),
    ("lots", "different", lambda one: [other(one, first=77.0)]),
    ("runs", "missing", lambda one: []),
]


def test_it_finds_each_difference(
    spark: SparkSession, raw: Path, results: list[Result], tmp_path: Path
) -> None:
    wrong = results
    for query, _, change in CHANGES:
        wrong = changed(wrong, query, change)
    asked = [query for query in QUERIES if query.id in [name for name, _, _ in CHANGES]]
    report = audit(spark, asked, raw, lines(tmp_path / "lines", wrong))
    assert report.differing == len(CHANGES)
    for query, kind, _ in CHANGES:
        (difference,) = found(report)[query].differences
        assert difference.kind == kind
        if kind == "different":
            assert len(difference.values) == 1


def test_lists_bounds_and_empty_windows_are_compared_too(
    spark: SparkSession, raw: Path, results: list[Result], tmp_path: Path
) -> None:
    wrong = changed(results, "all", lambda one: [other(one, **{"top(3)": (5.0,)})])
    wrong = changed(wrong, "busy", lambda one: [replace(one, end=one.end + 1)])
    empty = next(n for n, result in enumerate(wrong) if result.query == "pulse" and not result.count)
    wrong[empty] = other(wrong[empty], sum=1.0)
    asked = [query for query in QUERIES if query.id in ("all", "busy", "pulse")]
    report = audit(spark, asked, raw, lines(tmp_path / "lines", wrong))
    differing = [(each.query, each.differences[0].values) for each in report.queries]
    (_, lists), (_, bounds), (_, nothing) = differing
    assert list(lists) == ["top(3)"]
    assert list(bounds) == ["end"]
    assert nothing["sum"] == ("1.0", None)
    assert report.differing == 3


@pytest.mark.parametrize("sink", ["lines", "parquet", "a copy"])
def test_the_times_of_count_windows_are_compared(
    spark: SparkSession, raw: Path, results: list[Result], tmp_path: Path, sink: str
) -> None:
    wrong = changed(results, "lots", lambda one: [replace(one, last_time=(one.last_time or 0) + 1)])
    directory = tmp_path / "results"
    if sink == "lines":
        lines(directory, wrong)
    else:
        Parquet(directory).deliver(1, resultlines.encode(wrong))
    if sink == "a copy":
        (directory / "results").unlink()
    asked = [query for query in QUERIES if query.id.startswith("lots")]
    report = audit(spark, asked, raw, directory)
    assert report.differing == 1
    (difference,) = found(report)["lots"].differences
    assert difference.kind == "different"
    assert list(difference.values) == ["last_time"]
    # What an earlier release has written says no times.
    older = tmp_path / "older"
    older.mkdir()
    (older / "results.jsonl").write_bytes(earlier(resultlines.encode(wrong)))
    assert audit(spark, asked, raw, older).differing == 0


def test_the_last_digits_of_a_sum_may_differ(
    spark: SparkSession, raw: Path, results: list[Result], tmp_path: Path
) -> None:
    near = changed(results, "local", lambda one: [other(one, sum=one.values["sum"] * (1 + 1e-12))])
    report = audit(spark, [QUERIES[3]], raw, lines(tmp_path / "lines", near))
    assert (report.differing, report.complete) == (0, True)


def test_results_in_parquet(spark: SparkSession, raw: Path, results: list[Result], tmp_path: Path) -> None:
    sink = Parquet(tmp_path / "sink")
    sink.deliver(1, resultlines.encode(results[:500]))
    sink.deliver(2, resultlines.encode(results[500:]))
    report = audit(spark, [QUERIES[10]], raw, tmp_path / "sink")
    assert (report.differing, report.complete) == (0, True)
    assert found(report)["runs"].equal == sum(result.query == "runs" for result in results)


def test_windows_beyond_the_archive_are_not_judged(
    spark: SparkSession, rows: dict[str, list[Row]], results: list[Result], tmp_path: Path
) -> None:
    listed = list(batches(rows))
    a = [batch for batch in listed if batch.source == "a"]
    others = [batch for batch in listed if batch.source != "a"]
    sink = lines(tmp_path / "lines", results)
    asked = [QUERIES[3], QUERIES[8]]
    # The first of a source, then some in the midst are gone; `largest` is how it stood behind them.
    for number, gone in enumerate((0, 2)):
        kept = [*a[:gone], *a[gone + 1 :]]
        largest = int(max(ts for ts, _, _, _ in rows["a"][: (gone + 1) * 50]))
        directory = archive(tmp_path / f"raw-{number}", [*others, *kept[:gone]])
        for place, batch in enumerate(kept[gone:]):
            portion = Portion(batch, "o", "east", LATENESS, largest, NO_SKIPS)
            path = directory / "child" / f"{100 + place:020}-000001.parquet"
            path.write_bytes(encoded([portion], 1))
        report = audit(spark, asked, directory, sink)
        assert report.differing == 0
        assert len(report.extent.gaps) == 1
        assert found(report)["local"].unjudged > 0
        assert found(report)["local"].equal > 0
        assert (found(report)["lots"].equal > 0) == (gone > 0)


def test_an_archive_that_is_still_written_ends_where_its_sources_stand(
    spark: SparkSession, rows: dict[str, list[Row]], results: list[Result], tmp_path: Path
) -> None:
    kept = [batch for batch in batches(rows) if batch.source != "a" or batch.first < 200]
    # That of `a` is written last.
    kept.sort(key=lambda batch: batch.source == "a")
    report = audit(
        spark, [QUERIES[3]], archive(tmp_path / "raw", kept, closed=False), lines(tmp_path, results)
    )
    assert report.extent.until is not None
    assert report.differing == 0
    assert found(report)["local"].equal > 0
    assert found(report)["local"].unjudged > 0


def test_a_floor_that_the_root_has_set_is_in_the_archive(spark: SparkSession, tmp_path: Path) -> None:
    query = Query("q", Tumbling(100), "count")
    root = Root([query], expected=1)
    root.admit("a", lateness=LATENESS, site="east")
    first = Batch.from_records("a", 1, [(10, None, 1.0, None)])
    second = Batch.from_records(
        "a", 2, [(20, None, 1.0, None), (500, None, 1.0, None), (900, None, 1.0, None)]
    )
    root.push(first)
    root.idle("a")
    root.resume("a", floor=300)
    root.push(second)
    results = list(root.take())
    directory = archive(tmp_path / "raw", [first])
    portion = Portion(second, "o", "east", LATENESS, 300, NO_SKIPS)
    (directory / "child" / f"{9:020}-000001.parquet").write_bytes(encoded([portion], 9))
    report = audit(spark, [query], directory, lines(tmp_path / "lines", results))
    assert report.extent.late == 1
    assert (report.differing, found(report)["q"].equal) == (0, len(results))


def test_a_span(spark: SparkSession, raw: Path, results: list[Result], tmp_path: Path) -> None:
    wrong = changed(results, "local", lambda one: [])
    end = [result for result in results if result.query == "local"][4].end
    sink = lines(tmp_path, wrong)
    assert audit(spark, QUERIES[3:4], raw, sink, Span(None, end - 1)).differing == 0
    assert audit(spark, QUERIES[3:4], raw, sink, Span(end - 100, end)).differing == 1
    assert audit(spark, QUERIES[3:4], raw, sink, Span(end - 99, None)).differing == 0


def test_what_cannot_be_audited_is_said(spark: SparkSession, raw: Path, tmp_path: Path) -> None:
    asked = [
        Query("order", Punctuation("begin", merge="order"), "count"),
        Query("marks by key", Punctuation("begin", merge="local"), "count", key_by="k"),
    ]
    report = audit(spark, asked, raw, lines(tmp_path, []))
    assert [bool(audited.reason) for audited in report.queries] == [True, True]
    assert not report.complete


def test_folders_without_files_are_named(spark: SparkSession, raw: Path, tmp_path: Path) -> None:
    with pytest.raises(Invalid, match="--archive"):
        audit(spark, QUERIES, tmp_path, lines(tmp_path / "lines", []))
    with pytest.raises(Invalid, match="--results"):
        audit(spark, QUERIES, raw, tmp_path / "nothing")


def test_half_a_line_at_the_end_is_not_there_yet(
    spark: SparkSession, results: list[Result], tmp_path: Path
) -> None:
    folder = lines(tmp_path / "lines", results)
    path = folder / "results.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) * 2 // 3].rstrip(b"}\n"))
    held = path.read_bytes().count(b"\n")
    assert len(read(spark, folder).select("id").collect()) == held
    # Anywhere else it is damage.
    path.write_bytes(b'{"id":"a\n' + whole)
    with pytest.raises(Invalid, match="has a line that is no result"):
        read(spark, folder)
