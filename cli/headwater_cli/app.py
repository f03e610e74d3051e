"""The commands."""

from __future__ import annotations

import asyncio
import io
import sys
from pathlib import Path

import click
from rich.console import Console
from rich.live import Live

from headwater.errors import HeadwaterError
from headwater_cli import demo, manifests
from headwater_cli.picture import Picture
from headwater_cli.piped import Piped
from headwater_cli.query import query
from headwater_cli.run import Run
from headwater_cli.send import send
from headwater_cli.source import source
from headwater_cli.status import status
from headwater_cli.summary import Summary, as_json, told
from headwater_source.readers import FORMATS

# Columns of a saved picture.
WIDTH = 110


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Exact windows over IoT event streams, from the devices to the cloud.

    \b
    headwater validate examples/factory.yaml
    headwater run examples/factory.yaml --seconds 10 --verify
    headwater send day.csv --to 127.0.0.1:7070 --name boiler-7
    headwater query add load.yaml
    headwater source retire boiler-7
    headwater status --watch
    """


main.add_command(send)
main.add_command(query)
main.add_command(source)
main.add_command(status)


@main.command()
@click.argument(
    "manifest", type=click.Path(exists=True, dir_okay=False, path_type=Path), nargs=-1, required=True
)
def validate(manifest: tuple[Path, ...]) -> None:
    """Say whether manifests can be used, and everything that is wrong with them."""
    for path in manifest:
        topology = manifests.topology(path)
        click.echo(f"{path}: {topology.name}, {topology.expected} sources, {len(topology.queries)} queries")


def _widths(context: click.Context, parameter: click.Parameter, given: str) -> list[int]:
    try:
        found = [int(width) for width in given.split(",") if width]
    except ValueError:
        found = [0]
    if any(width < 1 for width in found):
        raise click.BadParameter("give widths from the children up, such as 3,1")
    return found


@main.command()
@click.argument("topology", required=False, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--children", default=2, show_default=True, type=click.IntRange(1, 64), help="How many children."
)
@click.option(
    "--layers",
    default="1",
    show_default=True,
    callback=_widths,
    help="Widths of the intermediate layers, from the children up, such as 3,1; empty for none.",
)
@click.option(
    "--seconds",
    type=click.IntRange(1, 86_400),
    help="How long sources send.  [default: 10, without --events]",
)
@click.option(
    "--events", type=click.IntRange(1, 1_000_000_000), help="How many events they send in all, instead."
)
@click.option(
    "--input", "source", metavar="FILE", help="Events to send instead of generated ones; - is a pipe."
)
@click.option("--format", type=click.Choice(FORMATS), help="Of the input; otherwise its suffix says it.")
@click.option("--columns", default="", help="What the input calls the fields: ts=time,value=temp,key=device.")
@click.option("--verify", is_flag=True, help="Compare every window with the oracle.")
@click.option("--json", "as_lines", is_flag=True, help="The summary as JSON and nothing else.")
@click.option(
    "--svg", metavar="FILE", type=click.Path(dir_okay=False, path_type=Path), help="Save the last picture."
)
def run(
    topology: Path | None,
    children: int,
    layers: list[int],
    seconds: int | None,
    events: int | None,
    source: str | None,
    format: str | None,
    columns: str,
    verify: bool,
    as_lines: bool,
    svg: Path | None,
) -> None:
    """Start a whole tree as processes of this machine, with generated or piped sources.

    \b
    headwater run --verify
    headwater run examples/factory.yaml --verify
    headwater run examples/session.yaml --children 4 --layers 2,1 --seconds 20
    headwater run examples/factory.yaml --events 50000 --json
    headwater run examples/tumbling.yaml --input day.csv --verify

    Without TOPOLOGY it is a small factory. While it runs, headwater query and headwater status speak to it.
    Ends with code 0 only if every event is accounted for, every process ended as it should and, with
    --verify, every window is right.
    """
    if seconds is not None and events is not None:
        raise click.UsageError("--seconds and --events stand beside each other; give one of them")
    if source is not None and (seconds is not None or events is not None):
        raise click.UsageError("an --input ends by itself; drop --seconds and --events")
    document = demo.DOCUMENT if topology is None else manifests.read(topology)
    found = demo.topology() if topology is None else manifests.topology(topology)
    try:
        piped = None if source is None else Piped(source, format, columns, found, keep=verify)
    except HeadwaterError as error:
        raise click.ClickException(str(error)) from error
    work = Run(found, document, children, layers, seconds or 10, events, piped)
    console = Console(stderr=as_lines)
    if found.root.engine != "embedded":
        console.print(f"the {found.root.engine} root is not there yet: this run has an embedded one")
    try:
        if console.is_terminal and not as_lines:
            with Live(console=console, refresh_per_second=5) as live:
                summary = asyncio.run(work.run(verify=verify, live=live))
                live.update(work.picture(whole=True))
        else:
            summary = asyncio.run(work.run(verify=verify, echo=None if as_lines else click.echo))
        if svg is not None:
            _save(svg, work.picture(whole=True), summary)
    except (KeyboardInterrupt, asyncio.CancelledError):
        if as_lines:
            click.echo(as_json(work.summary))
        else:
            told(work.summary, console)
        console.print("stopped")
        sys.exit(130)
    except (RuntimeError, TimeoutError, HeadwaterError) as error:
        raise click.ClickException(str(error)) from error
    except OSError as error:
        raise click.ClickException(f"{error.filename or 'the run'}: {error.strerror or error}") from error
    finally:
        work.clean()
    if as_lines:
        click.echo(as_json(summary))
        for problem in summary.problems:
            click.echo(problem, err=True)
    else:
        told(summary, console)
    sys.exit(0 if summary.ok else 1)


def _save(path: Path, picture: Picture, summary: Summary) -> None:
    """The last picture and the closing lines as SVG."""
    recording = Console(record=True, file=io.StringIO(), width=WIDTH, force_terminal=True)
    recording.print(picture)
    told(summary, recording)
    title = f"headwater run: {summary.topology}"
    path.write_text(recording.export_svg(title=title, unique_id="headwater-run"), encoding="utf-8")
