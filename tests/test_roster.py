"""Sources that come, fall silent, speak again and go: the watermark, the ledger and every window."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater import oracle
from headwater.aggregates import UserDefined
from headwater.degraded import NAMED, Degraded
from headwater.errors import DoesNotFit, FunctionFailed, InvalidSource
from headwater.events import Batch
from headwater.node import Node
from headwater.prefix import Prefix
from headwater.queries import Query, Scope
from headwater.results import Result
from headwater.root import Root
from headwater.verification import decisions_of, spec_of
from headwater.windows import TS_LIMIT, Merge, Punctuation, Session, Sliding, Tumbling, Window
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

    def decide(self, action: str, name: str, ahead: int = 1) -> None:
        if action == "start":
            self.root.start()
        elif action == "skip" and name in self.sent and not self.root.sources[name].retired:
            self.root.skip(name, self.root.sources[name].position + ahead)
        elif action != "skip" and name in self.sent:
            {"idle": self.root.idle, "resume": self.root.resume, "retire": self.root.retire}[action](name)

    def take(self) -> None:
        windows = {query.id: query.window for query in self.queries}
        for degraded in self.root.degraded:
            window = windows[degraded.query]
            assert isinstance(window, Punctuation)
            assert degraded.waiting > window.max_open
            assert set(degraded.sources) <= set(self.sent)
        self.taken += self.root.take()

    def compare(self) -> None:
        self.root.finish()
        self.take()
        decisions = decisions_of(self.root)
        sources = [self.known[name] for name in self.sent]
        events = [event for sent in self.sent.values() for event in sent]
        expected = oracle.windows(events, sources, map(spec_of, self.queries), decisions=decisions)
        assert_exact(self.queries, expected, self.taken)
        assert_in_order(self.queries, self.taken)
        assert len({result.identity for result in self.taken}) == len(self.taken)
        for source in sources:
            account = self.root.account(source.name)
            kept, late, rejected = oracle.judge(self.sent[source.name], source, decisions)
            assert (account.counted, account.late, account.rejected) == (len(kept), len(late), len(rejected))
            assert account.accepted == account.counted + account.late + account.rejected


MAX_OPEN = st.sampled_from((1, 10_000))
MARKS_IN_TIME: st.SearchStrategy[Window] = st.builds(
    Punctuation, st.just(START), st.just(END), st.sampled_from(("local", "bounds", "overlap")), MAX_OPEN
)
MARKS_IN_ORDER: st.SearchStrategy[Window] = st.builds(
    Punctuation, st.just(START), st.sampled_from((END, None)), st.just("order"), MAX_OPEN
)
ACTIONS = st.sampled_from(("nothing",) * 4 + ("idle",) * 3 + ("resume", "retire", "start", "skip", "skip"))


def run(data: st.DataObject, windows: st.SearchStrategy[Window], *, wide: bool = False) -> None:
    queries = data.draw(query_sets(max_size=4, windows=windows, empties=False))
    given_streams = data.draw(streams(max_size=15, wide=wide))
    names = [source.name for source, _ in given_streams]
    pieces = [
        [b for b in batches(events, data.draw(splits(len(events)))) if b] for _, events in given_streams
    ]
    # A source that is expected never comes if it has nothing to say: then it takes a start.
    life = Life(queries, given_streams, expected=data.draw(st.sampled_from((1, 1, 1, 2, 5))))
    for number, take in data.draw(schedules([len(p) for p in pieces])):
        life.push(pieces[number].pop(0))
        action = data.draw(ACTIONS)
        if action != "nothing":
            life.decide(action, data.draw(st.sampled_from(names)), data.draw(st.integers(1, 4)))
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


STEPS = st.lists(
    st.tuples(
        st.sampled_from(("push",) * 4 + ("flush",) * 2 + ("skip", "skip untold")),
        st.integers(0, 3),
        st.integers(1, 5),
    ),
    max_size=25,
)


class Below:
    """A root over one node, which is made anew from the root's prefixes when it does not fit."""

    def __init__(self, queries: list[Query], given_streams: list[Stream]) -> None:
        self.queries, self.streams = queries, given_streams
        self.root = Root(queries, expected=len(given_streams))
        for source, _ in given_streams:
            self.root.admit(source.name, lateness=source.lateness, site=source.site)
        self.make()

    def make(self) -> None:
        self.node = Node(self.queries)
        for source, _ in self.streams:
            prefix = self.root.sources[source.name].prefix
            self.node.admit(source.name, lateness=source.lateness, site=source.site, prefix=prefix)

    def push(self, place: int, size: int) -> None:
        source, events = self.streams[place]
        position = self.node.sources[source.name].position
        if position < len(events):
            self.node.push(batch_of(events[position : position + size]))

    def flush(self) -> None:
        try:
            self.root.merge(self.node.flush())
        except DoesNotFit:
            self.make()

    def skip(self, place: int, ahead: int, *, told: bool) -> None:
        name = self.streams[place][0].name
        seq = self.root.sources[name].position + ahead
        self.root.skip(name, seq)
        try:
            if told:
                self.node.skip(name, seq)
        except InvalidSource:
            self.make()

    def finish(self) -> list[Result]:
        # Once more if it did not fit: then the node starts where the root stands.
        for _ in range(2):
            for place, (_, events) in enumerate(self.streams):
                self.push(place, len(events))
            self.flush()
        self.root.finish()
        return list(self.root.take())


