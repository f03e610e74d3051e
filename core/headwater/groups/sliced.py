"""Groups whose windows are cut by time: tumbling, sliding and session windows together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from headwater.durations import microseconds
from headwater.groups.members import Active, adapted, names, operators_of
from headwater.groups.space import Space
from headwater.merging.closed import Closed
from headwater.merging.closings import FOREVER, Closings
from headwater.merging.keyed import KeyedTimeline
from headwater.merging.ranges import spread
from headwater.merging.sessions import Fragments, Sessions
from headwater.merging.timeline import Timeline
from headwater.operators import Columns, Operator, Ufunc, counts
from headwater.queries import EVERYTHING, Where
from headwater.rows import TS_MAX, TS_MIN, Array, Ints, Rows, SourceOrder
from headwater.slicing.edges import FAR, Edges, Periodic
from headwater.slicing.selection import selected
from headwater.windows import Session

# From here on a scattered addition beats a count by key (one cache line a row, no output a batch).
MANY_KEYS = 16_384
# How many windows are closed together where they may wait.
TOGETHER = 128
# How many empty windows of one query are reported at once, at most.
EMPTY_LIMIT = 100_000


@dataclass(slots=True)
class SelectionPart:
    """What one selection has gathered: cells by slice and code, and fragments of sessions."""

    start: Ints
    code: Ints
    states: list[Columns]
    fragments: Fragments | None


@dataclass(slots=True)
class SlicedPart:
    """A group's share of a partial; codes are indexes into `names`."""

    names: list[tuple[str, str | None]]
    operators: tuple[str, ...]
    selections: dict[Where, SelectionPart]


@dataclass(slots=True)
class _SessionStore:
    """Sessions of one gap and one time of life, and the queries that ask for them."""

    sessions: Sessions
    begin: int
    end: int
    queries: list[int]


@dataclass(slots=True)
class _Unbroken:
    """A query that reports empty windows too: the next window that it owes."""

    query: int
    window: Periodic
    next: int | None = None


@dataclass(slots=True)
class _Selection:
    where: Where
    timeline: Timeline | None = None
    keyed: KeyedTimeline | None = None
    closings: Closings | None = None
    sessions: list[_SessionStore] = field(default_factory=list)
    unbroken: list[_Unbroken] = field(default_factory=list)
    gap: int = 0
    longest: int = 0
    # Until when each query (by index) sees events, if any of them ends.
    until: Ints | None = None
    closed: list[Closed] = field(default_factory=list)


