"""The naive answer to every query: judge every event, sort, compute every window by brute force.

It defines what the engine must answer. So it shares nothing with it: plain Python values, the standard
library, no slices, no partials, no state between two windows. Where a choice had to be made, the one
that is easiest to check by eye was taken; speed is none of its concerns.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import reduce
from itertools import product
from typing import Any, Literal

TS_LIMIT = 1 << 62
EMPTY_LIMIT = 100_000  # empty windows in a row that are reported
_NEVER = -(1 << 100)  # M before the first event: below every ts, whatever the lateness


@dataclass(frozen=True)
class Event:
    """A record of a source. Without value and mark it is a heartbeat, which only raises M."""

    source: str
    seq: int
    ts: int
    key: str | None = None  # None and "" both mean: no key
    value: float | None = None
    mark: str | None = None


@dataclass(frozen=True)
class Source:
    name: str
    lateness: int = 0
    site: str = ""


@dataclass(frozen=True)
class Decision:
    """What a root logged about a source once the source's prefix had reached number `after`.

    First M is raised to `floor`. `closes` (idle, retire) then closes the open mark windows at M and takes
    the source out of the order; `returns` (admit, resume) takes it in (again). `ordinals` raises the ordinal
    of each query that it names, `key_ordinals` holds those of keys apart. The event with the number
    `skip` is never read, unless a later one `unskips` it.
    """

    source: str
    after: int
    floor: int | None = None
    closes: bool = False
    ordinals: Mapping[str, int] = field(default_factory=dict)
    key_ordinals: Mapping[tuple[str, str], int] = field(default_factory=dict)
    skip: int | None = None
    returns: bool = False
    unskips: bool = False


@dataclass(frozen=True)
class Custom:
    name: str
    lift: Callable[[float], Any]
    combine: Callable[[Any, Any], Any]
    lower: Callable[[Any], Any]

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Spec:
    """One query. It sees the events in `[begin, end)`; `emitted_until` drops windows that end later."""

    id: str
    kind: Literal["tumbling", "sliding", "session", "punctuation"]
    measure: Literal["time", "count"] = "time"
    length: int = 0
    slide: int = 0
    offset: int = 0
    gap: int = 0
    start_mark: str = ""
    end_mark: str = ""
    merge: Literal["local", "bounds", "order", "overlap"] = "local"
    aggregates: tuple[str | Custom, ...] = ("count",)
    keyed: bool = False
    above: float | None = None
    at_least: float | None = None
    below: float | None = None
    at_most: float | None = None
    keys: frozenset[str] | None = None
    local: bool = False
    deduplicate: bool = False
    emit_empty: bool = False
    begin: int | None = None
    end: int | None = None
    emitted_until: int | None = None
    incarnation: int = 1  # the how-manieth query of this id it is

    @property
    def told_as(self) -> str:
        """Its name in decisions."""
        return self.id if self.incarnation == 1 else f"{self.id}#{self.incarnation}"

    def sees(self, ts: int) -> bool:
        return (self.begin is None or self.begin <= ts) and (self.end is None or ts < self.end)

    def emits(self, end: int) -> bool:
        return self.emitted_until is None or end <= self.emitted_until

    def selects(self, event: Event) -> bool:
        v = event.value
        return (
            v is not None
            and self.sees(event.ts)
            and (self.above is None or v > self.above)
            and (self.at_least is None or v >= self.at_least)
            and (self.below is None or v < self.below)
            and (self.at_most is None or v <= self.at_most)
            and (self.keys is None or (event.key or "") in self.keys)
        )


@dataclass(frozen=True)
class Row:
    """A window's result. `scale`, the sum of the absolute values, tells how exact a float sum can be."""

    query: str
    site: str
    key: str | None
    start: int
    end: int
    count: int
    values: dict[str, Any]
    scale: float = field(default=0.0, compare=False)
    first_time: int | None = None  # of the first and the last event, where the bounds are ranks
    last_time: int | None = None


History = list[Event | Decision]  # of one source, without its late and rejected events
Found = list[tuple[int, int, list[Event]]]  # start, end, events


