"""`headwater bench`: what nodes of this machine take."""

from __future__ import annotations

import asyncio
import json
import math
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from time import monotonic

import click
from rich.table import Table

from headwater.errors import HeadwaterError
from headwater.topology.tree import MARGIN
from headwater_cli import demo, manifests, screen
from headwater_cli.processes import Process
from headwater_cli.run import Run

# Before anything is measured, in seconds.
WARM = 3.0
# One of each: with two cores there is none to spare for more.
CHILDREN = 1
# The share of a core from which on a limit is more than an estimate.
HALF = 0.5
ROLES = ("child", "intermediate", "root")


@dataclass(frozen=True, slots=True)
class Taken:
    """What a process took while it was measured: items a second, and which share of a core that cost."""

    role: str
    items: float
    cores: float

    @property
    def limit(self) -> float:
        """Items a second of a whole core."""
        return self.items / max(self.cores, 1e-6)


@click.group()
def bench() -> None:
    """Measure what nodes of this machine take, for spec.node of a manifest.

    \b
    headwater bench node examples/factory.yaml
    """


@bench.command()
@click.argument("manifest", required=False, type=click.Path(path_type=Path))
@click.option(
    "--seconds", default=10, show_default=True, type=click.IntRange(3, 3_600), help="How long to measure."
)
@click.option("--json", "as_json", is_flag=True, help="The figures as JSON and nothing else.")
def node(manifest: Path | None, seconds: int, as_json: bool) -> None:
    """Measure how many items a second a node takes on this machine, with the queries of MANIFEST.

    A child, a node above it and an embedded root run as processes. The sources of the manifest send as fast
    as they are let, a second of their events at once, and it is measured how much of a core each process
    takes for it: the limit is what a whole core would take. An item of a child is an event, one of the
    others a row of a batch; ingestLimit is for all of them, so it is the lowest.

    Measure on the device that will be the node, with nothing else at work, and plan with a margin.

    \b
    headwater bench node examples/factory.yaml
    headwater bench node examples/factory.yaml --seconds 60 --json
    """
    screen.quiet()
    # Some of what is generated is broken on purpose, and nobody need hear of it here.
    os.environ.setdefault("HEADWATER_LOG_LEVEL", "error")
    try:
        document = demo.DOCUMENT if manifest is None else manifests.read(manifest)
        found = demo.topology() if manifest is None else manifests.topology(manifest)
        work = Run(found, document, CHILDREN, [1], 86_400, engine="embedded", rush=True)
    except (HeadwaterError, OSError) as error:
        raise click.ClickException(str(error)) from None
    try:
        taken = asyncio.run(_measured(work, seconds, quiet=as_json))
    except (KeyboardInterrupt, asyncio.CancelledError):
        raise click.Abort from None
    except (RuntimeError, TimeoutError, HeadwaterError, OSError) as error:
        raise click.ClickException(str(error)) from None
    finally:
        work.clean()
    decides = min(taken, key=lambda each: each.limit)
    limit = _down(decides.limit)
    line = f"node: {{ingestLimit: {limit:g}, margin: {MARGIN}}}"
    if as_json:
        told = [{**asdict(each), "limit": round(each.limit, 1)} for each in taken]
        answer = {"ingestLimit": limit, "line": line, "decides": decides.role}
        click.echo(json.dumps({**answer, "estimate": decides.cores < HALF, "measured": told}))
        return
    table = Table("", "items/s", "of a core", "a core takes")
    for each in taken:
        unit = "events/s" if each.role == "child" else "rows/s"
        table.add_row(each.role, f"{each.items:,.0f}", f"{each.cores:.0%}", f"{each.limit:,.0f} {unit}")
    screen.console().print(table)
    if decides.cores < HALF:
        click.echo(
            f"the {decides.role} decides, measured at {decides.cores:.0%} of a core, so it is an estimate: "
            "the machine is busy, or no more could be sent to it",
            err=True,
        )
    click.echo(line)


async def _measured(work: Run, seconds: int, *, quiet: bool) -> list[Taken]:
    running = asyncio.create_task(work.run(verify=False))
    try:
        while not work.is_feeding:
            await _still(running)
        if not quiet:
            click.echo(f"measuring for {seconds} s", err=True)
        until = monotonic() + WARM
        while monotonic() < until:
            await _still(running)
        before = [
            (process, process.figure("items"), _cpu(process), monotonic()) for process in work.local.processes
        ]
        until = monotonic() + seconds
        while monotonic() < until:
            await _still(running)
        found = [
            Taken(
                _role(process),
                (process.figure("items") - items) / (monotonic() - at),
                (_cpu(process) - cpu) / (monotonic() - at),
            )
            for process, items, cpu, at in before
        ]
    finally:
        work.finish()
        await asyncio.gather(running, return_exceptions=True)
    idle = [each.role for each in found if not each.items]
    if idle:
        raise RuntimeError(
            f"nothing came to the {idle[0]} while it was measured; give it longer with --seconds"
        )
    return sorted(found, key=lambda each: ROLES.index(each.role))


async def _still(running: asyncio.Task[object]) -> None:
    await asyncio.sleep(0.1)
    if running.done():
        running.result()
        raise RuntimeError("the run ended before it was measured")


def _role(process: Process) -> str:
    return "root" if process.name == "root" else "child" if process.name.startswith("l1-") else "intermediate"


def _cpu(process: Process) -> float:
    """Seconds of a core that a process has used."""
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _down(limit: float) -> float:
    """Two digits, not above it."""
    scale = 10.0 ** (math.floor(math.log10(max(limit, 1e-6))) - 1)
    found = math.floor(limit / scale) * scale
    return int(found) if found >= 1 else found
