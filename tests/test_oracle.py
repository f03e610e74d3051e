"""The oracle itself, by hand: timelines drawn in comments, answers worked out on paper.

A stream is written as its records in the order of seq: `5=1` a value at 5, `5S` a mark, `5S=1` both,
`5` a heartbeat, `5(k)=1` and `5S(k)` with a key.
"""

from __future__ import annotations

import math
import re
from typing import Any

import pytest

from headwater.oracle import Custom, Decision, Event, Row, Source, Spec, judge, windows

_RECORD = re.compile(r"(-?\d+)([A-Z]?)(?:\((\w+)\))?(?:=(\S+))?")


def stream(name: str, drawn: str) -> list[Event]:
    events = []
    for seq, record in enumerate(drawn.split(), start=1):
        match = _RECORD.fullmatch(record)
        assert match, record
        ts, mark, key, value = match.groups()
        events.append(Event(name, seq, int(ts), key, None if value is None else float(value), mark or None))
    return events


def rows(spec: Spec, *drawn: str, **given: Any) -> list[Row]:
    """The windows of the sources a, b, c... in the order of the drawings; by default nothing is late."""
    lateness = given.pop("lateness", 1 << 62)
    sites = given.pop("sites", ("",) * len(drawn))
    named = dict(zip("abcd", drawn, strict=False))
    sources = [Source(name, lateness, site) for name, site in zip(named, sites, strict=True)]
    events = [event for name, line in named.items() for event in stream(name, line)]
    return windows(events, sources, [spec], **given)


def bounds(spec: Spec, *drawn: str, **given: Any) -> list[tuple[int, int, int]]:
    return [(row.start, row.end, row.count) for row in rows(spec, *drawn, **given)]


def labelled(spec: Spec, *drawn: str, **given: Any) -> list[tuple[str, str | None, int, int, int]]:
    return [(row.site, row.key, row.start, row.end, row.count) for row in rows(spec, *drawn, **given)]


def tumbling(length: int, offset: int = 0, **more: Any) -> Spec:
    return Spec("q", "tumbling", length=length, slide=length, offset=offset, **more)


def sliding(length: int, slide: int, offset: int = 0, **more: Any) -> Spec:
    return Spec("q", "sliding", length=length, slide=slide, offset=offset, **more)


def session(gap: int, **more: Any) -> Spec:
    return Spec("q", "session", gap=gap, **more)


def counted(length: int, slide: int = 0, **more: Any) -> Spec:
    return Spec("q", "sliding", "count", length=length, slide=slide or length, **more)


def marked(merge: Any = "local", end_mark: str = "E", **more: Any) -> Spec:
    return Spec("q", "punctuation", start_mark="S", end_mark=end_mark, merge=merge, **more)


# Late and rejected


def seqs(events: list[Event]) -> list[int]:
    return [event.seq for event in events]


@pytest.mark.parametrize(
    "lateness, drawn, late",
    [
        (0, "10=1 10=1 9=1 11=1 10=1", [3, 5]),
        (5, "10=1 5=1 4=1 20 14=1 15=1", [3, 5]),  # the heartbeat at 20 raises M
        (5, "10=1 4=1 5=1", [2]),  # a late event does not hold M back
        (1 << 62, "1000000 -1000000=1", []),
        (0, "-10=1 -11=1", [2]),  # M begins below every ts
    ],
)
def test_late_is_below_the_sources_own_largest_ts_less_its_lateness(
    lateness: int, drawn: str, late: list[int]
) -> None:
    assert seqs(judge(stream("a", drawn), Source("a", lateness))[1]) == late


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_value_that_is_no_number_is_rejected_and_does_not_raise_the_largest_ts(value: float) -> None:
    events = [Event("a", 1, 10, None, 1.0), Event("a", 2, 99, None, value), Event("a", 3, 10, None, 1.0)]
    kept, late, rejected = judge(events, Source("a"))
    assert (seqs(kept), seqs(late), seqs(rejected)) == ([1, 3], [], [2])


