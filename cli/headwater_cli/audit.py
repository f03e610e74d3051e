"""`headwater audit`: what was emitted against what the raw events say."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.table import Table

from headwater_cli import jobs, manifests, times
from headwater_cli.jobs import Time
from headwater_cli.screen import console

if TYPE_CHECKING:
    from headwater_spark.audit import Audited, Difference, Report

# How it ends, besides 0.
DIFFERENT, INCOMPLETE = 1, 3


@click.command()
@click.argument("manifest", type=click.Path(path_type=Path))
@click.option(
    "--archive",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    required=True,
    help="Where the children have archived raw events: spec.archive.path, of all children together.",
)
@click.option(
    "--results",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    required=True,
    help="The folder of a jsonlines or parquet sink of the root.",
)
@click.option("--query", "chosen", multiple=True, help="Only this query; may be given several times.")
@click.option("--from", "begin", type=Time(), help="Only windows that begin then or later.")
@click.option("--to", "end", type=Time(), help="Only windows that end then or earlier.")
@click.option("--memory", default="2g", show_default=True, help="The heap of Spark's JVM.")
@click.option("--json", "as_json", is_flag=True, help="The report as JSON.")
def audit(
    manifest: Path,
    archive: Path,
    results: Path,
    chosen: tuple[str, ...],
    begin: int | None,
    end: int | None,
    memory: str,
    as_json: bool,
) -> None:
    """Compute windows anew from archived raw events and compare them with what was emitted.

    MANIFEST has the queries. They are computed with Spark SQL, by nothing of the engine. Windows that reach
    beyond what is archived, or that are not due yet, are not judged. Times are UTC, or microseconds.

    \b
    headwater audit mill.yaml --archive raw --results root/sinks/lines
    headwater audit mill.yaml --archive raw --results lines --query load --from 2026-11-17T08:00 --json

    \b
    exit codes:
      0  every window that could be judged is as it should be
      1  there are differences
      2  the arguments or the manifest cannot be used
      3  no difference, but a query could not be audited, or no window be judged
      4  Spark did not start, or a file of the archive or of the results cannot be read
    """
    topology = manifests.topology(manifest)
    known = {query.id: query for query in topology.queries}
    for name in chosen:
        if name not in known:
            listed = ", ".join(known) or "none"
            raise click.BadParameter(
                f"{manifest} has no query {name!r}; it has {listed}", param_hint="--query"
            )
    queries = [known[name] for name in chosen] if chosen else list(topology.queries)
    if not queries:
        raise click.BadParameter(
            f"{manifest} has no queries; give a topology with some", param_hint="MANIFEST"
        )
    with jobs.session("headwater audit", memory) as spark:
        from headwater_spark.audit import Span
        from headwater_spark.audit import audit as audited

        report = audited(spark, queries, archive, results, Span(begin, end), jobs.told)
    if as_json:
        click.echo(json.dumps(asdict(report) | {"differing": report.differing, "complete": report.complete}))
    else:
        _show(report)
    if report.differing:
        raise SystemExit(DIFFERENT)
    if not report.complete:
        raise SystemExit(INCOMPLETE)


def _show(report: Report) -> None:
    extent, screen = report.extent, console()
    about = f"{extent.records:,} records of {extent.sources:,} sources"
    if extent.first is not None and extent.last is not None:
        about += f", {times.moment(extent.first)} to {times.moment(extent.last)}"
    click.echo(f"{about}; {extent.late:,} late, {extent.rejected:,} rejected")
    if extent.gaps:
        click.echo("the archive has gaps: windows there are not judged")
    table = Table("query", "equal", "different", "not judged", "")
    for audited in report.queries:
        table.add_row(*_row(audited))
    screen.print(table)
    for audited in report.queries:
        for difference in audited.differences:
            click.echo(f"{audited.query}: {_told(difference)}")
        if (more := audited.differing - len(audited.differences)) > 0:
            click.echo(f"{audited.query}: {more:,} more")
    if report.differing:
        click.echo(f"{report.differing:,} windows differ")
    else:
        click.echo("no differences" if report.complete else "no differences, but not everything was audited")


def _row(audited: Audited) -> list[str]:
    if audited.reason is not None:
        return [audited.query, "", "", "", f"not audited: {audited.reason}"]
    figures: list[Any] = [audited.equal, audited.differing, audited.unjudged]
    return [audited.query, *(f"{figure:,}" for figure in figures), ""]


def _told(difference: Difference) -> str:
    where = "".join(
        f" {name} {value!r}" for name, value in (("site", difference.site), ("key", difference.key)) if value
    )
    said = f"{difference.kind}: window {difference.start} to {difference.end}{where}"
    for name, (emitted, computed) in difference.values.items():
        said += f"; {name} is {emitted}, should be {computed}"
    return said
