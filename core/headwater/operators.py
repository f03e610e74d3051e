"""What is computed and sent: operators over columns.

A function such as `avg` is never computed as such; it is lowered from operators (`sum`, `count`), and
an operator that several functions need is executed once (Desis, table 1). The state of an operator is
a tuple of columns, one row a cell; combining two states is associative, in the order of the rows, so
a state may be built in any number of pieces and in any tree of merges.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any, ClassVar

import numpy as np

from headwater.errors import FunctionFailed
from headwater.rows import TS_MAX, TS_MIN, Array, Floats, Ints, Rows, SourceOrder

Columns = tuple[Array, ...]
# One row of a state's columns.
State = tuple[Any, ...]


def lengths(starts: Ints, size: int) -> Ints:
    """How long the runs are that begin at `starts` and fill `size` rows."""
    sizes = np.empty(len(starts), np.int64)
    np.subtract(starts[1:], starts[:-1], out=sizes[:-1])
    sizes[-1] = size - starts[-1]
    return sizes


class Operator(ABC):
    """Lift and combine, on columns. A subclass may do better than the general `runs` and `fold`."""

    name: str
    dtypes: tuple[Any, ...]
    identity: tuple[Any, ...]
    # Whether the order in which rows are lifted and combined does not matter.
    commutative = True

    @property
    def executed(self) -> tuple[str, ...]:
        """The operators of the papers that this one executes."""
        return (self.name,)

    def states(self, columns: Columns) -> dict[str, Columns]:
        """The states by the names that functions are lowered from."""
        return {self.name: columns}

    @abstractmethod
    def lift(self, rows: Rows) -> Columns:
        """One state a row."""

    @abstractmethod
    def combine(self, left: Columns, right: Columns) -> Columns:
        """Row by row; `left` comes before `right` where the order matters."""

    def whole(self, rows: Rows) -> State:
        """One state for all rows."""
        return tuple(column[0] for column in self.runs(rows, np.zeros(1, np.int64)))

    def runs(self, rows: Rows, starts: Ints) -> Columns:
        """One state for each run of rows that begins at `starts`."""
        return self.fold(self.lift(rows), starts)

    def fold(self, columns: Columns, starts: Ints) -> Columns:
        """One state for each run of states that begins at `starts`, by halving the runs."""
        size = len(columns[0])
        run = np.repeat(np.arange(len(starts)), lengths(starts, size))
        while size > len(starts):
            position = np.arange(size) - starts[run]
            left = np.flatnonzero(position % 2 == 0)
            paired = np.zeros(len(left), bool)
            inside = left + 1 < size
            paired[inside] = run[left[inside] + 1] == run[left[inside]]
            kept = [column[left] for column in columns]
            merged = self.combine(
                tuple(column[left[paired]] for column in columns),
                tuple(column[left[paired] + 1] for column in columns),
            )
            for column, new in zip(kept, merged, strict=True):
                column[paired] = new
            columns, run, size = tuple(kept), run[left], len(left)
            starts = run.searchsorted(np.arange(len(starts)))
        return columns

    def ranges(self, columns: Columns, low: Ints, high: Ints) -> Columns:
        """One state for each range `[low, high)` of states; ranges may overlap, none is empty."""
        sizes = high - low
        starts = np.cumsum(sizes) - sizes
        rows = np.arange(int(sizes.sum())) + np.repeat(low - starts, sizes)
        return self.fold(tuple(column[rows] for column in columns), starts)

    def merge_row(self, columns: Columns, row: int, state: State) -> None:
        """Combine a state into a row, in place."""
        merged = self.combine(tuple(column[row : row + 1] for column in columns), self.column(state))
        for column, new in zip(columns, merged, strict=True):
            column[row] = new[0]

    def column(self, state: State) -> Columns:
        """A state as columns of length one."""
        columns = self.empty(1)
        for column, new in zip(columns, state, strict=True):
            column[0] = new
        return columns

    def merge_rows(self, columns: Columns, rows: Array, states: Columns) -> None:
        """Combine states into rows, in place; no row is named twice."""
        merged = self.combine(tuple(column[rows] for column in columns), states)
        for column, new in zip(columns, merged, strict=True):
            column[rows] = new

    def translated(self, columns: Columns, sources: Array) -> Columns:
        """States with the source codes of another node, as states with ours."""
        return columns

    def problem(self, columns: Columns, count: Ints, sources: Array) -> str | None:
        """What is wrong with the states of another node, if anything; `count` says how many events each of
        them holds, `sources` which codes there are."""
        if len(columns) != len(self.dtypes):
            return f"has {len(columns)} columns instead of {len(self.dtypes)}"
        for column, given in zip(columns, self.dtypes, strict=True):
            dtype = np.dtype(given)
            if column.dtype != dtype.base or column.shape != (len(count), *dtype.shape):
                wanted = f"{dtype.base} of the shape {(len(count), *dtype.shape)}"
                return f"has a column of {column.dtype} of the shape {column.shape} instead of {wanted}"
        return self._strange(columns, count, sources)

    def _strange(self, columns: Columns, count: Ints, sources: Array) -> str | None:
        """What is wrong within columns of the right form."""
        return None

    def absent(self, columns: Columns) -> Array | None:
        """Which states are those of nothing, where a function could not be lowered from one."""
        return None

    def sealed(self, columns: Columns) -> Columns:
        """The states as they leave the node: nothing in them changes any more."""
        return columns

    def empty(self, size: int) -> Columns:
        """`size` states of nothing."""
        columns = []
        for dtype, identity in zip(self.dtypes, self.identity, strict=True):
            column = np.empty(size, dtype)
            column[...] = identity
            columns.append(column)
        return tuple(columns)


class Ufunc(Operator):
    """A numpy ufunc that reduces as it is: sum, count, min, max."""

    ufunc: ClassVar[np.ufunc]

    def combine(self, left: Columns, right: Columns) -> Columns:
        return (self.ufunc(left[0], right[0]),)

    def fold(self, columns: Columns, starts: Ints) -> Columns:
        return (self.ufunc.reduceat(columns[0], starts),)

    def ranges(self, columns: Columns, low: Ints, high: Ints) -> Columns:
        # One reduceat over interleaved bounds: nothing is gathered, and no prefix is subtracted, so
        # nothing cancels. A bound at the very end of the column needs no second index.
        bounds = np.empty(2 * len(low), np.int64)
        bounds[0::2] = low
        bounds[1::2] = high
        column = columns[0]
        last = len(column)
        reach = np.count_nonzero(high >= last)
        if not reach:
            return (self.ufunc.reduceat(column, bounds)[::2],)
        if reach == 1 and bounds.item(len(bounds) - 1) == last:
            return (self.ufunc.reduceat(column, bounds[:-1])[::2],)
        return (self.ufunc.reduceat(np.append(column, self.identity[0]), bounds)[::2],)

    @abstractmethod
    def dense(self, rows: Rows, codes: Array, size: int) -> Columns:
        """One state for each code below `size`."""

    def merge_row(self, columns: Columns, row: int, state: State) -> None:
        columns[0][row] = self.ufunc(columns[0][row], state[0])

    def add_dense(self, columns: Columns, rows: Rows, codes: Array, size: int) -> None:
        """Lift rows into the states at their codes, in place, by way of one state for each code."""
        column = columns[0][:size]
        self.ufunc(column, self.dense(rows, codes, size)[0], out=column)

    @abstractmethod
    def scatter(self, columns: Columns, rows: Rows, codes: Array) -> None:
        """The same without an output for each code: the way for many codes."""


class Count(Ufunc):
    name = "count"
    dtypes = (np.int64,)
    identity = (0,)
    ufunc = np.add

    def lift(self, rows: Rows) -> Columns:
        return (np.ones(len(rows), np.int64),)

    def whole(self, rows: Rows) -> State:
        return (len(rows.value),)

    def runs(self, rows: Rows, starts: Ints) -> Columns:
        return (lengths(starts, len(rows)),)

    def dense(self, rows: Rows, codes: Array, size: int) -> Columns:
        return (np.bincount(codes, minlength=size),)

    def merge_row(self, columns: Columns, row: int, state: State) -> None:
        columns[0][row] += state[0]

    def scatter(self, columns: Columns, rows: Rows, codes: Array) -> None:
        np.add.at(columns[0], codes, 1)

    def counts(self, columns: Columns) -> Ints:
        """How many events each state holds."""
        return columns[0]


class SumCount(Ufunc):
    """Sum and count in one complex column: one call and one cache line for both."""

    def __init__(self) -> None:
        self._buffer: Array = np.empty(0, np.complex128)

    def __reduce__(self) -> tuple[type[SumCount], tuple[()]]:
        # Without the buffer, which holds nothing that matters.
        return SumCount, ()

    name = "sum+count"
    dtypes = (np.complex128,)
    identity = (0j,)
    ufunc = np.add

    @property
    def executed(self) -> tuple[str, ...]:
        return "sum", "count"

    def lift(self, rows: Rows) -> Columns:
        column = np.empty(len(rows), np.complex128)
        column.real, column.imag = rows.value, 1.0
        return (column,)

    def whole(self, rows: Rows) -> State:
        # This way to a sum says nothing when infinities meet.
        total = np.einsum("i->", rows.value) if rows.total is None else rows.total
        return (complex(total, len(rows.value)),)

    def runs(self, rows: Rows, starts: Ints) -> Columns:
        column = np.empty(len(starts), np.complex128)
        column.real = np.add.reduceat(rows.value, starts)
        column.imag = lengths(starts, len(rows.value))
        return (column,)

    def dense(self, rows: Rows, codes: Array, size: int) -> Columns:
        column = np.empty(size, np.complex128)
        column.real = np.bincount(codes, rows.value, minlength=size)
        column.imag = np.bincount(codes, minlength=size)
        return (column,)

    def merge_row(self, columns: Columns, row: int, state: State) -> None:
        columns[0][row] += state[0]

    def add_dense(self, columns: Columns, rows: Rows, codes: Array, size: int) -> None:
        column = columns[0][:size]
        real, imag = column.real, column.imag
        np.add(real, np.bincount(codes, rows.value, size), out=real)
        np.add(imag, np.bincount(codes, None, size), out=imag)

    def scatter(self, columns: Columns, rows: Rows, codes: Array) -> None:
        # One buffer for all batches: a fresh megabyte for each costs more than what is written into it.
        size = len(codes)
        if len(self._buffer) < size:
            self._buffer = np.ones(size, np.complex128) * 1j
        lifted = self._buffer[:size]
        lifted.real = rows.value
        np.add.at(columns[0], codes, lifted)

    def counts(self, columns: Columns) -> Ints:
        return columns[0].imag.astype(np.int64)

    def states(self, columns: Columns) -> dict[str, Columns]:
        return {"sum": (columns[0].real,), "count": (self.counts(columns),)}


class _Extreme(Ufunc):
    dtypes = (np.float64,)

    def lift(self, rows: Rows) -> Columns:
        # -0.0 equals 0.0, and which of the two a reduction keeps depends on its order.
        return (rows.value + 0.0,)

    def whole(self, rows: Rows) -> State:
        return (self.ufunc.reduce(rows.value) + 0.0,)

    def runs(self, rows: Rows, starts: Ints) -> Columns:
        return (self.ufunc.reduceat(rows.value, starts) + 0.0,)

    def dense(self, rows: Rows, codes: Array, size: int) -> Columns:
        (column,) = self.empty(size)
        self.ufunc.at(column, codes, rows.value)
        column += 0.0
        return (column,)

    def scatter(self, columns: Columns, rows: Rows, codes: Array) -> None:
        self.ufunc.at(columns[0], codes, rows.value + 0.0)


class Min(_Extreme):
    name = "min"
    identity = (np.inf,)
    ufunc = np.minimum


class Max(_Extreme):
    name = "max"
    identity = (-np.inf,)
    ufunc = np.maximum


class Moments(Operator):
    """Count, mean and standard deviation, merged without cancellation (Chan et al.).

    The deviation, not its square: wherever a float holds the sum of the absolute values, it holds this.
    """

    name = "moments"
    dtypes = (np.float64, np.float64, np.float64)
    identity = (0.0, 0.0, 0.0)

    def lift(self, rows: Rows) -> Columns:
        size = len(rows)
        return np.ones(size), rows.value.copy(), np.zeros(size)

    def runs(self, rows: Rows, starts: Ints) -> Columns:
        sizes = lengths(starts, len(rows))
        count = sizes.astype(np.float64)
        mean = np.add.reduceat(rows.value, starts) / count
        away = rows.value - np.repeat(mean, sizes)
        # In units of the largest one in each run: their squares neither overflow nor vanish.
        unit = np.maximum.reduceat(np.abs(away), starts)
        away = np.divide(away, np.repeat(unit, sizes), out=away, where=np.repeat(unit > 0, sizes))
        # The sum is zero but for rounding; taking it off again is what makes this stable.
        rest = np.add.reduceat(away, starts) / count
        square = np.add.reduceat(away * away, starts) / count - rest * rest
        return count, mean + rest * unit, unit * np.sqrt(np.maximum(square, 0.0))

    def combine(self, left: Columns, right: Columns) -> Columns:
        count = left[0] + right[0]
        share = np.divide(right[0], count, out=np.zeros_like(count), where=count > 0)
        other = np.divide(left[0], count, out=np.zeros_like(count), where=count > 0)
        away = right[1] - left[1]
        inside = np.hypot(left[2] * np.sqrt(other), right[2] * np.sqrt(share))
        return count, left[1] + away * share, np.hypot(inside, away * np.sqrt(share * other))


class Product(Operator):
    """A product as mantissa and exponent, so that it neither overflows nor vanishes on the way."""

    name = "multiplication"
    dtypes = (np.float64, np.int64)
    identity = (0.5, 1)

    def lift(self, rows: Rows) -> Columns:
        mantissa, exponent = np.frexp(rows.value)
        return mantissa, exponent.astype(np.int64)

    def combine(self, left: Columns, right: Columns) -> Columns:
        mantissa, carry = np.frexp(left[0] * right[0])
        return mantissa, left[1] + right[1] + carry


class _Ordered(Operator):
    """The value at one end of the total order `(ts, source, seq)`."""

    dtypes = (np.int64, np.int32, np.int64, np.float64)

    def __init__(self, order: SourceOrder) -> None:
        self._order = order

    def lift(self, rows: Rows) -> Columns:
        return rows.ts, rows.sources(), rows.numbers(), rows.value

    def _before(self, left: Columns, right: Columns) -> Array:
        """Where right stands before left."""
        same = right[0] == left[0]
        rank_left, rank_right = self._order.ranks[left[1]], self._order.ranks[right[1]]
        closer = (rank_right < rank_left) | ((rank_right == rank_left) & (right[2] < left[2]))
        before: Array = (right[0] < left[0]) | (same & closer)
        return before

    def translated(self, columns: Columns, sources: Array) -> Columns:
        return columns[0], sources[columns[1]], columns[2], columns[3]

    def _strange(self, columns: Columns, count: Ints, sources: Array) -> str | None:
        # A state of nothing has the first code.
        known = (columns[1] == 0) | np.isin(columns[1], sources)
        return None if known.all() else "names a source that is not in the partial"

    @abstractmethod
    def _ends(self, rows: Rows, starts: Ints) -> Ints:
        """The row of each run that counts."""

    def runs(self, rows: Rows, starts: Ints) -> Columns:
        if not rows.in_order:
            return self.fold(self.lift(rows), starts)
        chosen = rows.take(self._ends(rows, starts), in_order=True)
        return self.lift(chosen)


class First(_Ordered):
    name = "first"
    identity = (TS_MAX, 0, TS_MAX, np.nan)

    def _ends(self, rows: Rows, starts: Ints) -> Ints:
        return starts

    def combine(self, left: Columns, right: Columns) -> Columns:
        before = self._before(left, right)
        return tuple(np.where(before, new, old) for old, new in zip(left, right, strict=True))


class Last(_Ordered):
    name = "last"
    identity = (TS_MIN, 0, TS_MIN, np.nan)

    def _ends(self, rows: Rows, starts: Ints) -> Ints:
        return np.append(starts[1:], len(rows)) - 1

    def combine(self, left: Columns, right: Columns) -> Columns:
        before = self._before(left, right)
        return tuple(np.where(before, old, new) for old, new in zip(left, right, strict=True))


class Values(Operator):
    """All values (non-decomposable sort): a list of arrays a cell, never copied before it is read."""

    name = "values"
    dtypes = (object,)
    identity = (None,)

    @staticmethod
    def _join(left: Sequence[Floats] | None, right: Sequence[Floats] | None) -> list[Floats]:
        return [*(left or ()), *(right or ())]

    _joined = np.frompyfunc(_join, 2, 1)

    def lift(self, rows: Rows) -> Columns:
        return self.runs(rows, np.arange(len(rows)))

    def runs(self, rows: Rows, starts: Ints) -> Columns:
        column = np.empty(len(starts), object)
        bounds = [*starts.tolist(), len(rows)]
        for cell in range(len(starts)):
            column[cell] = (rows.value[bounds[cell] : bounds[cell + 1]],)
        return (column,)

    def combine(self, left: Columns, right: Columns) -> Columns:
        joined: Array = np.asarray(self._joined(left[0], right[0]))
        return (joined,)

    def fold(self, columns: Columns, starts: Ints) -> Columns:
        column = np.empty(len(starts), object)
        bounds = [*starts.tolist(), len(columns[0])]
        for cell in range(len(starts)):
            held = columns[0][bounds[cell] : bounds[cell + 1]]
            column[cell] = [piece for state in held for piece in state or ()]
        return (column,)

    def whole(self, rows: Rows) -> State:
        return ((rows.value,),)

    def _strange(self, columns: Columns, count: Ints, sources: Array) -> str | None:
        for row, size in zip(columns[0], count.tolist(), strict=True):
            if row is None:
                continue
            if not isinstance(row, tuple | list) or any(
                not isinstance(piece, np.ndarray) or piece.dtype != np.float64 or piece.ndim != 1
                for piece in row
            ):
                return "has a row that is no list of values"
            if row and sum(map(len, row)) != size:
                return f"has a row of {sum(map(len, row))} values for {size} events"
        return None

    def absent(self, columns: Columns) -> Array | None:
        return np.array([not row for row in columns[0]], bool)

    def merge_row(self, columns: Columns, row: int, state: State) -> None:
        # A list belongs to its row alone and may grow; a tuple may be shared with another store.
        held = columns[0][row]
        if not isinstance(held, list):
            held = columns[0][row] = list(held or ())
        held.extend(state[0])

    def sealed(self, columns: Columns) -> Columns:
        # Sorted once, here: whoever merges it further merges sorted runs.
        column = np.empty(len(columns[0]), object)
        for row, pieces in enumerate(columns[0]):
            # None is what a cell holds from before anybody asked for its values.
            column[row] = (np.sort(np.concatenate(pieces)),) if pieces else ()
        return (column,)


class Ends(Operator):
    """The k largest (or smallest) values, in that order; a missing one is infinite."""

    def __init__(self, size: int, *, largest: bool) -> None:
        self.name = f"{'top' if largest else 'bottom'}({size})"
        self._size, self._sign = size, -1.0 if largest else 1.0
        self.dtypes = (np.dtype((np.float64, (size,))),)
        self.identity = (np.inf,)

    def lift(self, rows: Rows) -> Columns:
        (column,) = self.empty(len(rows))
        column[:, 0] = self._sign * rows.value + 0.0
        return (column,)

    def runs(self, rows: Rows, starts: Ints) -> Columns:
        sizes = lengths(starts, len(rows))
        run = np.repeat(np.arange(len(starts)), sizes)
        signed = self._sign * rows.value + 0.0
        order = np.lexsort((signed, run))
        place = np.arange(len(rows)) - np.repeat(starts, sizes)
        kept = place < self._size
        (column,) = self.empty(len(starts))
        column[run[kept], place[kept]] = signed[order][kept]
        return (column,)

    def combine(self, left: Columns, right: Columns) -> Columns:
        both = np.concatenate((left[0], right[0]), axis=1)
        both.sort(axis=1)
        return (both[:, : self._size],)

    def values(self, column: Array) -> list[tuple[float, ...]]:
        """The states as tuples of what is there."""
        return [tuple((self._sign * row[np.isfinite(row)] + 0.0).tolist()) for row in column]


def _reported(name: str, step: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """A user's function whose failure says whose it is."""

    def reported(*given: Any) -> Any:
        try:
            return function(*given)
        except Exception as error:
            raise FunctionFailed(name, step) from error

    return reported