@pytest.mark.parametrize(
    "ts, fits", [(2**62, True), (-(2**62), True), (2**62 + 1, False), (-(2**62) - 1, False)]
)
def test_a_ts_beyond_the_limit_is_rejected(ts: int, fits: bool) -> None:
    kept, _, rejected = judge([Event("a", 1, ts, None, 1.0)], Source("a"))
    assert (len(kept), len(rejected)) == (fits, not fits)


def test_a_decision_raises_the_largest_ts_behind_the_event_at_which_it_was_taken() -> None:
    events = stream("a", "10=1 12=1 13=1")
    assert seqs(judge(events, Source("a"), [Decision("a", 1, floor=13)])[1]) == [2]
    assert seqs(judge(events, Source("a"), [Decision("a", 0, floor=11)])[1]) == [1]
    assert seqs(judge(events, Source("a"), [Decision("b", 0, floor=99)])[1]) == []


def test_a_skipped_event_is_rejected_and_does_not_raise_the_largest_ts() -> None:
    events = stream("a", "10=1 99=1 11=1 9=1")
    skip = [Decision("a", 0, skip=2), Decision("a", 1, skip=4), Decision("b", 0, skip=1)]
    kept, late, rejected = judge(events, Source("a"), skip)
    assert (seqs(kept), seqs(late), seqs(rejected)) == ([1, 3], [], [2, 4])
    assert bounds(marked(), "1S 2=1 3E 4=1 5E", decisions=[Decision("a", 0, skip=3)]) == [(1, 5, 2)]


def test_late_and_rejected_events_count_nowhere_and_their_marks_do_not_act() -> None:
    assert bounds(tumbling(10), "15=1 9=1 16=nan 17=1", lateness=0) == [(10, 20, 2)]
    # The end mark at 3 is late, the one with NaN rejected: the window stays open until 9.
    assert bounds(marked(), "5S 6=1 3E 7E=nan 8=1 9E", lateness=0) == [(5, 9, 2)]


# Tumbling and sliding in time


@pytest.mark.parametrize(
    "spec, drawn, expected",
    [
        #  0         10        20        30
        #  |..1...1..|.........|1........|1
        (tumbling(10), "2=1 6=1 20=1 30=1", [(0, 10, 2), (20, 30, 1), (30, 40, 1)]),
        (tumbling(10, offset=3), "2=1 3=1 13=1", [(-7, 3, 1), (3, 13, 1), (13, 23, 1)]),
        (tumbling(10, offset=-27), "2=1 3=1 13=1", [(-7, 3, 1), (3, 13, 1), (13, 23, 1)]),
        (tumbling(10), "-1=1 -10=1 -11=1", [(-20, -10, 1), (-10, 0, 2)]),
        #  [-5..5)  [0..10)  [5..15)  [10..20)
        (sliding(10, 5), "7=1 12=1", [(0, 10, 1), (5, 15, 2), (10, 20, 1)]),
        (sliding(10, 4), "7=1", [(0, 10, 1), (4, 14, 1)]),
        (sliding(10, 4, offset=2), "7=1", [(-2, 8, 1), (2, 12, 1), (6, 16, 1)]),
        (tumbling(10), "1=1 5S 5 7E", [(0, 10, 1)]),  # marks without a value and heartbeats are no events
        (tumbling(10), f"{2**62}=1", [(2**62 - 2**62 % 10, 2**62 - 2**62 % 10 + 10, 1)]),
    ],
)
def test_time_windows(spec: Spec, drawn: str, expected: list[tuple[int, int, int]]) -> None:
    assert bounds(spec, drawn) == expected


