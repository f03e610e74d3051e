"""Hypothesis strategies: queries, streams, and how streams are cut, interleaved and merged.

Numbers are small, so that windows, gaps, lateness and ties meet often; a unit of time is a microsecond.
Everything that is drawn is valid by construction (nothing is filtered away), which keeps drawing fast.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise, product
from typing import Any

from hypothesis import strategies as st

from headwater.aggregates import UserDefined
from headwater.oracle import TS_LIMIT, Event, Source
from headwater.queries import EVERYTHING, Query, Scope, Where
from headwater.windows import MERGES, Punctuation, Session, Sliding, Tumbling, Window, is_count

Stream = tuple[Source, list[Event]]
# A node of a merge tree is a tuple of its children; a leaf is the index of a source.
Tree = tuple[Any, ...]

YEAR = 365 * 86_400_000_000
# In UTF-8 these sort Z a b é ﬀ 😀: not as in a dictionary, and not as in UTF-16 (😀 before ﬀ).
NAMES = ("b", "a", "é", "Z", "ﬀ", "😀", "b1", "ab")
SITES = ("", "north", "süd")
FEW_KEYS = (None, "", "k", "l")
MANY_KEYS = (*FEW_KEYS, "é", *(f"k{number}" for number in range(30)))
START, END = "S", "E"


# Queries


def _squares(value: float) -> Fraction:
    return Fraction(value) ** 2


def _extremes(one: tuple[float, float], two: tuple[float, float]) -> tuple[float, float]:
    return min(one[0], two[0]), max(one[1], two[1])


# Exact, so that any order of combining gives the same answer; one object each: a name means one function.
SQUARES = UserDefined(
    "squares",
    _squares,
    lambda one, two: one + two,
    lambda state: state,
    invert=lambda total, part: total - part,
)
EXTREMES = UserDefined("extremes", lambda value: (value, value), _extremes, lambda state: state)
# Every event in the total order: the strictest answer that there is.
PATH = UserDefined(
    "path", lambda value: (value,), lambda one, two: one + two, lambda state: state, commutative=False
)
LATEST = UserDefined(
    "latest", lambda value: value, lambda one, two: two, lambda state: state, commutative=False
)

COMMUTATIVE: tuple[str | UserDefined, ...] = (
    "sum",
    "count",
    "avg",
    "product",
    "geomean",
    "variance",
    "stddev",
    "variance(ddof=1)",
    "stddev(ddof=1)",
    "min",
    "max",
    "range",
    "first",
    "last",
    "median",
    "quantile(0)",
    "quantile(0.1)",
    "quantile(0.75)",
    "quantile(1)",
    "distinct",
    "mode",
    "top(1)",
    "top(3)",
    "bottom(2)",
    "bottom(10)",
    SQUARES,
    EXTREMES,
)
ORDERED: tuple[UserDefined, ...] = (PATH, LATEST)


@st.composite
def _sliding(draw: st.DrawFn) -> Sliding:
    length = draw(st.integers(1, 40))
    return Sliding(length, draw(st.integers(1, length)), draw(_OFFSETS))


@st.composite
def _sliding_count(draw: st.DrawFn) -> Sliding:
    count = draw(st.integers(1, 8))
    return Sliding(count=count, every=draw(st.integers(1, count)))


_OFFSETS = st.one_of(st.just(0), st.integers(-50, 50))
TIME_WINDOWS: st.SearchStrategy[Window] = st.one_of(
    st.builds(Tumbling, st.integers(1, 40), _OFFSETS), _sliding()
)
COUNT_WINDOWS: st.SearchStrategy[Window] = st.one_of(
    st.builds(Tumbling, count=st.integers(1, 8)), _sliding_count()
)
SESSIONS: st.SearchStrategy[Window] = st.builds(Session, st.integers(1, 15))
# By overlap with one mark is left out: such windows touch, so all of them are one that stays open.
MARK_WINDOWS: st.SearchStrategy[Window] = st.one_of(
    st.builds(Punctuation, st.just(START), st.just(END), st.sampled_from(MERGES)),
    st.builds(Punctuation, st.just(START), st.none(), st.sampled_from(MERGES[:3])),
)
WINDOWS = st.one_of(TIME_WINDOWS, SESSIONS, MARK_WINDOWS, COUNT_WINDOWS)


SCOPES: st.SearchStrategy[Scope] = st.sampled_from(("global", "global", "local"))


@st.composite
def _ranges(draw: st.DrawFn) -> Where:
    """A range that holds a value however its ends are meant, and perhaps some keys."""
    low = draw(st.integers(-6, 6))
    high = low + draw(st.integers(1, 8))
    return Where(
        above=draw(st.sampled_from((None, low))),
        at_least=draw(st.sampled_from((None, low, low - 1))),
        below=draw(st.sampled_from((None, high))),
        at_most=draw(st.sampled_from((None, high, high + 1))),
        keys=draw(st.sampled_from((None, None, frozenset({"k"}), frozenset({"", "l"})))),
    )


# The listed ones recur, so that queries have them in common, lie apart (and may share a group) or overlap.
PREDICATES = st.one_of(
    st.just(EVERYTHING),
    st.sampled_from(
        (
            EVERYTHING,
            Where(below=0),
            Where(at_least=0),
            Where(above=0, at_most=5),
            Where(at_least=3, at_most=3),
            Where(keys=frozenset({"k"})),
            Where(keys=frozenset({"l", ""})),
            Where(keys=frozenset({"k", "l"}), at_least=0),
        )
    ),
    _ranges(),
)


@st.composite
def queries(
    draw: st.DrawFn,
    id: str = "q",
    *,
    windows: st.SearchStrategy[Window] = WINDOWS,
    empties: bool = True,
) -> Query:
    """One valid query. `empties=False` where streams jump by years: every window between would be emitted."""
    window = draw(windows)
    ordered = not isinstance(window, Punctuation)
    known = COMMUTATIVE + ORDERED if ordered and draw(st.integers(0, 3)) == 0 else COMMUTATIVE
    aggregates = draw(st.lists(st.sampled_from(known), min_size=1, max_size=5, unique=True))
    key_by = draw(st.sampled_from((None, "key")))
    scope = draw(SCOPES)
    may_be_empty = (
        empties
        and isinstance(window, Tumbling | Sliding)
        and not is_count(window)
        and key_by is None
        and scope == "global"
    )
    return Query(
        id,
        window,
        aggregates,
        key_by=key_by,
        where=draw(PREDICATES),
        scope=scope,
        deduplicate=ordered and draw(st.integers(0, 5)) == 0,
        emit_empty=may_be_empty and draw(st.booleans()),
    )


@st.composite
def query_sets(
    draw: st.DrawFn,
    *,
    max_size: int = 6,
    windows: st.SearchStrategy[Window] = WINDOWS,
    empties: bool = True,
) -> list[Query]:
    """Queries that run together: valid as a set, with ids of their own."""
    size = draw(st.integers(1, max_size))
    return [draw(queries(f"q{number}", windows=windows, empties=empties)) for number in range(size)]


# Streams

_HUGE = (TS_LIMIT, TS_LIMIT - 1, -TS_LIMIT)
_REJECTED = (TS_LIMIT + 1, -TS_LIMIT - 1, (1 << 63) - 1, -(1 << 63))
_INTEGERS = st.integers(-6, 10).map(float)
VALUES = st.one_of(
    _INTEGERS,
    _INTEGERS,
    _INTEGERS,
    st.floats(-1e6, 1e6, allow_subnormal=False),
    st.sampled_from((-0.0, 0.0, 0.1, 1e15, -1e15, 1e-12, -1e-9, 1.0000000001, 1e154, -3e300, 1e-200)),
)
_BAD_VALUES = (math.nan, math.inf, -math.inf)
# "turn" is what the last mark was not, so that windows open and close instead of staying as they are.
_MARKS = st.sampled_from((*["turn"] * 6, START, END, "x"))
_LATENESS = st.one_of(st.just(0), st.integers(0, 20), st.just(1 << 62))
# What a record is, and how its ts comes about; what should be frequent stands there often.
_RECORDS = (*["value"] * 11, *["mark"] * 2, "marked value", "heartbeat", "bad value")
_MARKED_RECORDS = (*["value"] * 8, *["mark"] * 6, *["marked value"] * 3, "heartbeat")
_STEPS = (*["forward"] * 14, *["tie"] * 3, *["back"] * 4, "rejected")
_WIDE_STEPS = (*_STEPS * 3, "year", "huge")
# Drawn as one choice: a draw costs more than anything that is done with it.
_KINDS = {
    (marked, wide): st.sampled_from(tuple(product(records, steps)))
    for marked, records in ((False, _RECORDS), (True, _MARKED_RECORDS))
    for wide, steps in ((False, _STEPS), (True, _WIDE_STEPS))
}


@st.composite
def events_of(
    draw: st.DrawFn,
    source: str,
    *,
    keys: Sequence[str | None] = FEW_KEYS,
    marked: bool = True,
    wide: bool = True,
    max_size: int = 25,
) -> list[Event]:
    """The records 1, 2, 3... of one source; `marked`: many marks; `wide`: jumps and times at the limit."""
    # Hypothesis draws short lists; too few events would meet in a window.
    at_least = draw(st.sampled_from((max_size // 2, 0)))
    records = draw(
        st.lists(
            st.tuples(_KINDS[marked, wide], st.sampled_from(tuple(product(range(13), keys))), VALUES, _MARKS),
            min_size=at_least,
            max_size=max_size,
        )
    )
    now, last = draw(st.integers(-40, 40)), END
    events = []
    for seq, ((record, step), (size, key), value, mark) in enumerate(records, start=1):
        if step in ("forward", "year"):
            now += size if step == "forward" else YEAR + size
        ts = now - 2 * size if step == "back" else now
        if step in ("huge", "rejected"):
            beyond = _HUGE if step == "huge" else _REJECTED
            ts = beyond[size % len(beyond)]
        if record in ("mark", "marked value"):
            key = key if size % 4 == 0 else None  # most marks are of all keys
            if size % 2 and step == "forward":
                ts = now = now + -now % 10  # as in other sources, so that bounds are equal at times
            if mark == "turn":
                last = mark = END if last == START else START
        if record == "bad value":
            value, mark = _BAD_VALUES[size % len(_BAD_VALUES)], END
        has_value = record in ("value", "marked value", "bad value")
        has_mark = record in ("mark", "marked value") or (record == "bad value" and size % 2 == 0)
        events.append(
            Event(
                source,
                seq,
                ts,
                None if record == "heartbeat" else key,
                value if has_value else None,
                mark if has_mark else None,
            )
        )
    return events


@st.composite
def streams(draw: st.DrawFn, *, max_sources: int = 4, max_size: int = 25, wide: bool = True) -> list[Stream]:
    """Sources with their events. `wide` adds, to half of them, jumps of a year and times at the limit."""
    names = draw(st.lists(st.sampled_from(NAMES), min_size=1, max_size=max_sources, unique=True))
    keys = draw(st.sampled_from((FEW_KEYS, FEW_KEYS, (None,), MANY_KEYS)))
    wide, marked = wide and draw(st.booleans()), draw(st.booleans())
    found = []
    for name in names:
        source = Source(name, draw(_LATENESS), draw(st.sampled_from(SITES)))
        found.append((source, draw(events_of(name, keys=keys, marked=marked, wide=wide, max_size=max_size))))
    return found


@st.composite
def cases(
    draw: st.DrawFn,
    *,
    max_queries: int = 6,
    windows: st.SearchStrategy[Window] = WINDOWS,
    max_size: int = 25,
) -> tuple[list[Query], list[Stream]]:
    """Queries and streams that go together: empty windows are asked for only where times lie close."""
    wide = draw(st.booleans())
    chosen = draw(query_sets(max_size=max_queries, windows=windows, empties=not wide))
    return chosen, draw(streams(wide=wide, max_size=max_size))


# How streams travel


def splits(size: int) -> st.SearchStrategy[list[int]]:
    """Where a source's `size` events are cut into batches: rising places strictly between 0 and `size`."""
    if size < 2:
        return st.just([])
    return st.one_of(
        st.sets(st.integers(1, size - 1), max_size=8).map(sorted),
        st.just(list(range(1, size))),  # each event alone
    )


