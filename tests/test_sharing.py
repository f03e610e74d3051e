"""However many queries there are, an event is touched once a group; overlapping windows add no slices."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np
import pytest

from headwater import oracle
from headwater.events import Batch
from headwater.groups.sliced import SlicedPart
from headwater.node import Node
from headwater.operators import Max, Operator, SumCount
from headwater.queries import EVERYTHING, Query, Where
from headwater.root import Root
from headwater.rows import Rows
from headwater.windows import Punctuation, Session, Sliding, Tumbling, Window
from tests.harness import assert_exact, batch_of, expected_rows

EVENTS = 1_000
SECOND = 1_000_000


def stream(size: int = EVENTS, *, first: int = 1, step: int = 10_000, keys: int = 4) -> Batch:
    """A record every 10 ms, in order; values go round 0..9, keys round k0..k3."""
    number = np.arange(first - 1, first - 1 + size)
    return Batch(
        "s",
        first,
        number * step,
        (number % 10).astype(float),
        key=(number % keys).astype(np.int32),
        keys=tuple(f"k{key}" for key in range(keys)),
    )


def root_of(queries: Sequence[Query], *batches: Batch, lateness: str = "0s") -> Root:
    root = Root(queries)
    root.admit("s", lateness=lateness)
    for batch in batches or [stream()]:
        root.push(batch)
    return root


def queries_of(windows: Sequence[Window], *aggregates: str) -> list[Query]:
    return [
        Query(f"q{number}", window, name)
        for number, (window, name) in enumerate(product(windows, aggregates))
    ]


# Desis, table 1: what is executed is operators, and each of them once an event.

WINDOWS: dict[str, list[Window]] = {
    "tumbling": [Tumbling(f"{length}s") for length in range(1, 30)],
    "sliding": [Sliding(f"{length}s", "1s") for length in range(1, 30)],
    "session": [Session(f"{gap}s") for gap in range(1, 30)],
    "mixed": [Tumbling("3s"), Sliding("5s", "2s"), Session("1s"), Tumbling("7s", offset="1s")],
}


@pytest.mark.parametrize("windows", WINDOWS.values(), ids=WINDOWS)
@pytest.mark.parametrize(
    "aggregates, executed",
    [
        (["count"], ["count"]),
        (["sum"], ["sum", "count"]),  # every result says how many events it is of
        (["avg"], ["sum", "count"]),
        (["sum", "count", "avg"], ["sum", "count"]),
        (["min", "max", "range"], ["min", "max", "count"]),
        (["median", "quantile(0.9)", "distinct", "mode"], ["values", "count"]),
        (["product", "geomean"], ["multiplication", "count"]),
        (["variance", "stddev", "stddev(ddof=1)"], ["moments", "count"]),
    ],
    ids=lambda names: "+".join(names),
)
def test_an_operator_is_executed_once_an_event(
    windows: list[Window], aggregates: list[str], executed: list[str]
) -> None:
    root = root_of(queries_of(windows, *aggregates))
    assert len(root.groups()) == 1
    assert root.executions == dict.fromkeys(executed, EVENTS)


@pytest.mark.parametrize("key_by", [None, "machine"])
def test_a_thousand_windows_cost_as_many_executions_as_one(key_by: str | None) -> None:
    one = root_of([Query("q", Tumbling("1s"), "avg", key_by=key_by)])
    many = root_of([Query(f"q{n}", Tumbling(n * 1_000), "avg", key_by=key_by) for n in range(1, 1_001)])
    assert one.executions == many.executions == {"sum": EVENTS, "count": EVENTS}


def test_small_batches_cost_no_more() -> None:
    batches = [stream(10, first=first) for first in range(1, EVENTS, 10)]
    assert root_of(queries_of(WINDOWS["mixed"], "avg"), *batches).executions == {"sum": 1_000, "count": 1_000}


def test_count_windows_of_all_sizes_share_a_pass() -> None:
    windows: list[Window] = [Tumbling(count=7), Sliding(count=100, every=3), Tumbling(count=1_000)]
    root = root_of(queries_of(windows, "sum", "avg"))
    root.finish()
    root.take()
    assert len(root.groups()) == 1
    assert root.executions == {"sum": EVENTS, "count": EVENTS}


def test_an_event_is_lifted_once_whatever_is_asked_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counted where it happens: every way in which rows become states, with how many rows it was given."""
    lifted: dict[str, int] = {}

    def counting(kind: type[Operator], way: str) -> None:
        original = getattr(kind, way)

        def counted(self: Operator, *given: Any) -> Any:
            rows = next(each for each in given if isinstance(each, Rows))
            lifted[self.name] = lifted.get(self.name, 0) + len(rows)
            return original(self, *given)

        monkeypatch.setattr(kind, way, counted)

    for kind in (SumCount, Max):
        for way in ("whole", "runs"):
            counting(kind, way)
    lengths: list[Window] = [Tumbling(f"{n}ms") for n in range(1, 201)]
    windows = [*lengths, Sliding("10ms", "1ms"), Sliding("77ms", "7ms"), Session("5ms"), Session("1s")]
    root = root_of(queries_of(windows, "sum", "avg", "max"))
    root.finish()
    assert len(root.take()) > 1_000
    assert lifted == {"sum+count": EVENTS, "max": EVENTS}