@pytest.mark.parametrize(
    "watermark, ends", [(9, []), (10, [10]), (19, [10]), (20, [10, 20]), (None, [10, 20])]
)
def test_a_time_window_is_final_once_the_watermark_has_reached_its_end(
    watermark: int | None, ends: list[int]
) -> None:
    assert [end for _, end, _ in bounds(tumbling(10), "5=1 15=1", watermark=watermark)] == ends


@pytest.mark.parametrize(
    "spec, expected",
    [
        # events at    0    5    10   15   20
        # added at 5:  [0..10) began before and is not answered for
        (tumbling(10, begin=5), [(10, 20, 2), (20, 30, 1)]),
        (sliding(10, 5, begin=5), [(5, 15, 2), (10, 20, 2), (15, 25, 2), (20, 30, 1)]),
        # removed at 15: [10..20) still comes, with the events below 15
        (tumbling(10, end=15), [(0, 10, 2), (10, 20, 1)]),
        (tumbling(10, end=15, emitted_until=15), [(0, 10, 2)]),
        (tumbling(10, begin=10, end=20), [(10, 20, 2)]),
        (tumbling(10, emitted_until=20), [(0, 10, 2), (10, 20, 2)]),
    ],
)
def test_a_query_sees_the_events_between_its_begin_and_end(
    spec: Spec, expected: list[tuple[int, int, int]]
) -> None:
    assert bounds(spec, "0=1 5=1 10=1 15=1 20=1") == expected


@pytest.mark.parametrize(
    "spec, watermark, expected",
    [
        # |.1.......|.........|.......1.|.........|
        # 0         10        20        30        40
        (tumbling(10, emit_empty=True), None, [(0, 10, 1), (10, 20, 0), (20, 30, 1)]),
        (tumbling(10, emit_empty=True), 25, [(0, 10, 1), (10, 20, 0)]),
        (tumbling(10, emit_empty=True), 40, [(0, 10, 1), (10, 20, 0), (20, 30, 1), (30, 40, 0)]),
        (tumbling(10, emit_empty=True, end=29), 90, [(0, 10, 1), (10, 20, 0), (20, 30, 1)]),
        (
            sliding(10, 5, emit_empty=True),
            None,
            [(-5, 5, 1), (0, 10, 1), (5, 15, 0), (10, 20, 0), (15, 25, 0), (20, 30, 1), (25, 35, 1)],
        ),
    ],
)
def test_empty_windows_between_the_first_and_the_last(
    spec: Spec, watermark: int | None, expected: list[tuple[int, int, int]]
) -> None:
    assert bounds(spec, "2=1 28=1", watermark=watermark) == expected


def test_what_an_empty_window_answers() -> None:
    asked = ("count", "sum", "product", "avg", "min", "median", "top(2)")
    (empty,) = [
        row for row in rows(tumbling(10, aggregates=asked, emit_empty=True), "2=1 28=1") if not row.count
    ]
    nothing = dict.fromkeys(asked[3:])
    assert empty.values == {"count": 0, "sum": 0.0, "product": 1.0, **nothing}


# Sessions


@pytest.mark.parametrize(
    "drawn, watermark, expected",
    [
        # gap 5:  1..1...|    1     (11 is last + gap: a new one)
        #         3  6   11
        ("3=1 6=1 11=1", None, [(3, 11, 2), (11, 16, 1)]),
        ("3=1 6=1 10=1", None, [(3, 15, 3)]),
        ("3=1 10=1 7=1", None, [(3, 15, 3)]),  # 7 came last and joins the two
        ("3=1 3=1", None, [(3, 8, 2)]),
        ("3=1 11=1", 8, [(3, 8, 1)]),
        ("3=1 11=1", 7, []),
    ],
)
def test_sessions(drawn: str, watermark: int | None, expected: list[tuple[int, int, int]]) -> None:
    assert bounds(session(5), drawn, watermark=watermark) == expected