def windows(
    events: Iterable[Event],
    sources: Iterable[Source],
    specs: Iterable[Spec],
    *,
    decisions: Iterable[Decision] = (),
    watermark: int | None = None,
) -> list[Row]:
    """Every window that is final at the watermark (None: all events have come), in the order of emission."""
    roster, logged = list(sources), list(decisions)
    prefixes: dict[str, list[Event]] = {source.name: [] for source in roster}
    for event in sorted(events, key=lambda event: event.seq):
        prefixes[event.source].append(event)
    histories = {}
    for source in roster:
        own = [decision for decision in logged if decision.source == source.name]
        histories[source] = _history(judge(prefixes[source.name], source, own)[0], own)
    found: list[tuple[int, Row]] = []
    for place, spec in enumerate(specs):
        finder = _by_marks if spec.kind == "punctuation" else _by_position
        found += [(place, row) for row in finder(spec, histories, watermark)]
    found.sort(key=lambda item: (item[1].end, item[0], item[1].site, item[1].key or "", item[1].start))
    return [row for _, row in found]


def judge(
    events: Iterable[Event], source: Source, decisions: Iterable[Decision] = ()
) -> tuple[list[Event], list[Event], list[Event]]:
    """The events of one source, in the order of seq, as (kept, late, rejected)."""
    kept: list[Event] = []
    late: list[Event] = []
    rejected: list[Event] = []
    largest = _NEVER
    own = [decision for decision in decisions if decision.source == source.name]
    skipped: set[int | None] = set()
    for decision in own:
        (skipped.discard if decision.unskips else skipped.add)(decision.skip)
    for step in _history(events, own):
        if isinstance(step, Decision):
            largest = max(largest, _NEVER if step.floor is None else step.floor)
        elif step.seq in skipped or abs(step.ts) > TS_LIMIT or not math.isfinite(step.value or 0.0):
            rejected.append(step)
        elif step.ts < largest - source.lateness:
            late.append(step)
        else:
            kept.append(step)
            largest = max(largest, step.ts)
    return kept, late, rejected


def _history(events: Iterable[Event], decisions: Iterable[Decision]) -> History:
    """What happened to one source: each decision stands behind the event at which it was taken."""
    steps: History = [*events, *decisions]
    return sorted(steps, key=lambda step: (step.after, 1) if isinstance(step, Decision) else (step.seq, 0))


def _selected(spec: Spec, histories: Mapping[Source, History]) -> list[Event]:
    """The events that the query counts, in the total order."""
    steps = [step for history in histories.values() for step in history]
    events = [step for step in steps if isinstance(step, Event) and spec.selects(step)]
    return sorted(events, key=_total_order)


def _total_order(event: Event) -> tuple[int, bytes, int]:
    return event.ts, event.source.encode(), event.seq


# Windows in time, in events and by gap look at the events of all sources together.


def _by_position(spec: Spec, histories: Mapping[Source, History], watermark: int | None) -> Iterator[Row]:
    site_of = {source.name: source.site if spec.local else "" for source in histories}
    groups: dict[tuple[str, str | None], list[Event]] = {}
    copies = set()
    for event in _selected(spec, histories):
        site, own = site_of[event.source], event.key or ""
        copy = (site, own, event.ts, event.value)  # -0.0 equals 0.0 in here
        if not (spec.deduplicate and copy in copies):
            groups.setdefault((site, own if spec.keyed else None), []).append(event)
        copies.add(copy)
    find = _counted if spec.measure == "count" else _sessions if spec.kind == "session" else _timed
    for (site, key), group in groups.items():
        for start, end, events in find(spec, group, watermark):
            # A count window, whose bounds are ranks, stands once nothing can come before its last event.
            stands = events[-1].ts + 1 if spec.measure == "count" else end
            if (watermark is None or watermark >= stands) and spec.emits(stands):
                yield _row(spec, site, key, start, end, events)


def _timed(spec: Spec, group: list[Event], watermark: int | None) -> Found:
    held: dict[int, list[Event]] = {}
    for event in group:
        # The last window that starts at or before ts, and back through those that still reach beyond ts.
        start = event.ts - (event.ts - spec.offset) % spec.slide
        while start + spec.length > event.ts:
            if spec.sees(start):
                held.setdefault(start, []).append(event)
            start -= spec.slide
    if spec.emit_empty and held:
        last = max(held) if watermark is None else watermark - spec.length
        for start in sorted(held):
            for empty in range(start + spec.slide, start + (EMPTY_LIMIT + 1) * spec.slide, spec.slide):
                if empty in held or empty > last or not spec.sees(empty):
                    break
                held[empty] = []
    return [(start, start + spec.length, events) for start, events in held.items()]


