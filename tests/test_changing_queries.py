"""Queries that come and go while events flow: each sees exactly the events of its own time."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater import oracle
from headwater.aggregates import UserDefined
from headwater.errors import InvalidQuery, NotFlushed, OtherQueries, StaleVersion
from headwater.events import Batch
from headwater.node import Change, Node
from headwater.queries import Query, Where
from headwater.root import Root
from headwater.rows import TS_MIN
from headwater.verification import spec_of
from headwater.windows import Punctuation, Session, Sliding, Tumbling
from tests.harness import Network, assert_exact, batch_of
from tests.strategies import Stream, Tree, batches, queries, schedules, splits, streams, trees


def _emitted_until(root: Root, query: Query) -> int | None:
    """What was final when the query went at once, in the oracle's words."""
    if root.watermark is None:
        return -(1 << 62) - 1
    # A mark window is final behind its end, any other at it.
    return root.watermark - 1 if isinstance(query.window, Punctuation) else root.watermark


class Scenario:
    """A tree whose root adds and removes queries, and the lives of all queries there ever were."""

    def __init__(self, first: list[Query], streams: list[Stream], tree: Tree) -> None:
        self.network = Network(first, streams, tree)
        self.alive: dict[str, tuple[Query, int | None]] = {query.id: (query, None) for query in first}
        self.specs: list[tuple[Query, oracle.Spec]] = []
        self.streams = streams

    def _tell(self, change: Change) -> None:
        for node in self.network.nodes:
            node.apply(change)

    def add(self, query: Query) -> None:
        self.network.flush_all()
        change = self.network.root.add(query)
        self._tell(change)
        self.alive[query.id] = (query, None if change.edge == TS_MIN else change.edge)

    def remove(self, query_id: str, *, at_once: bool) -> None:
        self.network.flush_all()
        self.network.take()
        query, begin = self.alive.pop(query_id)
        until = _emitted_until(self.network.root, query) if at_once else None
        change = self.network.root.remove(query_id, at_once=at_once)
        self._tell(change)
        self.specs.append((query, spec_of(query, begin, change.edge, until)))

    def finish(self) -> None:
        found = self.network.finish()
        self.specs += [(query, spec_of(query, begin)) for query, begin in self.alive.values()]
        sources = [source for source, _ in self.streams]
        events = [event for _, events in self.streams for event in events]
        expected = oracle.windows(events, sources, [spec for _, spec in self.specs])
        assert_exact([query for query, _ in self.specs], expected, found)


@given(st.data(), streams(wide=False))
def test_queries_come_and_go(data: st.DataObject, given_streams: list[Stream]) -> None:
    tree = data.draw(trees(len(given_streams)))
    first = [data.draw(queries(f"q{n}", empties=False)) for n in range(data.draw(st.integers(0, 3)))]
    scenario = Scenario(first, given_streams, tree)
    pieces = [
        [b for b in batches(events, data.draw(splits(len(events)))) if b] for _, events in given_streams
    ]
    number = len(first)
    for source, flush in data.draw(schedules([len(p) for p in pieces])):
        scenario.network.push(batch_of(pieces[source].pop(0)))
        if flush:
            scenario.network.flush(scenario.network.home[given_streams[source][0].name])
            scenario.network.take()
        action = data.draw(st.sampled_from(["nothing"] * 4 + ["add", "remove"]))
        if action == "add" and number < 6:
            scenario.add(data.draw(queries(f"q{number}", empties=False)))
            number += 1
        elif action == "remove" and scenario.alive:
            gone = data.draw(st.sampled_from(sorted(scenario.alive)))
            scenario.remove(gone, at_once=data.draw(st.booleans()))
    scenario.finish()


def _batch(first: int, *ts: int) -> Batch:
    return Batch.from_records("s", first, [(t, None, 1.0, None) for t in ts])


def test_the_first_result_is_the_first_whole_window() -> None:
    root = Root([Query("old", Tumbling(10))])
    root.admit("s", lateness=0)
    root.push(_batch(1, 1, 14))
    change = root.add(Query("new", Sliding(10, 5)))
    root.push(_batch(3, 16, 21, 40))
    assert change.edge == 15
    # old  [0 10) [10    20) [20 30) [30 40)
    # new          .    [15 25) [20 30)
    new = [(r.start, r.count) for r in root.take() if r.query == "new"]
    assert new == [(15, 2), (20, 1)]


def test_a_query_that_is_removed_ends_the_windows_it_has_begun() -> None:
    root = Root([Query("q", Tumbling(10)), Query("s", Session(5))])
    root.admit("s", lateness=0)
    root.push(_batch(1, 1, 12))
    assert root.remove("q").edge == 20
    root.push(_batch(3, 13, 25, 60))
    assert [(r.query, r.start, r.count) for r in root.take()] == [
        ("s", 1, 1),
        ("q", 0, 1),
        ("s", 12, 2),
        ("q", 10, 2),
        ("s", 25, 1),
    ]


