"""`headwater run`: the command."""

from __future__ import annotations

import asyncio
import io
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

import click
from rich.console import Console
from rich.live import Live

from headwater.errors import HeadwaterError, Invalid, Problem
from headwater.timeunits import UNITS, TimeUnit
from headwater_cli import demo, logfiles, manifests, resultfiles, scales, screen
from headwater_cli.baseline import run_centrally
from headwater_cli.interrupts import STOPPED, TERMINATED
from headwater_cli.picture import Picture
from headwater_cli.piped import Piped
from headwater_cli.resultfiles import NoResultFiles
from headwater_cli.run import Run
from headwater_cli.summary import Central, Summary, as_json, told
from headwater_root.outbox import Outbox
from headwater_source.readers import FORMATS, TIME_UNIT_HELP

# Columns of a saved picture.
WIDTH = 110
# Of a layer, each a process; and of layers.
MOST_NODES, MOST_LAYERS = 64, 8


def _phases(context: click.Context, parameter: click.Parameter, given: str | None) -> list[scales.Phase]:
    try:
        return [] if given is None else scales.read(given)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def _widths(context: click.Context, parameter: click.Parameter, given: str | None) -> list[int] | None:
    if given is None:
        return None
    try:
        found = [int(width) for width in given.split(",") if width]
    except ValueError:
        found = [0]
    if not all(1 <= width <= MOST_NODES for width in found) or len(found) > MOST_LAYERS:
        raise click.BadParameter(
            f"give at most {MOST_LAYERS} widths of 1 to {MOST_NODES} from the children up, such as 3,1"
        )
    return found


def _writable(context: click.Context, parameter: click.Parameter, given: Path | None) -> Path | None:
    """Better now than when the run is over."""
    if given is not None and not os.access(given.parent, os.W_OK | os.X_OK):
        raise click.BadParameter(
            f"nothing can be written to {given.parent}; name a file in a directory of yours"
        )
    return given


