"""Windows over thousands of slices: the blocks and trees that small drawn cases never reach."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from headwater import oracle
from headwater.aggregates import UserDefined
from headwater.events import Batch
from headwater.merging.closed import Closed, joined
from headwater.merging.keyed import KeyedTimeline
from headwater.merging.ranktimes import RankTimes
from headwater.merging.timeline import BLOCK, Timeline
from headwater.operators import Max, Moments, SumCount
from headwater.queries import Query
from headwater.results import Result
from headwater.root import Root
from headwater.rows import TS_MIN, Rows
from headwater.verification import differences, spec_of
from headwater.windows import Session, Sliding, Tumbling
from tests.harness import rows_of


@pytest.mark.parametrize("seed", range(20))
def test_any_range_of_slices_is_what_its_rows_add_up_to(seed: int) -> None:
    rng = np.random.default_rng(seed)
    timeline = Timeline([SumCount(), Max(), Moments()])
    values: list[float] = []
    while len(values) < 24 * BLOCK:
        new = rng.integers(0, 100, rng.integers(1, BLOCK)).astype(float)
        starts = np.arange(len(values), len(values) + len(new)) * 3
        ones, zeros = np.ones(len(new)), np.zeros(len(new))
        timeline.add(starts, [(new + 1j,), (new,), (ones, new.copy(), zeros)])
        values += new.tolist()
        kept = max(0, len(values) - 16 * BLOCK)
        # The last row may still grow, as the slice that is being filled does.
        if len(values) - 1 > kept:
            low = rng.integers(kept, len(values) - 1, 12)
            high = np.minimum(low + rng.integers(1, 16 * BLOCK, 12), len(values) - 1)
            begins, ends = timeline.between(low * 3, high * 3)
            sums, largest, moments = timeline.fold(begins, ends, int(ends.max()))
            for row, (begin, end) in enumerate(zip(low.tolist(), high.tolist(), strict=True)):
                inside = values[begin:end]
                assert sums[0][row] == complex(sum(inside), len(inside))
                assert largest[0][row] == max(inside)
                assert moments[1][row] == pytest.approx(np.mean(inside))
                assert moments[2][row] == pytest.approx(np.std(inside), abs=1e-9)
        timeline.trim(kept * 3)


def test_any_range_of_keyed_slices_is_what_its_cells_add_up_to() -> None:
    rng = np.random.default_rng(1)
    keyed = KeyedTimeline([SumCount(), Max()])
    cells = []
    for number in range(700):
        codes = np.unique(rng.integers(0, 20, 5))
        values = rng.random(len(codes))
        keyed.add(number * 10, codes, [(values + 1j,), (values,)], 20)
        cells.append(dict(zip(codes.tolist(), values.tolist(), strict=True)))
    keyed.seal(7_000, 20)
    keyed.trim(1_300)
    for low in rng.integers(0, 569, 200).tolist():
        high = int(rng.integers(low + 1, 571))
        codes, (sums, largest) = keyed.fold(low, high, 20)
        expected: dict[int, list[float]] = {}
        for cell in cells[low + 130 : high + 130]:
            for code, value in cell.items():
                expected.setdefault(code, []).append(value)
        assert codes.tolist() == sorted(expected)
        for code, total, most in zip(codes.tolist(), sums[0], largest[0], strict=True):
            assert total == pytest.approx(complex(sum(expected[code]), len(expected[code])))
            assert most == max(expected[code])


@pytest.mark.parametrize("size", [7, 333, 5_000])
@pytest.mark.parametrize("key_by", [None, "key"])
def test_long_windows_of_many_slices(size: int, key_by: str | None) -> None:
    """A stream of thousands of slices, some of them displaced, through every way to fold them."""
    rng = np.random.default_rng(size)
    count = 5_000
    ts = np.sort(rng.integers(0, 20_000, count))
    displaced = rng.random(count) < 0.05
    ts[displaced] -= rng.integers(0, 300, int(displaced.sum()))
    value, key = rng.integers(-50, 50, count).astype(float), rng.integers(0, 3, count).astype(np.int32)
    spread = UserDefined(
        "spread",
        lambda v: (v, v),
        lambda a, b: (min(a[0], b[0]), max(a[1], b[1])),
        lambda s: s[1] - s[0],
    )
    squares = UserDefined(
        "squares",
        lambda v: int(v) ** 2,
        lambda a, b: a + b,
        lambda s: s,
        invert=lambda a, b: a - b,
    )
    aggregates: list[str | UserDefined] = [
        "sum",
        "min",
        "stddev",
        "last",
        "median",
        "top(2)",
        spread,
        squares,
    ]
    queries = [
        Query("long", Sliding(9_000, 500), aggregates, key_by=key_by),
        Query("fine", Tumbling(1), "count", key_by=key_by),
        Query("other", Sliding(6_007, 1_000, 13), ["first", "product"], key_by=key_by),
        Query("rest", Session(25), ["max", "mode"], key_by=key_by),
        Query("ranks", Sliding(count=900, every=300), ["sum", "last"], key_by=key_by),
    ]
    root = Root(queries)
    root.admit("s", lateness=300)
    found: list[Result] = []
    for first in range(0, count, size):
        rows = slice(first, first + size)
        root.push(Batch("s", first + 1, ts[rows], value[rows], key=key[rows], keys=("a", "b", "c")))
        found += root.take()
    root.finish()
    found += root.take()
    events = [oracle.Event("s", n + 1, int(ts[n]), "abc"[key[n]], float(value[n])) for n in range(count)]
    expected = oracle.windows(events, [oracle.Source("s", 300)], [spec_of(query) for query in queries])
    assert len(expected) > 1_000
    assert not differences(expected, rows_of(found))


def test_an_invertible_function_moves_on_by_what_enters_and_what_leaves() -> None:
    calls: Counter[str] = Counter()

    def combine(one: int, two: int) -> int:
        calls["combine"] += 1
        return one + two

    def invert(total: int, part: int) -> int:
        calls["invert"] += 1
        return total - part

    total = UserDefined("total", int, combine, lambda state: state, invert=invert)
    queries = [Query("fine", Sliding(400, 1), total), Query("coarse", Sliding(900, 7, 3), total)]
    root = Root(queries)
    root.admit("s", lateness=0)
    found: list[Result] = []
    for first in range(0, 3_000, 100):
        ts = np.arange(first, first + 100)
        root.push(Batch("s", first + 1, ts, ts % 13.0))
        found += root.take()
    for row in found:
        inside = range(max(row.start, 0), row.end)
        assert row.values["total"] == sum(ts % 13 for ts in inside)
    windows = Counter(row.query for row in found)
    assert windows["fine"] > 2_500
    assert windows["coarse"] > 300
    # Each slice enters and leaves each window once; the first windows add up what they hold.
    assert calls["combine"] + calls["invert"] < 2 * (2 * 3_000 + 900)


def test_times_of_windows_stay_with_their_rows_beside_a_chunk_without_times() -> None:
    def closed(start: int, *times: int) -> Closed:
        column = np.array(times) if times else None
        starts = np.array([start, start + 2])
        return Closed(np.zeros(2, int), np.zeros(2, int), starts, starts + 2, [], column, column)

    # A release before closed the first chunk.
    found = joined([], [closed(0), closed(4, 40, 60)])
    for times in (found.first, found.last):
        assert times is not None
        assert times.tolist() == [TS_MIN, TS_MIN, 40, 60]
    assert found.start.tolist() == [0, 2, 4, 6]
    neither = joined([], [closed(0), closed(4)])
    assert (neither.first, neither.last) == (None, None)


def test_times_of_ranks_that_a_release_before_has_counted_are_not_known() -> None:
    start, end = np.array([0, 4]), np.array([4, 8])
    times = RankTimes(known_from=8)
    assert [column.tolist() for column in times.between(start, end)] == [[TS_MIN, TS_MIN]] * 2
    # The last event of the second window is the first one with a time.
    times = RankTimes(known_from=7)
    times.add_one(4, Rows(np.array([70]), np.array([1.0]), 0, 0, in_order=True))
    assert [column.tolist() for column in times.between(start, end)] == [[TS_MIN, TS_MIN], [TS_MIN, 70]]
