"""One window as a line for people: its query, its key by name, when it was, and its values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from headwater.queries import Query
from headwater.windows import is_count
from headwater_cli.resultfiles import bounds_of
from headwater_cli.times import interval
from headwater_root import resultlines

# What a key is called as long as nobody knows its name: that of a query which was added while the tree runs.
KEY = "key"


class WindowLines:
    """Formats the windows of these queries."""

    def __init__(self, keys: Mapping[str, str | None], counts: Iterable[str] = ()) -> None:
        """`keys` says how queries call their key, `counts` which of them have count windows."""
        self._keys, self._counts = dict(keys), set(counts)

    @classmethod
    def of(cls, queries: Iterable[Query]) -> WindowLines:
        listed = list(queries)
        counts = (query.id for query in listed if is_count(query.window))
        return cls({query.id: query.key_by for query in listed}, counts)

    def add(self, queries: Iterable[Query]) -> None:
        """Know further queries; one that is known already stays as it is."""
        for query in queries:
            if query.id not in self._keys:
                self._keys[query.id] = query.key_by
                self._counts |= {query.id} if is_count(query.window) else set()

    def format(self, row: dict[str, Any]) -> str:
        """`trend  machine=boiler  22:13:20.000 to 22:13:30.000 (10 s)  247 events  avg=54.1`."""
        parts = [row["query"] if row["incarnation"] == 1 else f"{row['query']}/{row['incarnation']}"]
        where = [f"site={row['site']}"] if row["site"] else []
        if row["key"] is not None:
            where.append(f"{self._keys.get(row['query']) or KEY}={row['key']}")
        parts += [" ".join(where)] if where else []
        parts.append(format_bounds(row, self._counts))
        parts += [f"#{row['ordinal']}"] if row["ordinal"] is not None else []
        parts.append(f"{row['count']:,} event{'' if row['count'] == 1 else 's'}")
        values = row["values"].items()
        parts += [" ".join(f"{name}={format_value(value)}" for name, value in values if name != "count")]
        return printable("  ".join(part for part in parts if part))


def format_bounds(row: Mapping[str, Any], counts: Iterable[str] = ()) -> str:
    """When a window was; of a count window the ranks too, as far as its line says them."""
    bounds = bounds_of(row, counts)
    if bounds.measure == "time":
        return interval(row["start"], row["end"])
    # Ranks begin with 0 in the engine; people count from 1.
    ranks = f"events {row['start'] + 1:,} to {row['end']:,}"
    if bounds.measure is None:
        return f"{row['start']:,} to {row['end']:,}"
    if bounds.first is None or bounds.last is None:
        return ranks
    return f"{ranks}, {interval(bounds.first, bounds.last)}"


def format_value(value: Any) -> str:
    """A value of a window in at most six digits."""
    if isinstance(value, float):
        return f"{value:.6g}"
    return value if isinstance(value, str) else resultlines.text(value)


def printable(line: str) -> str:
    """A name may hold anything; on a terminal it must neither break the line nor send commands."""
    return line if line.isprintable() else "".join(c if c.isprintable() else repr(c)[1:-1] for c in line)