@given(st.data(), streams(max_size=12))
def test_a_skipped_record_counts_nowhere_however_far_a_node_has_read(
    data: st.DataObject, given_streams: list[Stream]
) -> None:
    queries = data.draw(query_sets(max_size=3, empties=False))
    below = Below(queries, given_streams)
    for action, place, size in data.draw(STEPS):
        place %= len(given_streams)
        if action == "push":
            below.push(place, size)
        elif action == "flush":
            below.flush()
        else:
            below.skip(place, size, told=action == "skip")
    found = below.finish()
    decisions = decisions_of(below.root)
    events = [event for _, own in given_streams for event in own]
    sources = [source for source, _ in given_streams]
    assert_exact(queries, oracle.windows(events, sources, map(spec_of, queries), decisions=decisions), found)
    for source, own in given_streams:
        account = below.root.account(source.name)
        kept, late, rejected = oracle.judge(own, source, decisions)
        assert (account.counted, account.late, account.rejected) == (len(kept), len(late), len(rejected))


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
    assert [(d.kind, d.source, d.after, d.floor) for d in root.decisions] == [
        ("admit", "a", 0, None),
        ("admit", "b", 0, 55),
    ]


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
    assert decided(root) == [("idle", "a", 0, True)]


def decided(root: Root) -> list[tuple[str, str, int, bool]]:
    """What the root has decided beside to admit."""
    return [(d.kind, d.source, d.after, d.closes) for d in root.decisions if d.kind != "admit"]


def test_every_decision_is_logged_with_its_kind() -> None:
    root = root_of(expected=3, a=0, b=0)
    root.start()
    root.push(batch("a", 1, 5, 6))
    root.idle("a")
    root.skip("a", 4)
    root.resume("a")
    assert decided(root) == [
        ("start", "", 0, False),
        ("idle", "a", 2, True),
        ("skip", "a", 2, False),
        ("resume", "a", 2, False),
    ]


def test_to_retire_a_source_is_one_decision() -> None:
    root = root_of(a=0, b=0)
    root.push(batch("a", 1, 5))
    root.retire("a")
    root.retire("a")
    assert decided(root) == [("retire", "a", 1, True)]


def test_to_retire_an_idle_source_closes_nothing_more() -> None:
    root = root_of(a=0, b=0)
    root.idle("a")
    root.retire("a")
    root.idle("a")
    assert decided(root) == [("idle", "a", 0, True), ("retire", "a", 0, False)]


# Not to wait for sources that do not come


def test_a_start_waits_for_no_more_sources_than_there_are() -> None:
    #  a   5          100
    #  b      (start)      (100)  99?  100
    root = root_of(expected=3, a=0)
    root.push(batch("a", 1, 5, 100))
    assert (root.watermark, bounds(root)) == (None, [])
    root.start()
    assert (root.watermark, bounds(root)) == (100, [(0, 10, 1)])
    root.admit("b", lateness=5)
    assert (root.decisions[-1].kind, root.decisions[-1].floor) == ("admit", 105)
    root.push(batch("b", 1, 99, 100))
    assert (root.account("b").late, root.watermark) == (1, 100)


def test_a_start_before_any_record_lets_the_first_ones_set_the_watermark() -> None:
    root = root_of(expected=2, a=0)
    root.start()
    assert root.watermark is None
    root.push(batch("a", 1, 7))
    assert root.watermark == 7


def test_windows_by_order_wait_for_the_start() -> None:
    root = Root([Query("q", Punctuation("S", "E", "order"))], expected=2)
    root.admit("a", lateness=0)
    root.push(Batch.from_records("a", 1, ordered((0, 3))))
    root.push(heartbeat("a", 3, 9))
    assert bounds(root) == []
    root.start()
    assert bounds(root) == [(0, 3, 1)]


