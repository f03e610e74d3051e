"""A batch of events: columns of one source, numbered without a gap."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from copy import copy
from types import NoneType
from typing import Any

import numpy as np

from headwater.durations import integer
from headwater.errors import InvalidEvents, Problem
from headwater.rows import TS_MAX, TS_MIN, Array, Floats, Ints

KEY_LIMIT = 1_024
NO_MARK = -1
# A row as people write it: (ts, key, value, mark); None where there is none.
Record = tuple[int, str | None, float | None, str | None]


class Batch:
    """Records `first`, `first + 1`, ... of one source.

    `value` is NaN and `bare` true where a record has no value; a record with neither value nor mark is
    a heartbeat. `key` holds codes into `keys`, `mark` codes into `marks` (-1: none). The columns belong
    to the batch from here on: the engine keeps views of them instead of copies.
    """

    __slots__ = ("bare", "first", "key", "keys", "mark", "marks", "source", "ts", "value")

    def __init__(
        self,
        source: str,
        first: int,
        ts: Any,
        value: Any,
        *,
        key: Any = None,
        keys: Sequence[str] = (),
        mark: Any = None,
        marks: Sequence[str] = (),
        bare: Any = None,
    ) -> None:
        problems: list[Problem] = []
        if not isinstance(source, str) or not source:
            problems.append(Problem("source", f"is {source!r}", "give the name of the source"))
        number = integer(first)
        if number is None or number < 1:
            problems.append(Problem("first", f"is {first!r}", "records are numbered from 1"))
        self.source, self.first = source, number or 1
        self.ts: Ints = _column("ts", ts, np.int64, problems)
        self.value: Floats = _column("value", value, np.float64, problems)
        self.keys = keys if isinstance(keys, tuple) else _dictionary("keys", keys, problems)
        self.marks = marks if isinstance(marks, tuple) else _dictionary("marks", marks, problems)
        self.key: Array | None = None if key is None else _codes("key", key, self.keys, 0, problems)
        self.mark: Array | None = (
            None if mark is None else _codes("mark", mark, self.marks, NO_MARK, problems)
        )
        self.bare: Array | None = None if bare is None else _column("bare", bare, np.bool_, problems)
        lengths = {
            field: len(column)
            for field in ("ts", "value", "key", "mark", "bare")
            if (column := getattr(self, field)) is not None and column is not _UNREADABLE
        }
        if len(set(lengths.values())) > 1:
            told = ", ".join(f"{field} {size}" for field, size in lengths.items())
            problems.append(Problem("columns", f"have different lengths ({told})", "give one row an event"))
        if problems:
            raise InvalidEvents(f"the batch of source {source!r} cannot be taken", problems)

    def __len__(self) -> int:
        return len(self.ts)

    def numbered(self, source: str, first: int) -> Batch:
        """The same columns as those of another source or under other numbers; this batch stays as it is."""
        other = copy(self)
        other.source, other.first = source, first
        return other

    def lean(self) -> Batch:
        """The same records, with no names of keys but those that they use."""
        if self.key is None:
            return self
        used = np.flatnonzero(np.bincount(self.key, minlength=len(self.keys)))
        if len(used) == len(self.keys):
            return self
        places = np.zeros(len(self.keys), self.key.dtype)
        places[used] = np.arange(len(used))
        other = copy(self)
        other.key, other.keys = places[self.key], tuple(self.keys[code] for code in used.tolist())
        return other

    @classmethod
    def from_records(cls, source: str, first: int, records: Iterable[Record]) -> Batch:
        """A batch of rows `(ts, key, value, mark)`. A ts beyond int64 is kept as one that is rejected."""
        problems: list[Problem] = []
        rows: list[tuple[Any, ...]] = []
        for place, row in enumerate(records):
            whole = row if type(row) is tuple else _unpacked(row)
            if whole is None or len(whole) != len(_NOTHING):
                problems.append(
                    Problem(f"records[{place}]", f"is {row!r}", "give (ts, key, value, mark), None for none")
                )
                whole = _NOTHING
            rows.append(whole)
        moments, names, numbers, signs = zip(*rows, strict=True) if rows else ((), (), (), ())
        ts = _moments(moments, problems)
        key, keys = _coded("keys", ["" if name is None else name for name in names], problems)
        value = _numbers(numbers, problems)
        mark, marks = _coded("marks", signs, problems)
        if problems:
            try:
                cls(source, first, (), ())
            except InvalidEvents as error:
                problems = [*error.problems, *problems]
            raise InvalidEvents(f"the batch of source {source!r} cannot be taken", problems)
        return cls(
            source,
            first,
            ts,
            value,
            key=key,
            keys=keys,
            mark=mark if marks else None,
            marks=marks,
            bare=np.array([number is None for number in numbers], bool) if None in numbers else None,
        )


# A record of which nothing is said.
_NOTHING = (0, None, None, None)


def _unpacked(row: Any) -> tuple[Any, ...] | None:
    return tuple(row) if isinstance(row, Iterable) else None


def _moments(given: Sequence[Any], problems: list[Problem]) -> Ints:
    try:
        if set(map(type, given)) <= {int}:
            return np.array(given, np.int64)
    except OverflowError:
        pass
    for place, moment in enumerate(given):
        if not is_whole(moment):
            problems.append(
                Problem(f"ts[{place}]", f"is {moment!r}", "give microseconds since the epoch as an integer")
            )
    return np.array([int(m) if is_whole(m) and TS_MIN <= m <= TS_MAX else TS_MAX for m in given], np.int64)


def _numbers(given: Sequence[Any], problems: list[Problem]) -> Floats:
    if set(map(type, given)) <= {float, NoneType}:
        # numpy reads None as NaN.
        return np.array(given, np.float64)
    found = np.full(len(given), np.nan)
    for place, number in enumerate(given):
        try:
            if is_number(number):
                found[place] = float(number)
            elif number is not None:
                problems.append(Problem(f"value[{place}]", f"is {number!r}", "give a number, or None"))
        except OverflowError:
            problems.append(
                Problem(f"value[{place}]", "is an integer beyond float64", "give a number that fits")
            )
    return found


def _coded(field: str, given: Sequence[Any], problems: list[Problem]) -> tuple[Array, tuple[str, ...]]:
    """Names as codes and a dictionary; None has no name. What is wrong with one is told where it is first."""
    codes: dict[str | None, int] = {None: NO_MARK}
    if not set(map(type, given)) <= {str, NoneType}:
        for place, name in enumerate(given):
            if name is not None and not isinstance(name, str):
                problems.append(Problem(f"{field}[{place}]", f"is {name!r}", "give strings"))
        given = [name if isinstance(name, str) else None for name in given]
    for name in dict.fromkeys(given):
        if name is None:
            continue
        codes[name] = len(codes) - 1
        if wrong := name_problem(name):
            problems.append(Problem(f"{field}[{given.index(name)}]", *wrong))
    rows = np.fromiter(map(codes.__getitem__, given), np.int32, len(given))
    return rows, tuple(name for name in codes if name is not None)


def is_whole(given: object) -> bool:
    return isinstance(given, int | np.integer) and not isinstance(given, bool)


def is_number(given: object) -> bool:
    return isinstance(given, float | int | np.integer | np.floating) and not isinstance(given, bool)


def require_batch(given: object) -> None:
    """Raise if it is no batch."""
    if not isinstance(given, Batch):
        problem = Problem(
            "batch", f"is of type {type(given).__name__}", "give a Batch of one source's events"
        )
        raise InvalidEvents("the batch cannot be taken", [problem])


def name_problem(name: object) -> tuple[str, str] | None:
    """What is wrong with a key or a mark, and the remedy."""
    if not isinstance(name, str):
        return f"is {name!r}", "give strings"
    try:
        size = len(name) if name.isascii() else len(name.encode())
    except UnicodeEncodeError as error:
        return f"is no text ({error.reason} at {error.start})", "give strings that UTF-8 can hold"
    if size > KEY_LIMIT:
        return f"is {size} bytes long", f"keep names within {KEY_LIMIT} bytes of UTF-8"
    return None


def _dictionary(field: str, given: Any, problems: list[Problem]) -> tuple[str, ...]:
    if isinstance(given, Iterable) and not isinstance(given, str | bytes):
        return tuple(given)
    problems.append(Problem(field, f"is {given!r}", "give a list of strings"))
    return ()


# Stands for a column that has no length one could compare; its problem is told.
_UNREADABLE: Array = np.empty(0)


def _column(field: str, given: Any, dtype: Any, problems: list[Problem]) -> Array:
    """The column as that type if nothing is lost by it; otherwise a problem, and nothing of use."""
    if isinstance(given, np.ndarray) and given.dtype == dtype and given.ndim == 1:
        return given
    try:
        column = np.asarray(given)
    except (TypeError, ValueError, OverflowError) as error:
        problems.append(
            Problem(field, f"is no column ({error})", f"give a one-dimensional {np.dtype(dtype)} array")
        )
        return _UNREADABLE
    if column.ndim != 1:
        problems.append(Problem(field, f"has {column.ndim} dimensions", "give a one-dimensional array"))
        return _UNREADABLE
    if column.size == 0:
        return np.empty(0, dtype)
    wanted = "iub" if dtype == np.int64 else "b" if dtype == np.bool_ else "iuf"
    if column.dtype.kind not in wanted or (dtype == np.int64 and column.dtype.kind == "b"):
        problems.append(
            Problem(
                field, f"has dtype {column.dtype}", f"give {np.dtype(dtype)} (or a type that fits into it)"
            )
        )
        return np.zeros(len(column), dtype)
    if dtype == np.int64 and column.dtype == np.uint64:
        # Beyond int64 a time is rejected event by event; it must not wrap round to a valid one.
        return np.where(column > np.uint64(TS_MAX), np.uint64(TS_MAX), column).astype(np.int64)
    return column.astype(dtype)


# Codes that are kept as they are: to widen them costs more than to look one up.
_NARROW = tuple(map(np.dtype, (np.int32, np.uint8, np.uint16, np.uint32)))
# The dictionary that was found good last: batches of one source usually share theirs.
_checked: dict[str, tuple[str, ...]] = {}


def _codes(field: str, given: Any, names: tuple[str, ...], low: int, problems: list[Problem]) -> Array:
    plural = f"{field}s"
    for place, name in enumerate(names if names is not _checked.get(field) else ()):
        # Most names are seen to be good without a call.
        if not isinstance(name, str) or len(name) > KEY_LIMIT or not name.isascii():
            wrong = name_problem(name)
            if wrong:
                problems.append(Problem(f"{plural}[{place}]", *wrong))
    if not problems:
        _checked[field] = names
    narrow = isinstance(given, np.ndarray) and given.ndim == 1 and given.dtype in _NARROW
    if not narrow:
        known = len(problems)
        given = _column(field, given, np.int64, problems)
        if len(problems) > known:
            return np.asarray(given)
    below = len(given) and given.dtype.kind != "u" and int(given.min()) < low
    if below or (len(given) and int(given.max()) >= len(names)):
        problems.append(
            Problem(field, f"has codes outside {low}..{len(names) - 1}", f"give indexes into {plural}")
        )
    return np.asarray(given)