def test_a_session_ends_at_the_querys_begin_and_end() -> None:
    # ...3...6|.8..10|.12...  with begin 7, end 11
    assert bounds(session(5, begin=7, end=11), "3=1 6=1 8=1 10=1 12=1") == [(8, 15, 2)]
    assert bounds(session(5, end=11, emitted_until=11), "3=1 10=1") == [(3, 8, 1)]


# Count windows


@pytest.mark.parametrize(
    "spec, expected",
    [
        # ranks  0 1 2 3 4 5 6
        # value  1 2 3 4 5 6 7
        (counted(3, aggregates=("sum",)), [(0, 3, 6.0), (3, 6, 15.0)]),
        (counted(3, 2, aggregates=("sum",)), [(0, 3, 6.0), (2, 5, 12.0), (4, 7, 18.0)]),
        (counted(8), []),
        (counted(3, aggregates=("sum",), at_least=3), [(0, 3, 12.0)]),  # ranks of the selected ones
        (counted(3, aggregates=("sum",), begin=20, end=50), [(0, 3, 9.0)]),
    ],
)
def test_count_windows(spec: Spec, expected: list[tuple[int, int, float]]) -> None:
    found = rows(spec, "10=1 50=5 20=2 30=3", "40=4 70=7 60=6")
    assert [(row.start, row.end, row.values.get("sum")) for row in found] == expected


@pytest.mark.parametrize("watermark, emitted", [(20, 0), (21, 1), (None, 1)])
def test_a_count_window_waits_until_nothing_can_tie_with_its_last_event(
    watermark: int | None, emitted: int
) -> None:
    assert len(rows(counted(2), "10=1 20=1", watermark=watermark)) == emitted


def test_a_count_window_has_the_times_of_its_first_and_last_event() -> None:
    # In the total order: 10 20 | 20 30 | 40, whoever has them and in whatever order they come.
    found = rows(counted(2), "20=1 10=1 40=1", "30=1 20=1")
    assert [(row.start, row.end, row.first_time, row.last_time) for row in found] == [
        (0, 2, 10, 20),
        (2, 4, 20, 30),
    ]
    (row,) = rows(tumbling(100), "20=1")
    assert (row.first_time, row.last_time) == (None, None)


def test_ties_are_ordered_by_the_bytes_of_the_name_and_then_by_seq() -> None:
    names = ["é", "b", "Z", "😀", "ﬀ"]
    events = [Event(name, seq, 5, None, seq + place) for place, name in enumerate(names) for seq in (10, 20)]
    spec = counted(10, aggregates=(Custom("path", lambda v: (v,), lambda a, b: a + b, lambda p: p),))
    (row,) = windows(reversed(events), map(Source, names), [spec])
    assert row.values["path"] == (12, 22, 11, 21, 10, 20, 14, 24, 13, 23)


# Selection, keys, sites, copies


@pytest.mark.parametrize(
    "where, expected",
    [
        ({}, 5),
        ({"above": 2}, 3),
        ({"at_least": 2}, 4),
        ({"below": 4}, 3),
        ({"at_most": 4}, 4),
        ({"above": 1, "below": 5, "keys": frozenset({"k"})}, 2),
        ({"keys": frozenset({""})}, 1),  # the event without a key
    ],
)
def test_predicates(where: dict[str, Any], expected: int) -> None:
    assert bounds(tumbling(10, **where), "1(k)=1 2(k)=2 3(l)=3 4(k)=4 5=5") == [(0, 10, expected)]


def test_keys_and_sites_have_windows_of_their_own() -> None:
    drawn = ["1(k)=1 2=1 3(l)=1", "4(k)=1", "5(k)=1"]
    at = {"sites": ("x", "y", "x")}
    assert labelled(tumbling(10), *drawn, **at) == [("", None, 0, 10, 5)]
    assert labelled(tumbling(10, keyed=True), *drawn, **at) == [
        ("", "", 0, 10, 1),
        ("", "k", 0, 10, 3),
        ("", "l", 0, 10, 1),
    ]
    assert labelled(tumbling(10, local=True), *drawn, **at) == [("x", None, 0, 10, 4), ("y", None, 0, 10, 1)]
    assert labelled(counted(2, keyed=True, local=True), *drawn, **at) == [("x", "k", 0, 2, 2)]
    assert labelled(session(2, keyed=True), *drawn, **at) == [
        ("", "k", 1, 3, 1),
        ("", "", 2, 4, 1),
        ("", "l", 3, 5, 1),
        ("", "k", 4, 7, 2),
    ]