def test_there_is_nothing_to_start_twice() -> None:
    root = root_of(expected=2)
    root.admit("a", lateness=0)
    root.start()
    root.start()
    assert decided(root) == [("start", "", 0, False)]


def test_there_is_nothing_to_start_once_the_expected_sources_are_there() -> None:
    root = root_of(expected=2, a=0, b=0)
    root.start()
    assert decided(root) == []


# Records that are never read


def test_a_source_whose_record_lies_too_far_ahead_goes_on_once_it_is_skipped() -> None:
    #         0   5      20                  10^12
    #  a      0                              (2: skipped)  8
    #  b                 20
    root = Root([Query("q", Tumbling(10))], expected=2, horizon=100)
    root.admit("a", lateness=0)
    root.admit("b", lateness=0)
    root.push(batch("a", 1, 0))
    root.push(batch("b", 1, 20))
    assert root.push(batch("a", 2, 10**12, 8)) == 0
    root.skip("a", 2)
    assert root.push(batch("a", 2, 10**12, 8)) == 2
    account = root.account("a")
    assert (account.accepted, account.counted, account.rejected, root.watermark) == (3, 2, 1, 8)
    assert [(s.seq, s.ts, s.reason) for s in account.sample] == [(2, 10**12, "skipped")]
    assert root.sources["a"].skips == frozenset()
    root.finish()
    assert bounds(root) == [(0, 10, 2), (20, 30, 1)]
    (decision,) = [d for d in root.decisions if d.kind == "skip"]
    assert (decision.source, decision.after, decision.skip) == ("a", 1, 2)


def test_a_skip_is_of_the_record_that_the_spool_had() -> None:
    root = Root([Query("q", Tumbling(10))])
    root.admit("a", lateness=0)
    root.push(batch("a", 1, 0))
    root.skip("a", 2)
    root.skip("a", 3)
    # It was opened again with its second record, and without the third: that is another one from now on.
    root.reopen("a", "again", upto=2)
    assert root.sources["a"].skips == {2}
    assert root.push(batch("a", 2, 10**12, 8)) == 2
    root.finish()
    account = root.account("a")
    assert (account.counted, account.rejected) == (2, 1)
    events = [oracle.Event("a", seq, ts, value=1.0) for seq, ts in ((1, 0), (2, 10**12), (3, 8))]
    kept, late, rejected = oracle.judge(events, oracle.Source("a"), decisions_of(root))
    assert [[each.seq for each in side] for side in (kept, late, rejected)] == [[1, 3], [], [2]]
    assert bounds(root) == [(0, 10, 2)]


def test_a_log_that_does_not_say_how_many_records_there_were_takes_no_skip_back() -> None:
    root = root_of(a=0)
    root.skip("a", 3)
    root.reopen("a", "again", None)
    assert root.sources["a"].skips == {3}


def test_the_mark_of_a_skipped_record_does_not_act() -> None:
    root = Root([Query("q", Punctuation("S", "E"))])
    root.admit("a", lateness=0)
    root.skip("a", 2)
    root.push(
        Batch.from_records(
            "a", 1, [(1, None, 1.0, "S"), (3, None, None, "E"), (4, None, 1.0, None), (6, None, None, "E")]
        )
    )
    root.finish()
    assert bounds(root) == [(1, 6, 2)]


def test_skips_are_kept_until_the_source_has_passed_them() -> None:
    root = root_of(a=0)
    for seq in (2, 5, 5):
        root.skip("a", seq)
    assert len(decided(root)) == 2
    root.push(batch("a", 1, 1, 2, 3))
    assert root.sources["a"].prefix.skips == {5}
    root.push(batch("a", 4, 4, 5))
    assert (root.sources["a"].prefix.skips, root.account("a").rejected) == (frozenset(), 2)


@pytest.mark.parametrize("gone", ["retire", "finish"])
def test_there_is_nothing_to_skip_behind_the_end(gone: str) -> None:
    root = root_of(a=0)
    if gone == "finish":
        root.finish()
    else:
        root.retire("a")
    with pytest.raises(InvalidSource, match="the record cannot be skipped"):
        root.skip("a", 1)


# Windows that wait


def jobs(merge: Merge, max_open: int = 2, expected: int = 2) -> Root:
    """A root whose sources a and b work on jobs, and b falls silent."""
    root = Root([Query("jobs", Punctuation("S", "E", merge, max_open))], expected=expected)
    root.admit("a", lateness=0)
    root.admit("b", lateness=0)
    return root