@click.command()
@click.argument("topology", required=False, type=click.Path(path_type=Path))
@click.option(
    "--children",
    type=click.IntRange(1, MOST_NODES),
    help="How many children.  [default: as planned, or 2 where spec.node says nothing]",
)
@click.option(
    "--layers",
    callback=_widths,
    help="Widths of the intermediate layers, from the children up, such as 3,1; empty for none.  "
    "[default: as planned, or 1]",
)
@click.option(
    "--scale",
    metavar="N:TIME,...",
    callback=_phases,
    help="So many sources for so long, then so many others: 200:30s,1000:30s,300:30s; with another rate: "
    "200@5:10s.",
)
@click.option(
    "--limit-nodes",
    is_flag=True,
    help="Hold every node and the root to spec.node.ingestLimit, to see what an overrun does.",
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
@click.option("--time-unit", type=click.Choice(UNITS), help=TIME_UNIT_HELP)
@click.option(
    "--skip-bad", is_flag=True, help="Pass over bad records of the input and count them; else fail."
)
@click.option(
    "--engine",
    envvar="HEADWATER_ENGINE",
    type=click.Choice(["spark", "embedded"]),
    help="What the root is; otherwise the topology says it.",
)
@click.option("--verify", is_flag=True, help="Compare every window with the oracle.")
@click.option(
    "--baseline",
    is_flag=True,
    help="Run the same events once more with every event forwarded to the root, and show the bytes of both.",
)
@click.option(
    "--output",
    metavar="DIR",
    type=click.Path(file_okay=False, path_type=Path),
    help="Keep all results there as JSON lines, CSV and Parquet, and the logs; headwater results reads them.",
)
@click.option("--json", "as_lines", is_flag=True, help="The summary as JSON and nothing else.")
@click.option(
    "--svg",
    metavar="FILE",
    type=click.Path(dir_okay=False, writable=True, path_type=Path),
    callback=_writable,
    help="Save the last picture.",
)
def run(
    topology: Path | None,
    children: int | None,
    layers: list[int] | None,
    scale: list[scales.Phase],
    limit_nodes: bool,
    seconds: int | None,
    events: int | None,
    source: str | None,
    format: str | None,
    columns: str,
    time_unit: TimeUnit | None,
    skip_bad: bool,
    engine: str | None,
    verify: bool,
    baseline: bool,
    output: Path | None,
    as_lines: bool,
    svg: Path | None,
) -> None:
    """Start a whole tree as processes of this machine, with generated or piped sources.

    \b
    headwater run --verify
    headwater run examples/plant.yaml --verify --baseline --output results
    headwater run examples/session.yaml --children 4 --layers 2,1 --seconds 20
    headwater run examples/factory.yaml --events 50000 --json
    headwater run examples/tumbling.yaml --input day.csv --verify

    What the processes log goes to a file, which the last line names.

    Without TOPOLOGY it is a small factory. While it runs, headwater query and headwater status speak to it.
    Ends with code 0 only if every event is accounted for, every process ended as it should and, with
    --verify, every window is right; with 1 otherwise, 130 after Ctrl-C and 143 after SIGTERM.
    """
    if seconds is not None and events is not None:
        raise click.UsageError("--seconds and --events stand beside each other; give one of them")
    if source is not None and (seconds is not None or events is not None):
        raise click.UsageError("an --input ends by itself; drop --seconds and --events")
    if scale and (source is not None or seconds is not None or events is not None):
        raise click.UsageError("--scale says who sends for how long; drop --seconds, --events and --input")
    if scale and (children is not None or layers is not None):
        raise click.UsageError("--scale plans the tree anew; drop --children and --layers")
    if source is None and (format is not None or columns or time_unit or skip_bad):
        raise click.UsageError(
            "--format, --columns, --time-unit and --skip-bad say how to read an --input; give one"
        )
    if baseline and (source is not None or scale):
        raise click.UsageError("--baseline sends generated events twice; drop --input and --scale")
    screen.quiet()
    summary = Summary("", 0)
    try:
        document = demo.DOCUMENT if topology is None else manifests.read(topology)
        found = demo.topology() if topology is None else manifests.topology(topology)
        summary.topology = found.name
        _check_engine(engine or found.root.engine)
        piped = None
        if source is not None:
            piped = Piped(source, format, columns, found, keep=verify, skip_bad=skip_bad, time_unit=time_unit)
        if (limit_nodes or scale) and found.node is None:
            remedy = "give it (headwater bench node measures it), or drop --limit-nodes and --scale"
            missing = Problem("spec.node.ingestLimit", "is missing", remedy)
            raise Invalid("nobody knows what a node takes", [missing])
        log = logfiles.begin(found.name, output)
        work = Run(
            found,
            document,
            children,
            layers,
            seconds or 10,
            events,
            piped,
            engine,
            scale=scale,
            limited=limit_nodes,
            log=log,
        )
        _check_size(work)
    except (manifests.BadManifest, HeadwaterError, NoResultFiles, OSError) as error:
        _fail(summary, _sentence(error), as_lines)
    console = Console(stderr=as_lines)
    echo = partial(click.echo, err=True) if as_lines else click.echo
    is_over = False
    try:
        if console.is_terminal and not as_lines:
            with Live(console=console, refresh_per_second=5) as live:
                summary = asyncio.run(work.run(verify=False, live=live))
                live.update(work.picture(whole=True))
        else:
            summary = asyncio.run(work.run(verify=False, echo=echo, windows=not as_lines))
        is_over = True
        with _cancelled_by_sigterm():
            # Before anything else that takes time, or fails.
            _keep(work, output, partial=False)
            if verify:
                work.verify()
            if baseline:
                # Known from the first moment in which it may be stopped.
                summary.central = Central(problems=["it was ended before it was over"])
                echo("the same events once more, every one forwarded to the root")
                summary.central = _central(work, document, seconds or 10, events, log)
            summary.judge()
            if svg is not None:
                _save(svg, work.picture(whole=True), summary)
    except (KeyboardInterrupt, asyncio.CancelledError) as stopped:
        _keep(work, output, partial=not is_over)
        if is_over:
            work.summary.judge()
        if as_lines:
            click.echo(as_json(work.summary))
        else:
            told(work.summary, console)
        console.print("stopped")
        by_hand = work.interrupted or isinstance(stopped, KeyboardInterrupt)
        sys.exit(STOPPED if by_hand else TERMINATED)
    except (RuntimeError, TimeoutError, HeadwaterError, OSError) as error:
        _keep(work, output, partial=not is_over)
        kept = ""
        if work.summary.output is not None:
            kept = f"; what came out before is in {output}" if work.summary.output_is_partial else ""
        elif work.summary.unwritten is not None:
            kept = f"; what came out before could not be written: {work.summary.unwritten}"
        _fail(work.summary, _sentence(error) + logfiles.last_problem(log) + kept, as_lines)
    finally:
        work.clean()
    for bad in piped.skipped if piped is not None else ():
        click.echo(f"passed over {bad}", err=True)
    if as_lines:
        click.echo(as_json(summary))
        for warning in summary.warnings:
            click.echo(f"warning: {warning}", err=True)
        for problem in summary.problems:
            click.echo(problem, err=True)
    else:
        told(summary, console)
    sys.exit(0 if summary.ok else 1)


@contextmanager
def _cancelled_by_sigterm() -> Iterator[None]:
    """SIGTERM raises CancelledError in the block, as it does in a run: files are cleared away then."""
    before = signal.signal(signal.SIGTERM, _cancel)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _cancel(number: int, frame: FrameType | None) -> NoReturn:
    raise asyncio.CancelledError


def _keep(work: Run, output: Path | None, *, partial: bool) -> None:
    """Write the results, unless they were written before; `partial`: those of a run that did not end well.

    Without any of them the results of an earlier run stay. A volume that fails is a problem of the run.
    """
    summary, made = work.summary, work.directory / "root" / "outbox"
    if output is None or summary.output is not None or not (made.is_dir() or not partial):
        return
    try:
        found = [lines for _, lines in Outbox(made).read(0)]
        if found or not partial:
            resultfiles.write(output, found, work.queries)
            summary.output, summary.output_is_partial = str(output), partial
    except (HeadwaterError, OSError) as error:
        summary.unwritten = _sentence(error)


def _central(work: Run, document: dict[str, Any], seconds: int, events: int | None, log: Path) -> Central:
    """The figures of the baseline, or why there are none; in a block of `_cancelled_by_sigterm`."""
    try:
        return asyncio.run(run_centrally(document, work.summary.widths[0], seconds, events, log))
    except (RuntimeError, TimeoutError, HeadwaterError, OSError) as error:
        return Central(problems=[_sentence(error) + logfiles.last_problem(log)])
    finally:
        # The loop has a handler of its own, and leaves none when it closes.
        signal.signal(signal.SIGTERM, _cancel)


def _check_size(work: Run) -> None:
    widths = work.largest
    if max(widths) > MOST_NODES or len(widths) > MOST_LAYERS + 2:
        shown = " ".join(map(str, widths))
        problem = Problem(
            "spec.node.ingestLimit",
            f"asks for a tree of {shown}, which is too much for processes of one machine",
            f"raise it, or give --children and --layers, at most {MOST_NODES} nodes in {MOST_LAYERS} layers",
        )
        work.clean()
        raise Invalid("the tree cannot be run here", [problem])


def _check_engine(engine: str) -> None:
    if engine == "spark" and find_spec("pyspark") is None:
        problem = Problem(
            "root.engine",
            "is spark, which is not installed",
            "pip install 'headwater[spark]', or take the small root with --engine embedded",
        )
        raise Invalid("the root cannot be started", [problem])


def _sentence(error: Exception) -> str:
    if isinstance(error, OSError):
        return f"{error.filename or 'the run'}: {error.strerror or error}"
    return str(error)


def _fail(summary: Summary, problem: str, as_lines: bool) -> NoReturn:
    """End with a problem; whoever wants JSON has it there too, with what was known by then."""
    if as_lines:
        summary.problems, summary.ok = [problem], False
        click.echo(as_json(summary))
    raise click.ClickException(problem)


def _save(path: Path, picture: Picture, summary: Summary) -> None:
    """The last picture, the closing lines and a legend as SVG."""
    recording = Console(record=True, file=io.StringIO(), width=WIDTH, force_terminal=True)
    recording.print(picture)
    # None of the windows that were printed is in the picture, but some that came last.
    told(replace(summary, printed=None), recording)
    recording.print()
    recording.print(picture.legend())
    title = f"headwater run: {summary.topology}"
    path.write_text(recording.export_svg(title=title, unique_id="headwater-run"), encoding="utf-8")