def test_copies_count_once() -> None:
    once = {"deduplicate": True}
    assert bounds(tumbling(10, **once), "1=1 1=1 1(k)=1 1=2 2=1", "1=1") == [(0, 10, 4)]
    assert bounds(tumbling(10, **once), "1=0.0 1=-0.0") == [(0, 10, 1)]
    assert bounds(counted(2, **once), "1=1 1=1 2=2") == [(0, 2, 2)]
    assert labelled(tumbling(10, local=True, **once), "1=1", "1=1", sites=("x", "y")) == [
        ("x", None, 0, 10, 1),
        ("y", None, 0, 10, 1),
    ]


def test_rows_come_by_end_then_query_then_site_then_key_then_start() -> None:
    specs = [sliding(10, 5, keyed=True), Spec("r", "tumbling", length=5, slide=5)]
    found = windows(stream("a", "6(l)=1 6(k)=1"), [Source("a")], specs)
    assert [(row.end, row.query, row.key, row.start) for row in found] == [
        (10, "q", "k", 0),
        (10, "q", "l", 0),
        (10, "r", None, 5),
        (15, "q", "k", 5),
        (15, "q", "l", 5),
    ]


# Marks of one source


@pytest.mark.parametrize(
    "drawn, expected",
    [
        #  1  S  1  1  E  1
        ("1=1 2S 3=1 4=1 5E 6=1", [(2, 5, 2)]),
        ("2S=1 5E=1", [(2, 5, 1)]),  # the start mark's event is inside, the end mark's is not
        ("2S 3S=1 4=1 5E 6E", [(2, 5, 2)]),  # a start while open and an end while closed do nothing
        ("2E 3S 4=1", []),  # an open window is never answered
        ("2S 5E 6S 7=1 8E", [(6, 8, 1)]),  # nor an empty one
        ("9S 3=1 5E", [(9, 9, 1)]),  # end := max(start, end); membership is by seq, not by ts
        ("2S 3=1 5E 7S 8=1 9E", [(2, 5, 1), (7, 9, 1)]),
        ("2S 3X=1 5E", [(2, 5, 1)]),  # another mark is an event like any
        ("2S 3=1 2E 2S 4=1 2E", [(2, 2, 1), (2, 2, 1)]),  # same bounds, yet two windows
    ],
)
def test_marks(drawn: str, expected: list[tuple[int, int, int]]) -> None:
    assert bounds(marked(), drawn) == expected


def test_one_mark_ends_a_window_and_begins_the_next_with_its_own_event() -> None:
    assert bounds(marked(end_mark="S"), "1=1 2S 3=1 5S=1 6=1 9S=1") == [(2, 5, 1), (5, 9, 2)]


def test_predicates_select_events_but_never_marks() -> None:
    assert bounds(marked(above=5), "2S=1 3=7 5E=1") == [(2, 5, 1)]
    assert bounds(marked(keys=frozenset({"k"})), "2S(l) 3(k)=7 4(l)=7 5E(m)") == [(2, 5, 1)]


def test_marks_outside_of_the_querys_time_do_not_act() -> None:
    drawn = "1=1 2S 4=1 5=1 6E 7S 8=1 9E 10S 11=1 12E"
    assert bounds(marked(begin=5), drawn) == [(7, 9, 1), (10, 12, 1)]  # begins while the first is open
    assert bounds(marked(end=9), drawn) == [(2, 6, 2), (7, 9, 1)]  # what is open ends with the query
    assert bounds(marked(end=10, emitted_until=8), drawn) == [(2, 6, 2)]


