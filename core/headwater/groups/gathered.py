"""What the queries of a group with one predicate have gathered: slices, fragments, and windows that end."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from math import isfinite

import numpy as np

from headwater.durations import microseconds
from headwater.groups.members import Active, adapted, names
from headwater.groups.space import Space
from headwater.merging.closed import Closed
from headwater.merging.closings import FOREVER, Closings
from headwater.merging.keyed import KeyedTimeline
from headwater.merging.sessions import Fragments, Sessions
from headwater.merging.timeline import Timeline
from headwater.merging.unbroken import Unbroken
from headwater.operators import Columns, Operator, Ufunc, counts
from headwater.queries import Where
from headwater.rows import TS_MAX, TS_MIN, Array, Ints, Rows
from headwater.slicing.edges import Edges
from headwater.windows import Session

# From so many keys on, and for so few rows, a scattered addition beats a count by key: one cache line a
# row, and no output a batch.
MANY_KEYS = FEW_ROWS = 16_384


@dataclass(slots=True)
class SelectionPart:
    """What one selection has gathered: cells by slice and code, and fragments of sessions."""

    start: Ints
    code: Ints
    states: list[Columns]
    fragments: Fragments | None


@dataclass(slots=True)
class _SessionStore:
    """Sessions of one gap and one time of life, and the queries that ask for them."""

    sessions: Sessions
    begin: int
    end: int
    queries: list[int]


class Gathered:
    """The events that one predicate selects, as cells; the root's also know which windows they are in."""

    def __init__(self, where: Where, space: Space, operators: list[Operator], *, root: bool) -> None:
        self.where, self.space, self.operators, self._root = where, space, operators, root
        self._edges = Edges(())
        # The operators, if each is a ufunc: then a slice can be kept dense by code.
        self._simple: list[Ufunc] | None = None
        self.timeline: Timeline | None = None
        self.keyed: KeyedTimeline | None = None
        self.closings: Closings | None = None
        self.sessions: list[_SessionStore] = []
        self.unbroken: list[Unbroken] = []
        self.gap = self.longest = 0
        # Until when each query (by index) sees events, if any of them ends.
        self.until: Ints | None = None
        self.closed: list[Closed] = []
        # How many events were lifted; each costs one execution of every operator.
        self.lifted = 0

    def arrange(
        self, mine: list[Active], operators: list[Operator], edges: Edges, cuts: list[int], watermark: int
    ) -> None:
        """Serve these queries from now on; what was gathered stays."""
        before, self.operators, self._edges = self.operators, operators, edges
        simple = [operator for operator in operators if isinstance(operator, Ufunc)]
        self._simple = simple if len(simple) == len(operators) else None
        periodic = [(m.index, m.periodic) for m in mine if m.periodic and not m.query.emit_empty]
        self.until = None
        if any(m.end < TS_MAX for m in mine):
            self.until = np.full(max(m.index for m in mine) + 1, TS_MAX)
            for member in mine:
                self.until[member.index] = member.end
        self.longest = max((m.periodic.length for m in mine if m.periodic), default=0)
        if before is not operators:
            self._adapt(before)
        if any(m.periodic for m in mine):
            if self.space.plain and self.timeline is None:
                self.timeline = Timeline(self.operators)
            elif not self.space.plain and self.keyed is None:
                self.keyed = KeyedTimeline(self.operators)
        self.closings = Closings(periodic, after=watermark) if periodic and self._root else None
        known = {unbroken.query: unbroken for unbroken in self.unbroken}
        self.unbroken = [
            known.get(m.index, Unbroken(m.index, m.periodic))
            for m in mine
            if m.periodic and m.query.emit_empty
        ]
        for unbroken in self.unbroken:
            unbroken.window = next(m.periodic for m in mine if m.index == unbroken.query and m.periodic)
        gaps = [(microseconds(m.query.window.gap), m) for m in mine if isinstance(m.query.window, Session)]
        self.gap = min((gap for gap, _ in gaps), default=0)
        if not self._root:
            self._arrange_node_sessions(cuts)
            return
        held = {query: store for store in self.sessions for query in store.queries}
        stores: dict[tuple[int, int, int], _SessionStore] = {}
        taken: set[int] = set()
        for gap, member in gaps:
            life = (gap, member.begin, member.end)
            if life not in stores:
                store = held.get(member.index)
                sessions = Sessions(self.operators, gap) if store is None else store.sessions
                # One of several queries was removed: it goes on alone, over a copy of what there is.
                stores[life] = _SessionStore(
                    sessions.copy() if id(sessions) in taken else sessions, member.begin, member.end, []
                )
                taken.add(id(sessions))
            stores[life].queries.append(member.index)
        self.sessions = list(stores.values())

    def _arrange_node_sessions(self, cuts: list[int]) -> None:
        """A node below the root keeps one set of fragments, cut as finely as any query needs."""
        if not self.gap:
            self.sessions = []
            return
        fresh = Sessions(self.operators, self.gap, cuts)
        for store in self.sessions:
            fresh.add(store.sessions.drain(), len(self.space))
        self.sessions = [_SessionStore(fresh, TS_MIN, TS_MAX, [])]

    def _adapt(self, earlier: list[Operator]) -> None:
        before = names(earlier)
        for closed in self.closed:
            closed.states = adapted(before, closed.states, self.operators)
        if self.timeline is not None and len(self.timeline):
            start, states = self.timeline.drain()
            self.timeline = Timeline(self.operators)
            self.timeline.add(start, adapted(before, states, self.operators))
        elif self.timeline is not None:
            self.timeline = Timeline(self.operators)
        if self.keyed is not None:
            self.keyed = self.keyed.rebased(self.operators, lambda s: adapted(before, s, self.operators))
        for store in self.sessions:
            fragments = store.sessions.drain()
            fragments.states = adapted(before, fragments.states, self.operators)
            store.sessions = store.sessions.renewed(self.operators)
            store.sessions.add(fragments, len(self.space))

    # Reading

    def feed(self, rows: Rows, low: int, high: int, *, prove: bool = False) -> bool:
        """Rows without key, with times in `[low, high]`; False as `SlicedGroup.read_proving` says."""
        edges = self._edges
        if low < edges.low or low >= edges.high:
            edges.span(low)
        start, end, gap = edges.low, edges.high, self.gap
        if high < end and (not gap or high - low < gap):
            states = [self.operators[0].whole(rows)]
            # Before the others see them: a user's function need not know what is not finite.
            if prove and not isfinite(states[0][0].real):
                return False
            if len(self.operators) > 1:
                states += [operator.whole(rows) for operator in self.operators[1:]]
            self.lifted += len(rows.value)
            # Before the first edge no window has begun: only sessions can ask for what is there.
            if self.timeline is not None and start > TS_MIN:
                self.timeline.add_one(start, states)
            for store in self.sessions:
                if store.begin <= low < store.end:
                    store.sessions.add_one(low, high, states)
            return True
        if not rows.in_order and not gap:
            few = self._edges.spans(low, high)
            if few is not None and self.timeline is not None:
                # Mild disorder over few slices: no order is needed to tell them apart.
                for begin, stop in few:
                    inside = np.flatnonzero((rows.ts >= begin) & (rows.ts < stop))
                    if len(inside) and begin > TS_MIN:
                        part = rows.take(inside, in_order=False)
                        self.timeline.add_one(begin, [operator.whole(part) for operator in self.operators])
                self.lifted += len(rows.value)
                return True
        rows = _by_time(rows)
        places, slices = self._edges.cut(rows.ts)
        cells = places
        if gap:
            wide = np.flatnonzero(np.diff(rows.ts) >= gap) + 1
            cells = np.union1d(places, wide)
        if prove:
            # Infinities that meet say so in the sum.
            with np.errstate(over="ignore", invalid="ignore"):
                columns = [self.operators[0].runs(rows, cells)]
                if not isfinite(columns[0][0].real.sum()):
                    return False
            columns += [operator.runs(rows, cells) for operator in self.operators[1:]]
        else:
            columns = [operator.runs(rows, cells) for operator in self.operators]
        self.lifted += len(rows.value)
        cut = _crossings(rows.ts, self._edges.cuts) if gap else places
        if self.timeline is not None:
            held = self._folded(columns, cells, places)
            if slices.item(0) == TS_MIN:
                slices, held = slices[1:], [tuple(column[1:] for column in state) for state in held]
            if len(slices):
                self.timeline.add(slices, held)
        if self.sessions:
            apart = np.union1d(wide, cut)
            apart = apart if len(apart) and apart[0] == 0 else np.concatenate(([0], apart))
            last = rows.ts[np.append(apart[1:], len(rows)) - 1]
            none = np.zeros(len(apart), np.int64)
            fragments = Fragments(none, rows.ts[apart], last, self._folded(columns, cells, apart))
            self._add_fragments(fragments)
        return True

    def feed_keyed(self, rows: Rows, codes: Array, low: int, high: int) -> None:
        """Rows with the group's codes."""
        edges = self._edges
        if low < edges.low or low >= edges.high:
            edges.span(low)
        start, end = edges.low, edges.high
        within_gap = not self.gap or high - low < self.gap
        if high < end and within_gap:
            self.lifted += len(rows.value)
            self._feed_slice(start, rows, codes)
            return
        self.lifted += len(rows)
        if not rows.in_order:
            few = self._edges.spans(low, high)
            if few is not None and within_gap:
                for begin, stop in few:
                    inside = np.flatnonzero((rows.ts >= begin) & (rows.ts < stop))
                    if len(inside):
                        self._feed_slice(begin, rows.take(inside, in_order=False), codes[inside])
                return
            order = np.argsort(rows.ts, kind="stable")
            rows, codes = rows.take(order, in_order=True), codes[order]
        places, slices = self._edges.cut(rows.ts)
        if within_gap and len(rows) >= 64 * len(places):
            bounds = [*places.tolist(), len(rows)]
            for slice_, (begin, stop) in zip(slices.tolist(), pairwise(bounds), strict=True):
                self._feed_slice(slice_, rows.cut(begin, stop), codes[begin:stop])
            return
        self._feed_cells(rows, codes, places, slices)

    def _folded(self, columns: list[Columns], cells: Ints, wanted: Ints) -> list[Columns]:
        """States of fine cells as states of coarser ones, by the rows at which both begin."""
        if len(cells) == len(wanted):
            return columns
        starts = cells.searchsorted(wanted)
        return [
            operator.fold(column, starts) for operator, column in zip(self.operators, columns, strict=True)
        ]

    def _feed_slice(self, start: int, rows: Rows, codes: Array) -> None:
        """Rows of one slice that span less than the gap: one cell a code."""
        size = len(self.space)
        simple = self._simple
        keyed = self.keyed if start > TS_MIN else None
        if keyed is None and not self.sessions:
            return
        if simple is not None:
            if not self.sessions and keyed is not None:
                dense = keyed.dense(start, size, expected=len(codes))
                if dense is not None:
                    scattered = size >= MANY_KEYS or len(codes) <= FEW_ROWS
                    for operator, columns in zip(simple, dense, strict=True):
                        if scattered:
                            operator.scatter(columns, rows, codes)
                        else:
                            operator.add_dense(columns, rows, codes, size)
                    return
            elif len(rows) * 4 >= size and rows.in_order:
                columns_all = [operator.dense(rows, codes, size) for operator in simple]
                held = np.flatnonzero(counts(self.operators, columns_all))
                first, last = np.empty(size, np.int64), np.empty(size, np.int64)
                # The last write wins: forwards it is the last time of a key, backwards the first.
                last[codes], first[codes[::-1]] = rows.ts, rows.ts[::-1]
                states = [tuple(column[held] for column in columns) for columns in columns_all]
                if keyed is not None:
                    keyed.add(start, held, states, size)
                self._add_fragments(Fragments(held, first[held], last[held], states))
                return
        order = np.argsort(codes, kind="stable")
        if not rows.in_order:
            order = np.lexsort((rows.ts, codes))
        rows, codes = rows.take(order, in_order=True), codes[order]
        fresh = np.ones(len(codes), bool)
        fresh[1:] = codes[1:] != codes[:-1]
        places = np.flatnonzero(fresh)
        states = [operator.runs(rows, places) for operator in self.operators]
        if keyed is not None:
            keyed.add(start, codes[places], states, size)
        if self.sessions:
            last_row = np.append(places[1:], len(codes)) - 1
            self._add_fragments(Fragments(codes[places], rows.ts[places], rows.ts[last_row], states))

    def _feed_cells(self, rows: Rows, codes: Array, places: Ints, slices: Ints) -> None:
        """Rows in time order over many slices or gaps: cut by code, slice and gap at once."""
        number = np.repeat(np.arange(len(places)), np.diff(places, append=len(rows)))
        order = np.argsort(codes, kind="stable")
        rows, codes, number = rows.take(order, in_order=True), codes[order], number[order]
        other = np.ones(len(codes), bool)
        other[1:] = codes[1:] != codes[:-1]
        wide = other.copy()
        if self.gap:
            wide[1:] |= np.diff(rows.ts) >= self.gap
        fresh = wide.copy()
        fresh[1:] |= number[1:] != number[:-1]
        cells = np.flatnonzero(fresh)
        states = [operator.runs(rows, cells) for operator in self.operators]
        if self.keyed is not None:
            start, code = slices[number[cells]], codes[cells]
            begun = start > TS_MIN
            if np.count_nonzero(begun) == len(begun):
                self._add_cells(self.keyed, start, code, states)
            elif begun.any():
                held = [tuple(column[begun] for column in columns) for columns in states]
                self._add_cells(self.keyed, start[begun], code[begun], held)
        if self.sessions:
            if len(self._edges.cuts):
                epoch = self._edges.cuts.searchsorted(rows.ts, "right")
                wide[1:] |= epoch[1:] != epoch[:-1]
            apart = np.flatnonzero(wide)
            last = rows.ts[np.append(apart[1:], len(rows)) - 1]
            fragments = Fragments(codes[apart], rows.ts[apart], last, self._folded(states, cells, apart))
            self._add_fragments(fragments)

    def _add_fragments(self, fragments: Fragments) -> None:
        for store in self.sessions:
            if store.begin == TS_MIN and store.end == TS_MAX:
                store.sessions.add(fragments, len(self.space))
                continue
            seen = (fragments.first >= store.begin) & (fragments.first < store.end)
            if seen.any():
                store.sessions.add(fragments.take(seen), len(self.space))

    def _add_cells(self, keyed: KeyedTimeline, start: Ints, code: Ints, states: list[Columns]) -> None:
        """Cells of several slices in any order, codes repeated or not."""
        order = np.lexsort((code, start))
        start, code = start[order], code[order]
        fresh = np.ones(len(code), bool)
        fresh[1:] = (start[1:] != start[:-1]) | (code[1:] != code[:-1])
        places = np.flatnonzero(fresh)
        states = [tuple(column[order] for column in columns) for columns in states]
        if len(places) < len(code):
            states = [op.fold(columns, places) for op, columns in zip(self.operators, states, strict=True)]
            start, code = start[places], code[places]
        bounds = np.flatnonzero(np.concatenate(([True], start[1:] != start[:-1], [True]))).tolist()
        for low, high in pairwise(bounds):
            piece = slice(low, high)
            cells = [tuple(column[piece] for column in columns) for columns in states]
            keyed.add(start.item(low), code[piece], cells, len(self.space))

    # Partials

    def drain(self) -> SelectionPart | None:
        """Everything that was gathered since the last time, and nothing stays."""
        start = code = np.empty(0, np.int64)
        states = [operator.empty(0) for operator in self.operators]
        if self.timeline is not None and len(self.timeline):
            start, states = self.timeline.drain()
            code = np.zeros(len(start), np.int64)
        elif self.keyed is not None and len(self.keyed):
            pieces = list(self.keyed.drain(len(self.space)))
            start = np.repeat([s for s, _ in pieces], [len(cells[0]) for _, cells in pieces])
            code = np.concatenate([cells[0] for _, cells in pieces])
            states = [
                tuple(np.concatenate(c) for c in zip(*(cells[1][place] for _, cells in pieces), strict=True))
                for place in range(len(self.operators))
            ]
        fragments = self.sessions[0].sessions.drain() if self.sessions else None
        if len(start) or (fragments is not None and len(fragments)):
            return SelectionPart(start, code, states, fragments)
        return None

    def merge(self, part: SelectionPart) -> None:
        """Take what another node has gathered, with our codes and operators."""
        if len(part.start):
            if self.timeline is not None:
                self.timeline.add(part.start, part.states)
            elif self.keyed is not None:
                self._add_cells(self.keyed, part.start, part.code, part.states)
        if part.fragments is not None and len(part.fragments):
            self._add_fragments(part.fragments)

    # Windows

    def close(self, watermark: int) -> int:
        """Close every window that ends up to the watermark; gives a time before which no other one ends."""
        if self.closings is not None and watermark >= self.closings.next:
            if self.timeline is not None:
                self._close_plain(self.timeline, self.closings, watermark)
            elif self.keyed is not None:
                self._close_keyed(self.keyed, self.closings, watermark)
        for store in self.sessions:
            if watermark >= store.sessions.next:
                self._close_sessions(store, watermark)
        if self.timeline is not None:
            for unbroken in self.unbroken:
                closed = unbroken.due(self.timeline, self.operators, watermark)
                if closed is not None:
                    self.closed.append(closed)
            self.timeline.trim(watermark - self.longest)
        if self.sessions or self.unbroken:
            return TS_MIN
        return self.closings.next if self.closings is not None else TS_MAX

    def _close_plain(self, timeline: Timeline, closings: Closings, watermark: int) -> None:
        starts = timeline.starts
        query, start, end = closings.due(watermark, starts)
        if not len(query):
            return
        low, high = timeline.between(start, self._seen(query, end))
        held = high > low
        if np.count_nonzero(held) < len(held):
            query, start, end, low, high = query[held], start[held], end[held], low[held], high[held]
            if not len(query):
                return
        # Windows come by their end, so the last one reaches furthest, unless some see less than they span.
        sealed = high.item(len(high) - 1) if self.until is None else int(high.max())
        states = timeline.fold(low, high, sealed)
        self.closed.append(Closed(query, np.zeros(len(query), np.int64), start, end, states))

    def _close_keyed(self, keyed: KeyedTimeline, closings: Closings, watermark: int) -> None:
        size = len(self.space)
        keyed.seal(self._edges.span(min(watermark, FOREVER))[0], size)
        starts = keyed.starts
        query, start, end = closings.due(watermark, starts)
        low = starts.searchsorted(start).tolist()
        high = starts.searchsorted(self._seen(query, end)).tolist()
        same: tuple[int, int] | None = None
        for row in range(len(query)):
            if high[row] > low[row]:
                if same != (low[row], high[row]):
                    same = (low[row], high[row])
                    codes, states = keyed.fold(low[row], high[row], size)
                many = len(codes)
                self.closed.append(
                    Closed(
                        np.full(many, query[row]),
                        codes,
                        np.full(many, start[row]),
                        np.full(many, end[row]),
                        states,
                    )
                )
        keyed.trim(watermark - closings.longest)

    def _close_sessions(self, store: _SessionStore, watermark: int) -> None:
        ended = store.sessions.due(watermark)
        if ended is None:
            return
        for query in store.queries:
            self.closed.append(
                Closed(
                    np.full(len(ended), query),
                    ended.code,
                    ended.first,
                    ended.last + store.sessions.gap,
                    ended.states,
                )
            )

    def _seen(self, query: Array, end: Ints) -> Ints:
        """Until when windows see events: their end, or that of their query."""
        return end if self.until is None else np.minimum(end, self.until[query])

    def __len__(self) -> int:
        """How many cells are held: slices by key, and fragments."""
        size = len(self.timeline) if self.timeline is not None else 0
        size += len(self.keyed) if self.keyed is not None else 0
        return size + sum(len(store.sessions) for store in self.sessions)


def _by_time(rows: Rows) -> Rows:
    return rows if rows.in_order else rows.take(np.argsort(rows.ts, kind="stable"), in_order=True)


def _crossings(ts: Ints, cuts: Ints) -> Ints:
    """The rows, in the order of time, before which a cut lies."""
    places = np.unique(ts.searchsorted(cuts))
    return places[(places > 0) & (places < len(ts))]
