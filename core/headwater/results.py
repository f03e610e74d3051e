"""Results as columns, and as rows for whoever wants to look at them one by one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from itertools import chain
from typing import Any, Literal, overload

import numpy as np

from headwater.aggregates import Aggregate
from headwater.errors import Invalid, Problem
from headwater.ledger import Account
from headwater.operators import Columns, Operator
from headwater.queries import Query
from headwater.rows import TS_MIN, Array, Ints
from headwater.windows import is_count

# What a function of no event is; every other one has no value then.
OF_NOTHING: dict[str, Any] = {"count": 0, "sum": 0.0, "product": 1.0}
# What bounds of windows are: microseconds, or ranks of events.
Measure = Literal["time", "count"]
# Columns of names.
_NAMES = ("site", "key")
# Columns of the times of events, which count windows have.
_TIMES = ("first_time", "last_time")


@dataclass(frozen=True, slots=True)
class Result:
    """One window of one query.

    `key` is None without key; `site` is empty for a global query, and the source's name for a punctuation
    window that is merged with no other. `ordinal` is the number of a punctuation window whose merge goes
    by it (local, order); one that was merged by equal bounds is known by both of them (`by_bounds`).
    `incarnation` is the how-manieth query of this id it is of: a query may be removed and added again.
    The bounds of a count window are ranks (`measure`), and `first_time` and `last_time` are the times of its
    first and its last event: None where a release before has counted that event, and for all other windows.
    """

    query: str
    site: str
    key: str | None
    start: int
    end: int
    count: int
    values: dict[str, Any]
    ordinal: int | None = None
    incarnation: int = 1
    by_bounds: bool = False
    measure: Measure = "time"
    first_time: int | None = None
    last_time: int | None = None

    @property
    def identity(self) -> tuple[Any, ...]:
        """What no other result has: query, incarnation, site, key, and the ordinal or the start."""
        place: Any = self.start if self.ordinal is None else self.ordinal
        if self.by_bounds:
            # Windows of two sources may begin together and end apart.
            place = (self.start, self.end)
        return self.query, self.incarnation, self.site, self.key, place


@dataclass(slots=True)
class Block:
    """Windows of queries with the same aggregates: one row a window, functions lowered column-wise.

    Count windows have the times of their first and their last event; TS_MIN is a time that is not known.
    """

    queries: Sequence[Query]
    incarnations: Sequence[int]
    query: Array
    names: Sequence[tuple[str, str | None]]
    code: Ints
    start: Ints
    end: Ints
    count: Ints
    values: dict[str, Array]
    ordinal: Ints | None = None
    by_bounds: bool = False
    first_time: Ints | None = None
    last_time: Ints | None = None

    def __setstate__(self, state: Any) -> None:
        # A state of a release before has no times.
        self.first_time = self.last_time = None
        for name, value in state[1].items():
            setattr(self, name, value)

    def __len__(self) -> int:
        return len(self.query)

    def of(self, query: str) -> Block:
        """The windows of one query."""
        mine = np.isin(self.query, [place for place, known in enumerate(self.queries) if known.id == query])
        if mine.all():
            return self
        return replace(
            self,
            query=self.query[mine],
            code=self.code[mine],
            start=self.start[mine],
            end=self.end[mine],
            count=self.count[mine],
            values={name: column[mine] for name, column in self.values.items()},
            ordinal=None if self.ordinal is None else self.ordinal[mine],
            first_time=None if self.first_time is None else self.first_time[mine],
            last_time=None if self.last_time is None else self.last_time[mine],
        )

    def ranked(self, places: Mapping[tuple[str, str], int]) -> Ints:
        """The place of each row's site and key among those of all blocks."""
        used, rows = np.unique(self.code, return_inverse=True)
        ranks: Ints = np.array([places[_place(self.names[code])] for code in used.tolist()], np.int64)[rows]
        return ranks

    def filled(self, name: str) -> Array:
        """A function's column, with what it is of no event; without values if it was not asked for."""
        if name not in self.values:
            return np.full(len(self), None, object)
        column = self.values[name]
        empty = self.count == 0
        if empty.any():
            column = column.copy() if name in OF_NOTHING else column.astype(object)
            column[empty] = OF_NOTHING.get(name)
        return column

    def rows(self) -> Iterator[tuple[tuple[Any, ...], Result]]:
        """Each row with its place in the order of results."""
        columns = {name: column.tolist() for name, column in self.values.items()}
        fixed = (
            self.query.tolist(),
            self.code.tolist(),
            self.start.tolist(),
            self.end.tolist(),
            self.count.tolist(),
        )
        ranked = {place for place in set(fixed[0]) if is_count(self.queries[place].window)}
        for row, (query, code, start, end, count) in enumerate(zip(*fixed, strict=True)):
            site, key = self.names[code]
            if count:
                values = {name: column[row] for name, column in columns.items()}
            else:
                values = {name: OF_NOTHING.get(name) for name in columns}
            ordinal = None if self.ordinal is None else int(self.ordinal[row])
            # Not by the times: a release before has closed count windows without them.
            measure: Measure = "count" if query in ranked else "time"
            order = (end, query, site.encode(), (key or "").encode(), start, ordinal or 0)
            yield (
                order,
                Result(
                    self.queries[query].id,
                    site,
                    key,
                    start,
                    end,
                    count,
                    values,
                    ordinal,
                    self.incarnations[query],
                    self.by_bounds,
                    measure,
                    _time_at(self.first_time, row),
                    _time_at(self.last_time, row),
                ),
            )


