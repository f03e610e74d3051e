"""Windows on the screen or in a pipe: as a table, as CSV, or as JSON lines."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

import click
from rich.table import Table
from rich.text import Text

from headwater_cli import screen
from headwater_cli.resultfiles import flatten, write_csv
from headwater_cli.windowlines import format_bounds, format_value, printable
from headwater_root import resultlines

FORMATS = ("table", "csv", "json")


class ResultTable:
    """Writes results in one format. `keys` says how queries call their key, `counts` which of them have
    count windows."""

    def __init__(
        self, format: str, keys: Mapping[str, str | None] | None = None, counts: Iterable[str] = ()
    ) -> None:
        self._format, self._keys, self._counts = format, dict(keys or {}), set(counts)

    def write(self, rows: Sequence[Mapping[str, Any]]) -> None:
        if self._format == "json":
            for row in rows:
                click.echo(json.dumps(self._plain(row), ensure_ascii=False))
        elif self._format == "csv":
            functions = dict.fromkeys(name for row in rows for name in row["values"] if name != "count")
            write_csv(sys.stdout, [flatten(row, self._counts) for row in rows], functions)
        else:
            for query in dict.fromkeys(row["query"] for row in rows):
                screen.console().print(self._table(query, [row for row in rows if row["query"] == query]))

    def _plain(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """A result with its times as ISO 8601, and values as they stand in result lines."""
        found: dict[str, Any] = flatten(row, self._counts)
        for name in row["values"]:
            found.pop(name, None)
        found = {
            name: value.isoformat() if isinstance(value, datetime) else value for name, value in found.items()
        }
        values = {name: json.loads(resultlines.text(value)) for name, value in row["values"].items()}
        return found | {"count": row["count"], "values": values}

    def _table(self, query: str, rows: Sequence[Mapping[str, Any]]) -> Table:
        table = Table(title=query, title_justify="left", title_style="bold")
        has_site = any(row["site"] for row in rows)
        has_key = any(row["key"] is not None for row in rows)
        functions = [
            name for name in dict.fromkeys(n for row in rows for n in row["values"]) if name != "count"
        ]
        table.add_column("window", no_wrap=True)
        for name in [*(["site"] if has_site else []), *([self._keys.get(query) or "key"] if has_key else [])]:
            table.add_column(Text(name))
        for name in ["events", *functions]:
            table.add_column(Text(name), justify="right")
        for row in rows:
            cells = [
                format_bounds(row, self._counts),
                *([row["site"]] if has_site else []),
                *([row["key"] or ""] if has_key else []),
            ]
            cells.append(f"{row['count']:,}")
            cells += [
                "" if row["values"].get(name) is None else format_value(row["values"][name])
                for name in functions
            ]
            table.add_row(*(Text(printable(cell)) for cell in cells))
        return table
