"""What a source's own prefix decides: what is late, what is rejected, and where its marks act.

Everything here is a function of the source's records in their order and of what the root has decided
about the source, never of a node's view: every node that sees the same prefix judges the same
(protocol, rules 11 and 15).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import isfinite

import numpy as np
from numpy import count_nonzero, einsum, vdot

from headwater.events import NO_MARK, Batch
from headwater.rows import TS_MAX, TS_MIN, Array, Ints, Rows
from headwater.windows import TS_LIMIT

SAMPLE_LIMIT = 16
LATE = "late"
NO_SKIPS: frozenset[int] = frozenset()
_ONES = np.ones(4_096)


@dataclass(frozen=True, slots=True)
class MarkState:
    """Where a source stands with a mark query: the next ordinal, and since when a window is open.

    `since` is the ordinal from which on a key has a state of its own.
    """

    ordinal: int = 0
    opened: int | None = None
    since: int = 0


# By key; None is the state of each key that has had no mark of its own.
KeyedMarks = Mapping[str | None, MarkState]


@dataclass(frozen=True, slots=True)
class Prefix:
    """The prefix `(0, position]` of a source and what it amounts to (the protocol's A and P).

    `skips` are the numbers above the position that are never to be read, `opening` is that of the source's
    spool: what was under way from before another one does not fit.
    """

    position: int = 0
    largest: int = TS_MIN
    marks: Mapping[str, KeyedMarks] = field(default_factory=dict)
    skips: frozenset[int] = NO_SKIPS
    opening: str = ""


@dataclass(frozen=True, slots=True)
class Mark:
    """A mark that acts: before the row, at the time; `key` is None if it acts on all keys."""

    row: int
    ts: int
    name: str
    key: str | None


@dataclass(frozen=True, slots=True)
class Refused:
    """An event that was read and does not count, and why."""

    seq: int
    ts: int
    reason: str


@dataclass(slots=True)
class Judged:
    """What a batch comes to: the rows that count, their times, and what happened to the others."""

    rows: Rows
    low: int
    high: int
    read: int
    largest: int
    refused: Mapping[str, int]
    sample: tuple[Refused, ...]
    marks: tuple[Mark, ...]
    # How many of those that count are no events.
    heartbeats: int


def clean(
    batch: Batch, source: int, largest: int, lateness: int, limit: int, proven_later: bool = False
) -> tuple[Rows, int, int] | None:
    """All rows of a batch and their lowest and highest time, if it takes no look at each to see that all
    of them count; None says nothing. The usual batch is clean.

    `proven_later`: rows of a long batch in order may come without a total; whoever sums them up next
    looks whether their values are finite.
    """
    ts, value = batch.ts, batch.value
    size = len(ts)
    if not size or batch.mark is not None or batch.bare is not None:
        return None
    disorder = count_nonzero(ts[1:] < ts[:-1])
    if disorder:
        low, high = int(ts.min()), int(ts.max())
    else:
        low, high = ts.item(0), ts.item(size - 1)
    if low < largest - lateness or high > limit or low < -TS_LIMIT or high > TS_LIMIT:
        return None
    if disorder and low < high - lateness and not _none_late(ts, high - lateness, lateness):
        return None
    # A finite sum proves that every value is finite, and the sum is needed anyway. These two ways to it
    # say nothing when infinities meet; the first starts faster, but takes all cores for long arrays.
    if size <= len(_ONES):
        total = vdot(value, _ONES[:size])
    elif proven_later and not disorder:
        return Rows(ts, value, batch.first, source, True, None, batch.key), low, high
    else:
        total = einsum("i->", value)
    if not isfinite(total):
        return None
    return Rows(ts, value, batch.first, source, not disorder, float(total), batch.key), low, high


def _none_late(ts: Ints, bound: int, lateness: int) -> bool:
    """Whether no event is late behind the others; those at or above the bound cannot be."""
    doubtful = np.flatnonzero(ts < bound)
    if doubtful[0] == 0:
        doubtful = doubtful[1:]
        if not len(doubtful):
            return True
    # The largest time before each of them, from the pieces between them.
    bounds = np.concatenate(([0], doubtful[:-1]))
    before = np.maximum.accumulate(np.maximum.reduceat(ts[: int(doubtful[-1])], bounds))
    return bool((ts[doubtful] >= before - lateness).all())


def judge(
    batch: Batch, source: int, largest: int, lateness: int, limit: int, skips: frozenset[int] = NO_SKIPS
) -> Judged:
    """Judge each record behind a prefix whose largest ts is `largest`; read nothing beyond `limit`.

    Records whose numbers are in `skips` are passed over, wherever their times lie.
    """
    ts, value = batch.ts, batch.value
    bare = batch.bare if batch.bare is not None else np.zeros(len(ts), bool)
    strange = ~np.isfinite(value) & ~bare
    outside = (ts > TS_LIMIT) | (ts < -TS_LIMIT)
    rejected = strange | outside
    skipped = [seq - batch.first for seq in skips if 0 <= seq - batch.first < len(ts)]
    rejected[skipped] = True
    # Not yet read: a time too far ahead must neither count nor move the watermark (rule 15).
    ahead = np.flatnonzero((ts > limit) & ~rejected)
    read = int(ahead[0]) if len(ahead) else len(ts)
    ts, value, bare, rejected = ts[:read], value[:read], bare[:read], rejected[:read]
    reached = np.maximum.accumulate(np.where(rejected, TS_MIN, ts))
    # The time below which an event is late: from the prefix, then from the events before it as well.
    bound = np.empty(read, np.int64)
    if read:
        bound[:] = first = max(largest - lateness, TS_MIN)
        if lateness <= TS_LIMIT:
            # Times that count are at least -2^62: taking 2^62 at most off them stays within int64.
            np.maximum(np.maximum(reached[:-1], -TS_LIMIT) - lateness, first, out=bound[1:])
    late = ~rejected & (ts < bound)
    kept = ~(rejected | late)
    counted = np.flatnonzero(kept & ~bare)
    after = max(largest, int(reached[-1])) if read else largest
    rows = Rows(
        ts[counted],
        value[counted],
        counted + batch.first,
        source,
        bool((np.diff(ts[counted]) >= 0).all()),
        None,
        None if batch.key is None else batch.key[counted],
    )
    refused: dict[str, int] = {}
    sample: list[Refused] = []
    for place in np.flatnonzero(~kept).tolist():
        reason = LATE if late[place] else "ts out of range" if outside[place] else "value not finite"
        if place in skipped:
            reason = "skipped"
        refused[reason] = refused.get(reason, 0) + 1
        if len(sample) < SAMPLE_LIMIT:
            sample.append(Refused(batch.first + place, int(ts[place]), reason))
    return Judged(
        rows,
        int(rows.ts.min()) if len(rows) else TS_MAX,
        int(rows.ts.max()) if len(rows) else TS_MIN,
        read,
        after,
        refused,
        tuple(sample),
        _marks(batch, read, kept, counted),
        _heartbeats(batch, read, kept & bare),
    )


def _heartbeats(batch: Batch, read: int, bare: Array) -> int:
    if batch.mark is not None:
        bare = bare & (batch.mark[:read] == NO_MARK)
    return int(count_nonzero(bare))


def _marks(batch: Batch, read: int, kept: Array, counted: Array) -> tuple[Mark, ...]:
    if batch.mark is None:
        return ()
    places = np.flatnonzero(kept & (batch.mark[:read] != NO_MARK)).tolist()
    rows = counted.searchsorted(places).tolist()
    return tuple(
        Mark(
            row,
            batch.ts.item(place),
            batch.marks[batch.mark.item(place)],
            # No key and the empty key are one: a mark without key acts on all.
            (batch.keys[batch.key.item(place)] or None) if batch.key is not None else None,
        )
        for row, place in zip(rows, places, strict=True)
    )