def waiting(root: Root) -> list[tuple[int, tuple[str, ...]]]:
    return [(d.waiting, d.sources) for d in root.degraded]


@pytest.mark.parametrize("merge", ["local", "bounds", "order", "overlap"])
def test_a_query_is_degraded_while_more_windows_wait_than_it_allows(merge: Merge) -> None:
    #  a  S1.E2  S3.E4  S5.E6                           9
    #  b                        (silent)    9, S.E x 3  (by order its turn comes as well)
    root = jobs(merge)
    root.push(Batch.from_records("a", 1, ordered((1, 2), (3, 4))))
    assert waiting(root) == []
    root.push(Batch.from_records("a", 5, ordered((5, 6))))
    (degraded,) = root.degraded
    reason = "3 windows wait to be final, for 'b'; idle or retire them, or raise max_open (2)"
    assert degraded == Degraded("jobs", reason, 3, ("b",))
    assert bounds(root) == []
    root.push(Batch.from_records("b", 1, ordered((7, 7), (7, 7), (7, 7))))
    root.push(heartbeat("a", 7, 9))
    root.push(heartbeat("b", 7, 9))
    assert waiting(root) == []
    assert sum(count for _, _, count in bounds(root)) == 6  # nothing was dropped


def test_to_idle_the_source_that_is_waited_for_lets_the_windows_go() -> None:
    root = jobs("order")
    root.push(Batch.from_records("a", 1, ordered((1, 2), (3, 4), (5, 6))))
    root.push(heartbeat("a", 7, 9))
    root.push(heartbeat("b", 1, 9))
    assert waiting(root) == [(3, ("b",))]  # for its turn: its time has come
    root.idle("b")
    assert (waiting(root), len(bounds(root))) == ([], 3)


def test_windows_that_overlap_wait_for_whoever_has_one_open() -> None:
    root = jobs("overlap")
    root.push(Batch.from_records("b", 1, [(0, None, 1.0, "S"), (9, None, None, None)]))
    root.push(Batch.from_records("a", 1, ordered((1, 2), (3, 4))))
    root.push(heartbeat("a", 5, 9))
    assert waiting(root) == [(3, ("b",))]


def test_open_windows_wait_for_their_own_sources() -> None:
    root = jobs("local", max_open=1)
    for name in "ab":
        root.push(Batch.from_records(name, 1, [(0, None, 1.0, "S"), (9, None, 1.0, None)]))
    assert waiting(root) == [(2, ("a", "b"))]
    root.push(Batch.from_records("a", 3, [(10, None, None, "E"), (11, None, None, None)]))
    root.push(heartbeat("b", 3, 11))
    assert waiting(root) == []


def test_each_key_has_windows_of_its_own() -> None:
    root = Root([Query("q", Punctuation("S", "E", max_open=2), key_by="key")])
    root.admit("a", lateness=0)
    root.push(Batch.from_records("a", 1, [(0, None, None, "S"), *((1, key, 1.0, None) for key in "klkl")]))
    assert waiting(root) == []
    root.push(Batch.from_records("a", 6, [(1, "m", 1.0, None)]))
    assert waiting(root) == [(3, ("a",))]


def test_windows_without_events_wait_too_until_they_are_passed() -> None:
    root = jobs("order")
    empty = [record for t in (1, 2, 3) for record in ((t, None, None, "S"), (t, None, None, "E"))]
    root.push(Batch.from_records("a", 1, empty))
    assert waiting(root) == [(3, ("b",))]
    root.push(Batch.from_records("b", 1, empty))
    root.push(heartbeat("a", 7, 9))
    root.push(heartbeat("b", 7, 9))
    assert (waiting(root), bounds(root)) == ([], [])


def test_at_most_ten_sources_are_named() -> None:
    root = Root([Query("q", Punctuation("S", "E", max_open=1))])
    names = [f"s{n:02}" for n in range(13)]
    for name in names:
        root.admit(name, lateness=0)
    root.push(Batch.from_records("s00", 1, ordered((1, 2), (3, 4))))
    (degraded,) = root.degraded
    assert degraded.sources == tuple(names[1 : NAMED + 1])
    assert "'s10' and 2 more; idle or retire them" in degraded.reason


def test_windows_may_wait_for_sources_that_have_not_come() -> None:
    root = jobs("local", max_open=1, expected=4)
    root.push(Batch.from_records("a", 1, ordered((1, 2), (3, 4))))
    (degraded,) = root.degraded
    assert degraded.sources == ()
    assert "for sources that are expected (2 more); admit them or start without them" in degraded.reason


