"""Slices by key: an open slice takes cells in any order, a sealed one stands still.

Windows are folded from sealed slices through a tree of slices with a fan-out of eight, built where it
is asked for, so that a window of n slices reads some 14 log_8(n) nodes instead of n.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from headwater.operators import Columns, Operator, counts
from headwater.rows import Array, Ints

# Cells of one slice: codes in rising order, and their states.
Cells = tuple[Ints, list[Columns]]

FAN_OUT = 8
CHUNKS = 64


class _Open:
    """One slice that may still grow: dense by code, or a list of cells while it holds few."""

    __slots__ = ("cells", "chunks", "dense")

    def __init__(self) -> None:
        self.dense: list[Columns] | None = None
        self.chunks: list[Cells] = []
        self.cells = 0


class KeyedTimeline:
    """Cells `(slice, code)`; codes are small and dense."""

    def __init__(self, operators: Sequence[Operator]) -> None:
        self._operators = operators
        self._open: dict[int, _Open] = {}
        self._starts: list[int] = []
        self._sealed: list[Cells] = []
        # The number of the first sealed slice, and the nodes above the slices by (level, number).
        self._first = 0
        self._nodes: dict[tuple[int, int], Cells] = {}

    def __len__(self) -> int:
        """How many cells are held."""
        size = sum(len(codes) for codes, _ in self._sealed)
        for slice_ in self._open.values():
            size += slice_.cells if slice_.dense is None else len(slice_.dense[0][0])
        return size

    @property
    def starts(self) -> Ints:
        """The starts of all slices, in order: the sealed ones, then the open ones."""
        return np.array([*self._starts, *sorted(self._open)], np.int64)

    def add(self, start: int, codes: Ints, states: Sequence[Columns], size: int) -> None:
        """Merge cells of one slice; `codes` rise, and all are below `size`."""
        slice_ = self._open.get(start)
        if slice_ is None:
            slice_ = self._open[start] = _Open()
        if slice_.dense is None:
            slice_.chunks.append((codes, list(states)))
            slice_.cells += len(codes)
            if slice_.cells * 4 >= size:
                self._make_dense(slice_, size)
            elif len(slice_.chunks) >= CHUNKS:
                slice_.chunks = [join(self._operators, slice_.chunks, size)]
                slice_.cells = len(slice_.chunks[0][0])
            return
        self._reach(slice_, size)
        for operator, columns, state in zip(self._operators, slice_.dense, states, strict=True):
            operator.merge_rows(columns, codes, state)

    def dense(self, start: int, size: int, *, expected: int) -> list[Columns] | None:
        """The states of an open slice by code, to be merged in place; None while it is kept as cells."""
        slice_ = self._open.get(start)
        if slice_ is not None and slice_.dense is not None and len(slice_.dense[0][0]) >= size:
            return slice_.dense
        if slice_ is None:
            if expected * 4 < size:
                return None
            slice_ = self._open[start] = _Open()
        if slice_.dense is None:
            if (slice_.cells + expected) * 4 < size:
                return None
            self._make_dense(slice_, size)
        return self._reach(slice_, size)

    def _make_dense(self, slice_: _Open, size: int) -> None:
        slice_.dense = [operator.empty(size) for operator in self._operators]
        for codes, states in slice_.chunks:
            for operator, columns, state in zip(self._operators, slice_.dense, states, strict=True):
                operator.merge_rows(columns, codes, state)
        slice_.chunks = []

    def _reach(self, slice_: _Open, size: int) -> list[Columns]:
        """The dense states, made long enough for all codes."""
        assert slice_.dense is not None
        have = len(slice_.dense[0][0])
        if have < size:
            more = [operator.empty(max(size, have + have // 2) - have) for operator in self._operators]
            slice_.dense = [
                tuple(np.concatenate(pair) for pair in zip(columns, new, strict=True))
                for columns, new in zip(slice_.dense, more, strict=True)
            ]
        return slice_.dense

    def _cells(self, slice_: _Open, size: int) -> Cells:
        if slice_.dense is not None:
            codes = np.flatnonzero(counts(self._operators, slice_.dense))
            if len(codes) == len(slice_.dense[0][0]):
                return codes, slice_.dense
            return codes, [tuple(column[codes] for column in columns) for columns in slice_.dense]
        if len(slice_.chunks) == 1:
            return slice_.chunks[0]
        return join(self._operators, slice_.chunks, size)

    def rebased(
        self, operators: Sequence[Operator], adapt: Callable[[Sequence[Columns]], list[Columns]]
    ) -> KeyedTimeline:
        """The same cells for other operators."""
        other = KeyedTimeline(operators)
        other._starts, other._first = self._starts, self._first
        other._sealed = [(codes, adapt(states)) for codes, states in self._sealed]
        for start, old in self._open.items():
            new = other._open[start] = _Open()
            new.cells = old.cells
            new.dense = None if old.dense is None else adapt(old.dense)
            new.chunks = [(codes, adapt(states)) for codes, states in old.chunks]
        return other

    def drain(self, size: int) -> Iterator[tuple[int, Cells]]:
        """All open slices, in order, and nothing stays."""
        for start in sorted(self._open):
            codes, states = self._cells(self._open[start], size)
            sealed = [op.sealed(columns) for op, columns in zip(self._operators, states, strict=True)]
            yield start, (codes, sealed)
        self._open = {}

    def seal(self, before: int, size: int) -> None:
        """Slices that start before a time (and so, by the caller's word, have ended) change no more."""
        for start in sorted(start for start in self._open if start < before):
            self._starts.append(start)
            self._sealed.append(self._cells(self._open.pop(start), size))

    def trim(self, before: int) -> None:
        """Forget sealed slices that start before a time."""
        count = bisect_left(self._starts, before)
        if count:
            del self._starts[:count], self._sealed[:count]
            self._first += count
            gone = [node for node in self._nodes if (node[1] + 1) * FAN_OUT ** node[0] <= self._first]
            for node in gone:
                del self._nodes[node]

    def fold(self, low: int, high: int, size: int) -> Cells:
        """The cells of sealed slices `[low, high)` as one."""
        if high - low == 1:
            return self._sealed[low]
        pieces = list(self._pieces(0, low + self._first, high + self._first, size))
        return pieces[0] if len(pieces) == 1 else join(self._operators, pieces, size)

    def _pieces(self, level: int, low: int, high: int, size: int) -> Iterator[Cells]:
        """Nodes that tile the nodes `[low, high)` of a level, in order, the largest that fit."""
        first, last = -(-low // FAN_OUT), high // FAN_OUT
        if last <= first:
            yield from (self._node(level, number, size) for number in range(low, high))
            return
        yield from (self._node(level, number, size) for number in range(low, first * FAN_OUT))
        yield from self._pieces(level + 1, first, last, size)
        yield from (self._node(level, number, size) for number in range(last * FAN_OUT, high))

    def _node(self, level: int, number: int, size: int) -> Cells:
        if level == 0:
            return self._sealed[number - self._first]
        found = self._nodes.get((level, number))
        if found is None:
            below = range(number * FAN_OUT, (number + 1) * FAN_OUT)
            found = join(self._operators, [self._node(level - 1, child, size) for child in below], size)
            self._nodes[level, number] = found
        return found


def join(operators: Sequence[Operator], pieces: Sequence[Cells], size: int) -> Cells:
    """Cells of several pieces as one, in the order of the pieces where the order matters."""
    total = sum(len(codes) for codes, _ in pieces)
    if total * 4 >= size:
        dense = [operator.empty(size) for operator in operators]
        for codes, states in pieces:
            for operator, columns, state in zip(operators, dense, states, strict=True):
                operator.merge_rows(columns, codes, state)
        held = np.flatnonzero(counts(operators, dense))
        return held, [tuple(column[held] for column in columns) for columns in dense]
    codes = np.concatenate([codes for codes, _ in pieces])
    joined = [
        tuple(np.concatenate(parts) for parts in zip(*(states[place] for _, states in pieces), strict=True))
        for place in range(len(operators))
    ]
    return grouped(operators, codes, joined)


def grouped(operators: Sequence[Operator], codes: Array, states: Sequence[Columns]) -> Cells:
    """Cells with repeated codes in any order, as cells."""
    order = np.argsort(codes, kind="stable")
    codes = codes[order]
    fresh = np.ones(len(codes), bool)
    fresh[1:] = codes[1:] != codes[:-1]
    starts = np.flatnonzero(fresh)
    folded = [
        operator.fold(tuple(column[order] for column in columns), starts)
        for operator, columns in zip(operators, states, strict=True)
    ]
    return codes[starts], folded
