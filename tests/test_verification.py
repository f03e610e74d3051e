"""Queries in the oracle's words, differences between answers, and the strategies that both are fed from."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.oracle import Row, Spec, judge, windows
from headwater.queries import Query, Where, validate
from headwater.verification import differences, same, spec_of
from headwater.windows import Punctuation, Session, Sliding, Tumbling
from tests.strategies import PATH, Stream, Tree, batches, cases, query_sets, schedules, splits, streams, trees


@pytest.mark.parametrize(
    "query, spec",
    [
        (
            Query("q", Tumbling("10s", "1s"), ["sum", "top( 3 )"], key_by="k"),
            Spec(
                "q",
                "tumbling",
                length=10_000_000,
                slide=10_000_000,
                offset=1_000_000,
                aggregates=("sum", "top(3)"),
                keyed=True,
            ),
        ),
        (
            Query(
                "q", Sliding(count=8, every=2), where=Where(above=1, keys=frozenset({"k"})), deduplicate=True
            ),
            Spec(
                "q",
                "sliding",
                "count",
                length=8,
                slide=2,
                above=1,
                keys=frozenset({"k"}),
                deduplicate=True,
            ),
        ),
        (Query("q", Tumbling(count=4)), Spec("q", "tumbling", "count", length=4, slide=4)),
        (Query("q", Session("5us"), scope="local"), Spec("q", "session", gap=5, local=True)),
        (
            Query("q", Punctuation("S", merge="order")),
            Spec("q", "punctuation", start_mark="S", end_mark="S", merge="order"),
        ),
        (
            Query("q", Punctuation("S", "E")),
            Spec("q", "punctuation", start_mark="S", end_mark="E", merge="local"),
        ),
    ],
)
def test_spec_of(query: Query, spec: Spec) -> None:
    assert spec_of(query) == spec
    assert spec_of(query, 1, 2, 3) == replace(spec, begin=1, end=2, emitted_until=3)


def test_spec_of_takes_functions_of_ones_own() -> None:
    (custom,) = spec_of(Query("q", Tumbling(1), PATH)).aggregates
    assert not isinstance(custom, str)
    assert (custom.name, custom.lift, custom.combine, custom.lower) == (
        "path",
        PATH.lift,
        PATH.combine,
        PATH.lower,
    )


@pytest.mark.parametrize(
    "name, expected, found, scale, equal",
    [
        ("sum", 0.0, 1e-6, 1e6, True),  # 1e6 - 1e6: what is left is rounding
        ("sum", 0.0, 1e-6, 1.0, False),
        ("avg", 0.0, 1e-6, 1e6, True),
        ("avg", 0.0, 1e-3, 1e6, False),
        ("product", 1e9, 1e9 + 0.5, 0.0, True),
        ("product", 1e9, 1e9 + 5, 1e300, False),
        ("product", math.inf, math.inf, 0.0, True),
        ("product", 1e308, math.inf, 0.0, False),
        ("geomean", math.nan, math.nan, 0.0, True),
        ("geomean", math.nan, 1.0, 0.0, False),
        ("variance", 1.0, 1.00001, 100_000.0, True),  # of values around 10,000, by the root
        ("variance", 1.0, 1.001, 100_000.0, False),
        ("variance", 0.0, -1e-9, 1e9, False),
        ("stddev(ddof=1)", 0.0, 1e-7, 1_000.0, True),
        ("median", 1.0, 1.0 + 1e-15, 1e9, False),
        ("top(2)", (1.0, 0.0), (1.0, -0.0), 0.0, True),
        ("top(2)", (1.0, 0.0), (1.0,), 0.0, False),
        ("own", (math.nan,), (math.nan,), 0.0, True),
        ("avg", None, None, 0.0, True),
        ("avg", None, 0.0, 0.0, False),
        ("count", 3, 4, 1e300, False),
    ],
)
def test_same(name: str, expected: Any, found: Any, scale: float, equal: bool) -> None:
    assert same(name, expected, found, scale, count=10) is equal


ROW = Row("q", "", "k", 0, 10, 2, {"sum": 3.0}, 3.0)
OTHER = replace(ROW, start=10, end=20)


@pytest.mark.parametrize(
    "expected, found, lines",
    [
        ([ROW, OTHER], [OTHER, replace(ROW, scale=0.0)], []),
        ([ROW], [], ["q [0, 10) key 'k': missing, expected 2 events {'sum': 3.0}"]),
        ([], [ROW], ["q [0, 10) key 'k': not expected, found 2 events {'sum': 3.0}"]),
        ([ROW], [ROW, ROW], ["q [0, 10) key 'k': not expected, found 2 events {'sum': 3.0}"]),
        ([ROW], [replace(ROW, values={"sum": 4.0})], ["q [0, 10) key 'k': sum is 4.0 instead of 3.0"]),
        ([ROW], [replace(ROW, count=3)], ["q [0, 10) key 'k': 3 events instead of 2"]),
        ([ROW], [replace(ROW, values={})], ["q [0, 10) key 'k': aggregates [] instead of ['sum']"]),
        (
            [replace(ROW, first_time=1, last_time=5)],
            [replace(ROW, first_time=2)],
            [
                "q [0, 10) key 'k': its first event is at 2 instead of 1",
                "q [0, 10) key 'k': its last event is at None instead of 5",
            ],
        ),
        # two windows with the same bounds, the other way round
        ([ROW, replace(ROW, count=1)], [replace(ROW, count=1), ROW], []),
    ],
)
def test_differences(expected: list[Row], found: list[Row], lines: list[str]) -> None:
    assert differences(expected, found) == lines


@given(query_sets())
def test_drawn_queries_are_valid(queries: list[Query]) -> None:
    assert validate(queries) == tuple(queries)


@given(streams())
def test_drawn_streams_are_numbered_and_every_event_is_judged_once(drawn: list[Stream]) -> None:
    for source, events in drawn:
        assert [event.seq for event in events] == list(range(1, len(events) + 1))
        kept, late, rejected = judge(events, source)
        assert sorted(event.seq for event in kept + late + rejected) == [event.seq for event in events]


@settings(deadline=None)
@given(cases())
def test_the_oracle_agrees_with_itself_whatever_the_order_in_which_events_and_sources_are_given(
    case: tuple[list[Query], list[Stream]],
) -> None:
    queries, drawn = case
    specs = [spec_of(query) for query in queries]
    sources = [source for source, _ in drawn]
    events = [event for _, own in drawn for event in own]
    found = windows(events, sources, specs)
    assert differences(found, windows(reversed(events), reversed(sources), specs), tolerance=0.0) == []
    assert differences([], found[:1]) != [] or not found


@given(st.data())
def test_drawn_cuts_schedules_and_trees_hold_everything_once(data: st.DataObject) -> None:
    drawn = data.draw(streams(wide=False, max_size=8))
    cut = [batches(events, data.draw(splits(len(events)))) for _, events in drawn]
    assert [[event for batch in own for event in batch] for own in cut] == [events for _, events in drawn]
    order = data.draw(schedules([len(own) for own in cut]))
    assert sorted(source for source, _ in order) == [
        place for place, own in enumerate(cut) for _ in range(len(own))
    ]
    tree = data.draw(trees(len(drawn)))
    assert sorted(_leaves(tree)) == list(range(len(drawn)))
    assert _layers(tree) <= 4


def _leaves(tree: Tree | int) -> list[int]:
    return [tree] if isinstance(tree, int) else [leaf for child in tree for leaf in _leaves(child)]


def _layers(tree: Tree | int) -> int:
    return 0 if isinstance(tree, int) else 1 + max(map(_layers, tree))
