"""Results by place, and as tables of pandas, Arrow and polars."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pytest

from headwater import Invalid, Query, Results, Root, Tumbling, aggregate
from headwater.rows import TS_MIN

BEGIN = datetime(2026, 5, 1, 12, tzinfo=UTC)
SECOND = 1_000_000
START = int(BEGIN.timestamp()) * SECOND
EVENTS = {
    "ts": [START, START + SECOND // 2, START + 12 * SECOND],
    "value": [1.0, 2.0, 3.0],
    "machine": ["boiler", "mixer", "boiler"],
}
TREND = Query("trend", Tumbling("1s"), ["avg", "top(2)"], key_by="machine")
LOTS = Query("lots", Tumbling(count=2), "sum")


@pytest.fixture
def results() -> Results:
    return aggregate(EVENTS, [TREND, LOTS])


def test_results_are_indexed_in_their_order(results: Results) -> None:
    listed = list(results)
    assert [results[place] for place in range(len(results))] == listed
    assert results[-1] == listed[-1]
    assert results[1:3] == listed[1:3]
    with pytest.raises(IndexError):
        results[len(results)]


def rows(table: Any, package: str) -> list[dict[str, Any]]:
    if package == "pandas":
        found: list[dict[str, Any]] = table.to_dict("records")
    else:
        found = table.to_pylist() if package == "arrow" else table.to_dicts()
    # What top(2) gives is a tuple here and a list there.
    return [{n: list(v) if isinstance(v, tuple) else v for n, v in row.items()} for row in found]


@pytest.mark.parametrize("package", ["pandas", "arrow", "polars"])
def test_a_table_has_times_as_times(results: Results, package: str) -> None:
    found = rows(getattr(results, f"to_{package}")("trend"), package)
    expected = [result for result in results if result.query == "trend"]
    assert [row["key"] for row in found] == ["boiler", "mixer", "boiler"]
    assert found[0]["start"] == BEGIN
    assert [int(row["end"].timestamp()) * SECOND for row in found] == [each.end for each in expected]
    assert [row["avg"] for row in found] == [each.values["avg"] for each in expected]
    assert [row["top(2)"] for row in found] == [list(each.values["top(2)"]) for each in expected]


@pytest.mark.parametrize("package", ["pandas", "arrow", "polars"])
def test_a_count_window_has_ranks(results: Results, package: str) -> None:
    (found,) = rows(getattr(results, f"to_{package}")("lots"), package)
    assert (found["first_rank"], found["last_rank"], found["sum"], found["key"]) == (1, 2, 3.0, None)
    assert "start" not in found
    expected = next(result for result in results if result.query == "lots")
    assert expected.first_time is not None
    assert expected.last_time is not None
    for name, time in (("first_time", expected.first_time), ("last_time", expected.last_time)):
        assert found[name] == datetime.fromtimestamp(time / SECOND, UTC)


@pytest.mark.parametrize("package", ["pandas", "arrow", "polars"])
def test_a_time_that_is_not_known_is_missing(results: Results, package: str) -> None:
    for block in results.blocks:
        if block.first_time is not None:
            block.first_time = np.full(len(block), TS_MIN)
    (found,) = rows(getattr(results, f"to_{package}")("lots"), package)
    assert found["first_time"] is None or found["first_time"] != found["first_time"]
    assert found["last_time"] == found["last_time"]
    assert results.columns("lots")["first_time"].tolist() == [None]
    assert [each.first_time for each in results if each.query == "lots"] == [None]


def test_a_count_window_that_was_closed_without_times_has_ranks(results: Results) -> None:
    for block in results.blocks:
        # As in a state of a release before.
        block.first_time = block.last_time = None
    (found,) = (each for each in results if each.query == "lots")
    assert (found.measure, found.first_time, found.last_time) == ("count", None, None)
    columns = results.columns("lots")
    assert (columns["first_time"].tolist(), columns["last_time"].tolist()) == ([None], [None])
    assert "first_time" not in results.columns("trend")


def test_without_a_name_there_must_be_one_query(results: Results) -> None:
    with pytest.raises(Invalid, match=r"query: is missing, and there are several \(trend, lots\); name one"):
        results.to_pandas()
    assert len(aggregate(EVENTS, TREND).to_pandas()) == 3


@pytest.mark.parametrize("package", ["pandas", "arrow", "polars"])
def test_a_query_that_is_not_known_is_refused(results: Results, package: str) -> None:
    said = r"query: 'trned' is not known; give one of the queries: trend, lots"
    with pytest.raises(Invalid, match=said):
        getattr(results, f"to_{package}")("trned")
    with pytest.raises(Invalid, match=said):
        getattr(aggregate({"ts": [], "value": [], "machine": []}, [TREND, LOTS]), f"to_{package}")("trned")


@pytest.mark.parametrize("package", ["pandas", "arrow", "polars"])
def test_a_query_without_windows_is_an_empty_table(package: str) -> None:
    empty: dict[str, list[Any]] = {"ts": [], "value": [], "machine": []}
    results = aggregate(empty, [TREND, LOTS])
    ranked = ["site", "key", "first_rank", "last_rank", "first_time", "last_time"]
    for query, fixed in (("trend", ["site", "key", "start", "end"]), ("lots", ranked)):
        table = getattr(results, f"to_{package}")(query)
        assert len(table) == 0
        # The columns of bounds do not come with the first window.
        assert list(table.column_names if package == "arrow" else table.columns) == [*fixed, "count"]
    root = Root([TREND, LOTS], expected=1)
    assert len(getattr(root.take(), f"to_{package}")("lots")) == 0
    assert len(getattr(aggregate(empty, TREND), f"to_{package}")()) == 0


def test_a_package_that_is_missing_is_named(results: Results, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "polars", None)
    with pytest.raises(Invalid, match="polars: is not installed; pip install polars"):
        results.to_polars("trend")