def test_windows_may_wait_for_anybody_to_speak() -> None:
    root = jobs("local", max_open=1)
    root.push(Batch.from_records("a", 1, ordered((1, 2), (3, 9))))
    root.idle("a")
    root.idle("b")
    (degraded,) = root.degraded
    assert "for a source to speak, since all are idle or retired; let one resume" in degraded.reason
    root.finish()
    assert root.degraded == ()


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


def test_a_partial_of_a_node_that_was_told_of_a_skip_fits() -> None:
    root, node = pair()
    node.push(batch("a", 1, 1, 2))
    root.skip("a", 4)
    node.skip("a", 4)  # what it has gathered is behind the decision, and the record is not in it
    node.push(batch("a", 3, 3))
    root.merge(node.flush())
    assert root.sources["a"].prefix.skips == {4}
    node.push(batch("a", 4, 10**12, 5))
    root.merge(node.flush())
    assert (root.account("a").counted, root.account("a").rejected, root.watermark) == (4, 1, 5)
    assert root.sources["a"].prefix == node.sources["a"].prefix


def test_a_partial_that_was_made_without_the_skip_does_not_fit() -> None:
    root, node = pair()
    node.push(batch("a", 1, 1, 10**12))
    root.skip("a", 2)
    with pytest.raises(InvalidSource, match="seq: record 2 of 'a' was read already; give a number above 2"):
        node.skip("a", 2)
    assert refused(root, node) == ("a",)


def test_a_skip_alone_makes_no_partial() -> None:
    root, node = pair()
    root.skip("a", 1)
    node.skip("a", 1)
    assert not node.flush()


def test_an_intermediate_node_passes_on_what_was_skipped() -> None:
    root, child = pair()
    _, middle = pair()
    child.push(batch("a", 1, 1))
    middle.merge(child.flush())
    for each in (root, middle, child):
        each.skip("a", 2)
    child.push(batch("a", 2, 99, 3))
    middle.merge(child.flush())
    root.merge(middle.flush())
    assert (root.account("a").rejected, root.watermark) == (1, 3)


def test_a_record_that_has_to_wait_wakes_nobody() -> None:
    root = Root([Query("q", Tumbling(10))], expected=2, horizon=100)
    for name in "ab":
        root.admit(name, lateness=0)
        root.push(Batch(name, 1, [0], [1.0]))
    root.idle("a")
    root.push(Batch("b", 2, [90], [1.0]))
    assert root.push(Batch("a", 2, [10**6], [1.0])) == 0
    assert [d.kind for d in root.decisions][-1] == "idle"
    assert root.push(Batch("b", 3, [180], [1.0])) == 1
    assert root.watermark == 180


def test_a_start_before_the_first_source_waits_for_no_second_one() -> None:
    root = Root([Query("q", Tumbling(10))], expected=3)
    root.start()
    root.admit("a", lateness=0)
    root.push(Batch("a", 1, [25], [1.0]))
    assert root.watermark == 25


def test_a_function_that_fails_while_windows_close_stops_the_root() -> None:
    def combine(one: int, two: int) -> int:
        raise ValueError

    broken = UserDefined("broken", int, combine, lambda state: state)
    root = Root([Query("q", Sliding(20, 10), broken), Query("t", Tumbling(10))])
    root.admit("a", lateness=0)
    root.push(Batch("a", 1, [10], [1.0]))
    root.push(Batch("a", 2, [20], [1.0]))
    # Closing [10, 30) combines two slices.
    with pytest.raises(FunctionFailed):
        root.push(Batch("a", 3, [30], [1.0]))
    with pytest.raises(FunctionFailed):
        root.push(Batch("a", 4, [1_000], [1.0]))


@pytest.mark.parametrize("steps", [(), (50_000,), (99_000, 100_001, 120_000)])
def test_how_many_empty_windows_there_are_does_not_depend_on_the_steps_of_the_watermark(
    steps: tuple[int, ...],
) -> None:
    query = Query("q", Tumbling(1), emit_empty=True)
    root = Root([query])
    root.admit("a", lateness=0)
    found = 0
    for number, ts in enumerate((0, *steps, 150_000, 150_010), start=1):
        beats = ts in steps
        root.push(Batch.from_records("a", number, [(ts, None, None if beats else 1.0, None)]))
        found += len(root.take())
    assert found == 100_001 + 10
