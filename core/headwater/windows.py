"""Window definitions as frozen values. Every interval is half-open: `[start, end)`.

A definition says which events belong together; it holds no state and knows no events. A value that
makes no sense can be built: `problems()` lists everything that is wrong with it, so that a whole set
of queries is judged at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from headwater.durations import Duration, human, integer, microseconds
from headwater.errors import Problem

# Event times stay within +-2^62 us (some 146,000 years), so that adding a length cannot overflow.
TS_LIMIT = 1 << 62
LENGTH_LIMIT = 1 << 60
# In so many windows of one query over time an event may be. Each of them is a result: a million of one event
# take the root a second and 100 MB, ten million are more than its outbox holds.
OVERLAP_LIMIT = 1_000_000
# A lateness beyond every pair of times: nothing is late, and nothing is final before the end.
NEVER = 2 * TS_LIMIT

Merge = Literal["local", "bounds", "order", "overlap"]
MERGES: tuple[Merge, ...] = ("local", "bounds", "order", "overlap")


def _time(field: str, value: Duration | None, *, at_least: int) -> Iterator[Problem]:
    """The problem with a duration, if there is one."""
    if value is None:
        yield Problem(field, "is missing", "give a duration such as 10s")
        return
    try:
        found = microseconds(value)
    except ValueError as error:
        yield Problem(field, str(error), "give a duration such as 10s")
        return
    if found < at_least:
        yield Problem(field, f"is {human(found)}", "give a duration above zero")
    elif found >= LENGTH_LIMIT:
        yield Problem(field, f"is {human(found)}", f"stay below {human(LENGTH_LIMIT)}")


def _count(field: str, value: object) -> Iterator[Problem]:
    """The problem with a number of events, if there is one."""
    number = integer(value)
    if number is None:
        yield Problem(field, f"is {value!r}", "give a whole number of events")
    elif number < 1:
        yield Problem(field, f"is {number}", "give at least 1 event")
    elif number >= LENGTH_LIMIT:
        yield Problem(field, f"is {number}", f"stay below {LENGTH_LIMIT}")


def _offset(value: Duration, count: int | None) -> Iterator[Problem]:
    if count is not None:
        if integer(value) != 0:
            yield Problem("window.offset", "a count window has no offset", "drop offset")
        return
    try:
        if abs(microseconds(value)) >= LENGTH_LIMIT:
            yield Problem("window.offset", f"is {value!r}", f"stay below {human(LENGTH_LIMIT)}")
    except ValueError as error:
        yield Problem("window.offset", str(error), "give a duration such as 10s")


def _settle(window: Window, *fields: str) -> None:
    """Turn numbers of other types, such as numpy's, into ints: equal windows must read the same."""
    for field in fields:
        number = integer(getattr(window, field))
        if number is not None:
            object.__setattr__(window, field, number)


@dataclass(frozen=True, slots=True)
class Tumbling:
    """Windows of one length, end to end: `Tumbling("10s")` or `Tumbling(count=1000)`."""

    length: Duration | None = None
    offset: Duration = 0
    count: int | None = None

    def __post_init__(self) -> None:
        _settle(self, "length", "offset", "count")

    def problems(self) -> Iterator[Problem]:
        if self.count is None:
            yield from _time("window.length", self.length, at_least=1)
        else:
            yield from _count("window.count", self.count)
            if self.length is not None:
                yield Problem("window.length", "stands beside count", "give one of the two")
        yield from _offset(self.offset, self.count)

    def __str__(self) -> str:
        size = f"{self.count} events" if self.count is not None else human(microseconds(self.length or 0))
        return f"tumbling {size}"