@pytest.mark.parametrize(
    "drawn, expected",
    [
        # without a key a mark acts on every key, also on those that come later
        ("2S 3(k)=1 4(l)=1 5E", [("k", 2, 5), ("l", 2, 5)]),
        # with a key on that key alone
        ("2S(k) 3(k)=1 4(l)=1 5E", [("k", 2, 5)]),
        ("2S 3(k)=1 4(l)=1 5E(k) 6(k)=1 7(l)=1 8E", [("k", 2, 5), ("l", 2, 8)]),
        # k is open since 2: the start of all keys at 4 opens the others
        ("2S(k) 3(k)=1 4S 5(l)=1 6(k)=1 7E", [("k", 2, 7), ("l", 4, 7)]),
        # an event without a key is in the window of key ""
        ("2S 3=1 5E", [("", 2, 5)]),
        ("2S(k) 3=1 5E", []),
    ],
)
def test_marks_with_keys(drawn: str, expected: list[tuple[str, int, int]]) -> None:
    assert [(row.key, row.start, row.end) for row in rows(marked(keyed=True), drawn)] == expected
    assert len(bounds(marked(), drawn)) == 1  # without key_by every mark acts


@pytest.mark.parametrize(
    "watermark, emitted",
    [(5, 0), (6, 1), (None, 1)],
)
@pytest.mark.parametrize("merge", ["local", "bounds", "overlap"])
def test_a_mark_window_is_final_once_the_watermark_is_above_its_end(
    merge: str, watermark: int | None, emitted: int
) -> None:
    assert len(rows(marked(merge), "2S 3=1 5E", watermark=watermark)) == emitted


# Marks of several sources


def test_local_keeps_sources_apart_under_their_names() -> None:
    for local in (False, True):
        found = labelled(marked(local=local), "2S 3=1 5E", "2S 3=1 5E", sites=("x", "x"))
        assert found == [("a", None, 2, 5, 1), ("b", None, 2, 5, 1)]


def test_bounds_joins_windows_with_equal_bounds() -> None:
    drawn = ["2S 3=1 5E", "2S 4=1 4=1 5E", "2S 3=1 6E"]
    assert bounds(marked("bounds"), *drawn) == [(2, 5, 3), (2, 6, 1)]
    found = labelled(marked("bounds", local=True), *drawn, sites=("x", "y", "x"))
    assert found == [("x", None, 2, 5, 1), ("y", None, 2, 5, 2), ("x", None, 2, 6, 1)]


ORDER = [
    # a:  S 1 E        S 1 E            0: [2, 5)   1: [12, 15)
    "2S 3=1 5E 12S 13=1 15E",
    # b:    S 1 1 E         S 1 ...     0: [4, 9)   1: open
    "4S 5=1 6=1 9E 14S 15=1",
]


def test_order_joins_the_ith_window_of_every_source_once_all_have_closed_it() -> None:
    assert bounds(marked("order"), *ORDER) == [(2, 9, 3)]
    assert bounds(marked("order"), ORDER[0], ORDER[1] + " 16E") == [(2, 9, 3), (12, 16, 2)]
    assert bounds(marked("order"), *ORDER, watermark=10) == [(2, 9, 3)]
    assert bounds(marked("order"), *ORDER, watermark=9) == []  # so that keys leave in order of their end
    assert bounds(marked("order"), *ORDER, "") == []  # the third source has closed none
    found = labelled(marked("order", local=True), *ORDER, "", sites=("x", "y", "x"))
    assert found == [("y", None, 4, 9, 2)]


def test_order_counts_a_window_without_events_in_its_bounds() -> None:
    assert bounds(marked("order"), "2S 3=1 5E", "1S 9E") == [(1, 9, 1)]