# Which queries form one group


def groups_of(*queries: Query) -> list[set[str]]:
    return [{member.query.id for member in group.members} for group in Root(queries).groups().values()]


def query(id: str, window: Window | None = None, **more: object) -> Query:
    return Query(id, window or Tumbling("1s"), **more)  # type: ignore[arg-type]  # passed on as given


@pytest.mark.parametrize(
    "a, b, together",
    [
        ({}, {}, True),
        ({"window": Session("1s")}, {"window": Sliding("5s", "2s")}, True),
        ({"aggregate": "median"}, {"aggregate": "sum"}, True),
        ({"where": Where(above=1)}, {"where": Where(above=1)}, True),
        ({"where": Where(below=5)}, {"where": Where(at_least=5)}, True),
        ({"where": Where(at_most=5)}, {"where": Where(at_least=5)}, False),
        ({"where": Where(below=5)}, {"where": Where(above=4)}, False),
        ({"where": Where(below=5)}, {}, False),
        ({"where": Where(keys=frozenset("a"))}, {"where": Where(keys=frozenset("b"))}, True),
        ({"where": Where(keys=frozenset("ab"))}, {"where": Where(keys=frozenset("bc"))}, False),
        (
            {"where": Where(keys=frozenset("a"), below=5)},
            {"where": Where(keys=frozenset("a"), above=9)},
            True,
        ),
        ({"key_by": "machine"}, {"key_by": "machine"}, True),
        ({"key_by": "machine"}, {}, False),
        ({"scope": "local"}, {}, False),
        ({"deduplicate": True}, {}, False),
        ({"window": Tumbling(count=5)}, {}, False),
        ({"window": Punctuation("S")}, {}, False),
    ],
)
def test_what_shares_a_group(a: dict[str, object], b: dict[str, object], together: bool) -> None:
    assert groups_of(query("a", **a), query("b", **b)) == ([{"a", "b"}] if together else [{"a"}, {"b"}])  # type: ignore[arg-type]  # passed on as given


def test_disjoint_predicates_touch_an_event_at_most_once() -> None:
    #  value  0 1 2 3 4 5 6 7 8 9
    #  low    x x x
    #  mid          x x x x
    #  high                   x x     7 is nobody's
    parts = {"low": Where(below=3), "mid": Where(at_least=3, at_most=6), "high": Where(above=7)}
    root = root_of([query(id, where=where, aggregate="sum") for id, where in parts.items()])
    assert len(root.groups()) == 1
    assert root.executions == {"sum": 900, "count": 900}


def test_overlapping_predicates_touch_what_both_want_twice() -> None:
    root = root_of([query("low", where=Where(below=6)), query("high", where=Where(at_least=4))])
    assert len(root.groups()) == 2
    assert root.executions == {"count": 600 + 600}