class Results:
    """The windows that were closed since the last time, ordered by end, query, site, key and start."""

    def __init__(
        self,
        blocks: Sequence[Block],
        accounts: Mapping[str, Account] | None = None,
        *,
        known: Sequence[Query] | None = None,
    ) -> None:
        """`accounts` say what became of every record, by source, where the results are of all of them;
        `known` are the queries that were asked, also those without windows, where that is known."""
        self.blocks = tuple(blocks)
        # Not copied: a root gives results often, and may have many queries.
        self._known = known
        self.accounts = dict(accounts or {})
        self._rows: list[Result] | None = None

    def __len__(self) -> int:
        return sum(map(len, self.blocks))

    def __iter__(self) -> Iterator[Result]:
        yield from self._listed

    @overload
    def __getitem__(self, place: int) -> Result: ...

    @overload
    def __getitem__(self, place: slice) -> list[Result]: ...

    def __getitem__(self, place: int | slice) -> Result | list[Result]:
        """A result by its place in the order of results, or some of them."""
        return self._listed[place]

    @property
    def _listed(self) -> list[Result]:
        """All results in their order, made once: whoever indexes does so again and again."""
        if self._rows is None:
            rows = [row for block in self.blocks for row in block.rows()]
            rows.sort(key=lambda row: row[0])
            self._rows = [result for _, result in rows]
        return self._rows

    @property
    def queries(self) -> list[str]:
        """The ids of the queries that have results."""
        used = (block.queries[place].id for block in self.blocks for place in np.unique(block.query).tolist())
        return list(dict.fromkeys(used))

    def to_pandas(self, query: str | None = None) -> Any:
        """One query's windows as a `pandas.DataFrame`: times in UTC, one column a function."""
        pandas = _package("pandas")
        table = self._table(query)
        frame = pandas.DataFrame(table.columns)
        for name in table.times:
            frame[name] = pandas.to_datetime(frame[name], utc=True)
        return frame

    def to_arrow(self, query: str | None = None) -> Any:
        """One query's windows as a `pyarrow.Table`: times in UTC, one column a function."""
        arrow = _package("pyarrow")
        table = self._table(query)
        # Also where no window has a key, or there is no window.
        types = dict.fromkeys(_NAMES, arrow.string())
        types |= dict.fromkeys(table.times, arrow.timestamp("us", tz="UTC"))
        return arrow.table(
            {name: arrow.array(column, types.get(name)) for name, column in table.columns.items()}
        )

    def to_polars(self, query: str | None = None) -> Any:
        """One query's windows as a `polars.DataFrame`: times in UTC, one column a function."""
        polars = _package("polars")
        table = self._table(query)
        columns = {
            name: column.tolist() if column.dtype == object else column
            for name, column in table.columns.items()
        }
        frame = polars.DataFrame(columns, schema_overrides=dict.fromkeys(_NAMES, polars.String))
        return frame.with_columns(
            polars.col(name).dt.cast_time_unit("us").dt.replace_time_zone("UTC") for name in table.times
        )

    def _table(self, query: str | None) -> _Table:
        """The columns of a query, with its bounds as times, or as ranks under names of their own."""
        present = self.queries
        if query is None and len(present) > 1:
            named = ", ".join(present)
            raise Invalid(
                "the results cannot be a table",
                [Problem("query", f"is missing, and there are several ({named})", "name one of them")],
            )
        asked = [*(self._known or ()), *(each for block in self.blocks for each in block.queries)]
        only = present or list(dict.fromkeys(each.id for each in asked))
        name = query if query is not None else (only[0] if len(only) == 1 else "")
        mine = [each for each in asked if each.id == name]
        if query is not None and self._known is not None and not mine:
            named = ", ".join(dict.fromkeys(each.id for each in asked)) or "there is none"
            raise Invalid(
                "the results cannot be a table",
                [Problem("query", f"{query!r} is not known", f"give one of the queries: {named}")],
            )
        columns = self.columns(name)
        if any(is_count(each.window) for each in mine):
            # Ranks from 1, both of them in the window.
            ranks = {"start": ("first_rank", columns["start"] + 1), "end": ("last_rank", columns["end"])}
            columns = dict(ranks.get(field, (field, column)) for field, column in columns.items())
        timed = [field for field in ("start", "end", *_TIMES) if field in columns]
        # What is not known, TS_MIN or None, is not a time here.
        times = {field: columns[field].astype("datetime64[us]") for field in timed}
        return _Table(columns | times, tuple(times))

    def columns(self, query: str) -> dict[str, Array]:
        """One query's windows as columns: what `pandas.DataFrame` and `pyarrow.table` take.

        Where windows of a query that was added again are among them, `incarnation` tells them apart;
        punctuation windows that have an `ordinal` have a column for it. Count windows have columns for the
        times of their first and their last event.
        """
        parts = [part for block in self.blocks if len(part := block.of(query))]
        named = {
            _place(name): name
            for part in parts
            for name in map(part.names.__getitem__, np.unique(part.code).tolist())
        }
        listed = [named[place] for place in sorted(named)]
        places = {place: rank for rank, place in enumerate(sorted(named))}
        rank = _stacked([part.ranked(places) for part in parts])
        start, end, count = (
            _stacked([getattr(part, f) for part in parts]) for f in ("start", "end", "count")
        )
        order = np.lexsort((start, rank, _stacked([part.query for part in parts]), end))
        table = {
            "site": _objects([site for site, _ in listed])[rank],
            "key": _objects([key for _, key in listed])[rank],
            "start": start,
            "end": end,
        }
        incarnation = _stacked([np.take(part.incarnations, part.query) for part in parts])
        if (incarnation > 1).any():
            table["incarnation"] = incarnation
        if any(part.ordinal is not None for part in parts):
            table["ordinal"] = _stacked(
                [np.full(len(part), -1) if part.ordinal is None else part.ordinal for part in parts]
            )
        if self._is_ranked(query, parts):
            for name in _TIMES:
                given = [getattr(part, name) for part in parts]
                table[name] = _known_times(
                    _stacked(
                        [
                            np.full(len(part), TS_MIN) if times is None else times
                            for part, times in zip(parts, given, strict=True)
                        ]
                    )
                )
        # In the order of the first one: an incarnation may ask for other functions than the one before.
        for name in dict.fromkeys(name for part in parts for name in part.values):
            table[name] = np.concatenate([part.filled(name) for part in parts])
        table["count"] = count
        return {name: column[order] for name, column in table.items()}

    def _is_ranked(self, query: str, parts: Sequence[Block]) -> bool:
        """Whether a query has count windows, also while none of them is there."""
        known = (each for each in self._known or () if each.id == query)
        used = (part.queries[place] for part in parts for place in np.unique(part.query).tolist())
        return any(is_count(each.window) for each in chain(known, used))

    def __repr__(self) -> str:
        return f"<{len(self)} results>"


