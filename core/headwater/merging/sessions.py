"""Sessions: fragments `(key, first, last, states)` that merge iff they are closer than the gap.

Fragments may arrive in any order and in any number of pieces. One fragment a key is current and grows
in place; the others wait until somebody asks, and then all of them are merged at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from headwater.operators import Columns, Operator, State, counts
from headwater.rows import TS_MAX, TS_MIN, Array, Ints


@dataclass(slots=True)
class Fragments:
    """Pieces of sessions as columns."""

    code: Ints
    first: Ints
    last: Ints
    states: list[Columns]

    def __len__(self) -> int:
        return len(self.code)

    def take(self, rows: Array) -> Fragments:
        return Fragments(
            self.code[rows],
            self.first[rows],
            self.last[rows],
            [tuple(column[rows] for column in columns) for columns in self.states],
        )


class Sessions:
    """The fragments of one gap. `cuts` are times across which nothing merges (a query that begins)."""

    def __init__(self, operators: Sequence[Operator], gap: int, cuts: Sequence[int] = ()) -> None:
        self.gap = gap
        self._operators = operators
        self._cuts = np.array(sorted(cuts), np.int64)
        self._waiting: list[Fragments] = []
        self._waiting_due = TS_MAX
        # The current fragment of each code below `_size`; it holds nothing where its count is zero.
        self._size = 0
        self._first: Ints = np.empty(0, np.int64)
        self._last: Ints = np.empty(0, np.int64)
        self._states: list[Columns] = [operator.empty(0) for operator in operators]
        self._current_due = TS_MAX

    @property
    def next(self) -> int:
        """No session ends before this time."""
        return min(self._waiting_due, self._current_due)

    def __len__(self) -> int:
        return int((counts(self._operators, self._states) > 0).sum()) + sum(map(len, self._waiting))

    def add_one(self, first: int, last: int, states: Sequence[State]) -> None:
        """Merge a fragment without key: the usual one extends the current one."""
        if self._size:
            held_first, held_last = self._first.item(0), self._last.item(0)
            if held_first <= held_last:
                near = first - held_last < self.gap and held_first - last < self.gap
                if near and not (len(self._cuts) and self._apart(held_first, first)):
                    if first < held_first:
                        self._first[0] = first
                    if last > held_last:
                        self._last[0] = last
                        self._current_due = last + self.gap
                    for operator, columns, state in zip(self._operators, self._states, states, strict=True):
                        operator.merge_row(columns, 0, state)
                    return
        new = [operator.column(state) for operator, state in zip(self._operators, states, strict=True)]
        self.add(Fragments(np.zeros(1, np.int64), np.array([first]), np.array([last]), new), 1)

    def _apart(self, one: int, two: int) -> bool:
        """Whether a cut lies between two times."""
        low, high = self._cuts.searchsorted([one, two], "right")
        return bool(low != high)

    def add(self, new: Fragments, size: int) -> None:
        """Merge fragments; all codes are below `size`, and a code may stand there more than once."""
        if len(new) == 0:
            return
        self._reach(size)
        repeated = np.zeros(len(new), bool)
        if len(new) > 1 and not (new.code[1:] > new.code[:-1]).all():
            new = new.take(np.lexsort((new.first, new.code)))
            # Of several fragments of a code the last becomes the current one, the others wait.
            repeated[:-1] = new.code[:-1] == new.code[1:]
            if repeated.any():
                # What was there before goes first: of fragments that begin together it is the earlier one.
                touched = np.unique(new.code[repeated])
                self._set_aside(touched[self._first[touched] <= self._last[touched]])
                self._wait(new.take(repeated))
                new = new.take(~repeated)
        code = new.code
        held = self._first[code] <= self._last[code]
        near = (new.first - self._last[code] < self.gap) & (self._first[code] - new.last < self.gap)
        if len(self._cuts):
            near &= self._cuts.searchsorted(new.first, "right") == np.searchsorted(
                self._cuts, self._first[code], "right"
            )
        aside = held & ~near
        if aside.any():
            older = aside & (new.last < self._first[code])
            if older.any():
                self._wait(new.take(older))
                new, code, aside = new.take(~older), code[~older], aside[~older]
            if aside.any():
                self._set_aside(code[aside])
        if len(code):
            self._first[code] = np.minimum(self._first[code], new.first)
            self._last[code] = np.maximum(self._last[code], new.last)
            for operator, columns, state in zip(self._operators, self._states, new.states, strict=True):
                operator.merge_rows(columns, code, state)
            self._current_due = min(self._current_due, int(self._last[code].min()) + self.gap)

    def _set_aside(self, code: Array) -> None:
        """The current fragments of some codes wait; others take their place."""
        self._wait(
            Fragments(
                np.asarray(code, np.int64),
                self._first[code],
                self._last[code],
                [tuple(column[code] for column in columns) for columns in self._states],
            )
        )
        self._clear(code)

    def _clear(self, code: Array) -> None:
        self._first[code], self._last[code] = TS_MAX, TS_MIN
        for operator, columns in zip(self._operators, self._states, strict=True):
            for column, identity in zip(columns, operator.identity, strict=True):
                column[code] = identity

    def _wait(self, fragments: Fragments) -> None:
        if not len(fragments):
            return
        self._waiting.append(fragments)
        self._waiting_due = min(self._waiting_due, int(fragments.last.min()) + self.gap)

    def _reach(self, size: int) -> None:
        if size <= self._size:
            return
        room = max(size, self._size + self._size // 2)
        more = room - self._size
        self._first = np.concatenate((self._first, np.full(more, TS_MAX)))
        self._last = np.concatenate((self._last, np.full(more, TS_MIN)))
        self._states = [
            tuple(np.concatenate(pair) for pair in zip(columns, operator.empty(more), strict=True))
            for operator, columns in zip(self._operators, self._states, strict=True)
        ]
        self._size = room

    def _all(self) -> Fragments:
        """Everything, merged as far as the gap allows, by code and time; nothing stays."""
        self._set_aside(np.flatnonzero(self._first <= self._last))
        waiting = self._waiting
        self._waiting, self._waiting_due, self._current_due = [], TS_MAX, TS_MAX
        if not waiting:
            return Fragments(
                np.empty(0, np.int64),
                np.empty(0, np.int64),
                np.empty(0, np.int64),
                [operator.empty(0) for operator in self._operators],
            )
        joined = Fragments(
            np.concatenate([f.code for f in waiting]),
            np.concatenate([f.first for f in waiting]),
            np.concatenate([f.last for f in waiting]),
            [
                tuple(
                    np.concatenate(parts) for parts in zip(*(f.states[place] for f in waiting), strict=True)
                )
                for place in range(len(self._operators))
            ],
        )
        joined = joined.take(np.lexsort((joined.first, joined.code)))
        if len(joined) == 1:
            return joined
        # How far the fragments of the same code reach so far: a running maximum over ranks of `last`,
        # lifted by the code so that one code never reaches into the next.
        ranks = np.empty(len(joined), np.int64)
        by_last = np.argsort(joined.last, kind="stable")
        ranks[by_last] = np.arange(len(joined))
        _, dense = np.unique(joined.code, return_inverse=True)
        reach = np.maximum.accumulate(dense * len(joined) + ranks)
        reached = joined.last[by_last[reach % len(joined)]]
        fresh = np.ones(len(joined), bool)
        fresh[1:] = (joined.code[1:] != joined.code[:-1]) | (joined.first[1:] - reached[:-1] >= self.gap)
        if len(self._cuts):
            epoch = self._cuts.searchsorted(joined.first, "right")
            fresh[1:] |= epoch[1:] != epoch[:-1]
        starts = np.flatnonzero(fresh)
        if len(starts) == len(joined):
            return joined
        return Fragments(
            joined.code[starts],
            joined.first[starts],
            np.maximum.reduceat(joined.last, starts),
            [op.fold(columns, starts) for op, columns in zip(self._operators, joined.states, strict=True)],
        )

    def renewed(self, operators: Sequence[Operator]) -> Sessions:
        """As empty as new, for other operators."""
        return Sessions(operators, self.gap, self._cuts.tolist())

    def copy(self) -> Sessions:
        """Another one with the same fragments."""
        mine = self._all()
        other = self.renewed(self._operators)
        other.add(mine, self._size)
        self.add(mine, self._size)
        return other

    def drain(self) -> Fragments:
        """Everything, and nothing stays."""
        fragments = self._all()
        fragments.states = [op.sealed(c) for op, c in zip(self._operators, fragments.states, strict=True)]
        return fragments

    def due(self, watermark: int) -> Fragments | None:
        """Sessions that have ended by the watermark: nothing can extend them any more."""
        if watermark < self.next:
            return None
        if watermark < self._waiting_due:
            # Only current fragments can be due, and only if what they seem to be is what they are.
            held = self._first <= self._last
            self._current_due = int(self._last[held].min()) + self.gap if held.any() else TS_MAX
            if watermark < self._current_due:
                return None
        merged = self._all()
        ended = merged.last + self.gap <= watermark
        self.add(merged.take(~ended), self._size)
        return merged.take(ended) if ended.any() else None