def test_queries_that_share_answer_as_if_they_were_alone() -> None:
    events = [oracle.Event("s", n, 7 * n % 100 + n, f"k{n % 3}", float(n % 10)) for n in range(1, 200)]
    source = oracle.Source("s", lateness=1_000)
    queries = [
        query("low", Tumbling(10), where=Where(below=3), aggregate=["avg", "median"]),
        query("high", Sliding(20, 3), where=Where(above=7), aggregate=["sum", "first"]),
        query("mid", Session(4), where=Where(at_least=3, at_most=7), aggregate="max"),
        query("low too", Session(9), where=Where(below=3), aggregate="stddev"),
    ]
    root = Root(queries)
    root.admit("s", lateness=source.lateness)
    root.push(batch_of(events))
    root.finish()
    assert len(root.groups()) == 1
    assert_exact(queries, expected_rows(queries, [(source, events)]), root.take())


# Slices

#  edges of tumbling 1:      |  |  |  |  |  |  |  |  |  |  |
#  of sliding 10 / 1:        |  |  |  |  |  |  |  |  |  |  |   the same
#  of tumbling 5:            |              |              |   some of them
ALONE = [Query("t1", Tumbling("1s"), "sum")]
TOGETHER = [*ALONE, Query("s10", Sliding("10s", "1s"), "sum"), Query("t5", Tumbling("5s"), "avg")]


def cells_of(queries: Sequence[Query], *, key_by: str | None = None) -> int:
    """How many cells a node sends for ten seconds of events."""
    node = Node([Query(q.id, q.window, q.aggregate, key_by=key_by) for q in queries])
    node.admit("s", lateness=0)
    node.push(stream())
    (part,) = node.flush().parts.values()
    assert isinstance(part, SlicedPart)
    return len(part.selections[EVERYTHING].start)


@pytest.mark.parametrize("key_by, cells", [(None, 10), ("machine", 40)])
def test_overlapping_windows_add_no_slices(key_by: str | None, cells: int) -> None:
    assert cells_of(ALONE, key_by=key_by) == cells_of(TOGETHER, key_by=key_by) == cells


def test_slices_are_cut_at_the_union_of_all_edges() -> None:
    #  tumbling 2   |     |     |     |      0 2 4 6 8
    #  tumbling 3   |        |        |      0   3   6   9
    assert cells_of([Query("a", Tumbling("2s")), Query("b", Tumbling("3s"))]) == len({0, 2, 3, 4, 6, 8, 9})


def test_a_session_is_one_fragment_whatever_the_slices() -> None:
    node = Node([Query("t", Tumbling("1s")), Query("s", Session("1s")), Query("longer", Session("5s"))])
    node.admit("s", lateness=0)
    node.push(stream())
    (part,) = node.flush().parts.values()
    assert isinstance(part, SlicedPart)
    fragments = part.selections[EVERYTHING].fragments
    assert fragments is not None
    assert len(fragments) == 1


def test_a_root_holds_no_more_slices_for_overlapping_windows() -> None:
    # With an hour of lateness nothing is final yet, so everything is held.
    assert root_of(ALONE, lateness="1h").held == root_of(TOGETHER, lateness="1h").held == 10


# Memory


@pytest.mark.parametrize(
    "queries",
    [
        TOGETHER,
        [query("keyed", Sliding("10s", "1s"), key_by="machine", aggregate=["avg", "median"])],
        [query("session", Session("5ms")), query("keyed", Session("5ms"), key_by="machine")],
        [query("counted", Sliding(count=100, every=10), aggregate="max")],
        [query("copies", deduplicate=True)],
        [query("empties", emit_empty=True)],
    ],
    ids=lambda queries: queries[0].id,
)
def test_memory_stays_flat(queries: list[Query]) -> None:
    root = root_of(queries, stream(5_000))
    root.take()
    held = root.held
    for first in range(5_001, 50_001, 5_000):
        root.push(stream(5_000, first=first))
        root.take()
    assert root.held == held
    assert root.account("s").counted == 50_000


def test_memory_of_marks_stays_flat() -> None:
    root = Root([query("marks", Punctuation("S", merge="overlap", end="E")), query("one", Punctuation("S"))])
    root.admit("s", lateness=0)
    held = set()
    for number in range(100):
        ts = number * SECOND
        root.push(
            Batch.from_records(
                "s",
                3 * number + 1,
                [(ts, None, 1.0, "S"), (ts + 5, None, 1.0, None), (ts + 9, None, None, "E")],
            )
        )
        root.take()
        held.add(root.held)
    assert max(held) <= 4
