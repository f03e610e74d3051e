"""`headwater aggregate`: the windows of a file, computed here, without a tree."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import click
import numpy as np

from headwater.durations import microseconds
from headwater.errors import HeadwaterError
from headwater.queries import Query, validate
from headwater.results import Results
from headwater.tables import aggregate as aggregate_table
from headwater.timeunits import UNITS, TimeUnit
from headwater.windows import Session, Sliding, Tumbling, Window, is_count
from headwater_cli.resulttables import FORMATS, ResultTable
from headwater_root import resultlines
from headwater_source.columns import Coded, Events
from headwater_source.readers import FORMATS as INPUTS
from headwater_source.readers import TIME_UNIT_HELP, columns_of, open_input
from headwater_source.readers.records import Columns

WINDOWS = "10s (tumbling), 10s/1s (sliding), session:30s, count:1000 or count:1000/100"


def parse_window(text: str) -> Window:
    """A window as it is written on the command line; raises `ValueError`."""
    kind, colon, rest = text.partition(":")
    length, slash, slide = (rest if colon else text).partition("/")
    if colon and kind == "session" and not slash:
        microseconds(length)
        return Session(gap=length)
    if colon and kind == "count":
        if not re.fullmatch(r"[1-9]\d*", length) or (slash and not re.fullmatch(r"[1-9]\d*", slide)):
            raise ValueError(text)
        return Sliding(count=int(length), every=int(slide)) if slash else Tumbling(count=int(length))
    if colon:
        raise ValueError(text)
    for given in (length, slide) if slash else (length,):
        microseconds(given)
    return Sliding(length, slide) if slash else Tumbling(length)


def _window(context: click.Context, parameter: click.Parameter, given: str) -> Window:
    try:
        return parse_window(given)
    except (ValueError, HeadwaterError):
        raise click.BadParameter(f"{given!r} is no window; give {WINDOWS}") from None


def _functions(text: str) -> list[str]:
    """Names by commas; those of a parameter are not between functions."""
    return [name.strip() for name in re.split(r",(?![^(]*\))", text) if name.strip()]


@click.command()
@click.argument("file")
@click.option("--window", required=True, callback=_window, help=f"{WINDOWS}.")
@click.option("--aggregate", "functions", required=True, help="Functions, such as avg,max,quantile(0.99).")
@click.option("--key", help="The column of the key, for windows of each key.")
@click.option("--columns", default="", help="What the input calls the fields: ts=time,value=temp.")
@click.option("--input-format", type=click.Choice(INPUTS), help="Of FILE; otherwise its suffix says it.")
@click.option("--time-unit", type=click.Choice(UNITS), help=TIME_UNIT_HELP)
@click.option("--skip-bad", is_flag=True, help="Pass over bad records and count them; else fail.")
@click.option("--format", type=click.Choice(FORMATS), default="table", show_default=True)
def aggregate(
    file: str,
    window: Window,
    functions: str,
    key: str | None,
    columns: str,
    input_format: str | None,
    time_unit: TimeUnit | None,
    skip_bad: bool,
    format: str,
) -> None:
    """Compute the windows of FILE (- is the standard input) on this machine, without a tree.

    \b
    headwater aggregate day.csv --window 1m --aggregate count,avg,max
    headwater aggregate day.csv --window 10s/1s --aggregate avg --key machine --columns ts=time,value=temp
    headwater aggregate day.jsonl --window session:30s --aggregate count --key machine --format csv

    No event is late: all of them are there. Sites are read only where --columns names a column for them.
    """
    name = ",".join(_functions(functions))
    query = Query(_id_of(name), window, _functions(functions), key_by=key)
    try:
        validate([query])
        reader = open_input(
            file,
            input_format,
            _fields(columns, key),
            skip_bad=skip_bad,
            time_unit=time_unit,
            strict_times=True,
            format_option="--input-format",
        )
        parts = [part for part in reader if len(part)]
        if not parts:
            raise click.ClickException(f"{file} holds no events")
        # The reader has made microseconds of all times, and judged them.
        found = aggregate_table(_columns(parts, key), query, key="key" if key else None, unit="us")
    except (HeadwaterError, OSError) as error:
        raise click.ClickException(str(error)) from None
    counts = {query.id} if is_count(window) else set()
    ResultTable(format, {query.id: key}, counts).write(_rows(found))
    refused = sum(each.rejected for each in found.accounts.values())
    if reader.skipped_count or refused:
        click.echo(
            f"{reader.skipped_count + refused:,} records are in no window: bad, or not finite", err=True
        )


def _fields(columns: str, key: str | None) -> Columns:
    """What the input calls the fields; sites only if they are asked for, for no window depends on them."""
    found = columns_of(columns)
    if "key" in found.named:
        raise click.UsageError(
            f"give --key {found.names['key']} and take key out of --columns, for --key names its column"
        )
    names = {field: name for field, name in found.names.items() if field != "site" or field in found.named}
    if key is None:
        return replace(found, names=names)
    return Columns(names | {"key": key}, found.named | {"key"}, {"key": "--key NAME"})


def _id_of(functions: str) -> str:
    """A name that a query may have."""
    return re.sub(r"[^a-z0-9]+", "-", functions.lower()).strip("-")[:60] or "windows"


def _rows(results: Results) -> list[dict[str, Any]]:
    return list(resultlines.decode(resultlines.encode(results)))


def _columns(parts: Sequence[Events], key: str | None) -> dict[str, Any]:
    """The parts of an input as one table."""
    if key is not None and not any(part.key is not None and any(part.key.names) for part in parts):
        raise click.ClickException(f"no record has a key in {key!r}; name its column with --key, or drop it")
    values: Any = np.concatenate([part.value for part in parts])
    if any(part.bare is not None for part in parts):
        bare = np.concatenate(
            [np.zeros(len(part), bool) if part.bare is None else part.bare for part in parts]
        )
        values = values.astype(object)
        values[bare] = None
    table: dict[str, Any] = {"ts": np.concatenate([part.ts for part in parts]), "value": values}
    for name in ("key", "source", "mark", "site"):
        coded = [getattr(part, name) for part in parts]
        if any(column is not None for column in coded):
            table[name] = [
                each for part, column in zip(parts, coded, strict=True) for each in _names(column, len(part))
            ]
    return table


def _names(column: Coded | None, rows: int) -> list[str | None]:
    return [None] * rows if column is None else [column.at(row) for row in range(rows)]
