"""Groups whose windows are cut by marks: each source's own windows, merged as the query says."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from headwater.errors import InvalidPartial
from headwater.groups.members import Active, names, operators_of
from headwater.groups.sliced import translated
from headwater.groups.soundness import Extent, check_ints, check_states
from headwater.groups.space import Space
from headwater.merging.closed import Closed
from headwater.merging.marks import MarkCells, MarkWindows, Member, Unfinished
from headwater.operators import Operator
from headwater.prefix import KeyedMarks, Mark
from headwater.rows import Array, Ints, Rows, SourceOrder
from headwater.slicing.marks import Ended, Piece, walk
from headwater.slicing.selection import selected
from headwater.windows import TS_LIMIT, Punctuation


@dataclass(slots=True)
class MarkedPart:
    """The group's share of a partial; codes are indexes into `names`, sources the partial's."""

    names: list[tuple[str, str | None]]
    cells: MarkCells


class MarkedGroup:
    """One punctuation query."""

    def __init__(self, order: SourceOrder, member: Active) -> None:
        query = member.query
        assert isinstance(query.window, Punctuation)
        self.member, self.window = member, query.window
        self.by_site = by_site = query.scope == "local"
        # Codes tell keys apart; who belongs to which site is known by the source.
        self.space = Space(keyed=query.key_by is not None, by_site=False)
        if self.space.plain:
            self.space.names.code(("", None))
        self.operators: list[Operator] = operators_of([member], order)
        self._windows = MarkWindows(self.operators, query.window.merge, by_site=by_site)
        # Final windows, with the site and the ordinal of each.
        self._closed: list[tuple[Closed, list[str], list[int]]] = []
        self.lifted = 0
        # Whether the query was removed and its last windows have been ended.
        self.over = False

    @property
    def name(self) -> str:
        """What sources keep their states under: a query that is added again is another one."""
        return f"{self.member.query.id}/{self.member.index}"

    @property
    def members(self) -> list[Active]:
        return [self.member]

    def read(
        self, rows: Rows, marks: Sequence[Mark], states: KeyedMarks, keys: tuple[str, ...], source: int
    ) -> KeyedMarks:
        """Rows and marks of one source in the order of its numbers; gives its state behind them."""
        pieces, ended, after = walk(
            marks,
            len(rows),
            states,
            self.window,
            keyed=self.space.keyed,
            begin=self.member.begin,
            end=self.member.end,
        )
        self.end(source, ended)
        if len(rows):
            self._gather(rows, pieces, keys, source)
        return after

    def end(self, source: int, ended: Sequence[Ended]) -> None:
        """Windows of a source that have ended."""
        if ended:
            none = np.empty(0, np.int64)
            places = {(source, e.key, e.ordinal): (e.start, e.end) for e in ended}
            self._windows.add(MarkCells(none, none, none, [op.empty(0) for op in self.operators], places))

    def _gather(self, rows: Rows, pieces: Sequence[Piece], keys: tuple[str, ...], source: int) -> None:
        codes = (
            self.space.codes(rows.codes, keys, "", len(rows))
            if self.space.keyed
            else np.zeros(len(rows), np.intp)
        )
        ordinal: Ints = np.full(len(rows), -1, np.int64)
        for piece in pieces:
            default = piece.states[None]
            table = np.full(max(len(self.space), 1), default.ordinal if default.opened is not None else -1)
            for key, state in piece.states.items():
                place = -1 if key is None else self.space.names.code(("", key))
                # A key that is new here has no events in these rows.
                if 0 <= place < len(table):
                    table[place] = state.ordinal if state.opened is not None else -1
            ordinal[piece.begin : piece.end] = table[codes[piece.begin : piece.end]]
        inside = (ordinal >= 0) & (rows.ts >= self.member.begin) & (rows.ts < self.member.end)
        matching = selected(self.member.query.where, rows, keys)
        chosen = matching[inside[matching]]
        if not len(chosen):
            return
        self.lifted += len(chosen)
        order = chosen[np.lexsort((rows.ts[chosen], ordinal[chosen], codes[chosen]))]
        picked = rows.take(order, in_order=True)
        code: Array = codes[order]
        number = ordinal[order]
        fresh = np.ones(len(order), bool)
        fresh[1:] = (code[1:] != code[:-1]) | (number[1:] != number[:-1])
        places = np.flatnonzero(fresh)
        states = [operator.runs(picked, places) for operator in self.operators]
        sources = np.full(len(places), source, np.int64)
        self._windows.add(MarkCells(sources, np.asarray(code[places], np.int64), number[places], states))

    def shorten(self, member: Active) -> None:
        """The query sees no event from its `end` on; a window that `idle` has ended later ends there."""
        self.member = member
        self._windows.end_by(member.end)

    def drain(self) -> MarkedPart | None:
        if not len(self._windows) and not self._windows.open_bounds:
            return None
        return MarkedPart(list(self.space.names.listed), self._windows.drain())

    def check(self, part: MarkedPart, extent: Extent) -> None:
        """Raise if another node's part cannot be merged."""
        cells, size = part.cells, len(part.cells.source)
        self.space.check(part.names)
        check_ints("source", cells.source, size, 0, TS_LIMIT)
        if not np.isin(cells.source, extent.sources).all():
            raise InvalidPartial("source", "is not in the partial", "name each source of the partial")
        check_ints("code", cells.code, size, 0, len(part.names) - 1)
        check_ints("ordinal", cells.ordinal, size, 0, TS_LIMIT)
        whole = {operator.name: np.zeros(size, bool) for operator in self.operators}
        check_states(self.operators, names(self.operators), cells.states, size, extent, whole)
        known = set(extent.sources.tolist())
        for (source, key, ordinal), (start, end) in cells.ended.items():
            if source not in known or not 0 <= ordinal <= TS_LIMIT:
                said = f"is window {ordinal} of source {source}"
                raise InvalidPartial("ended", said, "name windows of sources of the partial")
            if key is not None and not self.space.keyed:
                raise InvalidPartial("ended", f"has the key {key!r}", "send none for a query without keys")
            if not -TS_LIMIT <= start <= end <= TS_LIMIT:
                raise InvalidPartial("ended", f"is from {start} to {end}", "send the times of two marks")

    def merge(self, part: MarkedPart, sources: Array) -> None:
        cells = part.cells
        table: Ints = self.space.translated(part.names)
        self._windows.add(
            MarkCells(
                sources[cells.source].astype(np.int64) if len(cells.source) else cells.source,
                table[cells.code] if len(cells.code) else cells.code,
                cells.ordinal,
                translated(self.operators, cells.states, sources),
                {
                    (int(sources[s]), key, ordinal): bounds
                    for (s, key, ordinal), bounds in cells.ended.items()
                },
            )
        )

    def close(
        self,
        watermark: int,
        roster: Sequence[Member],
        marks: Mapping[int, KeyedMarks],
        names: Callable[[int], str],
        sites: Callable[[int], str],
    ) -> None:
        """Close what is final; a window of merge "local" bears its source's name for a site."""
        label = names if self.window.merge == "local" else sites
        merged, states = self._windows.due(watermark, roster, marks, label, self._key)
        if not merged:
            return
        rows = np.array([row for window in merged for row in window.rows], np.int64)
        sizes = np.array([len(window.rows) for window in merged])
        starts = np.cumsum(sizes) - sizes
        folded = [
            operator.fold(tuple(column[rows] for column in columns), starts)
            for operator, columns in zip(self.operators, states, strict=True)
        ]
        closed = Closed(
            np.full(len(merged), self.member.index),
            np.array([window.code for window in merged], np.int64),
            np.array([window.start for window in merged], np.int64),
            np.array([window.end for window in merged], np.int64),
            folded,
        )
        sites_of, ordinals = [window.site for window in merged], [window.ordinal for window in merged]
        self._closed.append((closed, sites_of, ordinals))

    @property
    def crowded(self) -> bool:
        """Whether more windows than the query allows may be waiting; `unfinished` knows for certain."""
        return len(self._windows) + self._windows.open_bounds > self.window.max_open

    def unfinished(
        self,
        watermark: int | None,
        roster: Sequence[Member],
        marks: Mapping[int, KeyedMarks],
        sites: Callable[[int], str],
    ) -> list[Unfinished]:
        """The windows of sources that are not final."""
        return self._windows.unfinished(watermark, roster, marks, sites, self._key)

    def held_back(
        self, unfinished: Sequence[Unfinished], roster: Sequence[Member], lows: Mapping[int, int]
    ) -> dict[int, int]:
        """How many of the windows wait for each source; `lows` is how far the time of each has come."""
        return self._windows.held_back(unfinished, roster, lows)

    def _key(self, code: int) -> str | None:
        return self.space.names.listed[code][1]

    def take(self) -> list[tuple[Closed, list[str], list[int]]]:
        closed, self._closed = self._closed, []
        return closed

    def __len__(self) -> int:
        return len(self._windows)
