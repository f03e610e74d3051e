"""Batches of many thousands of events: the short cuts that small drawn cases never take."""

from __future__ import annotations

import numpy as np
import pytest

from headwater import oracle
from headwater.aggregates import UserDefined
from headwater.events import Batch
from headwater.queries import Query, Where
from headwater.results import Result
from headwater.root import Root
from headwater.verification import differences, spec_of
from headwater.windows import Session, Sliding, Tumbling, Window
from tests.harness import rows_of

SIZE = 9_000


def run(queries: list[Query], columns: dict[str, tuple[np.ndarray, np.ndarray]], lateness: int) -> Root:
    """Push each source's events in two long batches, in turns, and compare everything with the oracle."""
    root = Root(queries, expected=len(columns))
    events: list[oracle.Event] = []
    for name, (ts, value) in columns.items():
        root.admit(name, lateness=lateness)
        events += [oracle.Event(name, n + 1, int(ts[n]), None, float(value[n])) for n in range(len(ts))]
    found: list[Result] = []
    for half in (slice(0, SIZE // 2), slice(SIZE // 2, SIZE)):
        for name, (ts, value) in columns.items():
            root.push(Batch(name, half.start + 1, ts[half], value[half]))
        found += root.take()
    root.finish()
    found += root.take()
    sources = [oracle.Source(name, lateness) for name in columns]
    expected = oracle.windows(events, sources, [spec_of(query) for query in queries])
    assert expected
    assert not differences(expected, rows_of(found))
    for source in sources:
        own = [event for event in events if event.source == source.name]
        _, late, rejected = oracle.judge(own, source)
        account = root.account(source.name)
        assert (account.late, account.rejected) == (len(late), len(rejected))
    return root


@pytest.mark.parametrize("bad", [(), (np.nan,), (np.inf,), (np.inf, -np.inf), (1e308, 1e308, -1e308, -1e308)])
@pytest.mark.parametrize("window", [Tumbling(1 << 40), Tumbling(700), Sliding(900, 40), Session(3)])
def test_values_that_are_not_finite_are_found_in_whatever_sums_them_up(
    window: Window, bad: tuple[float, ...]
) -> None:
    rng = np.random.default_rng(len(bad))
    ts = np.sort(rng.integers(0, 20_000, SIZE))
    value = rng.integers(-50, 50, SIZE).astype(float)
    for place, each in zip((17, 5_000, 5_001, 8_000), bad, strict=False):
        value[place] = each
    # Sums of values whose absolute sum is beyond a float may be infinite; counts may not.
    functions = ["count"] if 1e308 in bad else ["sum", "count"]
    root = run([Query("q", window, functions), Query("r", Tumbling(50), "count")], {"s": (ts, value)}, 0)
    assert root.account("s").rejected == sum(not np.isfinite(each) for each in bad)


@pytest.mark.parametrize("sources", [1, 3])
@pytest.mark.parametrize("where", [Where(), Where(above=0.0)])
def test_count_windows_over_events_that_come_in_any_order(sources: int, where: Where) -> None:
    columns = {}
    for number in range(sources):
        rng = np.random.default_rng(number)
        ts = np.sort(rng.integers(0, 5_000, SIZE))
        displaced = rng.random(SIZE) < 0.05
        ts[displaced] -= rng.integers(0, 300, int(displaced.sum()))
        columns[f"s{number}"] = (ts, rng.integers(-50, 50, SIZE).astype(float))
    functions = ["sum", "max", "first", "last", "median", "stddev"]
    queries = [
        Query("long", Tumbling(count=7_001), functions, where=where),
        Query("sliding", Sliding(count=4_000, every=3_000), functions),
    ]
    run(queries, columns, 300)


@pytest.mark.parametrize("size", [4_096, 4_097, SIZE])
@pytest.mark.parametrize("length", [700, 1 << 40])
def test_what_is_not_finite_reaches_no_other_operator(size: int, length: int) -> None:
    whole = UserDefined("whole", int, lambda a, b: a + b, lambda s: s)
    value = np.ones(size)
    value[[7, 9]] = np.nan, -np.inf
    root = Root([Query("q", Tumbling(length), ["sum", whole, "variance"])])
    root.admit("s", lateness=0)
    root.push(Batch("s", 1, np.arange(size), value))
    root.finish()
    rows = list(root.take())
    assert sum(row.values["whole"] for row in rows) == size - 2
    assert root.account("s").refused == {"value not finite": 2}


def test_a_function_folds_whole_blocks_of_which_some_slices_are_forgotten() -> None:
    total = UserDefined("total", int, lambda a, b: a + b, lambda s: s)
    root = Root([Query("q", Sliding(2_000, 1), total)])
    root.admit("s", lateness=0)
    ts = np.concatenate((np.arange(0, 6_000, 100), np.arange(6_000, 12_000)))
    found = 0
    for first in range(0, len(ts), 50):
        root.push(Batch("s", first + 1, ts[first : first + 50], np.ones(len(ts[first : first + 50]))))
        for row in root.take():
            inside = np.count_nonzero((ts >= row.start) & (ts < row.end))
            assert row.values["total"] == row.count == inside
            found += 1
    assert found > 10_000


def test_a_tie_over_two_batches_keeps_its_order() -> None:
    path = UserDefined("path", lambda v: (v,), lambda a, b: a + b, lambda s: s, commutative=False)
    root = Root([Query("q", Session(10), path)])
    root.admit("a", lateness=0)
    ts = np.concatenate((np.zeros(1_499, np.int64), [1_000], [1_000, 1_001], np.full(1_498, 5_000)))
    for half in (slice(0, 1_500), slice(1_500, 3_000)):
        root.push(Batch("a", half.start + 1, ts[half], np.arange(half.start, half.stop, dtype=float)))
    root.finish()
    (middle,) = (row for row in root.take() if row.start == 1_000)
    assert middle.values["path"] == (1_499.0, 1_500.0, 1_501.0)
