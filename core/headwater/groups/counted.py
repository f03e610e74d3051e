"""Groups whose windows are cut by rank: every n-th event of the total order."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from headwater.groups.members import Active, operators_of
from headwater.groups.space import Space
from headwater.merging.closed import Closed
from headwater.merging.counting import Ranks
from headwater.operators import Operator
from headwater.queries import EVERYTHING, Where
from headwater.rows import TS_MAX, TS_MIN, Array, Rows, SourceOrder
from headwater.slicing.selection import selected


class CountedGroup:
    """Count windows that begin at one time; they read events in the total order, at one place.

    Nobody joins: a query that comes later counts from its own first event, in a group of its own.
    """

    def __init__(self, order: SourceOrder, members: Sequence[Active], *, keyed: bool, by_site: bool) -> None:
        self.space = Space(keyed=keyed, by_site=by_site)
        if self.space.plain:
            self.space.names.code(("", None))
        self.members = list(members)
        self.operators: list[Operator] = operators_of(members, order)
        self._streams: dict[tuple[Where, int], Ranks] = {}
        self._closed: list[Closed] = []
        self.lifted = 0
        self._arrange()

    def _arrange(self) -> None:
        """What the members have in common, worked out once."""
        self._ends = sorted({m.end for m in self.members if m.end < TS_MAX})
        self._wheres = list(dict.fromkeys(m.query.where for m in self.members))
        self._begin = self.members[0].begin if self.members else TS_MIN
        self._indexes = np.array([m.index for m in self.members])

    def shorten(self, member: Active) -> None:
        """A member that sees no event from its `end` on."""
        self.members = [member if m.index == member.index else m for m in self.members]
        self._arrange()

    def leave(self, index: int) -> None:
        self.members = [m for m in self.members if m.index != index]
        self._arrange()

    def read_ordered(self, rows: Rows, keys: list[str], sites: Array | None, site_names: list[str]) -> None:
        """Rows of any sources in the total order; those before the members' begin are not theirs."""
        if not self.members:
            return
        codes = (
            None
            if self.space.plain
            else self.space.mixed_codes(rows.codes, keys, sites, site_names, len(rows))
        )
        done = int(rows.ts.searchsorted(self._begin)) if self._begin > TS_MIN else 0
        # A member that ends within these rows closes what is complete by then, and no more.
        for end in self._ends:
            place = max(int(rows.ts.searchsorted(end)), done)
            if place < len(rows):
                self._read(rows.cut(done, place), keys, None if codes is None else codes[done:place])
                done = place
                self.members = [m for m in self.members if m.end > end]
                self._arrange()
        if done:
            rows, codes = rows.cut(done, len(rows)), None if codes is None else codes[done:]
        self._read(rows, keys, codes)

    def _read(self, rows: Rows, keys: list[str], codes: Array | None) -> None:
        if not len(rows.value) or not self.members:
            return
        for where in self._wheres:
            part, part_codes = rows, codes
            if where is not EVERYTHING:
                picked = selected(where, rows, keys)
                if not len(picked):
                    continue
                part = rows.take(picked, in_order=rows.in_order)
                part_codes = None if codes is None else codes[picked]
            self.lifted += len(part.value)
            if part_codes is None:
                self._count(where, 0, part)
                continue
            order = np.argsort(part_codes, kind="stable")
            sorted_codes = part_codes[order]
            bounds = np.flatnonzero(
                np.concatenate(([True], sorted_codes[1:] != sorted_codes[:-1], [True]))
            ).tolist()
            for low, high in pairwise(bounds):
                mine = part.take(order[low:high], in_order=True)
                self._count(where, sorted_codes.item(low), mine)

    def _count(self, where: Where, code: int, rows: Rows) -> None:
        stream = self._stream(where, code)
        stream.add(rows)
        closed = stream.due()
        if closed is None:
            return
        if code:
            closed.code[:] = code
        known = np.isin(closed.query, self._indexes)
        if not known.all():
            closed = closed.take(known)
        if len(closed.query):
            self._closed.append(closed)

    def _stream(self, where: Where, code: int) -> Ranks:
        stream = self._streams.get((where, code))
        if stream is None:
            windows = [(m.index, m.periodic) for m in self.members if m.query.where == where and m.periodic]
            stream = self._streams[where, code] = Ranks(self.operators, windows)
        return stream

    @property
    def indifferent(self) -> int:
        """How many more events may come in any order: none of them can end a slice."""
        if not self.space.plain or self._ends or self._begin > TS_MIN or not self.members:
            return 0
        if not all(operator.commutative for operator in self.operators):
            return 0
        return min(self._stream(where, 0).uncut for where in self._wheres)

    def patient(self, waiting: int) -> bool:
        """Whether this many more events complete no window, whatever they are."""
        if not self.space.plain or len(self._wheres) != 1 or self._ends:
            return False
        stream = self._streams.get((self._wheres[0], 0))
        if stream is None:
            return all(waiting < m.periodic.length for m in self.members if m.periodic)
        return waiting < stream.wanted

    def take(self) -> list[Closed]:
        closed, self._closed = self._closed, []
        return closed

    def __len__(self) -> int:
        return sum(map(len, self._streams.values()))