def _sessions(spec: Spec, group: list[Event], watermark: int | None) -> Found:
    sessions: list[list[Event]] = []
    for event in group:
        if sessions and event.ts < sessions[-1][-1].ts + spec.gap:
            sessions[-1].append(event)
        else:
            sessions.append([event])
    return [(events[0].ts, events[-1].ts + spec.gap, events) for events in sessions]


def _counted(spec: Spec, group: list[Event], watermark: int | None) -> Found:
    starts = range(0, len(group) - spec.length + 1, spec.slide)
    return [(start, start + spec.length, group[start : start + spec.length]) for start in starts]


# Windows by marks look at each source apart, in the order of seq, and merge what they find.


@dataclass
class _Marked:
    """A mark window of one source for one key; its ordinal and end count once it is closed."""

    start: int
    end: int = 0
    ordinal: int = 0
    events: list[Event] = field(default_factory=list)


@dataclass
class _Track:
    """What the marks of one source did for one key."""

    closed: list[_Marked] = field(default_factory=list)
    open: _Marked | None = None
    ordinal: int = 0
    in_order: bool = True

    def close(self, ts: int) -> None:
        if self.open is not None:
            self.open.end, self.open.ordinal = max(self.open.start, ts), self.ordinal
            self.closed.append(self.open)
            self.open, self.ordinal = None, self.ordinal + 1


def _track(spec: Spec, history: History, key: str | None, watermark: int | None) -> _Track:
    """Replay a source as one key sees it. Each key is replayed from the start: no state to share or copy."""
    track, largest = _Track(), _NEVER
    for step in history:
        if isinstance(step, Decision):
            largest = max(largest, _NEVER if step.floor is None else step.floor)
            if step.closes:
                track.close(largest if spec.end is None else min(largest, spec.end))
                track.in_order = False
            track.in_order |= step.returns
            if spec.told_as in step.ordinals:
                raised = step.key_ordinals.get((spec.told_as, key or ""), step.ordinals[spec.told_as])
                track.ordinal = max(track.ordinal, raised)
            continue
        largest = max(largest, step.ts)
        own = step.key or ""
        if spec.sees(step.ts) and (key is None or own in ("", key)):
            if step.mark == spec.end_mark:
                track.close(step.ts)
            if step.mark == spec.start_mark and track.open is None:
                track.open = _Marked(step.ts)
        if track.open is not None and spec.selects(step) and key in (None, own):
            track.open.events.append(step)
    if spec.end is not None and spec.emitted_until is None and (watermark is None or watermark > spec.end):
        # The query was removed, not at once: what has begun ends there, and nobody is waited for.
        track.close(spec.end)
        track.in_order = False
    return track


def _by_marks(spec: Spec, histories: Mapping[Source, History], watermark: int | None) -> Iterator[Row]:
    scopes: dict[str, list[History]] = {}
    for source, history in histories.items():
        scope = source.name if spec.merge == "local" else source.site if spec.local else ""
        scopes.setdefault(scope, []).append(history)
    keys = {event.key or "" if spec.keyed else None for event in _selected(spec, histories)}
    for (scope, members), key in product(scopes.items(), keys):
        tracks = [_track(spec, history, key, watermark) for history in members]
        for marked in _merged(spec, tracks):
            start, end = min(each.start for each in marked), max(each.end for each in marked)
            events = sorted((event for each in marked for event in each.events), key=_total_order)
            if spec.merge == "order":
                final = all(track.ordinal > marked[0].ordinal for track in tracks if track.in_order)
                final = final and (watermark is None or watermark > end)
            else:
                final = watermark is None or watermark > end
            if spec.merge == "overlap":
                final = final and all(track.open is None or track.open.start > end for track in tracks)
            if events and final and spec.emits(end):
                yield _row(spec, scope, key, start, end, events)


def _merged(spec: Spec, tracks: list[_Track]) -> Iterable[list[_Marked]]:
    """The closed windows that are one, together; windows without events join and bridge as well."""
    groups: dict[Any, list[_Marked]] = {}
    cluster, reach = 0, _NEVER
    closed = sorted((each for track in tracks for each in track.closed), key=lambda each: each.start)
    for place, each in enumerate(closed):
        if each.start > reach:
            cluster += 1
        reach = max(reach, each.end)
        identities = {
            "local": place,
            "bounds": (each.start, each.end),
            "order": each.ordinal,
            "overlap": cluster,
        }
        groups.setdefault(identities[spec.merge], []).append(each)
    return groups.values()