@dataclass(frozen=True, slots=True)
class Sliding:
    """Windows that overlap: `Sliding("60s", "1s")` or `Sliding(count=1000, every=100)`."""

    length: Duration | None = None
    slide: Duration | None = None
    offset: Duration = 0
    count: int | None = None
    every: int | None = None

    def __post_init__(self) -> None:
        _settle(self, "length", "slide", "offset", "count", "every")

    def problems(self) -> Iterator[Problem]:
        if self.count is None:
            found = [
                *_time("window.length", self.length, at_least=1),
                *_time("window.slide", self.slide, at_least=1),
            ]
            yield from found
            if self.every is not None:
                yield Problem("window.every", "stands without count", "give count too, or slide instead")
            if not found:
                yield from self._overlap(microseconds(self.length or 0), microseconds(self.slide or 0))
        else:
            found = [*_count("window.count", self.count), *_count("window.every", self.every)]
            yield from found
            if self.length is not None or self.slide is not None:
                yield Problem("window.length", "stands beside count", "give one of the two")
            if not found and (self.every or 0) > self.count:
                yield Problem(
                    "window.every",
                    f"{self.every} is more than the window's {self.count} events, so events would be lost",
                    "make every at most count",
                )
        yield from _offset(self.offset, self.count)

    def _overlap(self, length: int, slide: int) -> Iterator[Problem]:
        if slide > length:
            yield Problem(
                "window.slide",
                f"{human(slide)} is longer than the window of {human(length)}, so events would be lost "
                "between windows",
                "make slide at most length",
            )
        elif length > OVERLAP_LIMIT * slide:
            yield Problem(
                "window.slide",
                f"{human(slide)} puts every event into {-(-length // slide):,} windows of {human(length)}, "
                "each of which is a result",
                f"make slide at least {human(-(-length // OVERLAP_LIMIT))}, so that they are at most "
                f"{OVERLAP_LIMIT:,}",
            )

    def __str__(self) -> str:
        if self.count is not None:
            return f"sliding {self.count} / {self.every} events"
        return f"sliding {human(microseconds(self.length or 0))} / {human(microseconds(self.slide or 0))}"


@dataclass(frozen=True, slots=True)
class Session:
    """Events closer together than `gap`; the window is `[first, last + gap)`."""

    gap: Duration

    def __post_init__(self) -> None:
        _settle(self, "gap")

    def problems(self) -> Iterator[Problem]:
        yield from _time("window.gap", self.gap, at_least=1)

    def __str__(self) -> str:
        return f"session {human(microseconds(self.gap))}"


@dataclass(frozen=True, slots=True)
class Punctuation:
    """What a source reports between its start mark and its end mark.

    One mark for both ends and begins at once. `merge` says which windows of different sources are
    one: `local` none (each source has its own), `bounds` those with equal bounds, `order` the i-th of
    every source, `overlap` those that overlap or touch. If more than `max_open` windows of sources wait
    to be final, the root says that the query is degraded; nothing is dropped.
    """

    start: str
    end: str | None = None
    merge: Merge = "local"
    max_open: int = 10_000

    def __post_init__(self) -> None:
        _settle(self, "max_open")

    def problems(self) -> Iterator[Problem]:
        for field, mark in (("window.start", self.start), ("window.end", self.end)):
            if mark is None and field == "window.end":
                continue
            if not isinstance(mark, str) or not mark:
                yield Problem(field, f"is {mark!r}", "name the mark")
        if self.merge not in MERGES:
            yield Problem("window.merge", f"is {self.merge!r}", f"give one of {', '.join(MERGES)}")
        limit = integer(self.max_open)
        if limit is None or limit < 1:
            yield Problem("window.max_open", f"is {self.max_open!r}", "give a number of windows, at least 1")

    @property
    def ends_with(self) -> str:
        """The mark that ends a window: the start mark itself where only one is named."""
        return self.start if self.end is None else self.end

    def __str__(self) -> str:
        return f"punctuation {self.start}..{self.ends_with} by {self.merge}"


Window = Tumbling | Sliding | Session | Punctuation


def is_count(window: Window) -> bool:
    """Whether a window is measured in events instead of time."""
    return isinstance(window, Tumbling | Sliding) and window.count is not None


def length_and_slide(window: Tumbling | Sliding) -> tuple[int, int]:
    """Length and slide of a time or count window; a tumbling window slides by its length."""
    if window.count is not None:
        every = window.every if isinstance(window, Sliding) else window.count
        return window.count, every or window.count
    length = microseconds(window.length or 0)
    return length, microseconds(window.slide or 0) if isinstance(window, Sliding) else length
