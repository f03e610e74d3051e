"""A batch of events: columns of one source, numbered without a gap."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from headwater.errors import InvalidEvents, Problem
from headwater.operators import TS_MAX, Array, Floats, Ints

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
        if not isinstance(first, int) or first < 1:
            problems.append(Problem("first", f"is {first!r}", "records are numbered from 1"))
        self.source, self.first = source, first
        self.ts: Ints = _column("ts", ts, np.int64, problems)
        self.value: Floats = _column("value", value, np.float64, problems)
        self.keys = keys if isinstance(keys, tuple) else tuple(keys)
        self.marks = marks if isinstance(marks, tuple) else tuple(marks)
        self.key: Array | None = None if key is None else _codes("key", key, self.keys, 0, problems)
        self.mark: Array | None = (
            None if mark is None else _codes("mark", mark, self.marks, NO_MARK, problems)
        )
        self.bare: Array | None = None if bare is None else _column("bare", bare, np.bool_, problems)
        lengths = {
            field: len(column)
            for field in ("ts", "value", "key", "mark", "bare")
            if (column := getattr(self, field)) is not None
        }
        if len(set(lengths.values())) > 1 and not problems:
            told = ", ".join(f"{field} {size}" for field, size in lengths.items())
            problems.append(Problem("columns", f"have different lengths ({told})", "give one row an event"))
        if problems:
            raise InvalidEvents(f"the batch of source {source!r} cannot be taken", problems)

    def __len__(self) -> int:
        return len(self.ts)

    @classmethod
    def from_records(cls, source: str, first: int, records: Iterable[Record]) -> Batch:
        """A batch of rows `(ts, key, value, mark)`. A ts beyond int64 is kept as one that is rejected."""
        rows = list(records)
        problems = []
        for place, row in enumerate(rows):
            if not isinstance(row[0], int | np.integer) or isinstance(row[0], bool):
                problems.append(
                    Problem(
                        f"ts[{place}]", f"is {row[0]!r}", "give microseconds since the epoch as an integer"
                    )
                )
        if problems:
            raise InvalidEvents(f"the batch of source {source!r} cannot be taken", problems)
        keys = _dictionary(row[1] or "" for row in rows)
        marks = _dictionary(row[3] for row in rows if row[3] is not None)
        bare = [row[2] is None for row in rows]
        has_marks = bool(marks)
        return cls(
            source,
            first,
            np.array([row[0] if abs(row[0]) <= TS_MAX else TS_MAX for row in rows], np.int64),
            np.array([np.nan if row[2] is None else row[2] for row in rows], np.float64),
            key=np.array([keys[row[1] or ""] for row in rows], np.int32),
            keys=tuple(keys),
            mark=np.array([NO_MARK if row[3] is None else marks[row[3]] for row in rows], np.int32)
            if has_marks
            else None,
            marks=tuple(marks),
            bare=np.array(bare, bool) if any(bare) else None,
        )


def _dictionary(names: Iterable[str]) -> dict[str, int]:
    codes: dict[str, int] = {}
    for name in names:
        codes.setdefault(name, len(codes))
    return codes


def _column(field: str, given: Any, dtype: Any, problems: list[Problem]) -> Array:
    """The column as that type if nothing is lost by it; otherwise a problem, and nothing."""
    if isinstance(given, np.ndarray) and given.dtype == dtype and given.ndim == 1:
        return given
    try:
        column = np.asarray(given)
    except (ValueError, OverflowError) as error:
        problems.append(
            Problem(field, f"is no column ({error})", f"give a one-dimensional {np.dtype(dtype)} array")
        )
        return np.empty(0, dtype)
    if column.ndim != 1:
        problems.append(Problem(field, f"has {column.ndim} dimensions", "give a one-dimensional array"))
        return np.empty(0, dtype)
    if column.size == 0:
        return np.empty(0, dtype)
    wanted = "iub" if dtype == np.int64 else "b" if dtype == np.bool_ else "iuf"
    if column.dtype.kind not in wanted or (dtype == np.int64 and column.dtype.kind == "b"):
        problems.append(
            Problem(
                field, f"has dtype {column.dtype}", f"give {np.dtype(dtype)} (or a type that fits into it)"
            )
        )
        return np.empty(0, dtype)
    if dtype == np.int64 and column.dtype == np.uint64:
        # Beyond int64 a time is rejected event by event; it must not wrap round to a valid one.
        return np.where(column > np.uint64(TS_MAX), np.uint64(TS_MAX), column).astype(np.int64)
    return column.astype(dtype)


# The dictionary that was found good last: batches of one source usually share theirs.
_checked: dict[str, tuple[str, ...]] = {}


def _codes(field: str, given: Any, names: tuple[str, ...], low: int, problems: list[Problem]) -> Array:
    plural = f"{field}s"
    for place, name in enumerate(names if names is not _checked.get(field) else ()):
        if not isinstance(name, str):
            problems.append(Problem(f"{plural}[{place}]", f"is {name!r}", "give strings"))
        elif len(name) > KEY_LIMIT // 4 and len(name.encode()) > KEY_LIMIT:
            problems.append(
                Problem(
                    f"{plural}[{place}]",
                    f"is {len(name.encode())} bytes long",
                    f"keep names within {KEY_LIMIT} bytes of UTF-8",
                )
            )
    if not problems:
        _checked[field] = names
    if not isinstance(given, np.ndarray) or given.dtype != np.int32:
        given = _column(field, given, np.int64, problems)
    if len(given) and (int(given.min()) < low or int(given.max()) >= len(names)):
        problems.append(
            Problem(field, f"has codes outside {low}..{len(names) - 1}", f"give indexes into {plural}")
        )
    return np.asarray(given)