class _Nothing:
    """The state of no event; None may be a user's own."""

    def __repr__(self) -> str:
        return "nothing"


NOTHING = _Nothing()


class Custom(Operator):
    """A user's lift and combine, on Python objects."""

    dtypes = (object,)
    identity = (NOTHING,)

    def __init__(
        self,
        name: str,
        lift: Callable[[float], Any],
        combine: Callable[[Any, Any], Any],
        invert: Callable[[Any, Any], Any] | None = None,
        *,
        commutative: bool = True,
    ) -> None:
        self.name = f"custom {name}"
        self.commutative = commutative
        self.invertible = invert is not None
        self._lift = _reported(name, "lift", lift)
        self._combine = _reported(name, "combine", combine)
        self._invert = None if invert is None else _reported(name, "invert", invert)
        self._joined = np.frompyfunc(self.joined, 2, 1)

    def absent(self, columns: Columns) -> Array | None:
        return np.array([state is NOTHING for state in columns[0]], bool)

    def joined(self, left: Any, right: Any) -> Any:
        """Two states as one. A user's combine never sees the state of nothing."""
        if left is NOTHING or right is NOTHING:
            return right if left is NOTHING else left
        return self._combine(left, right)

    def undone(self, total: Any, part: Any) -> Any:
        """A state without the part that it begins with."""
        assert self._invert is not None
        return total if part is NOTHING else self._invert(total, part)

    def lift(self, rows: Rows) -> Columns:
        return self.runs(rows, np.arange(len(rows)))

    def runs(self, rows: Rows, starts: Ints) -> Columns:
        column = np.empty(len(starts), object)
        lifted = list(map(self._lift, rows.value.tolist()))
        bounds = [*starts.tolist(), len(rows)]
        for cell in range(len(starts)):
            column[cell] = reduce(self._combine, lifted[bounds[cell] : bounds[cell + 1]])
        return (column,)

    def combine(self, left: Columns, right: Columns) -> Columns:
        joined: Array = np.asarray(self._joined(left[0], right[0]), object)
        return (joined,)


COUNTERS: tuple[type[Count] | type[SumCount], ...] = (Count, SumCount)


def counts(operators: Sequence[Operator], states: Sequence[Columns]) -> Ints:
    """How many events each state holds; the first operator always counts."""
    counter = operators[0]
    assert isinstance(counter, Count | SumCount)
    return counter.counts(states[0])
