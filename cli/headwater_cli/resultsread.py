"""`headwater results`: the windows that a run or a root has kept."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from time import sleep
from typing import Any

import click

from headwater_cli import times
from headwater_cli.resultfiles import NoResultFiles, NoResultsYet, ResultFiles, bounds_of
from headwater_cli.resulttables import FORMATS, ResultTable
from headwater_cli.windowlines import WindowLines

# How often is looked for further results, in seconds.
LOOK = 0.5


def _time(context: click.Context, parameter: click.Parameter, given: str | None) -> int | None:
    try:
        return None if given is None else times.read(given)
    except ValueError:
        raise click.BadParameter(f"{given!r} is no time; give one such as 2026-05-01T12:00:00") from None


@click.command()
@click.argument("directory", metavar="DIR", type=click.Path(exists=True, path_type=Path))
@click.option("--query", "queries", multiple=True, help="Only of this query; may be given again.")
@click.option("--key", "keys", multiple=True, help="Only of this key; may be given again.")
@click.option(
    "--since",
    callback=_time,
    help="Only windows that end after this time (ISO 8601, UTC without zone), "
    "count windows by their last event.",
)
@click.option("--format", type=click.Choice(FORMATS), default="table", show_default=True)
@click.option("--follow", is_flag=True, help="Go on with the results that come, a line each, until Ctrl-C.")
def results(
    directory: Path,
    queries: tuple[str, ...],
    keys: tuple[str, ...],
    since: int | None,
    format: str,
    follow: bool,
) -> None:
    """Read the windows in DIR: of headwater run --output, of a root, or of a jsonLines sink.

    \b
    headwater results build/run
    headwater results build/run --query machine-trend --key boiler --since 2026-05-01T12:00
    headwater results build/run --format csv > windows.csv
    headwater results /var/lib/headwater/root --follow
    """
    if follow and format == "csv":
        raise click.UsageError("--follow writes lines; give --format table or json")
    try:
        files = _wait_for_files(directory) if follow else ResultFiles(directory)
        if files.missing is not None:
            click.echo(files.missing, err=True)
        wanted = _Wanted(queries, keys, since, files)
        rows = wanted.of(files.fresh())
        _refuse_unknown(queries, [*files.keys, *wanted.seen] if files.keys else [])
        ResultTable(format, files.keys, files.counts).write(rows)
        while follow:
            sleep(LOOK)
            fresh = wanted.of(files.fresh())
            # A run that has written the directory again may have had other queries.
            if format == "json":
                ResultTable(format, files.keys, files.counts).write(fresh)
            else:
                lines = WindowLines(files.keys, files.counts)
                for row in fresh:
                    click.echo(lines.format(row))
    except BrokenPipeError:
        # Whoever read it has seen enough.
        raise
    except (NoResultFiles, OSError) as error:
        raise click.ClickException(str(error)) from None
    if not rows and format == "table":
        click.echo(f"no result of {directory} matches", err=True)


class _Wanted:
    """Which results are asked for; says once of each query that its windows have no times to compare."""

    def __init__(
        self, queries: Iterable[str], keys: Iterable[str], since: int | None, files: ResultFiles
    ) -> None:
        self._queries, self._keys, self._since, self._files = set(queries), set(keys), since, files
        self._warned: set[str] = set()
        # The queries of all rows, in the order in which they came.
        self.seen: dict[str, None] = {}

    def of(self, rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
        """Those of the rows that are asked for."""
        return [row for row in rows if self._is_named(row) and self._is_since(row)]

    def _is_named(self, row: Mapping[str, Any]) -> bool:
        self.seen[row["query"]] = None
        if self._queries and row["query"] not in self._queries:
            return False
        return not self._keys or (row["key"] or "") in self._keys

    def _is_since(self, row: Mapping[str, Any]) -> bool:
        if self._since is None:
            return True
        bounds = bounds_of(row, self._files.counts)
        if bounds.last is not None:
            # The last event of a count window is in it; the end of another window is not.
            return bounds.last >= self._since if bounds.measure == "count" else bounds.last > self._since
        if row["query"] not in self._warned:
            self._warned.add(row["query"])
            said = f"{row['query']} has windows without times, which an earlier release wrote; they are shown"
            click.echo(said, err=True)
        return True


def _wait_for_files(directory: Path) -> ResultFiles:
    """The files of a directory, once a run that still goes on has written them."""
    is_waiting = False
    while True:
        try:
            return ResultFiles(directory)
        except NoResultsYet as error:
            if not is_waiting:
                click.echo(f"waiting for the results in {directory}: {error.event}", err=True)
            is_waiting = True
            sleep(LOOK)


def _refuse_unknown(queries: Iterable[str], known: Iterable[str]) -> None:
    """A query that is misspelt gives no result: say so, where the queries are known."""
    names = dict.fromkeys(known)
    if unknown := [name for name in queries if names and name not in names]:
        raise click.BadParameter(
            f"{', '.join(unknown)} is none of its queries, which are {', '.join(names)}",
            param_hint="--query",
        )
