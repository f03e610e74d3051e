"""Results as columns, and as rows for whoever wants to look at them one by one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from headwater.aggregates import Aggregate
from headwater.operators import Array, Columns, Ints, Operator
from headwater.queries import Query

# What a function of no event is; every other one has no value then.
OF_NOTHING: dict[str, Any] = {"count": 0, "sum": 0.0, "product": 1.0}


@dataclass(frozen=True, slots=True)
class Result:
    """One window of one query; `key` is None without key, `site` is empty for a global query."""

    query: str
    site: str
    key: str | None
    start: int
    end: int
    count: int
    values: dict[str, Any]


@dataclass(slots=True)
class Block:
    """Windows of queries with the same aggregates: one row a window, functions lowered column-wise."""

    queries: Sequence[Query]
    query: Array
    names: Sequence[tuple[str, str | None]]
    code: Ints
    start: Ints
    end: Ints
    count: Ints
    values: dict[str, Array]

    def __len__(self) -> int:
        return len(self.query)

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
        for row, (query, code, start, end, count) in enumerate(zip(*fixed, strict=True)):
            site, key = self.names[code]
            if count:
                values = {name: column[row] for name, column in columns.items()}
            else:
                values = {name: OF_NOTHING.get(name) for name in columns}
            order = (end, query, site.encode(), (key or "").encode(), start)
            yield order, Result(self.queries[query].id, site, key, start, end, count, values)


class Results:
    """The windows that were closed since the last time, ordered by end, query, site, key and start."""

    def __init__(self, blocks: Sequence[Block]) -> None:
        self.blocks = tuple(blocks)

    def __len__(self) -> int:
        return sum(map(len, self.blocks))

    def __iter__(self) -> Iterator[Result]:
        rows = [row for block in self.blocks for row in block.rows()]
        rows.sort(key=lambda row: row[0])
        yield from (result for _, result in rows)

    def columns(self, query: str) -> dict[str, Array]:
        """One query's windows as columns: what `pandas.DataFrame` and `pyarrow.table` take."""
        rows = [result for result in self if result.query == query]
        names = list(rows[0].values) if rows else []
        table: dict[str, list[Any]] = {
            "site": [row.site for row in rows],
            "key": [row.key for row in rows],
            "start": [row.start for row in rows],
            "end": [row.end for row in rows],
        }
        table |= {name: [row.values[name] for row in rows] for name in names}
        table["count"] = [row.count for row in rows]
        return {
            name: np.array(column, object if name in ("site", "key") else None)
            for name, column in table.items()
        }

    def __repr__(self) -> str:
        return f"<{len(self)} results>"


def lowered(
    queries: Sequence[Query],
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
        values = {function.name: function.lower(by_name) for function in functions}
    else:
        # Functions need not know about windows without events.
        some = {name: tuple(column[held] for column in columns) for name, columns in by_name.items()}
        values = {}
        for function in functions:
            found = function.lower(some)
            column = np.zeros(len(count), found.dtype)
            column[held] = found
            values[function.name] = column
    return Block(queries, query, names, code, start, end, count, values)
