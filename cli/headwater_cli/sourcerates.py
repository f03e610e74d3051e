"""`headwater rates`: what sources have sent."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import click
from rich.table import Table

from headwater_cli import jobs, times
from headwater_cli.screen import console


@click.command()
@click.option(
    "--archive",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    required=True,
    help="Where the children have archived raw events: spec.archive.path, of all children together.",
)
@click.option(
    "--by",
    "period",
    type=click.Choice(["minute", "hour", "day"]),
    default="hour",
    show_default=True,
    help="How long a period is.",
)
@click.option("--sites", is_flag=True, help="Sites instead of single sources.")
@click.option("--memory", default="2g", show_default=True, help="The heap of Spark's JVM.")
@click.option("--json", "as_json", is_flag=True, help="A list of objects.")
def rates(archive: Path, period: str, sites: bool, memory: str, as_json: bool) -> None:
    """Say how many events a second sources have sent, from archived raw events.

    The mean is over the time in which the source sent, the peak is the minute with the most: `rate` and
    `ingestLimit` of a manifest go by them. Late events count, heartbeats do not.

    \b
    headwater rates --archive raw
    headwater rates --archive raw --by day --sites --json
    """
    with jobs.session("headwater rates", memory) as spark:
        from headwater_spark import rates as job

        found = job.rates(spark, archive, job.PERIODS[period], by_site=sites)
    if as_json:
        click.echo(json.dumps([asdict(rate) for rate in found]))
        return
    table = Table(period, "site", "events", "mean/s", "peak/s")
    if not sites:
        table = Table(period, "site", "source", "events", "mean/s", "peak/s")
    for rate in found:
        name = [] if rate.source is None else [rate.source]
        figures = [f"{rate.events:,}", f"{rate.mean:,.1f}", f"{rate.peak:,.1f}"]
        table.add_row(times.moment(rate.start)[:16], rate.site, *name, *figures)
    console().print(table)
