"""Slices without key, in the order of time: one row a slice that holds an event.

A window is a range of rows. Short ranges are reduced as they are. For long ones the rows are grouped
into blocks with running folds from both ends of each block, so that a window costs two look-ups and
one fold over whole blocks instead of all of its slices (van Herk; no subtraction, so no cancellation).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from headwater.merging.carried import Carried
from headwater.merging.ranges import spread
from headwater.operators import Columns, Custom, Operator, State, Ufunc
from headwater.rows import Array, Ints

SHIFT = 9
BLOCK = 1 << SHIFT
# Ranges of up to this many rows are reduced as they are.
SHORT = 2 * BLOCK


class Timeline:
    """Rows `(start, states)`, sorted by start, each start once."""

    def __init__(self, operators: Sequence[Operator]) -> None:
        self._operators = operators
        self._merge = [operator.merge_row for operator in operators]
        simple = [operator for operator in operators if isinstance(operator, Ufunc)]
        self._simple = simple if len(simple) == len(operators) else None
        self._reset()

    def __getstate__(self) -> dict[str, Any]:
        # Methods of the operators: whoever reads the state has some of their own.
        return {name: held for name, held in self.__dict__.items() if name != "_merge"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._merge = [operator.merge_row for operator in self._operators]

    def _reset(self) -> None:
        self._room = 64
        self._start: Ints = np.empty(self._room, np.int64)
        self._states: list[Columns] = [operator.empty(self._room) for operator in self._operators]
        # Live rows are [head, size).
        self._head = self._size = 0
        self._carried = [
            Carried(op) if isinstance(op, Custom) and op.invertible else None for op in self._operators
        ]
        self._folds = [_Folds(op) if isinstance(op, Ufunc) else None for op in self._operators]
        self._blocks: list[Columns] = [operator.empty(0) for operator in self._operators]

    @property
    def starts(self) -> Ints:
        return self._start[self._head : self._size]

    def __len__(self) -> int:
        return self._size - self._head

    def add_one(self, start: int, states: Sequence[State]) -> None:
        """Merge one cell; the usual one belongs to the last slice, or begins the next."""
        row = self._size - 1
        if row >= self._head and (last := self._start.item(row)) >= start:
            if last != start:
                row = int(self.starts.searchsorted(start)) + self._head
                if self._start.item(row) != start:
                    self._add_before(
                        np.array([start]),
                        [op.column(s) for op, s in zip(self._operators, states, strict=True)],
                    )
                    return
            if len(states) == 1:
                self._merge[0](self._states[0], row, states[0])
                return
            for merge, columns, state in zip(self._merge, self._states, states, strict=True):
                merge(columns, row, state)
            return
        row += 1
        if row == self._room:
            self._grow(1)
            row = self._size
        self._start[row] = start
        for columns, state in zip(self._states, states, strict=True):
            for column, new in zip(columns, state, strict=True):
                column[row] = new
        self._size = row + 1

    def add(self, starts: Ints, states: Sequence[Columns]) -> None:
        """Merge cells of different slices, sorted by start."""
        if self._size > self._head:
            last = self._start.item(self._size - 1)
            if starts.item(0) == last and self._simple is not None:
                self._append_over(self._simple, starts, states)
                return
            if starts.item(0) == last:
                for operator, columns, state in zip(self._operators, self._states, states, strict=True):
                    operator.merge_row(columns, self._size - 1, tuple(column[0] for column in state))
                starts, states = starts[1:], [tuple(column[1:] for column in state) for state in states]
            elif starts.item(0) < last:
                self._add_before(starts, states)
                return
        if len(starts):
            self._append(starts, states)

    def _append_over(self, simple: list[Ufunc], starts: Ints, states: Sequence[Columns]) -> None:
        """Append cells of which the first belongs to the last row: all at once, then that row."""
        count = len(starts)
        if self._size + count > self._room:
            self._grow(count)
        row = self._size - 1
        rows = slice(row, row + count)
        self._start[rows] = starts
        for operator, (column,), (new,) in zip(simple, self._states, states, strict=True):
            before = column[row]
            column[rows] = new
            column[row] = operator.ufunc(before, new[0])
        self._size = row + count

    def _append(self, starts: Ints, states: Sequence[Columns]) -> None:
        count = len(starts)
        if self._size + count > self._room:
            self._grow(count)
        rows = slice(self._size, self._size + count)
        self._start[rows] = starts
        for columns, state in zip(self._states, states, strict=True):
            for column, new in zip(columns, state, strict=True):
                column[rows] = new
        self._size += count

    def _add_before(self, starts: Ints, states: Sequence[Columns]) -> None:
        """Merge cells of which some lie before the last slice: out of order, or from another node."""
        rows = self.starts.searchsorted(starts) + self._head
        known = rows < self._size
        known[known] = self._start[rows[known]] == starts[known]
        if known.any():
            for operator, columns, state in zip(self._operators, self._states, states, strict=True):
                operator.merge_rows(columns, rows[known], tuple(column[known] for column in state))
        if known.all():
            return
        fresh = ~known
        new = [tuple(column[fresh] for column in state) for state in states]
        first = int(rows[fresh][0])
        tail_starts = np.concatenate((self._start[first : self._size], starts[fresh]))
        order = np.argsort(tail_starts, kind="stable")
        tail = [
            tuple(
                np.concatenate((column[first : self._size], added))[order]
                for column, added in zip(c, s, strict=True)
            )
            for c, s in zip(self._states, new, strict=True)
        ]
        self._size = first
        self._append(tail_starts[order], tail)

    def _grow(self, count: int) -> None:
        """Make room behind the rows: drop what is no longer needed, in whole blocks, or double."""
        shift = self._head // BLOCK * BLOCK
        live = self._size - shift
        if live + count > self._room - self._room // 4:
            self._room = max(2 * self._room, 2 * (live + count))
        kept = slice(shift, self._size)
        start = np.empty(self._room, np.int64)
        start[:live] = self._start[kept]
        self._start = start
        for place, (operator, old) in enumerate(zip(self._operators, self._states, strict=True)):
            new = operator.empty(self._room)
            for column, before in zip(new, old, strict=True):
                column[:live] = before[kept]
            self._states[place] = new
            self._blocks[place] = tuple(column[shift // BLOCK :] for column in self._blocks[place])
        for moving in (*self._folds, *self._carried):
            if moving is not None:
                moving.shift(shift)
        self._head -= shift
        self._size = live

    def drain(self) -> tuple[Ints, list[Columns]]:
        """Everything, and nothing stays."""
        rows = slice(self._head, self._size)
        states = [
            operator.sealed(tuple(column[rows].copy() for column in columns))
            for operator, columns in zip(self._operators, self._states, strict=True)
        ]
        drained = self._start[rows].copy(), states
        self._reset()
        return drained

    def trim(self, before: int) -> None:
        """Forget slices that start before a time: no window will ask for them again."""
        # Numbers may stay until some can go; what an object refers to must not stay alive for that.
        few = 15 if self._simple is not None and self._size - self._head > 64 else 0
        if self._size - self._head > few and self._start.item(self._head + few) < before:
            head = self._head
            self._head += int(self.starts.searchsorted(before))
            if self._simple is not None:
                return
            for operator, columns, carried in zip(self._operators, self._states, self._carried, strict=True):
                if carried is not None:
                    carried.forget(columns[0], self._head)
                for column, identity in zip(columns, operator.identity, strict=True):
                    if column.dtype == object:
                        # A block may still be folded whole.
                        column[head : self._head] = identity

    def between(self, start: Ints, end: Ints) -> tuple[Ints, Ints]:
        """The rows `[low, high)` of windows; none of them reaches back to what was forgotten."""
        starts = self._start[: self._size]
        return starts.searchsorted(start), starts.searchsorted(end)

    def fold(self, low: Ints, high: Ints, sealed: int) -> list[Columns]:
        """One state a range of rows, as `between` gives them; rows below `sealed` change no more."""
        # Each window by its own size: what it comes to must not depend on which others end with it.
        long = high - low > SHORT
        many = np.count_nonzero(long)
        if not many:
            return self._fold_rows(low, high)
        if many == len(low):
            return self._fold_long(low, high, sealed)
        states = [operator.empty(len(low)) for operator in self._operators]
        for chosen, folded in (
            (~long, self._fold_rows(low[~long], high[~long])),
            (long, self._fold_long(low[long], high[long], sealed)),
        ):
            for columns, new in zip(states, folded, strict=True):
                for column, values in zip(columns, new, strict=True):
                    column[chosen] = values
        return states

    def _fold_rows(self, low: Ints, high: Ints) -> list[Columns]:
        found: list[Columns] = []
        for operator, columns, carried in zip(self._operators, self._states, self._carried, strict=True):
            if carried is not None:
                found.append(carried.fold(columns[0], low, high))
            else:
                held = tuple(column[: self._size] for column in columns)
                found.append(operator.ranges(held, low, high))
        return found

    def _fold_long(self, low: Ints, high: Ints, sealed: int) -> list[Columns]:
        plan = _Ranges(low, high)
        found: list[Columns] = []
        for place, operator in enumerate(self._operators):
            folds = self._folds[place]
            columns = self._states[place]
            if folds is not None:
                folds.extend(columns[0], sealed)
                found.append((folds.fold(columns[0], plan),))
            elif (carried := self._carried[place]) is not None:
                found.append(carried.fold(columns[0], low, high))
            else:
                found.append(self._fold_blocks(place, operator, columns, low, high, sealed))
        return found

    def _fold_blocks(
        self, place: int, operator: Operator, columns: Columns, low: Ints, high: Ints, sealed: int
    ) -> Columns:
        """Ranges from rows at both ends and whole blocks between, for operators without running folds."""
        blocks = self._blocks[place]
        done, upto = len(blocks[0]), sealed // BLOCK
        if done < upto:
            begin = np.arange(done, upto) * BLOCK
            new = operator.fold(
                tuple(column[done * BLOCK : upto * BLOCK] for column in columns), begin - done * BLOCK
            )
            blocks = tuple(np.concatenate((old, fresh)) for old, fresh in zip(blocks, new, strict=True))
            self._blocks[place] = blocks
        first, last = -(-low // BLOCK), np.minimum(high // BLOCK, upto)
        whole = last > first
        left = np.where(whole, first * BLOCK, high)
        right = np.where(whole, last * BLOCK, high)
        # One index space: the rows, and the blocks behind them.
        begins = np.stack((low, self._size + first, right), axis=1)
        ends = np.stack((left, np.where(whole, self._size + last, self._size + first), high), axis=1)
        rows = spread(begins.ravel(), ends.ravel())
        sizes = (ends - begins).sum(axis=1)
        joined = tuple(
            np.concatenate((column[: self._size], block))[rows]
            for column, block in zip(columns, blocks, strict=True)
        )
        return operator.fold(joined, np.cumsum(sizes) - sizes)


class _Ranges:
    """Ranges of rows by the blocks that they begin and end in; worked out once for all operators."""

    def __init__(self, low: Ints, high: Ints) -> None:
        self.low, self.last = low, high - 1
        begin, end = (low >> SHIFT) + 1, self.last >> SHIFT
        # Ranges with whole blocks between their ends are the usual ones.
        self.wide = end > begin
        self.all_wide = np.count_nonzero(self.wide) == len(low)
        if not self.all_wide:
            # Ranges over two blocks have two ends and nothing between; the others are short.
            self.two = end == begin
            self.near = end < begin
            begin, end = begin[self.wide], end[self.wide]
        self.blocks = np.empty(2 * len(begin), np.int64)
        self.blocks[0::2], self.blocks[1::2] = begin, end


class _Folds:
    """Running folds of one column from both ends of each block, and the fold of each whole block."""

    def __init__(self, operator: Ufunc) -> None:
        self._ufunc = operator.ufunc
        self._identity = operator.identity[0]
        self._ahead: Array = np.empty(0)  # ahead[i]: from the beginning of i's block up to and with i
        self._back: Array = np.empty(0)  # back[i]: from i to the end of its block
        self._whole: Array = np.empty(0)
        self._done = 0

    def shift(self, rows: int) -> None:
        self._ahead, self._back = self._ahead[rows:], self._back[rows:]
        self._whole = self._whole[rows >> SHIFT :]
        self._done = max(self._done - rows, 0)

    def extend(self, column: Array, sealed: int) -> None:
        """Fold the rows below `sealed`, which change no more."""
        if len(self._ahead) < sealed:
            room = max(2 * sealed, 4 * BLOCK) // BLOCK * BLOCK + BLOCK
            for name, size in (("_ahead", room), ("_back", room), ("_whole", room // BLOCK)):
                old = getattr(self, name)
                new = np.empty(size, column.dtype)
                new[: len(old)] = old
                setattr(self, name, new)
        row = self._done
        while row < sealed:
            block = row >> SHIFT
            stop = min((block + 1) << SHIFT, sealed)
            piece = self._ahead[row:stop]
            piece[:] = column[row:stop]
            if row > block << SHIFT:
                piece[0] = self._ufunc(self._ahead[row - 1], piece[0])
            if stop - row > 1:
                self._ufunc.accumulate(piece, out=piece)
            if stop == (block + 1) << SHIFT:
                here = slice(block << SHIFT, stop)
                self._back[here] = self._ufunc.accumulate(column[here][::-1])[::-1]
                self._whole[block] = self._ahead[stop - 1]
            row = stop
        self._done = max(self._done, sealed)

    def fold(self, column: Array, plan: _Ranges) -> Array:
        combine = self._ufunc
        if plan.all_wide:
            inner = combine.reduceat(self._whole, plan.blocks)[::2]
            folded: Array = combine(combine(self._back[plan.low], inner), self._ahead[plan.last])
            return folded
        result = np.empty(len(plan.low), column.dtype)
        if len(plan.blocks):
            inner = combine.reduceat(self._whole, plan.blocks)[::2]
            low, last = plan.low[plan.wide], plan.last[plan.wide]
            result[plan.wide] = combine(combine(self._back[low], inner), self._ahead[last])
        if plan.two.any():
            result[plan.two] = combine(self._back[plan.low[plan.two]], self._ahead[plan.last[plan.two]])
        if plan.near.any():
            bounds = np.empty(2 * int(plan.near.sum()), np.int64)
            bounds[0::2], bounds[1::2] = plan.low[plan.near], plan.last[plan.near] + 1
            # A row behind the last one, so that a range may end with the column.
            result[plan.near] = combine.reduceat(np.append(column, self._identity), bounds)[::2]
        return result
