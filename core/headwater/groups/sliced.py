"""Groups whose windows are cut by time: tumbling, sliding and session windows together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from headwater.errors import InvalidPartial
from headwater.groups.gathered import Gathered, SelectionPart
from headwater.groups.members import Active, adapted, names, operators_of
from headwater.groups.soundness import Extent, check_ints, check_states
from headwater.groups.space import Space
from headwater.merging.closed import Closed
from headwater.merging.sessions import Fragments
from headwater.operators import Columns, Operator, SumCount, Ufunc
from headwater.queries import EVERYTHING, Where
from headwater.rows import TS_MAX, TS_MIN, Array, Rows, SourceOrder
from headwater.slicing.edges import FAR, Edges, Periodic
from headwater.slicing.selection import selected

# How many windows are closed together where they may wait.
TOGETHER = 128


@dataclass(slots=True)
class SlicedPart:
    """A group's share of a partial; codes are indexes into `names`."""

    names: list[tuple[str, str | None]]
    operators: tuple[str, ...]
    selections: dict[Where, SelectionPart]


class SlicedGroup:
    """Tumbling, sliding and session queries with one key and equal or disjoint predicates."""

    def __init__(self, order: SourceOrder, *, keyed: bool, by_site: bool, root: bool) -> None:
        self._order, self._root = order, root
        self.space = Space(keyed=keyed, by_site=by_site)
        if self.space.plain:
            self.space.names.code(("", None))
        self.members: list[Active] = []
        # The windows of queries that are gone, as long as their edges matter.
        self._past: list[Periodic] = []
        self.operators: list[Operator] = operators_of((), order)
        self._selections: dict[Where, Gathered] = {}
        self._watermark = TS_MIN
        # No window ends before this time; and until then, what has ended may wait to be closed with more.
        self.next = self.latest = TS_MIN
        self._patience = 0
        # Of selections that are gone.
        self._lifted = 0

    # Membership

    def join(self, members: Sequence[Active], *, gone_at: int = TS_MAX) -> None:
        """Take these members from now on; what was gathered stays. Others see nothing from `gone_at` on."""
        before = self.operators
        self._remember_edges({member.index for member in members}, gone_at)
        self.members = list(members)
        self.next = self.latest = TS_MIN
        self.operators = operators_of(self.members, self._order)
        if names(before) == names(self.operators):
            self.operators = before
        cuts = [edge for m in self.members for edge in (m.begin, m.end) if edge not in (TS_MIN, TS_MAX)]
        edges = Edges([*(m.periodic for m in self.members if m.periodic), *self._past], cuts)
        # One of its own: selections remember where they have looked last.
        self._ends = Edges([m.periodic for m in self.members if m.periodic])
        self._patience = self._patience_of()
        for where in {m.query.where: None for m in self.members}:
            if where not in self._selections:
                self._selections[where] = Gathered(where, self.space, self.operators, root=self._root)
        for where, chosen in list(self._selections.items()):
            mine = [m for m in self.members if m.query.where == where]
            if mine or chosen.closed:
                chosen.arrange(mine, self.operators, edges, cuts, self._watermark)
            else:
                self._lifted += self._selections.pop(where).lifted

    @property
    def patient(self) -> bool:
        """Whether no session is in it: its end is no edge that is known before."""
        return all(member.periodic is not None for member in self.members)

    def edge_after(self, ts: int) -> int:
        """The first edge of a window behind a time."""
        return self._ends.span(ts)[1]

    def forget(self, watermark: int) -> None:
        """Nothing comes before this time any more: drop members that have ended, and their edges."""
        kept = [m for m in self.members if m.end == TS_MAX or m.last_end >= watermark]
        if len(kept) < len(self.members):
            self.join(kept)
        elif not self._past or self._past[0].end > watermark:
            return
        reach = max((m.periodic.length for m in self.members if m.periodic), default=0)
        self._past = [window for window in self._past if window.end > watermark - reach]

    def _remember_edges(self, staying: set[int], gone_at: int) -> None:
        """Slices stay cut where queries that leave have cut them: an event that came later would otherwise
        be put into a slice of which windows have been folded."""
        reach = max((m.periodic.length for m in self.members if m.periodic), default=0)
        # Where nothing was applied there is no edge either.
        done = max(self._watermark - reach, TS_MIN) if self._root else TS_MIN
        self._past = [window for window in self._past if window.end > done]
        for member in self.members:
            if member.index not in staying and member.periodic:
                window = replace(member.periodic, end=min(member.end, gone_at))
                if done < window.end < TS_MAX:
                    self._past.append(window)

    @property
    def lifted(self) -> int:
        """How many events were lifted; each costs one execution of every operator."""
        return self._lifted + sum(chosen.lifted for chosen in self._selections.values())

    def _patience_of(self) -> int:
        """For how long windows may wait, so that many are closed at once: closing costs by the call.

        Only where little is held for it: no keys, no values, and no sessions or empty windows to look for.
        """
        windows = [m.periodic for m in self.members if m.periodic and not m.query.emit_empty]
        simple = all(isinstance(operator, Ufunc) for operator in self.operators)
        if not self.space.plain or not simple or len(windows) < len(self.members):
            return 0
        rate = sum(1.0 / window.slide for window in windows)
        return min(int(TOGETHER / rate), FAR) if windows else 0

    # Reading

    def read(self, rows: Rows, low: int, high: int, keys: tuple[str, ...], site: str) -> None:
        """Rows of one source, in the order of its numbers, with times in `[low, high]`."""
        for chosen in self._selections.values():
            if chosen.where is EVERYTHING:
                if self.space.plain:
                    chosen.feed(rows, low, high)
                else:
                    codes = self.space.codes(rows.codes, keys, site, len(rows.value))
                    chosen.feed_keyed(rows, codes, low, high)
                continue
            picked = selected(chosen.where, rows, keys)
            if len(picked):
                part = rows.take(picked, in_order=rows.in_order)
                self._feed(chosen, part, int(part.ts.min()), int(part.ts.max()), keys, site)

    def _feed(
        self, chosen: Gathered, rows: Rows, low: int, high: int, keys: tuple[str, ...], site: str
    ) -> None:
        if self.space.plain:
            chosen.feed(rows, low, high)
        else:
            codes = self.space.codes(rows.codes, keys, site, len(rows.value))
            chosen.feed_keyed(rows, codes, low, high)

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
                chosen.feed(part, low, high)
            else:
                chosen.feed_keyed(part, part_codes, low, high)

    @property
    def proves(self) -> bool:
        """Whether `read_proving` can be used: everything is summed up anyway, at one place."""
        alone = list(self._selections) == [EVERYTHING]
        return self.space.plain and alone and isinstance(self.operators[0], SumCount)

    def read_proving(self, rows: Rows, low: int, high: int) -> bool:
        """Read rows in order whose values may not be finite; False, and nothing is read, if one is not.

        A finite sum proves it, and the sums are needed: so no pass over the values is spent on it.
        """
        (chosen,) = self._selections.values()
        return chosen.feed(rows, low, high, prove=True)

    # Partials

    def drain(self) -> SlicedPart | None:
        """Everything that was gathered since the last time, and nothing stays."""
        parts = {
            where: part for where, chosen in self._selections.items() if (part := chosen.drain()) is not None
        }
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
            fragments = theirs.fragments
            if fragments is not None:
                states = self._taken(part, fragments.states, sources)
                fragments = Fragments(table[fragments.code], fragments.first, fragments.last, states)
            states = self._taken(part, theirs.states, sources)
            chosen.merge(SelectionPart(theirs.start, table[theirs.code], states, fragments))

    def check(self, part: SlicedPart, extent: Extent) -> None:
        """Raise if another node's part cannot be merged."""
        self.space.check(part.names)
        if not part.operators or len(set(part.operators)) < len(part.operators):
            said = f"are {', '.join(part.operators) or 'none'}"
            raise InvalidPartial("operators", said, "send each once")
        askers = self._askers()
        # No window that ends before all of these events is open any more, and no slice of one.
        first = self._ends.span(extent.low)[0]
        for theirs in part.selections.values():
            start, fragments = theirs.start, theirs.fragments
            size = len(start)
            check_ints("start", start, size, first, extent.high)
            check_ints("code", theirs.code, size, 0, len(part.names) - 1)
            if self.space.plain and size > 1 and not (start[1:] > start[:-1]).all():
                raise InvalidPartial("start", "does not rise", "send each slice once, in order")
            unasked = {name: _outside(start, members) for name, members in askers.items()}
            check_states(self.operators, part.operators, theirs.states, size, extent, unasked)
            if fragments is None:
                continue
            size = len(fragments.first)
            check_ints("fragments.first", fragments.first, size, extent.low, extent.high)
            check_ints("fragments.last", fragments.last, size, extent.low, extent.high)
            check_ints("fragments.code", fragments.code, size, 0, len(part.names) - 1)
            if (fragments.first > fragments.last).any():
                raise InvalidPartial("fragments.last", "lies before the first", "send first and last event")
            unasked = {name: _outside(fragments.first, members) for name, members in askers.items()}
            check_states(self.operators, part.operators, fragments.states, size, extent, unasked)

    def _askers(self) -> dict[str, list[Active]]:
        """Of operators whose states may not be missing: who asks for them."""
        found: dict[str, list[Active]] = {
            operator.name: [] for operator in self.operators if object in operator.dtypes
        }
        for member in self.members if found else ():
            for function in member.query.aggregates:
                for name in found.keys() & set(function.operators):
                    found[name].append(member)
        return found

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
        due = min((chosen.close(watermark) for chosen in self._selections.values()), default=TS_MAX)
        self.next = due
        self.latest = max(due, watermark + self._patience) if self._patience else due

    def pass_by(self, watermark: int) -> None:
        """The watermark has come so far, and windows are closed elsewhere."""
        self._watermark = watermark

    def take(self) -> list[Closed]:
        """The windows that were closed since the last time."""
        found = [closed for chosen in self._selections.values() for closed in chosen.closed]
        for chosen in self._selections.values():
            chosen.closed = []
        return found

    def __len__(self) -> int:
        """How many cells are held: slices by key, and fragments."""
        return sum(map(len, self._selections.values()))


def _outside(start: Array, members: Sequence[Active]) -> Array:
    """Which cells no member has a window for: before it was added, or behind the last one that it began.
    Whoever sends them may have heard before us that the watermark is past that, and let it go."""
    outside = np.ones(len(start), bool)
    for member in members:
        outside &= (start < member.begin) | (start >= member.last_end)
    return outside


def translated(operators: Sequence[Operator], states: Sequence[Columns], sources: Array) -> list[Columns]:
    """States whose source codes are another node's, with ours."""
    return [op.translated(columns, sources) for op, columns in zip(operators, states, strict=True)]
