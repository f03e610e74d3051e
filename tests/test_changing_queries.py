"""Queries that come and go while events flow: each sees exactly the events of its own time."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater import oracle
from headwater.aggregates import UserDefined
from headwater.changes import Change
from headwater.errors import InvalidQuery, NotFlushed, OtherQueries, StaleVersion
from headwater.events import Batch
from headwater.node import Node
from headwater.queries import Query, Where
from headwater.root import Root
from headwater.rows import TS_MIN
from headwater.verification import spec_of
from headwater.windows import MERGES, Merge, Punctuation, Session, Sliding, Tumbling
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


# Few windows and few kinds of queries, so that those which come and go share a group.
_ALIKE = st.builds(
    Query,
    st.just("q"),
    st.sampled_from((Session(3), Session(3), Session(8), Tumbling(1), Sliding(6, 2), Punctuation("S", "E"))),
    st.sampled_from(("sum", "count", "median")),
    st.sampled_from((None, "key")),
)


@given(st.data(), streams(wide=False))
def test_queries_come_and_go(data: st.DataObject, given_streams: list[Stream]) -> None:
    _come_and_go(data, given_streams, queries("q", empties=False))


@given(st.data(), streams(wide=False, max_sources=2))
def test_queries_of_one_group_come_and_go(data: st.DataObject, given_streams: list[Stream]) -> None:
    _come_and_go(data, given_streams, _ALIKE)


def _come_and_go(data: st.DataObject, streams: list[Stream], drawn: st.SearchStrategy[Query]) -> None:
    tree = data.draw(trees(len(streams)))
    first = [replace(data.draw(drawn), id=f"q{n}") for n in range(data.draw(st.integers(0, 3)))]
    scenario = Scenario(first, streams, tree)
    pieces = [[b for b in batches(events, data.draw(splits(len(events)))) if b] for _, events in streams]
    number = len(first)
    for source, flush in data.draw(schedules([len(p) for p in pieces])):
        scenario.network.push(batch_of(pieces[source].pop(0)))
        if flush:
            home = scenario.network.home[streams[source][0].name]
            scenario.network.flush(home)
            scenario.network.take()
            # Some have heard how far the watermark is, and others not yet.
            watermark = scenario.network.root.watermark
            for node in scenario.network.way_up(home):
                if watermark is not None and data.draw(st.booleans()):
                    node.forget(watermark)
        action = data.draw(st.sampled_from(["nothing"] * 4 + ["add", "remove"]))
        if action == "add" and number < 6:
            scenario.add(replace(data.draw(drawn), id=f"q{number}"))
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


@pytest.mark.parametrize("key_by", [None, "key"])
def test_a_session_is_cut_at_the_edge_even_if_no_event_lies_there(key_by: str | None) -> None:
    found = []
    for pieces in ([[10, 13, 14]], [[10], [13, 14]]):
        root = Root([Query("t", Tumbling(1), key_by=key_by), Query("old", Session(10), key_by=key_by)])
        root.admit("s", lateness=0)
        root.push(_batch(1, 10))
        assert root.add(Query("new", Session(10), key_by=key_by)).edge == root.remove("old").edge == 11
        first = 2
        for ts in pieces:
            root.push(_batch(first, *ts))
            first += len(ts)
        root.finish()
        found.append([(r.query, r.start, r.end, r.count) for r in root.take() if r.query != "t"])
    assert found[0] == found[1] == [("old", 10, 20, 2), ("new", 13, 24, 2)]


@pytest.mark.parametrize("gone", ["a", "b"])
@pytest.mark.parametrize("at_once", [False, True])
def test_one_of_two_session_queries_goes_and_the_other_stays_whole(gone: str, at_once: bool) -> None:
    root = Root([Query("a", Session(10)), Query("b", Session(10))])
    root.admit("s", lateness=0)
    for n in range(1, 40):
        root.push(_batch(n, n))
        if n == 5:
            root.remove(gone, at_once=at_once)
    root.finish()
    found = {r.query: (r.start, r.end, r.count) for r in root.take()}
    assert found.pop("b" if gone == "a" else "a") == (1, 49, 39)
    assert found == ({} if at_once else {gone: (1, 15, 5)})


@pytest.mark.parametrize("at_once", [False, True])
@pytest.mark.parametrize("fine", [Tumbling(1), Sliding(2_000, 500)])
def test_long_windows_stay_whole_when_finer_ones_go(fine: Tumbling | Sliding, at_once: bool) -> None:
    total = UserDefined("total", int, lambda a, b: a + b, lambda s: s, invert=lambda a, b: a - b)
    plain = UserDefined("plain", int, lambda a, b: a + b, lambda s: s)
    node, root = Node(both := [Query("a", fine), _long(total, plain)]), Root(both)
    alone = Root(both)
    for each in (node, root, alone):
        each.admit("s", lateness=0)
    found = {}
    for first in range(0, 60_000, 100):
        ts = np.arange(first, first + 100)
        for each in (node, alone):
            each.push(Batch("s", first + 1, ts, np.ones(100)))
        root.merge(node.flush())
        if first == 15_300:
            node.apply(root.remove("a", at_once=at_once))
            alone.remove("a", at_once=at_once)
        for name, engine in (("root", root), ("alone", alone)):
            found.update({(name, r.start): r for r in engine.take() if r.query == "b"})
    assert len(found) > 18
    for (_, start), row in found.items():
        size = row.end - max(start, 0)
        assert row.values == {"sum": size, "stddev": 0.0, "total": size, "plain": size}


def _long(*functions: UserDefined) -> Query:
    return Query("b", Sliding(10_000, 5_000), ["sum", "stddev", *functions])


def test_a_mark_window_that_is_open_when_its_query_goes_ends_at_the_edge() -> None:
    root = Root([Query("jobs", Punctuation("S", "E")), Query("t", Tumbling(10))])
    root.admit("a", lateness=0)
    root.push(Batch.from_records("a", 1, [(0, None, 1.0, "S"), (1, None, 1.0, None)]))
    assert root.remove("jobs").edge == 2
    root.push(Batch.from_records("a", 3, [(4, None, 1.0, None), (5, None, None, "E"), (30, None, 1.0, None)]))
    found = [(r.start, r.end, r.count) for r in root.take() if r.query == "jobs"]
    assert found == [(0, 2, 2)]


def test_nobody_forwards_events_for_queries_that_are_gone() -> None:
    for at_once in (False, True):
        node, root = Node(both := [Query("n", Tumbling(count=2)), Query("t", Tumbling(10))]), Root(both)
        for each in (node, root):
            each.admit("s", lateness=0)
        node.push(_batch(1, 1, 2))
        partial = node.flush()
        assert partial.events
        root.merge(partial)
        node.apply(root.remove("n", at_once=at_once))
        node.push(_batch(3, 3, 4))
        assert not node.flush().events


@pytest.mark.parametrize("at_once", [False, True])
@pytest.mark.parametrize("gone", [Sliding("10s", "3s"), Sliding(20, 3, 3), Tumbling("1h", "5m")])
def test_a_query_may_go_before_the_first_event(gone: Tumbling | Sliding, at_once: bool) -> None:
    root = Root([Query("q", gone), Query("keep", Tumbling(7))])
    root.admit("s", lateness=0)
    root.remove("q", at_once=at_once)
    assert root.push(_batch(1, 15, 16, 40)) == 3
    root.finish()
    assert [(r.query, r.start, r.count) for r in root.take()] == [("keep", 14, 2), ("keep", 35, 1)]


@pytest.mark.parametrize("beat", [7, 50])
@pytest.mark.parametrize("merge", MERGES)
def test_a_window_that_idle_has_ended_ends_by_the_edge_of_its_query(beat: int, merge: Merge) -> None:
    root = Root([Query("jobs", Punctuation("S", "E", merge=merge))], expected=2)
    root.admit("a", lateness=5)
    root.admit("b", lateness=0)
    root.push(Batch.from_records("b", 1, [(0, None, None, None)]))
    root.push(Batch.from_records("a", 1, [(0, None, 1.0, "S"), (10, None, None, None)]))
    root.idle("a")
    assert root.remove("jobs").edge == 1
    root.push(Batch.from_records("b", 2, [(beat, None, None, None)]))
    root.finish()
    assert [(r.start, r.end, r.count) for r in root.take()] == [(0, 1, 1)]


def test_a_query_that_saw_no_event_reports_no_empty_window_when_it_goes() -> None:
    query = Query("e", Sliding(32, 2), "count", where=Where(above=0), emit_empty=True)
    root = Root([query, Query("t", Tumbling(10))])
    root.admit("s", lateness=0)
    root.push(Batch("s", 1, [2], [-1.0]))
    root.remove("e")
    root.push(Batch("s", 2, [6, 100], [1.0, 1.0]))
    root.finish()
    assert not [r for r in root.take() if r.query == "e"]


def test_decisions_tell_a_query_that_was_added_again_from_the_first_one() -> None:
    jobs = Query("jobs", Punctuation("S", "E", merge="order"))
    root = Root([jobs], expected=2)
    for name in "ab":
        root.admit(name, lateness=0)
        root.push(Batch.from_records(name, 1, [(0, None, 1.0, "S"), (1, None, None, "E")]))
    root.remove("jobs")
    root.add(jobs)
    root.idle("a")
    root.push(Batch.from_records("a", 3, [(5, None, 1.0, None)]))
    assert root.decisions[-1].kind == "resume"
    assert root.decisions[-1].ordinals == {"jobs": 1, "jobs#2": 0}


@pytest.mark.parametrize("window", [Tumbling(10), Sliding(30, 10), Session(5)])
@pytest.mark.parametrize("function", ["median", UserDefined("largest", float, max, float)])
def test_whoever_is_behind_takes_what_lacks_states_for_a_query_that_is_gone(
    window: Tumbling | Sliding | Session, function: str | UserDefined
) -> None:
    gone = Query("gone", window, function)
    nodes = [Node([gone, Query("stays", Tumbling(20))]) for _ in range(3)]
    root = Root([gone, Query("stays", Tumbling(20))])
    for node in (*nodes, root):
        node.admit("s", lateness=0)

    def send(*batches: Batch) -> None:
        for batch in batches:
            nodes[0].push(batch)
            for node, above in zip(nodes, [*nodes[1:], root], strict=True):
                partial = node.flush()
                above.check(partial)
                above.merge(partial)

    send(_batch(1, 1, 2))
    change = root.remove("gone")
    for node in nodes:
        node.apply(change)
    send(_batch(3, 100))
    # The first one has heard of the watermark, and the others have not.
    nodes[0].forget(100)
    send(_batch(4, 101, 130), _batch(6, 131))
    root.finish()
    found = [(r.query, r.count) for r in root.take()]
    assert [count for query, count in found if query == "stays"] == [2, 2, 2]
    assert sum(query == "gone" for query, _ in found) == (3 if isinstance(window, Sliding) else 1)
