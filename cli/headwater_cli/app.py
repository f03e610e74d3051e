"""The commands."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import click
from rich.console import Console
from rich.live import Live

from headwater.errors import HeadwaterError
from headwater_cli import manifests
from headwater_cli.piped import VERIFIABLE, Piped
from headwater_cli.run import Run, as_json, told
from headwater_cli.send import send
from headwater_source.readers import FORMATS


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Exact windows over IoT event streams, from the devices to the cloud.

    \b
    headwater validate examples/factory.yaml
    headwater run examples/factory.yaml --seconds 10 --verify
    headwater send day.csv --to 127.0.0.1:7070 --name boiler-7
    """


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
@click.argument("topology", type=click.Path(exists=True, dir_okay=False, path_type=Path))
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
    "--seconds", default=10, show_default=True, type=click.IntRange(1, 86_400), help="How long sources send."
)
@click.option(
    "--input", "source", metavar="FILE", help="Events to send instead of generated ones; - is a pipe."
)
@click.option("--format", type=click.Choice(FORMATS), help="Of the input; otherwise its suffix says it.")
@click.option("--columns", default="", help="What the input calls the fields: ts=time,value=temp,key=device.")
@click.option("--verify", is_flag=True, help="Compare every window with the oracle.")
@click.option("--json", "as_lines", is_flag=True, help="The summary as JSON and nothing else.")
def run(
    topology: Path,
    children: int,
    layers: list[int],
    seconds: int,
    source: str | None,
    format: str | None,
    columns: str,
    verify: bool,
    as_lines: bool,
) -> None:
    """Start a whole tree as processes of this machine, with generated or piped sources.

    \b
    headwater run examples/factory.yaml --verify
    headwater run examples/session.yaml --children 4 --layers 2,1 --seconds 20
    headwater run examples/tumbling.yaml --input day.csv --verify

    Ends with code 0 only if every event is accounted for and, with --verify, every window is right.
    """
    document = manifests.read(topology)
    found = manifests.topology(topology)
    try:
        piped = None if source is None else Piped(source, format, columns, found, keep=verify)
    except HeadwaterError as error:
        raise click.ClickException(str(error)) from error
    work = Run(found, document, children, layers, seconds, piped)
    console = Console(stderr=as_lines)
    try:
        if console.is_terminal and not as_lines:
            with Live(console=console, refresh_per_second=5) as live:
                summary = asyncio.run(work.run(verify=verify, live=live))
        else:
            summary = asyncio.run(work.run(verify=verify, echo=None if as_lines else click.echo))
    except KeyboardInterrupt:
        console.print("stopped")
        sys.exit(130)
    except (RuntimeError, TimeoutError, HeadwaterError) as error:
        raise click.ClickException(str(error)) from error
    finally:
        work.clean()
    if piped is not None and verify and not piped.verifiable:
        console.print(f"{piped.events:,} events are too many to verify; at most {VERIFIABLE:,} are compared")
    if as_lines:
        click.echo(as_json(summary))
    else:
        told(summary, console)
    sys.exit(0 if summary.ok else 1)


main.add_command(send)