class SlicedGroup:
    """Tumbling, sliding and session queries with one key and equal or disjoint predicates."""

    def __init__(self, order: SourceOrder, *, keyed: bool, by_site: bool, root: bool) -> None:
        self._order, self._root = order, root
        self.space = Space(keyed=keyed, by_site=by_site)
        if self.space.plain:
            self.space.names.code(("", None))
        self.members: list[Active] = []
        self.operators: list[Operator] = operators_of((), order)
        self._edges = Edges(())
        # The operators, if each is a ufunc: then a slice can be kept dense by code.
        self._simple: list[Ufunc] | None = None
        self._selections: dict[Where, _Selection] = {}
        self._watermark = TS_MIN
        # No window ends before this time; and until then, what has ended may wait to be closed with more.
        self.next = self.latest = TS_MIN
        self._patience = 0
        # How many events were lifted; each costs one execution of every operator.
        self.lifted = 0

    # Membership

    def join(self, members: Sequence[Active]) -> None:
        """Take these members from now on; what was gathered stays."""
        before = self.operators
        self.members = list(members)
        self.next = self.latest = TS_MIN
        self.operators = operators_of(self.members, self._order)
        same = names(before) == names(self.operators)
        if same:
            self.operators = before
        simple = [operator for operator in self.operators if isinstance(operator, Ufunc)]
        self._simple = simple if len(simple) == len(self.operators) else None
        cuts = [edge for m in self.members for edge in (m.begin, m.end) if edge not in (TS_MIN, TS_MAX)]
        self._edges = Edges((m.periodic for m in self.members if m.periodic), cuts)
        self._patience = self._patience_of()
        for where in {m.query.where: None for m in self.members}:
            self._selections.setdefault(where, _Selection(where))
        for where in list(self._selections):
            mine = [m for m in self.members if m.query.where == where]
            if not mine and not self._selections[where].closed:
                del self._selections[where]
            else:
                self._arrange(self._selections[where], mine, cuts, before, same)

    def _patience_of(self) -> int:
        """For how long windows may wait, so that many are closed at once: closing costs by the call.

        Only where little is held for it: no keys, no values, and no sessions or empty windows to look for.
        """
        windows = [m.periodic for m in self.members if m.periodic and not m.query.emit_empty]
        if not self.space.plain or self._simple is None or len(windows) < len(self.members):
            return 0
        rate = sum(1.0 / window.slide for window in windows)
        return min(int(TOGETHER / rate), FAR) if windows else 0

    def _arrange(
        self, chosen: _Selection, mine: list[Active], cuts: list[int], before: list[Operator], same: bool
    ) -> None:
        periodic = [(m.index, m.periodic) for m in mine if m.periodic and not m.query.emit_empty]
        chosen.until = None
        if any(m.end < TS_MAX for m in mine):
            chosen.until = np.full(max(m.index for m in mine) + 1, TS_MAX)
            for member in mine:
                chosen.until[member.index] = member.end
        chosen.longest = max((m.periodic.length for m in mine if m.periodic), default=0)
        if not same:
            self._adapt(chosen, before)
        if any(m.periodic for m in mine):
            if self.space.plain and chosen.timeline is None:
                chosen.timeline = Timeline(self.operators)
            elif not self.space.plain and chosen.keyed is None:
                chosen.keyed = KeyedTimeline(self.operators)
        chosen.closings = Closings(periodic, after=self._watermark) if periodic and self._root else None
        known = {unbroken.query: unbroken for unbroken in chosen.unbroken}
        chosen.unbroken = [
            known.get(m.index, _Unbroken(m.index, m.periodic))
            for m in mine
            if m.periodic and m.query.emit_empty
        ]
        for unbroken in chosen.unbroken:
            unbroken.window = next(m.periodic for m in mine if m.index == unbroken.query and m.periodic)
        gaps = [(microseconds(m.query.window.gap), m) for m in mine if isinstance(m.query.window, Session)]
        chosen.gap = min((gap for gap, _ in gaps), default=0)
        if not self._root:
            self._arrange_node_sessions(chosen, cuts)
            return
        stores = {(s.sessions.gap, s.begin): s for s in chosen.sessions}
        chosen.sessions = []
        for gap, member in gaps:
            store = stores.get((gap, member.begin))
            if store is None:
                store = stores[gap, member.begin] = _SessionStore(
                    Sessions(self.operators, gap), member.begin, member.end, []
                )
            if store not in chosen.sessions:
                store.queries, store.end = [], member.end
                chosen.sessions.append(store)
            if store.end != member.end:
                # One of several queries was removed: it goes on alone, over a copy of what there is.
                store = _SessionStore(store.sessions.copy(), member.begin, member.end, [])
                chosen.sessions.append(store)
            store.queries.append(member.index)

    def _arrange_node_sessions(self, chosen: _Selection, cuts: list[int]) -> None:
        """A node below the root keeps one set of fragments, cut as finely as any query needs."""
        if not chosen.gap:
            chosen.sessions = []
            return
        fresh = Sessions(self.operators, chosen.gap, cuts)
        for store in chosen.sessions:
            fresh.add(store.sessions.drain(), len(self.space))
        chosen.sessions = [_SessionStore(fresh, TS_MIN, TS_MAX, [])]

    def _adapt(self, chosen: _Selection, earlier: list[Operator]) -> None:
        before = names(earlier)
        for closed in chosen.closed:
            closed.states = adapted(before, closed.states, self.operators)
        if chosen.timeline is not None and len(chosen.timeline):
            start, states = chosen.timeline.drain()
            chosen.timeline = Timeline(self.operators)
            chosen.timeline.add(start, adapted(before, states, self.operators))
        elif chosen.timeline is not None:
            chosen.timeline = Timeline(self.operators)
        if chosen.keyed is not None:
            chosen.keyed = chosen.keyed.rebased(self.operators, lambda s: adapted(before, s, self.operators))
        for store in chosen.sessions:
            fragments = store.sessions.drain()
            fragments.states = adapted(before, fragments.states, self.operators)
            store.sessions = store.sessions.renewed(self.operators)
            store.sessions.add(fragments, len(self.space))

    # Reading

    def read(self, rows: Rows, low: int, high: int, keys: tuple[str, ...], site: str) -> None:
        """Rows of one source, in the order of its numbers, with times in `[low, high]`."""
        for chosen in self._selections.values():
            if chosen.where is EVERYTHING:
                if self.space.plain:
                    self._feed_plain(chosen, rows, low, high)
                else:
                    self._feed(chosen, rows, low, high, keys, site)
                continue
            picked = selected(chosen.where, rows, keys)
            if len(picked):
                part = rows.take(picked, in_order=rows.in_order)
                self._feed(chosen, part, int(part.ts.min()), int(part.ts.max()), keys, site)

    def _feed(
        self, chosen: _Selection, rows: Rows, low: int, high: int, keys: tuple[str, ...], site: str
    ) -> None:
        if self.space.plain:
            self._feed_plain(chosen, rows, low, high)
        else:
            codes = self.space.codes(rows.codes, keys, site, len(rows.value))
            self._feed_keyed(chosen, rows, codes, low, high)

    def read_ordered(self, rows: Rows, keys: list[str], sites: Array | None, site_names: list[str]) -> None:
        """Rows of any sources in the total order; `codes` are indexes into keys."""
        codes = (
            None
            if self.space.plain
            else self.space.mixed_codes(rows.codes, keys, sites, site_names, len(rows))
        )
        for chosen in self._selections.values():
            part, part_codes = rows, codes
            if chosen.where is not EVERYTHING:
                picked = selected(chosen.where, rows, keys)
                if not len(picked):
                    continue
                part = rows.take(picked, in_order=True)
                part_codes = None if codes is None else codes[picked]
            low, high = part.ts.item(0), part.ts.item(len(part) - 1)
            if part_codes is None:
                self._feed_plain(chosen, part, low, high)
            else:
                self._feed_keyed(chosen, part, part_codes, low, high)

    def _feed_plain(self, chosen: _Selection, rows: Rows, low: int, high: int) -> None:
        self.lifted += len(rows.value)
        edges = self._edges
        if low < edges.low or low >= edges.high:
            edges.span(low)
        start, end, gap = edges.low, edges.high, chosen.gap
        if high < end and (not gap or high - low < gap):
            if len(self.operators) == 1:
                states = [self.operators[0].whole(rows)]
            else:
                states = [operator.whole(rows) for operator in self.operators]
            # Before the first edge no window has begun: only sessions can ask for what is there.
            if chosen.timeline is not None and start > TS_MIN:
                chosen.timeline.add_one(start, states)
            for store in chosen.sessions:
                if store.begin <= low < store.end:
                    store.sessions.add_one(low, high, states)
            return
        if not rows.in_order and not gap:
            few = self._edges.spans(low, high)
            if few is not None and chosen.timeline is not None:
                # Mild disorder over few slices: no order is needed to tell them apart.
                for begin, stop in few:
                    inside = np.flatnonzero((rows.ts >= begin) & (rows.ts < stop))
                    if len(inside) and begin > TS_MIN:
                        part = rows.take(inside, in_order=False)
                        chosen.timeline.add_one(begin, [operator.whole(part) for operator in self.operators])
                return
        rows = _by_time(rows)
        places, slices = self._edges.cut(rows.ts)
        cells = places
        if gap:
            wide = np.flatnonzero(np.diff(rows.ts) >= gap) + 1
            cells = np.union1d(places, wide)
        columns = [operator.runs(rows, cells) for operator in self.operators]
        cut = places[np.isin(slices, self._edges.cuts)] if gap else places
        if chosen.timeline is not None:
            held = self._folded(columns, cells, places)
            if slices.item(0) == TS_MIN:
                slices, held = slices[1:], [tuple(column[1:] for column in state) for state in held]
            if len(slices):
                chosen.timeline.add(slices, held)
        if chosen.sessions:
            apart = np.union1d(wide, cut)
            apart = apart if len(apart) and apart[0] == 0 else np.concatenate(([0], apart))
            last = rows.ts[np.append(apart[1:], len(rows)) - 1]
            none = np.zeros(len(apart), np.int64)
            fragments = Fragments(none, rows.ts[apart], last, self._folded(columns, cells, apart))
            self._add_fragments(chosen, fragments)

    def _folded(self, columns: list[Columns], cells: Ints, wanted: Ints) -> list[Columns]:
        """States of fine cells as states of coarser ones, by the rows at which both begin."""
        if len(cells) == len(wanted):
            return columns
        starts = cells.searchsorted(wanted)
        return [
            operator.fold(column, starts) for operator, column in zip(self.operators, columns, strict=True)
        ]

    def _add_fragments(self, chosen: _Selection, fragments: Fragments) -> None:
        for store in chosen.sessions:
            if store.begin == TS_MIN and store.end == TS_MAX:
                store.sessions.add(fragments, len(self.space))
                continue
            seen = (fragments.first >= store.begin) & (fragments.first < store.end)
            if seen.any():
                store.sessions.add(fragments.take(seen), len(self.space))

    def _feed_keyed(self, chosen: _Selection, rows: Rows, codes: Array, low: int, high: int) -> None:
        edges = self._edges
        if low < edges.low or low >= edges.high:
            edges.span(low)
        start, end = edges.low, edges.high
        within_gap = not chosen.gap or high - low < chosen.gap
        if high < end and within_gap:
            self.lifted += len(rows.value)
            self._feed_slice(chosen, start, rows, codes)
            return
        self.lifted += len(rows)
        if not rows.in_order:
            few = self._edges.spans(low, high)
            if few is not None and within_gap:
                for begin, stop in few:
                    inside = np.flatnonzero((rows.ts >= begin) & (rows.ts < stop))
                    if len(inside):
                        self._feed_slice(chosen, begin, rows.take(inside, in_order=False), codes[inside])
                return
            order = np.argsort(rows.ts, kind="stable")
            rows, codes = rows.take(order, in_order=True), codes[order]
        places, slices = self._edges.cut(rows.ts)
        if within_gap and len(rows) >= 64 * len(places):
            bounds = [*places.tolist(), len(rows)]
            for slice_, (begin, stop) in zip(slices.tolist(), pairwise(bounds), strict=True):
                self._feed_slice(chosen, slice_, rows.cut(begin, stop), codes[begin:stop])
            return
        self._feed_cells(chosen, rows, codes, places, slices)

    def _feed_slice(self, chosen: _Selection, start: int, rows: Rows, codes: Array) -> None:
        """Rows of one slice that span less than the gap: one cell a code."""
        size = len(self.space)
        simple = self._simple
        keyed = chosen.keyed if start > TS_MIN else None
        if keyed is None and not chosen.sessions:
            return
        if simple is not None:
            if not chosen.sessions and keyed is not None:
                dense = keyed.dense(start, size, expected=len(codes))
                if dense is not None:
                    many = size >= MANY_KEYS or size > 8 * len(codes)
                    for operator, columns in zip(simple, dense, strict=True):
                        if many:
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
                self._add_fragments(chosen, Fragments(held, first[held], last[held], states))
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
        if chosen.sessions:
            last_row = np.append(places[1:], len(codes)) - 1
            self._add_fragments(chosen, Fragments(codes[places], rows.ts[places], rows.ts[last_row], states))

    def _feed_cells(self, chosen: _Selection, rows: Rows, codes: Array, places: Ints, slices: Ints) -> None:
        """Rows in time order over many slices or gaps: cut by code, slice and gap at once."""
        number = np.repeat(np.arange(len(places)), np.diff(places, append=len(rows)))
        order = np.argsort(codes, kind="stable")
        rows, codes, number = rows.take(order, in_order=True), codes[order], number[order]
        other = np.ones(len(codes), bool)
        other[1:] = codes[1:] != codes[:-1]
        wide = other.copy()
        if chosen.gap:
            wide[1:] |= np.diff(rows.ts) >= chosen.gap
        fresh = wide.copy()
        fresh[1:] |= number[1:] != number[:-1]
        cells = np.flatnonzero(fresh)
        states = [operator.runs(rows, cells) for operator in self.operators]
        if chosen.keyed is not None:
            start, code = slices[number[cells]], codes[cells]
            begun = start > TS_MIN
            if np.count_nonzero(begun) == len(begun):
                self._add_cells(chosen.keyed, start, code, states)
            elif begun.any():
                held = [tuple(column[begun] for column in columns) for columns in states]
                self._add_cells(chosen.keyed, start[begun], code[begun], held)
        if chosen.sessions:
            cut = np.isin(slices, self._edges.cuts)
            if cut.any():
                epoch = np.cumsum(cut)[number]
                wide[1:] |= epoch[1:] != epoch[:-1]
            apart = np.flatnonzero(wide)
            last = rows.ts[np.append(apart[1:], len(rows)) - 1]
            fragments = Fragments(codes[apart], rows.ts[apart], last, self._folded(states, cells, apart))
            self._add_fragments(chosen, fragments)

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

    def drain(self) -> SlicedPart | None:
        """Everything that was gathered since the last time, and nothing stays."""
        parts: dict[Where, SelectionPart] = {}
        for where, chosen in self._selections.items():
            start = code = np.empty(0, np.int64)
            states = [operator.empty(0) for operator in self.operators]
            if chosen.timeline is not None and len(chosen.timeline):
                start, states = chosen.timeline.drain()
                code = np.zeros(len(start), np.int64)
            elif chosen.keyed is not None and len(chosen.keyed):
                pieces = list(chosen.keyed.drain(len(self.space)))
                start = np.repeat([s for s, _ in pieces], [len(cells[0]) for _, cells in pieces])
                code = np.concatenate([cells[0] for _, cells in pieces])
                states = [
                    tuple(
                        np.concatenate(c) for c in zip(*(cells[1][place] for _, cells in pieces), strict=True)
                    )
                    for place in range(len(self.operators))
                ]
            fragments = chosen.sessions[0].sessions.drain() if chosen.sessions else None
            if len(start) or (fragments is not None and len(fragments)):
                parts[where] = SelectionPart(start, code, states, fragments)
        return self._told(parts) if parts else None

    def _told(self, parts: dict[Where, SelectionPart]) -> SlicedPart:
        """A part with a dictionary of the keys that are in it, not of all that ever were."""
        fragments = [part.fragments for part in parts.values() if part.fragments is not None]
        used = np.unique(np.concatenate([p.code for p in parts.values()] + [f.code for f in fragments]))
        for part in parts.values():
            part.code = used.searchsorted(part.code)
        for each in fragments:
            each.code = used.searchsorted(each.code)
        listed = self.space.names.listed
        return SlicedPart([listed[code] for code in used.tolist()], names(self.operators), parts)

    def merge(self, part: SlicedPart, sources: Array) -> None:
        """Take another node's part; `sources` translates its source codes."""
        table = self.space.translated(part.names)
        for where, theirs in part.selections.items():
            chosen = self._selections.get(where)
            if chosen is None:
                continue
            if len(theirs.start):
                states = self._taken(part, theirs.states, sources)
                if chosen.timeline is not None:
                    chosen.timeline.add(theirs.start, states)
                elif chosen.keyed is not None:
                    self._add_cells(chosen.keyed, theirs.start, table[theirs.code], states)
            if theirs.fragments is not None and len(theirs.fragments):
                f = theirs.fragments
                states = self._taken(part, f.states, sources)
                self._add_fragments(chosen, Fragments(table[f.code], f.first, f.last, states))

    def _taken(self, part: SlicedPart, states: list[Columns], sources: Array) -> list[Columns]:
        """Another node's states as ours: it may compute more or less than we do."""
        mine = states
        if part.operators != names(self.operators):
            mine = adapted(part.operators, states, self.operators)
        return translated(self.operators, mine, sources)

    # Windows

    def close(self, watermark: int) -> None:
        """Close every window that ends at or before the watermark."""
        self._watermark = watermark
        due = TS_MAX
        for chosen in self._selections.values():
            if chosen.closings is not None and watermark >= chosen.closings.next:
                if chosen.timeline is not None:
                    self._close_plain(chosen, chosen.timeline, chosen.closings, watermark)
                elif chosen.keyed is not None:
                    self._close_keyed(chosen, chosen.keyed, chosen.closings, watermark)
            for store in chosen.sessions:
                if watermark >= store.sessions.next:
                    self._close_sessions(chosen, store, watermark)
            if chosen.timeline is not None:
                if chosen.unbroken:
                    self._close_unbroken(chosen, chosen.timeline, watermark)
                chosen.timeline.trim(watermark - chosen.longest)
            if chosen.sessions or chosen.unbroken:
                due = TS_MIN
            elif chosen.closings is not None:
                due = min(due, chosen.closings.next)
        self.next = due
        self.latest = max(due, watermark + self._patience) if self._patience else due

    def _close_plain(
        self, chosen: _Selection, timeline: Timeline, closings: Closings, watermark: int
    ) -> None:
        starts = timeline.starts
        query, start, end = closings.due(watermark, starts)
        if not len(query):
            return
        low, high = timeline.between(start, _seen(chosen, query, end))
        held = high > low
        if np.count_nonzero(held) < len(held):
            query, start, end, low, high = query[held], start[held], end[held], low[held], high[held]
            if not len(query):
                return
        # Windows come by their end, so the last one reaches furthest, unless some see less than they span.
        sealed = high.item(len(high) - 1) if chosen.until is None else int(high.max())
        states = timeline.fold(low, high, sealed)
        chosen.closed.append(Closed(query, np.zeros(len(query), np.int64), start, end, states))

    def _close_keyed(
        self, chosen: _Selection, keyed: KeyedTimeline, closings: Closings, watermark: int
    ) -> None:
        size = len(self.space)
        keyed.seal(self._edges.span(min(watermark, FOREVER))[0], size)
        starts = keyed.starts
        query, start, end = closings.due(watermark, starts)
        low = starts.searchsorted(start).tolist()
        high = starts.searchsorted(_seen(chosen, query, end)).tolist()
        same: tuple[int, int] | None = None
        for row in range(len(query)):
            if high[row] > low[row]:
                if same != (low[row], high[row]):
                    same = (low[row], high[row])
                    codes, states = keyed.fold(low[row], high[row], size)
                many = len(codes)
                chosen.closed.append(
                    Closed(
                        np.full(many, query[row]),
                        codes,
                        np.full(many, start[row]),
                        np.full(many, end[row]),
                        states,
                    )
                )
        keyed.trim(watermark - closings.longest)

    def _close_sessions(self, chosen: _Selection, store: _SessionStore, watermark: int) -> None:
        ended = store.sessions.due(watermark)
        if ended is None:
            return
        for query in store.queries:
            chosen.closed.append(
                Closed(
                    np.full(len(ended), query),
                    ended.code,
                    ended.first,
                    ended.last + store.sessions.gap,
                    ended.states,
                )
            )

    def _close_unbroken(self, chosen: _Selection, timeline: Timeline, watermark: int) -> None:
        starts = timeline.starts
        for unbroken in chosen.unbroken:
            window = unbroken.window
            if unbroken.next is None:
                seen = starts[starts >= window.begin] if window.begin > TS_MIN else starts
                if not len(seen):
                    continue
                number = (seen.item(0) - window.length - window.offset) // window.slide + 1
                first = window.offset + number * window.slide
                if first < window.begin:
                    first += -((first - window.begin) // window.slide) * window.slide
                if first + window.length > watermark:
                    continue
                unbroken.next = first
            until = min(watermark - window.length, window.end - 1)
            if watermark >= FOREVER:
                last = (
                    (starts.item(len(starts) - 1) if len(starts) else TS_MIN)
                    if window.end > TS_MIN
                    else TS_MIN
                )
                until = min(until, last)
            if until < unbroken.next:
                continue
            after = until - (until - unbroken.next) % window.slide + window.slide
            start = _owed(starts, unbroken.next, after, window)
            unbroken.next = after
            seen = np.minimum(start + window.length, window.end)
            low, high = timeline.between(start, seen)
            states = [operator.empty(len(start)) for operator in self.operators]
            held = np.flatnonzero(high > low)
            if len(held):
                folded = timeline.fold(low[held], high[held], int(high[-1]))
                for columns, new in zip(states, folded, strict=True):
                    for column, values in zip(columns, new, strict=True):
                        column[held] = values
            query = np.full(len(start), unbroken.query)
            chosen.closed.append(
                Closed(query, np.zeros(len(start), np.int64), start, start + window.length, states)
            )

    def take(self) -> list[Closed]:
        """The windows that were closed since the last time."""
        found = [closed for chosen in self._selections.values() for closed in chosen.closed]
        for chosen in self._selections.values():
            chosen.closed = []
        return found

    def __len__(self) -> int:
        """How many cells are held: slices by key, and fragments."""
        size = 0
        for chosen in self._selections.values():
            size += len(chosen.timeline) if chosen.timeline is not None else 0
            size += len(chosen.keyed) if chosen.keyed is not None else 0
            size += sum(len(store.sessions) for store in chosen.sessions)
        return size


def _owed(slices: Ints, begin: int, after: int, window: Periodic) -> Ints:
    """The starts of windows from `begin` to before `after`; of a very long gap only its beginning.

    A jump in time of years would otherwise be reported in more windows than memory holds.
    """
    if (after - begin) // window.slide <= EMPTY_LIMIT:
        return np.arange(begin, after, window.slide)
    first = (slices - window.length - window.offset) // window.slide + 1
    last = (slices - window.offset) // window.slide
    held = np.unique(spread(first, last + 1)) * window.slide + window.offset
    starts = np.union1d(held, np.arange(begin, begin + EMPTY_LIMIT * window.slide, window.slide))
    return starts[(starts >= begin) & (starts < after)]


def translated(operators: Sequence[Operator], states: Sequence[Columns], sources: Array) -> list[Columns]:
    """States whose source codes are another node's, with ours."""
    return [op.translated(columns, sources) for op, columns in zip(operators, states, strict=True)]


def _seen(chosen: _Selection, query: Array, end: Ints) -> Ints:
    """Until when the windows see events: their end, or that of their query."""
    return end if chosen.until is None else np.minimum(end, chosen.until[query])


def _by_time(rows: Rows) -> Rows:
    return rows if rows.in_order else rows.take(np.argsort(rows.ts, kind="stable"), in_order=True)