def test_order_is_kept_per_key() -> None:
    # k is closed in a at 5 and in b by the mark of all keys; l only in b
    assert labelled(marked("order", keyed=True), "2S 3(k)=1 4(l)=1 5E(k)", "2S 3(k)=1 6E") == [
        ("", "k", 2, 6, 2)
    ]


@pytest.mark.parametrize(
    "decisions, expected",
    [
        # idle closes the window of b at M = 15 and takes b out: nothing waits for it
        ([Decision("b", 6, closes=True)], [(2, 9, 3), (12, 15, 2)]),
        ([Decision("b", 6, floor=20, closes=True)], [(2, 9, 3), (12, 20, 2)]),
        # b was admitted when the next undecided was 1, so 0 is of a alone and its first is 1
        ([Decision("b", 0, ordinals={"q": 1})], [(2, 5, 1), (4, 15, 3)]),
        ([Decision("b", 0, ordinals={"other": 1})], [(2, 9, 3)]),
        # b went idle and came back as the next undecided was 1: it is waited for again
        ([Decision("b", 4, closes=True), Decision("b", 4, ordinals={"q": 1}, returns=True)], [(2, 9, 3)]),
        ([Decision("b", 4, closes=True)], [(2, 9, 3), (12, 15, 1)]),
    ],
)
def test_what_the_root_decides_about_a_source_in_the_order(
    decisions: list[Decision], expected: list[tuple[int, int, int]]
) -> None:
    assert bounds(marked("order"), *ORDER, decisions=decisions) == expected


@pytest.mark.parametrize(
    "drawn, watermark, expected",
    [
        #  a  [2....5)                       touching is enough: 5 = 5
        #  b        [5......9)
        #  a                   [20..22)
        (["2S 3=1 5E 20S 21=1 22E", "5S 6=1 9E"], None, [(2, 9, 2), (20, 22, 1)]),
        #  a  [2....5)  [7..9)               b, which has no event, bridges them
        #  b     [4.......8)
        (["2S 3=1 5E 7S 8=1 9E", "4S 8E"], None, [(2, 9, 2)]),
        (["2S 3=1 5E", "6S 7=1 9E"], None, [(2, 5, 1), (6, 9, 1)]),
        # b is open from 5 on, so [2, 5) may grow yet; from 6 on it may not
        (["2S 3=1 5E", "5S 6=1"], None, []),
        (["2S 3=1 5E", "6S 6=1"], None, [(2, 5, 1)]),
        (["2S 3=1 5E", "5S 6=1 9E"], 9, []),
        (["2S 3=1 5E", "5S 6=1 9E"], 10, [(2, 9, 2)]),
    ],
)
def test_overlap_joins_what_overlaps_or_touches(
    drawn: list[str], watermark: int | None, expected: list[tuple[int, int, int]]
) -> None:
    assert bounds(marked("overlap"), *drawn, watermark=watermark) == expected


def test_overlap_looks_at_each_key_and_site_alone() -> None:
    # k of b is open from 4 on, l is not
    drawn = ["2S 3(k)=1 3(l)=1 5E", "4S(k) 6(k)=1"]
    assert labelled(marked("overlap", keyed=True), *drawn) == [("", "l", 2, 5, 1)]
    found = labelled(marked("overlap", keyed=True, local=True), *drawn, sites=("x", "y"))
    assert found == [("x", "k", 2, 5, 1), ("x", "l", 2, 5, 1)]


def test_idle_closes_open_windows_at_the_largest_ts() -> None:
    idle = [Decision("a", 2, closes=True)]
    assert bounds(marked(), "2S 7=1", decisions=idle) == [(2, 7, 1)]
    assert labelled(marked(keyed=True), "2S 7(k)=1 8(k)=1 9E", decisions=idle) == [("a", "k", 2, 7, 1)]


# Aggregates