def batches(events: Sequence[Event], cuts: Sequence[int]) -> list[list[Event]]:
    """The events between the cuts, none of the batches empty unless there are no events."""
    edges = [0, *cuts, len(events)]
    return [list(events[low:high]) for low, high in pairwise(edges)]


@st.composite
def schedules(draw: st.DrawFn, counts: Sequence[int]) -> list[tuple[int, bool]]:
    """How the batches of several sources interleave, given how many each has.

    Each item is a source, whose next batch arrives, and whether the node flushes behind it.
    """
    order = draw(st.permutations([source for source, count in enumerate(counts) for _ in range(count)]))
    flushes = draw(st.lists(st.booleans(), min_size=len(order), max_size=len(order)))
    return list(zip(order, flushes, strict=True))


@st.composite
def trees(draw: st.DrawFn, n_sources: int, max_layers: int = 4) -> Tree:
    """A merge tree of 1 to 4 layers: `((0, 2), (1,))` is a root over two nodes, one with two sources.

    Paths may differ in length, and a node may have a single child.
    """
    sources = draw(st.permutations(range(n_sources)))
    return _node(draw, list(sources), draw(st.integers(1, max_layers)))


def _node(draw: st.DrawFn, sources: list[int], layers: int) -> Tree:
    if layers == 1:
        return tuple(sources)
    children: list[Tree | int] = []
    while sources:
        size = draw(st.integers(1, len(sources)))
        below, sources = sources[:size], sources[size:]
        if size == 1 and draw(st.booleans()):
            children.append(below[0])
        else:
            children.append(_node(draw, below, layers - 1))
    return tuple(children)