@dataclass(frozen=True, slots=True)
class _Table:
    """Columns, and which of them are times."""

    columns: dict[str, Array]
    times: tuple[str, ...]


def _package(name: str) -> Any:
    """A package that this one does not need, for whoever has it and asks for its tables."""
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name:
            raise
        problem = Problem(name, "is not installed", f"pip install {name}, or take columns(query)")
        raise Invalid(f"there is no {name} to make a table with", [problem]) from None


def _place(name: tuple[str, str | None]) -> tuple[str, str]:
    """What a site and key are ordered by: code points, which is the order of their UTF-8 too."""
    return name[0], name[1] or ""


def _stacked(columns: Sequence[Array]) -> Ints:
    """Columns of integers as one, also if there is none."""
    return np.concatenate([np.empty(0, np.int64), *columns])


def _time_at(times: Ints | None, row: int) -> int | None:
    """A time of a window, if it has such times and this one is known."""
    found = TS_MIN if times is None else int(times[row])
    return None if found == TS_MIN else found


def _known_times(times: Ints) -> Array:
    """A column of times, of objects if some are not known."""
    unknown = times == TS_MIN
    if not unknown.any():
        return times
    column: Array = times.astype(object)
    column[unknown] = None
    return column


def _objects(listed: Sequence[object]) -> Array:
    column = np.empty(len(listed), object)
    column[:] = listed
    return column


def lowered(
    queries: Sequence[Query],
    incarnations: Sequence[int],
    operators: Sequence[Operator],
    functions: Sequence[Aggregate],
    query: Array,
    code: Ints,
    start: Ints,
    end: Ints,
    states: Sequence[Columns],
    names: Sequence[tuple[str, str | None]],
) -> Block:
    """Windows with their functions computed; all of them ask for the same functions."""
    by_name: dict[str, Columns] = {}
    for operator, columns in zip(operators, states, strict=True):
        by_name |= operator.states(columns)
    count = by_name["count"][0]
    held = count > 0
    if held.all():
        values = _values(functions, by_name)
    else:
        # Functions need not know about windows without events.
        some = {name: tuple(column[held] for column in columns) for name, columns in by_name.items()}
        values = {}
        for name, found in _values(functions, some).items():
            values[name] = np.zeros(len(count), found.dtype)
            values[name][held] = found
    return Block(queries, incarnations, query, names, code, start, end, count, values)


def _values(functions: Sequence[Aggregate], states: Mapping[str, Columns]) -> dict[str, Array]:
    # What is beyond a float is infinite; that is the answer, not a mishap.
    with np.errstate(over="ignore", invalid="ignore"):
        return {function.name: function.lower(states) for function in functions}