# Aggregates are exact in fractions where that is possible, and rounded once at the end.


def _row(spec: Spec, site: str, key: str | None, start: int, end: int, events: list[Event]) -> Row:
    values = [event.value for event in events if event.value is not None]
    answers = {str(given): _aggregate(given, values) for given in spec.aggregates}
    row = Row(spec.id, site, key, start, end, len(values), answers, _sum(map(abs, values)))
    if spec.measure == "count":
        return replace(row, first_time=events[0].ts, last_time=events[-1].ts)
    return row


def _aggregate(given: str | Custom, values: list[float]) -> Any:
    if not values:
        return {"count": 0, "sum": 0.0, "product": 1.0}.get(str(given))
    if isinstance(given, Custom):
        return given.lower(reduce(given.combine, map(given.lift, values)))
    name, _, argument = given.rstrip(")").partition("(")
    return _AGGREGATES[name](values, argument)


def _rounded(exact: Fraction) -> float:
    try:
        return float(exact)
    except OverflowError:
        return math.inf if exact > 0 else -math.inf


def _sum(values: Iterable[float]) -> float:
    return _rounded(sum(map(Fraction, values), Fraction()))


def _variance(values: list[float], argument: str) -> Fraction | None:
    exact, free = [Fraction(value) for value in values], len(values) - (argument == "ddof=1")
    mean = sum(exact, Fraction()) / len(exact)
    return sum((value - mean) ** 2 for value in exact) / Fraction(free) if free else None


def _root(exact: Fraction) -> float:
    """The square root, also where the square is beyond a float."""
    shift = 520 if exact > 1 << 1000 else -520 if exact < Fraction(1, 1 << 1000) else 0
    return math.sqrt(_rounded(exact / Fraction(4) ** shift)) * 2.0**shift


def _or_nan(rounded: Callable[[Fraction], float], exact: Fraction | None) -> float:
    return math.nan if exact is None else rounded(exact)


def _geometric_mean(values: list[float]) -> float:
    """The real n-th root of the product, by logarithms because the product itself may overflow."""
    if 0.0 in values:
        return 0.0
    size = math.exp(math.fsum(math.log(abs(value)) for value in values) / len(values))
    if sum(value < 0 for value in values) % 2 == 0:
        return size
    return -size if len(values) % 2 == 1 else math.nan


def _quantile(values: list[float], q: float) -> float:
    """Linear between the two neighbouring ranks; in floats, because q is one."""
    ordered, place = sorted(values), q * (len(values) - 1)
    low, high, share = ordered[math.floor(place)], ordered[math.ceil(place)], place - math.floor(place)
    if math.isinf(high - low):
        return low * (1.0 - share) + high * share
    return low + (high - low) * share


_AGGREGATES: dict[str, Callable[[list[float], str], Any]] = {
    "count": lambda values, _: len(values),
    "sum": lambda values, _: _sum(values),
    "avg": lambda values, _: _rounded(sum(map(Fraction, values), Fraction()) / len(values)),
    "product": lambda values, _: _rounded(math.prod(map(Fraction, values), start=Fraction(1))),
    "geomean": lambda values, _: _geometric_mean(values),
    "variance": lambda values, argument: _or_nan(_rounded, _variance(values, argument)),
    "stddev": lambda values, argument: _or_nan(_root, _variance(values, argument)),
    "min": lambda values, _: min(values),
    "max": lambda values, _: max(values),
    "range": lambda values, _: max(values) - min(values),
    "first": lambda values, _: values[0],
    "last": lambda values, _: values[-1],
    "median": lambda values, _: _quantile(values, 0.5),
    "quantile": lambda values, q: _quantile(values, float(q)),
    "distinct": lambda values, _: len(set(values)),
    "mode": lambda values, _: min(values, key=lambda value: (-values.count(value), value)),
    "top": lambda values, k: tuple(sorted(values, reverse=True)[: int(k)]),
    "bottom": lambda values, k: tuple(sorted(values)[: int(k)]),
}