def test_a_query_that_is_removed_at_once_drops_them() -> None:
    root = Root([Query("q", Tumbling(10))])
    root.admit("s", lateness=0)
    root.push(_batch(1, 1, 12))
    root.remove("q", at_once=True)
    root.push(_batch(3, 13, 25))
    root.finish()
    assert [(r.start, r.count) for r in root.take()] == [(0, 1)]


def test_a_mark_query_that_is_added_again_is_another_one() -> None:
    jobs = Query("jobs", Punctuation("S", "E"))
    root = Root([jobs])
    root.admit("s", lateness=0)
    root.push(Batch.from_records("s", 1, [(1, None, 1.0, "S"), (2, None, 1.0, None)]))
    root.remove("jobs", at_once=True)
    root.add(jobs)
    root.push(Batch.from_records("s", 3, [(5, None, 1.0, None), (6, None, None, "E"), (9, None, None, None)]))
    root.finish()
    assert not list(root.take())


def test_a_partial_of_old_queries_is_refused_and_changes_nothing() -> None:
    root, node = Root([Query("q", Tumbling(10))]), Node([Query("q", Tumbling(10))])
    for each in (root, node):
        each.admit("s", lateness=0)
    node.push(_batch(1, 1, 12))
    root.merge(node.flush())
    change = root.add(Query("new", Tumbling(10)))
    node.push(_batch(3, 19, 25))
    stale = node.flush()
    with pytest.raises(StaleVersion, match=r"version 0 .* version 1"):
        root.merge(stale)
    assert root.account("s").accepted == 2
    fresh = Node([Query("q", Tumbling(10))])
    fresh.apply(change)
    fresh.admit("s", lateness=0, prefix=root.sources["s"].prefix)
    fresh.push(_batch(3, 19, 25))
    root.merge(fresh.flush())
    root.finish()
    assert [(r.query, r.start, r.count) for r in root.take()] == [
        ("q", 0, 1),
        ("q", 10, 2),
        ("q", 20, 1),
        ("new", 20, 1),
    ]


def test_a_change_needs_a_flush_first() -> None:
    node = Node([Query("q", Tumbling(10))])
    node.admit("s", lateness=0)
    node.push(_batch(1, 1))
    with pytest.raises(NotFlushed):
        node.apply(Change("add", Query("new", Tumbling(10)), 20, 1))


def test_changes_are_taken_in_their_order_and_once() -> None:
    root, node = Root([Query("q", Tumbling(10))]), Node([Query("q", Tumbling(10))])
    first, second = root.add(Query("a", Tumbling(10))), root.remove("q")
    with pytest.raises(StaleVersion):
        node.apply(second)
    node.apply(first)
    with pytest.raises(StaleVersion):
        node.apply(first)
    node.apply(second)
    assert node.version == root.version == 2


def test_nodes_agree_on_groups_whatever_the_root_has_forgotten() -> None:
    # The root knows when the windows of "low" have ended and lets it go; the node below does not.
    low, high = (
        Query("low", Tumbling(10), where=Where(below=5)),
        Query("high", Tumbling(10), where=Where(at_least=5)),
    )
    root, node = Root([low, high]), Node([low, high])
    for each in (root, node):
        each.admit("s", lateness=0)
    node.push(_batch(1, 1, 12))
    root.merge(node.flush())
    node.apply(root.remove("low"))
    node.push(_batch(3, 55, 77))
    root.merge(node.flush())
    node.apply(root.add(Query("lower", Tumbling(10), where=Where(below=3))))
    node.push(_batch(5, 81, 99))
    root.merge(node.flush())
    root.finish()
    assert {(r.start, r.count) for r in root.take() if r.query == "lower"} == {(80, 1), (90, 1)}


def test_other_queries_below_are_refused() -> None:
    one, two = Query("a", Tumbling(10), "min"), Query("b", Tumbling(10), "max")
    for below in ([one], [two, one], [Query("a", Tumbling(20), "min"), two]):
        root, node = Root([one, two]), Node(below)
        for each in (root, node):
            each.admit("s", lateness=0)
        node.push(_batch(1, 1, 12))
        with pytest.raises(OtherQueries):
            root.merge(node.flush())


def test_a_name_never_means_two_functions() -> None:
    def named(sign: float) -> UserDefined:
        return UserDefined("f", lambda v: v, lambda a, b: a + b, lambda s: sign * s)

    root = Root([Query("q", Tumbling(10), named(1.0))])
    root.remove("q", at_once=True)
    with pytest.raises(InvalidQuery, match="names two different functions"):
        root.add(Query("r", Tumbling(10), named(-1.0)))
    with pytest.raises(InvalidQuery, match="'sum' has a meaning already"):
        Root([Query("s", Tumbling(10), UserDefined("sum", abs, max, abs))])


def test_bad_changes_say_what_to_do() -> None:
    root = Root([Query("q", Tumbling(10))])
    with pytest.raises(InvalidQuery, match=r"queries\[q\]\.id: is there already"):
        root.add(Query("q", Tumbling(20)))
    with pytest.raises(InvalidQuery, match="'x' is not there; give one of q"):
        root.remove("x")