def answer(aggregate: str | Custom, *values: float) -> Any:
    events = [Event("a", seq, seq, None, value) for seq, value in enumerate(values, start=1)]
    (row,) = windows(events, [Source("a")], [tumbling(1_000, aggregates=(aggregate,))])
    return row.values[str(aggregate)]


@pytest.mark.parametrize(
    "aggregate, values, expected",
    [
        ("count", [7, 7], 2),
        ("sum", [1e16, 1, -1e16], 1.0),  # exact, not merely in floats
        ("sum", [0.1] * 10, 1.0),
        ("avg", [1, 2, 6], 3.0),
        ("avg", [1.7e308, 1.7e308], 1.7e308),
        ("product", [2, -3, 4], -24.0),
        ("product", [1e200, 1e200, 1e-300], 1e200 * 1e-300 * 1e200),
        ("product", [1e200, -1e200], -math.inf),
        ("geomean", [1, 4, 16], pytest.approx(4)),
        ("geomean", [1e300, 1e300, 1e300], pytest.approx(1e300)),
        ("geomean", [-1, 8, 27], pytest.approx(-6)),
        ("geomean", [-2, -8], pytest.approx(4)),
        ("geomean", [-2, 8], pytest.approx(math.nan, nan_ok=True)),
        ("geomean", [-2, 0], 0.0),
        ("variance", [2, 4, 4, 4, 5, 5, 7, 9], 4.0),
        ("stddev", [2, 4, 4, 4, 5, 5, 7, 9], 2.0),
        ("variance", [1e9 + 1, 1e9 + 2, 1e9 + 3], 2 / 3),
        ("variance", [3], 0.0),
        ("variance(ddof=1)", [1, 2, 6], 7.0),
        ("stddev(ddof=1)", [1, 3], math.sqrt(2)),
        ("variance(ddof=1)", [3], pytest.approx(math.nan, nan_ok=True)),
        ("stddev(ddof=1)", [3], pytest.approx(math.nan, nan_ok=True)),
        ("min", [3, -1, 2], -1.0),
        ("max", [3, -1, 2], 3.0),
        ("range", [3, -1, 2], 4.0),
        ("first", [3, -1, 2], 3.0),
        ("last", [3, -1, 2], 2.0),
        ("median", [9, 1, 2], 2.0),
        ("median", [9, 1, 2, 5], 3.5),
        ("quantile(0)", [3, 1, 2], 1.0),
        ("quantile(1)", [3, 1, 2], 3.0),
        ("quantile(0.25)", [0, 10, 20], 5.0),
        ("quantile(0.9)", [7], 7.0),
        ("distinct", [1, 2, 1, 0.0, -0.0], 3),
        ("mode", [5, 3, 3, 5, 1], 3.0),
        ("top(2)", [3, 9, 9, 1], (9.0, 9.0)),
        ("top(9)", [3, 9, 1], (9.0, 3.0, 1.0)),
        ("bottom(2)", [3, 9, 1], (1.0, 3.0)),
        (Custom("text", str, lambda a, b: f"{a} {b}", str.upper), [1.0, math.pi], "1.0 3.141592653589793"),
    ],
)
def test_aggregates(aggregate: str | Custom, values: list[float], expected: Any) -> None:
    assert answer(aggregate, *values) == expected


def test_first_and_last_follow_the_total_order_not_the_order_of_arrival() -> None:
    spec = tumbling(10, aggregates=("first", "last"))
    (row,) = rows(spec, "5=1 3=2 7=3", "3=4 7=5")
    assert row.values == {"first": 2.0, "last": 5.0}
    (row,) = rows(marked("bounds", aggregates=("first", "last")), "2S 5=1 3=2 7=3 4=0 9E", "2S 3=4 7=5 9E")
    assert row.values == {"first": 2.0, "last": 5.0}


def test_the_scale_is_the_sum_of_absolute_values() -> None:
    assert [row.scale for row in rows(tumbling(10), "1=-3 2=4")] == [7.0]
