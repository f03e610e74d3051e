"""Sources that come, fall silent, speak again and go: the watermark, the ledger and every window."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater import oracle
from headwater.errors import DoesNotFit, InvalidSource
from headwater.events import Batch
from headwater.node import Node
from headwater.prefix import Prefix
from headwater.queries import Query, Scope
from headwater.results import Result
from headwater.root import Root
from headwater.verification import spec_of
from headwater.windows import TS_LIMIT, Punctuation, Session, Tumbling, Window
from tests.harness import assert_exact, assert_in_order, batch_of
from tests.strategies import (
    COUNT_WINDOWS,
    END,
    SESSIONS,
    START,
    TIME_WINDOWS,
    Stream,
    batches,
    query_sets,
    schedules,
    splits,
    streams,
)

# Any moment, against the oracle


class Life:
    """A root whose sources come and go at drawn moments, and all that its sources have sent it."""

    def __init__(self, queries: list[Query], given_streams: list[Stream], expected: int) -> None:
        self.queries = queries
        self.root = Root(queries, expected=expected)
        self.known = {source.name: source for source, _ in given_streams}
        self.sent: dict[str, list[oracle.Event]] = {}
        self.taken: list[Result] = []

    def push(self, events: list[oracle.Event]) -> None:
        name = events[0].source
        if name not in self.sent:
            source = self.known[name]
            self.root.admit(name, lateness=source.lateness, site=source.site)
            self.sent[name] = []
        if not self.root.sources[name].retired:
            assert self.root.push(batch_of(events)) == len(events)
            self.sent[name] += events

    def decide(self, action: str, name: str) -> None:
        if name in self.sent:
            {"idle": self.root.idle, "resume": self.root.resume, "retire": self.root.retire}[action](name)

    def take(self) -> None:
        self.taken += self.root.take()

    def compare(self) -> None:
        self.root.finish()
        self.take()
        decisions = [
            oracle.Decision(d.source, d.after, d.floor, d.closes, d.ordinals, d.key_ordinals)
            for d in self.root.decisions
        ]
        sources = [self.known[name] for name in self.sent]
        events = [event for sent in self.sent.values() for event in sent]
        expected = oracle.windows(events, sources, map(spec_of, self.queries), decisions=decisions)
        assert_exact(self.queries, expected, self.taken)
        assert_in_order(self.queries, self.taken)
        for source in sources:
            account = self.root.account(source.name)
            kept, late, rejected = oracle.judge(self.sent[source.name], source, decisions)
            assert (account.counted, account.late, account.rejected) == (len(kept), len(late), len(rejected))
            assert account.accepted == account.counted + account.late + account.rejected


MARKS_IN_TIME: st.SearchStrategy[Window] = st.builds(
    Punctuation, st.just(START), st.just(END), st.sampled_from(("local", "bounds", "overlap"))
)
MARKS_IN_ORDER: st.SearchStrategy[Window] = st.builds(
    Punctuation, st.just(START), st.sampled_from((END, None)), st.just("order")
)
ACTIONS = st.sampled_from(("nothing",) * 4 + ("idle",) * 3 + ("resume", "retire"))


def run(data: st.DataObject, windows: st.SearchStrategy[Window], *, wide: bool = False) -> None:
    # A source that is expected never comes if it has nothing to say: one is enough.
    queries = data.draw(query_sets(max_size=4, windows=windows, empties=False))
    given_streams = data.draw(streams(max_size=15, wide=wide))
    names = [source.name for source, _ in given_streams]
    pieces = [
        [b for b in batches(events, data.draw(splits(len(events)))) if b] for _, events in given_streams
    ]
    life = Life(queries, given_streams, expected=1)
    for number, take in data.draw(schedules([len(p) for p in pieces])):
        life.push(pieces[number].pop(0))
        action = data.draw(ACTIONS)
        if action != "nothing":
            life.decide(action, data.draw(st.sampled_from(names)))
        if take:
            life.take()
    life.compare()


@given(st.data())
def test_windows_in_time(data: st.DataObject) -> None:
    run(data, TIME_WINDOWS | SESSIONS)


@given(st.data())
def test_windows_in_time_with_jumps_and_times_at_the_limit(data: st.DataObject) -> None:
    run(data, TIME_WINDOWS | SESSIONS | COUNT_WINDOWS, wide=True)


@given(st.data())
def test_count_windows(data: st.DataObject) -> None:
    run(data, COUNT_WINDOWS)


@given(st.data())
def test_mark_windows_by_bounds_and_overlap(data: st.DataObject) -> None:
    run(data, MARKS_IN_TIME)


@given(st.data())
def test_mark_windows_by_order(data: st.DataObject) -> None:
    run(data, MARKS_IN_ORDER)


@given(st.data())
def test_windows_of_all_kinds_together(data: st.DataObject) -> None:
    run(data, TIME_WINDOWS | SESSIONS | COUNT_WINDOWS | MARKS_IN_TIME | MARKS_IN_ORDER)


# The watermark, by hand


def batch(source: str, first: int, *ts: int) -> Batch:
    return Batch.from_records(source, first, [(t, None, 1.0, None) for t in ts])


def heartbeat(source: str, first: int, ts: int) -> Batch:
    return Batch.from_records(source, first, [(ts, None, None, None)])


def root_of(*windows: Window, expected: int = 1, **lateness: int) -> Root:
    root = Root(
        [Query(f"q{n}", window) for n, window in enumerate(windows or [Tumbling(10)])], expected=expected
    )
    for name, late in lateness.items():
        root.admit(name, lateness=late)
    return root


def bounds(root: Root) -> list[tuple[int, int, int]]:
    return [(r.start, r.end, r.count) for r in root.take()]


def test_the_watermark_is_the_minimum_over_the_roster() -> None:
    root = root_of(a=0, b=5)
    root.push(batch("a", 1, 30))
    assert root.watermark is None  # b has not said anything yet
    root.push(batch("b", 1, 20))
    assert root.watermark == 15
    root.push(batch("b", 2, 40))
    assert root.watermark == 30  # now a is the slower one


def test_the_watermark_never_falls() -> None:
    root = root_of(a=5)
    root.push(batch("a", 1, 20, 16))
    assert root.watermark == 15
    root.admit("b", lateness=100)
    root.push(batch("b", 1, 16))
    assert root.watermark == 15


def test_a_window_is_final_at_its_end() -> None:
    root = root_of(a=3)
    root.push(batch("a", 1, 5, 12))
    assert (root.watermark, bounds(root)) == (9, [])
    root.push(batch("a", 3, 13))
    assert (root.watermark, bounds(root)) == (10, [(0, 10, 1)])


def test_a_heartbeat_lets_windows_close() -> None:
    root = root_of(a=0)
    root.push(batch("a", 1, 5))
    assert bounds(root) == []
    root.push(heartbeat("a", 2, 10))
    assert (root.watermark, bounds(root)) == (10, [(0, 10, 1)])
    assert root.account("a").counted == 2


def test_nothing_is_final_before_the_expected_sources_are_there() -> None:
    root = root_of(expected=2, a=0)
    root.push(batch("a", 1, 5, 100))
    assert (root.watermark, bounds(root)) == (None, [])
    root.admit("b", lateness=0)
    root.push(batch("b", 1, 7))  # it comes before the watermark is set, so nothing of it is late
    assert (root.watermark, root.account("b").late) == (7, 0)
    root.push(batch("b", 2, 50))
    assert bounds(root) == [(0, 10, 2)]


def test_an_idle_source_is_not_waited_for() -> None:
    root = root_of(a=0, b=0)
    root.push(batch("a", 1, 5))
    root.push(batch("b", 1, 50))
    assert (root.watermark, bounds(root)) == (5, [])
    root.idle("a")
    assert (root.watermark, bounds(root)) == (50, [(0, 10, 1)])


def test_what_a_resumed_source_says_about_the_past_is_late() -> None:
    #        10   20   30   40   50
    #  a   7 |    |    |    |    |   8?  51
    #  b     |    |    |    |    50
    root = root_of(a=0, b=0)
    root.push(batch("a", 1, 7))
    root.push(batch("b", 1, 50))
    root.idle("a")
    root.push(batch("a", 2, 8, 51))
    assert not root.sources["a"].idle
    assert (root.account("a").counted, root.account("a").late) == (2, 1)
    assert [(s.seq, s.ts, s.reason) for s in root.account("a").sample] == [(2, 8, "late")]
    root.finish()
    assert bounds(root) == [(0, 10, 1), (50, 60, 2)]


def test_a_source_that_is_admitted_late_starts_at_the_watermark() -> None:
    root = root_of(a=0)
    root.push(batch("a", 1, 50))
    root.admit("b", lateness=5)
    root.push(batch("b", 1, 49, 50))
    assert (root.account("b").late, root.account("b").counted) == (1, 1)
    (decision,) = root.decisions
    assert (decision.source, decision.after, decision.floor) == ("b", 0, 55)


def test_a_retired_source_is_gone_for_good() -> None:
    root = root_of(a=0, b=0)
    root.push(batch("a", 1, 5))
    root.push(batch("b", 1, 20))
    root.retire("a")
    assert root.watermark == 20
    root.resume("a")
    with pytest.raises(InvalidSource, match="'a' is retired; admit it under a new name"):
        root.push(batch("a", 2, 30))
    assert root.account("a").accepted == 1


def test_idling_twice_decides_once() -> None:
    root = root_of(a=0, b=0)
    root.idle("a")
    root.idle("a")
    root.resume("b")
    assert [(d.source, d.closes) for d in root.decisions] == [("a", True)]


@pytest.mark.parametrize("window", [Tumbling(10), Tumbling(count=1), Session(3)])
def test_a_source_alone_goes_on_after_it_was_idle(window: Window) -> None:
    root = root_of(window, a=0)
    root.push(batch("a", 1, 5))
    root.idle("a")
    root.push(batch("a", 2, 20))
    assert root.watermark == 20
    root.push(batch("a", 3, 40))
    assert root.watermark == 40


@pytest.mark.parametrize("gone", ["idle", "retire"])
def test_idle_and_retire_end_an_open_mark_window(gone: str) -> None:
    #  a  S=1 . 4=1      (idle: ends at 4)
    #  b           . 9
    root = Root([Query("q", Punctuation("S", "E"), "count")], expected=2)
    root.admit("a", lateness=0)
    root.admit("b", lateness=0)
    root.push(Batch.from_records("a", 1, [(1, None, 1.0, "S"), (4, None, 1.0, None)]))
    root.push(batch("b", 1, 9))
    assert bounds(root) == []
    getattr(root, gone)("a")
    assert bounds(root) == [(1, 4, 2)]


def ordered(*windows: tuple[int, int]) -> list[tuple[int, str | None, float | None, str | None]]:
    """Records of windows that begin with S=1 and end with E."""
    return [record for start, end in windows for record in ((start, None, 1.0, "S"), (end, None, None, "E"))]


def by_order(scope: Scope = "global") -> Root:
    return Root([Query("q", Punctuation("S", "E", "order"), "count", scope=scope)])


def test_the_order_of_marks_does_not_wait_for_an_idle_source() -> None:
    #  a  S0....E3  S4..E6
    #  b  .S1.E2 .  .  .  .  9
    root = by_order()
    for name in "ab":
        root.admit(name, lateness=0)
    root.push(Batch.from_records("a", 1, ordered((0, 3), (4, 6))))
    root.push(Batch.from_records("b", 1, ordered((1, 2))))
    root.push(heartbeat("b", 3, 9))
    root.push(heartbeat("a", 5, 9))
    assert bounds(root) == [(0, 3, 2)]
    root.idle("b")
    assert bounds(root) == [(4, 6, 1)]


def test_a_source_admitted_late_joins_the_next_undecided_window() -> None:
    #  a  S0.E3  S4.E6     S12.....E15
    #  b            (8)      S13.E14
    root = by_order()
    root.admit("a", lateness=0)
    root.push(Batch.from_records("a", 1, ordered((0, 3), (4, 6))))
    root.push(heartbeat("a", 5, 8))
    assert bounds(root) == [(0, 3, 1), (4, 6, 1)]
    root.admit("b", lateness=0)
    root.push(Batch.from_records("a", 6, ordered((12, 15))))
    root.push(Batch.from_records("b", 1, ordered((13, 14))))
    root.finish()
    assert bounds(root) == [(12, 15, 2)]


def test_the_next_undecided_window_is_that_of_the_site() -> None:
    #  a (north)  S0.E1  S2.E3          6     S10.E11
    #  b (south)                     5          .
    #  c (north)                       (6)  S8...E9
    root = by_order("local")
    root.admit("a", lateness=0, site="north")
    root.admit("b", lateness=0, site="south")
    root.push(Batch.from_records("a", 1, ordered((0, 1), (2, 3))))
    root.push(heartbeat("a", 5, 6))
    root.push(heartbeat("b", 1, 5))
    assert bounds(root) == [(0, 1, 1), (2, 3, 1)]
    root.admit("c", lateness=0, site="north")  # windows 0 and 1 of the north are decided
    root.push(Batch.from_records("c", 1, ordered((8, 9))))
    root.push(Batch.from_records("a", 6, ordered((10, 11))))
    root.finish()
    assert bounds(root) == [(8, 11, 2)]


def test_decided_windows_stay_decided_when_all_sources_are_idle() -> None:
    #  a  S0.E1  S2.E3  6 (idle)
    #  b                          S8.E9
    root = by_order()
    root.admit("a", lateness=0)
    root.push(Batch.from_records("a", 1, ordered((0, 1), (2, 3))))
    root.push(heartbeat("a", 5, 6))
    assert bounds(root) == [(0, 1, 1), (2, 3, 1)]
    root.idle("a")
    root.admit("b", lateness=0)
    root.push(Batch.from_records("b", 1, ordered((8, 9))))
    root.finish()
    assert bounds(root) == [(8, 9, 1)]
    (decision,) = [d for d in root.decisions if d.source == "b"]
    assert decision.ordinals == {"q": 2}


def test_a_window_without_events_shapes_the_bounds_even_of_an_idle_source() -> None:
    #  a      S2.E4
    #  b  S0.......5 (idle: ends at 5)
    root = by_order()
    for name in "ab":
        root.admit(name, lateness=0)
    root.push(Batch.from_records("b", 1, [(0, None, None, "S"), (5, None, None, None)]))
    root.push(Batch.from_records("a", 1, ordered((2, 4))))
    root.idle("b")
    root.finish()
    assert bounds(root) == [(0, 5, 1)]


def test_what_each_key_has_decided_is_part_of_the_decision() -> None:
    #  a  S0(k)=1 E0     (window 0 of key k is decided, of no other key)
    #  b                 admitted, and says something of k
    query = Query("q", Punctuation("S", "E", "order"), "count", key_by="key")
    life = Life([query], [(oracle.Source("a"), []), (oracle.Source("b"), [])], expected=1)
    life.push([oracle.Event("a", 1, 0, "k", 1.0, "S"), oracle.Event("a", 2, 0, None, None, "E")])
    life.push([oracle.Event("b", 1, 0, "k", 1.0)])
    life.compare()


def test_the_largest_time_of_a_source_stays_within_64_bits() -> None:
    root = root_of(a=0)
    root.push(batch("a", 1, TS_LIMIT))
    root.admit("b", lateness=TS_LIMIT)  # W + lateness is 2^63
    root.push(batch("b", 1, 5))
    assert root.account("b").late == 1


# Partials that do not fit


def pair() -> tuple[Root, Node]:
    """A root and a node that both know the source a."""
    root, node = Root([Query("q", Tumbling(10))]), Node([Query("q", Tumbling(10))])
    for each in (root, node):
        each.admit("a", lateness=0)
    return root, node


def state(root: Root) -> object:
    sources = {n: (s.prefix, s.idle, s.retired, root.account(n)) for n, s in root.sources.items()}
    return root.watermark, root.held, root.largest, sources, list(root.decisions)


def refused(root: Root, node: Node) -> tuple[str, ...]:
    """Merge what the node has; it is refused and changes nothing. Which sources did not fit?"""
    before = state(root)
    with pytest.raises(DoesNotFit, match="make it again from the positions of the receiver") as caught:
        root.merge(node.flush())
    assert state(root) == before
    return caught.value.sources


def test_a_partial_with_a_gap_does_not_fit() -> None:
    root, node = pair()
    node.push(batch("a", 1, 1))
    node.flush()  # lost
    node.push(batch("a", 2, 5))
    assert refused(root, node) == ("a",)


def test_a_partial_is_merged_once() -> None:
    root, node = pair()
    node.push(batch("a", 1, 1, 12))
    partial = node.flush()
    root.merge(partial)
    before = state(root)
    with pytest.raises(DoesNotFit):
        root.merge(partial)
    assert state(root) == before
    assert bounds(root) == [(0, 10, 1)]


def test_a_partial_of_another_prefix_state_does_not_fit() -> None:
    root, _ = pair()
    other = Node([Query("q", Tumbling(10))])
    other.admit("a", lateness=0, prefix=Prefix(0, 7))  # as many records, but another M
    other.push(batch("a", 1, 9))
    assert refused(root, other) == ("a",)


def test_a_partial_of_an_unknown_source_does_not_fit_as_a_whole() -> None:
    root, node = pair()
    node.admit("b", lateness=0)
    node.push(batch("a", 1, 5, 20))
    node.push(batch("b", 1, 5))
    assert refused(root, node) == ("b",)


def test_a_duplicate_is_no_sign_of_life() -> None:
    root, node = pair()
    root.admit("b", lateness=0)
    node.push(batch("a", 1, 5))
    partial = node.flush()
    root.merge(partial)
    root.idle("a")
    before = state(root)
    with pytest.raises(DoesNotFit):
        root.merge(partial)
    assert state(root) == before


def test_a_partial_made_before_the_root_resumed_its_source_is_made_again() -> None:
    root, node = pair()
    root.admit("b", lateness=0)
    node.push(batch("a", 1, 5))
    root.merge(node.flush())
    root.idle("a")
    root.push(batch("b", 1, 50))
    node.push(batch("a", 2, 6, 60))
    with pytest.raises(DoesNotFit):
        root.merge(node.flush())
    again = Node([Query("q", Tumbling(10))])
    again.admit("a", lateness=0, prefix=root.sources["a"].prefix)
    again.push(batch("a", 2, 6, 60))
    root.merge(again.flush())
    assert (root.account("a").late, root.watermark) == (1, 50)
