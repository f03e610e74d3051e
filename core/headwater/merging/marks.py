"""Windows between marks: cells by (source, key, ordinal), their bounds, and which of them are one."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from headwater.operators import Columns, Operator
from headwater.prefix import KeyedMarks, MarkState
from headwater.rows import Ints
from headwater.windows import Merge

# A window of one source: (source code, key or None, ordinal).
Place = tuple[int, str | None, int]
Bounds = tuple[int, int]


@dataclass(slots=True)
class MarkCells:
    """Cells of mark windows, and the bounds of those that have ended."""

    source: Ints
    code: Ints
    ordinal: Ints
    states: list[Columns]
    ended: dict[Place, Bounds] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Member:
    """A source of the roster, as the order of its windows sees it."""

    source: int
    site: str
    marks: KeyedMarks


@dataclass(frozen=True, slots=True)
class Unfinished:
    """A window of one source that is not final; `end` is None while it is open."""

    source: int
    site: str
    ordinal: int
    end: int | None


@dataclass(slots=True)
class Merged:
    """Windows that are final: cells by row, the rows of each window, and its bounds."""

    site: str
    code: int
    start: int
    end: int
    ordinal: int
    rows: list[int]


class MarkWindows:
    """The cells of one mark query."""

    def __init__(self, operators: Sequence[Operator], merge: Merge, *, by_site: bool) -> None:
        self._operators, self._merge, self._by_site = operators, merge, by_site
        self._chunks: list[MarkCells] = []
        self._ended: dict[Place, Bounds] = {}

    def __len__(self) -> int:
        return sum(len(chunk.code) for chunk in self._chunks)

    @property
    def open_bounds(self) -> int:
        return len(self._ended)

    def add(self, cells: MarkCells) -> None:
        if len(cells.code):
            self._chunks.append(cells)
        self._ended.update(cells.ended)
        if len(self._chunks) > 64:
            self._compact()

    def _compact(self) -> MarkCells | None:
        """All cells as one chunk, each (source, code, ordinal) once."""
        if len(self._chunks) > 1:
            source = np.concatenate([chunk.source for chunk in self._chunks])
            code = np.concatenate([chunk.code for chunk in self._chunks])
            ordinal = np.concatenate([chunk.ordinal for chunk in self._chunks])
            order = np.lexsort((ordinal, code, source))
            source, code, ordinal = source[order], code[order], ordinal[order]
            fresh = np.ones(len(code), bool)
            fresh[1:] = (source[1:] != source[:-1]) | (code[1:] != code[:-1]) | (ordinal[1:] != ordinal[:-1])
            starts = np.flatnonzero(fresh)
            states = []
            for place, operator in enumerate(self._operators):
                columns = tuple(
                    np.concatenate(parts)[order]
                    for parts in zip(*(chunk.states[place] for chunk in self._chunks), strict=True)
                )
                states.append(operator.fold(columns, starts))
            self._chunks = [MarkCells(source[starts], code[starts], ordinal[starts], states)]
        return self._chunks[0] if self._chunks else None

    def end_by(self, edge: int) -> None:
        """No window ends later."""
        self._ended = {
            place: (start, max(start, min(end, edge))) for place, (start, end) in self._ended.items()
        }

    def drain(self) -> MarkCells:
        """Everything, and nothing stays."""
        cells = self._compact()
        if cells is None:
            none = np.empty(0, np.int64)
            cells = MarkCells(none, none, none, [operator.empty(0) for operator in self._operators])
        cells.ended = self._ended
        cells.states = [op.sealed(c) for op, c in zip(self._operators, cells.states, strict=True)]
        self._chunks, self._ended = [], {}
        return cells

    def due(
        self,
        watermark: int,
        roster: Sequence[Member],
        marks: Mapping[int, KeyedMarks],
        sites: Callable[[int], str],
        key: Callable[[int], str | None],
    ) -> tuple[list[Merged], list[Columns]]:
        """Windows that are final at the watermark, and the states of their cells by row.

        `roster` is who must be waited for, `marks` the state of every source that ever had a window.
        """
        cells = self._compact()
        if cells is None:
            self._forget(watermark, roster)
            return [], []
        place_of = _Lookup(self._ended, marks)
        rows = list(zip(cells.source.tolist(), cells.code.tolist(), cells.ordinal.tolist(), strict=True))
        if self._merge == "overlap":
            merged = list(self._by_overlap(rows, watermark, roster, marks, sites, key))
        elif self._merge == "order":
            merged = [
                w for w in self._by_order(rows, roster, marks, sites, key, place_of) if watermark > w.end
            ]
        else:
            merged = list(self._by_bounds(rows, watermark, sites, key, place_of))
        gone = sorted(row for window in merged for row in window.rows)
        if not gone:
            self._forget(watermark, roster)
            return [], []
        # The states of the windows leave with them; the other cells stay.
        number = {row: place for place, row in enumerate(gone)}
        for window in merged:
            window.rows = [number[row] for row in window.rows]
        taken = [tuple(column[gone] for column in columns) for columns in cells.states]
        keep = np.ones(len(rows), bool)
        keep[gone] = False
        self._chunks = [
            MarkCells(
                cells.source[keep],
                cells.code[keep],
                cells.ordinal[keep],
                [tuple(column[keep] for column in columns) for columns in cells.states],
            )
        ]
        if not keep.any():
            self._chunks = []
        self._forget(watermark, roster)
        return merged, taken

    def unfinished(
        self,
        watermark: int | None,
        roster: Sequence[Member],
        marks: Mapping[int, KeyedMarks],
        sites: Callable[[int], str],
        key: Callable[[int], str | None],
    ) -> list[Unfinished]:
        """Every window of a source and key that is not final, as of the last time that windows were due.

        One that has ended without events is among them until the watermark has passed it and, by order,
        its turn has come; then it is kept for the bounds of others alone. It takes a walk, and folds no
        cells: to look must not change how sums are rounded.
        """
        place_of = _Lookup(self._ended, marks)
        cells = {
            cell
            for chunk in self._chunks
            for cell in zip(chunk.source.tolist(), chunk.code.tolist(), chunk.ordinal.tolist(), strict=True)
        }
        found = []
        full = set()
        for source, code, ordinal in cells:
            place = place_of.place(source, key(code), ordinal)
            full.add(place)
            bounds = self._ended.get(place)
            found.append(Unfinished(source, sites(source), ordinal, None if bounds is None else bounds[1]))
        reached: dict[tuple[str, str | None], int] = {}
        for (source, name, ordinal), (_, end) in self._ended.items():
            if (source, name, ordinal) in full:
                continue
            site = sites(source)
            waits = watermark is None or not watermark > end
            if not waits and self._merge == "order":
                if (site, name) not in reached:
                    reached[site, name] = min(
                        (
                            state.ordinal
                            for member in roster
                            if not self._by_site or member.site == site
                            for state in _states(member.marks, name)
                        ),
                        default=ordinal + 1,
                    )
                waits = ordinal >= reached[site, name]
            if waits:
                found.append(Unfinished(source, site, ordinal, end))
        return found

    def held_back(
        self, unfinished: Iterable[Unfinished], roster: Iterable[Member], lows: Mapping[int, int]
    ) -> dict[int, int]:
        """How many windows wait for each source of the roster that some wait for.

        They wait for its end mark if they are its own and open, for its time (`lows`), and for its turn
        by order, or by overlap for the end of what it has opened.
        """
        opened: Counter[int] = Counter()
        ends: list[int] = []
        turns: dict[str, list[int]] = defaultdict(list)
        for window in unfinished:
            if window.end is None:
                opened[window.source] += 1
                continue
            ends.append(window.end)
            site = window.site if self._by_site else ""
            turns[site].append(window.ordinal if self._merge == "order" else window.end)
        for listed in (ends, *turns.values()):
            listed.sort()
        found = {}
        for member in roster:
            states = member.marks.values() or [MarkState()]
            since: int | None = None
            if self._merge == "order":
                since = min(state.ordinal for state in states)
            elif self._merge == "overlap":
                since = min((s.opened for s in states if s.opened is not None), default=None)
            number = len(ends) - bisect_left(ends, lows[member.source])
            if since is not None:
                turn = turns.get(member.site if self._by_site else "", [])
                number = max(number, len(turn) - bisect_left(turn, since))
            number += opened[member.source]
            if number:
                found[member.source] = number
        return found

    def _by_bounds(
        self,
        rows: Sequence[tuple[int, int, int]],
        watermark: int,
        sites: Callable[[int], str],
        key: Callable[[int], str | None],
        place_of: _Lookup,
    ) -> Iterator[Merged]:
        """Equal bounds are one window; with merge "local" a source is alone."""
        found: dict[tuple[str, int, int, int, int], Merged] = {}
        for row, (source, code, ordinal) in enumerate(rows):
            bounds = place_of.bounds(source, key(code), ordinal)
            if bounds is None or not watermark > bounds[1]:
                continue
            site = sites(source) if self._by_site or self._merge == "local" else ""
            # A source alone may have two windows with the same bounds.
            window = (site, code, *bounds, ordinal if self._merge == "local" else 0)
            if window not in found:
                found[window] = Merged(site, code, *bounds, ordinal, [])
            found[window].rows.append(row)
        yield from found.values()

    def _by_order(
        self,
        rows: Sequence[tuple[int, int, int]],
        roster: Sequence[Member],
        marks: Mapping[int, KeyedMarks],
        sites: Callable[[int], str],
        key: Callable[[int], str | None],
        place_of: _Lookup,
    ) -> Iterator[Merged]:
        """The i-th window of every source, once every source of the roster has ended it."""
        found: dict[tuple[str, int, int], Merged] = {}
        for row, (source, code, ordinal) in enumerate(rows):
            site = sites(source) if self._by_site else ""
            reached = (
                place_of.state(member.source, key(code)).ordinal > ordinal
                for member in roster
                if not self._by_site or member.site == site
            )
            bounds = place_of.bounds(source, key(code), ordinal)
            if bounds is None or not all(reached):
                continue
            window = found.setdefault((site, code, ordinal), Merged(site, code, *bounds, ordinal, []))
            window.rows.append(row)
        for (site, code, ordinal), window in found.items():
            # Sources without an event of this key, and sources that are gone, shape the bounds too.
            for source in marks:
                if self._by_site and sites(source) != site:
                    continue
                bounds = place_of.bounds(source, key(code), ordinal)
                if bounds is not None:
                    window.start, window.end = min(window.start, bounds[0]), max(window.end, bounds[1])
        yield from found.values()

    def _by_overlap(
        self,
        rows: Sequence[tuple[int, int, int]],
        watermark: int,
        roster: Sequence[Member],
        marks: Mapping[int, KeyedMarks],
        sites: Callable[[int], str],
        key: Callable[[int], str | None],
    ) -> Iterator[Merged]:
        """Windows that overlap or touch are one, once nothing open reaches back to them."""
        by_code: dict[tuple[str, int], dict[tuple[int, int], int]] = {}
        for row, (source, code, ordinal) in enumerate(rows):
            site = sites(source) if self._by_site else ""
            by_code.setdefault((site, code), {})[source, ordinal] = row
        for (site, code), cells in by_code.items():
            name = key(code)
            windows = []
            for (source, owner, ordinal), bounds in self._ended.items():
                if self._by_site and sites(source) != site:
                    continue
                own = marks.get(source, {}).get(name) if name is not None else None
                if owner == name if own is not None and ordinal >= own.since else owner is None:
                    windows.append((*bounds, source, ordinal))
            open_since = [
                state.opened
                for member in roster
                if not self._by_site or member.site == site
                for state in (member.marks.get(name) or member.marks.get(None) or MarkState(),)
                if state.opened is not None
            ]
            for cluster in _clusters(sorted(windows)):
                end = max(window[1] for window in cluster)
                if not watermark > end or any(opened <= end for opened in open_since):
                    continue
                held = [
                    cells[source, ordinal] for *_, source, ordinal in cluster if (source, ordinal) in cells
                ]
                if held:
                    yield Merged(site, code, cluster[0][0], end, cluster[0][3], held)

    def _forget(self, watermark: int, roster: Sequence[Member]) -> None:
        """Drop bounds that no window can need any more."""
        if not self._ended:
            return
        if self._merge == "order":
            reached = min(
                (
                    state.ordinal
                    for member in roster
                    for state in (member.marks or {None: MarkState()}).values()
                ),
                default=0,
            )
            waited_for = {place[2] for place, b in self._ended.items() if not watermark > b[1]}
            self._ended = {
                place: b for place, b in self._ended.items() if place[2] >= reached or place[2] in waited_for
            }
            return
        if self._merge != "overlap":
            self._ended = {place: b for place, b in self._ended.items() if not watermark > b[1]}
            return
        # The coarsest clusters, over all keys and sites: what is final there is final everywhere.
        open_since = [s.opened for member in roster for s in member.marks.values() if s.opened is not None]
        everything = sorted(((*bounds, place) for place, bounds in self._ended.items()), key=lambda w: w[:2])
        for cluster in _clusters(everything):
            end = max(window[1] for window in cluster)
            if watermark > end and not any(opened <= end for opened in open_since):
                for *_, place in cluster:
                    del self._ended[place]


class _Lookup:
    """The bounds and the state of a source's windows, by the key's own marks or those of all keys."""

    def __init__(self, ended: Mapping[Place, Bounds], marks: Mapping[int, KeyedMarks]) -> None:
        self._ended, self._marks = ended, marks

    def state(self, source: int, key: str | None) -> MarkState:
        marks = self._marks.get(source, {})
        return marks.get(key) or marks.get(None) or MarkState()

    def place(self, source: int, key: str | None, ordinal: int) -> Place:
        """Whose bounds are those of a key's window: its own, or those of all keys."""
        own = self._marks.get(source, {}).get(key) if key is not None else None
        return source, key if own is not None and ordinal >= own.since else None, ordinal

    def bounds(self, source: int, key: str | None, ordinal: int) -> Bounds | None:
        return self._ended.get(self.place(source, key, ordinal))


def _states(marks: KeyedMarks, key: str | None) -> Iterable[MarkState]:
    """The state of one key; of all of them, if none is named."""
    if key is None:
        return marks.values() or [MarkState()]
    return [marks.get(key) or marks.get(None) or MarkState()]


def _clusters(windows: Iterable[tuple[Any, ...]]) -> Iterator[list[tuple[Any, ...]]]:
    """Windows `(start, end, ...)`, sorted, in groups that overlap or touch."""
    cluster: list[tuple[Any, ...]] = []
    end = 0
    for window in windows:
        if cluster and window[0] > end:
            yield cluster
            cluster = []
        end = max(end, window[1]) if cluster else window[1]
        cluster.append(window)
    if cluster:
        yield cluster
