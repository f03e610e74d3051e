"""`headwater send`: events of a file, a pipe or a generator into a tree."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from time import monotonic, sleep, time_ns

import click
from rich.console import Console
from rich.status import Status

from headwater.durations import microseconds
from headwater.errors import HeadwaterError, Invalid
from headwater.timeunits import UNITS, TimeUnit
from headwater_cli import addresses, certificates, screen
from headwater_cli.feeds import events_of
from headwater_cli.generator import START, Sensor
from headwater_cli.interrupts import STOPPED, TERMINATED
from headwater_cli.sending import Options, Sending, Summary, Tell, as_json, progress, resuming
from headwater_source.columns import Events
from headwater_source.readers import FORMATS, TIME_UNIT_HELP, Reader, columns_of, open_input
from headwater_source.readers.records import Wrong, moment
from headwater_wire.credentials import Credentials

NOT_COUNTED = 3
# How many sources one command resumes that is shown: shells take no command of any length.
RESUMED = 1_000


def _duration(context: click.Context, parameter: click.Parameter, given: str | None) -> int | None:
    try:
        found = None if given is None else microseconds(given)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error
    if found is not None and found < 0:
        raise click.BadParameter(f"{given} is negative; give 0s or more")
    return found


def _heartbeat_time(given: str | None, unit: TimeUnit | None) -> int | None:
    try:
        return None if given is None else moment(given, unit)
    except Wrong as wrong:
        problem = f"{wrong.problem.message}; {wrong.problem.remedy}"
        raise click.BadParameter(problem, param_hint="--heartbeat-at") from wrong


def generated(name: str, rate: float, seconds: int) -> Iterator[Events]:
    """Events of a sensor, from now on, a second of them a second."""
    begin, shift = monotonic(), time_ns() // 1_000 - START
    for number, second in enumerate(Sensor(name, "", rate, 0, 0).seconds(seconds), start=1):
        events = events_of(second)
        yield replace(events, ts=events.ts + shift)
        sleep(max(begin + number - monotonic(), 0))


@click.command()
@click.argument("file", required=False)
@click.option(
    "--to", metavar="HOST:PORT", required=True, callback=addresses.taken, help="A child of the tree."
)
@click.option(
    "--name",
    "names",
    multiple=True,
    help="The source; with a column `source` that of records without one. Again for more of --resume.",
)
@click.option("--site", help="Where the source is, for windows per site.")
@click.option("--lateness", callback=_duration, help="How much out of order events may be, such as 2s.")
@click.option("--format", type=click.Choice(FORMATS), help="Otherwise the suffix says it.")
@click.option("--columns", default="", help="What the input calls the fields: ts=time,value=temp,key=device.")
@click.option("--time-unit", type=click.Choice(UNITS), help=TIME_UNIT_HELP)
@click.option("--skip-bad", is_flag=True, help="Pass over bad records and count them; else stop before one.")
@click.option(
    "--without-keys", is_flag=True, help="Events have no key, and that is meant; else refused by keyBy."
)
@click.option("--rate", type=click.FloatRange(min=0, min_open=True), help="At most so many events a second.")
@click.option(
    "--heartbeat", callback=_duration, help="When nothing was read for so long, say the time; for live input."
)
@click.option("--end", is_flag=True, help="Nothing follows: let all windows close, by a heartbeat 1 h ahead.")
@click.option("--heartbeat-at", metavar="TIME", help="The same with a time of your own.")
@click.option("--resume", is_flag=True, help="Send what the spools of --name have left, and read nothing.")
@click.option("--again", is_flag=True, help="Send a file once more that was accepted before.")
@click.option("--generator", is_flag=True, help="Generated events instead of a file, --rate a second.")
@click.option(
    "--seconds", default=10, show_default=True, type=click.IntRange(1), help="How long it generates."
)
@click.option(
    "--spool",
    type=click.Path(file_okay=False, path_type=Path),
    help="Where spools are kept, a directory a source.  [default: below the user's state directory]",
)
@click.option(
    "--spool-mib", default=1_024, show_default=True, type=click.IntRange(1), help="How much a spool may take."
)
@click.option(
    "--child",
    help="The name in the certificate of the child at --to, if it does not bear that address.",
)
@click.option(
    "--timeout", callback=_duration, help="Wait no longer until everything is settled; code 3 then."
)
@click.option("--json", "as_lines", is_flag=True, help="The summary as JSON and nothing else.")
@certificates.taken
def send(
    file: str | None,
    to: str,
    names: tuple[str, ...],
    site: str | None,
    lateness: int | None,
    format: str | None,
    columns: str,
    time_unit: TimeUnit | None,
    skip_bad: bool,
    without_keys: bool,
    rate: float | None,
    heartbeat: int | None,
    end: bool,
    heartbeat_at: str | None,
    resume: bool,
    again: bool,
    generator: bool,
    seconds: int,
    spool: Path | None,
    spool_mib: int,
    child: str | None,
    timeout: int | None,
    as_lines: bool,
    credentials: Credentials | None,
) -> None:
    """Send events of FILE (- is the standard input) until the root has settled them.

    \b
    headwater send day.csv --to 127.0.0.1:7070 --name boiler-7 --lateness 2s --end
    tail -f log.jsonl | headwater send - --format jsonl --to 127.0.0.1:7070 --name log --heartbeat 1s
    headwater send --resume --to 127.0.0.1:7070 --name boiler-7

    Events are accepted once they are on disk, in a spool of their source. Whatever is killed then, each is
    settled once: counted, or late, or rejected, which headwater status tells apart. The same file given again
    goes on behind what was accepted. A pipe cannot be read again.

    Ends with 0 if everything was read and settled, 1 at a bad record or another error, 3 after --timeout,
    130 after Ctrl-C and 143 after SIGTERM; what is left in the spool is sent the next time.
    """
    if len(names) > 1 and not resume:
        raise click.UsageError("give --name once; several sources are for --resume, or a column `source`")
    name = names[0] if names else None
    given = sum((file is not None, resume, generator))
    if given > 1 or (given == 0 and name is None):
        raise click.UsageError("give one of FILE, --generator and --resume")
    if name is None and (resume or generator or given == 0):
        raise click.UsageError("give --name NAME: whose events they are")
    if heartbeat == 0:
        raise click.UsageError("--heartbeat 0s would never rest; give 1s, for example")
    regular = file is not None and Path(file).is_file()
    if heartbeat is not None and (regular or not (file or generator)):
        raise click.UsageError("--heartbeat is for input that comes live; use --end with a file")
    options = Options(
        to,
        name=name,
        others=names[1:],
        site=site,
        lateness=lateness,
        spool=spool,
        spool_bytes=spool_mib << 20,
        child=child,
        credentials=credentials,
        rate=None if generator else rate,
        file=file if regular else None,
        again=again,
        resume=resume,
        heartbeat=heartbeat,
        end=end,
        heartbeat_at=_heartbeat_time(heartbeat_at, time_unit),
        without_keys=without_keys,
        timeout=None if timeout is None else timeout / 1e6,
    )
    screen.quiet()
    console = Console(stderr=True)
    reader: Reader | None = None
    parts: Iterable[Events] | None = None
    try:
        if file is not None:
            parts = reader = open_input(
                file,
                format,
                columns_of(columns),
                skip_bad=skip_bad,
                time_unit=time_unit,
                strict_times=True,
            )
        elif generator:
            parts = generated(str(name), rate or 100, seconds)
    except (HeadwaterError, Invalid) as error:
        raise click.ClickException(str(error)) from error
    sending = Sending(options, lambda line: click.echo(line, err=True))
    code = _ended(sending, parts, console, quiet=as_lines)
    summary = sending.summary
    if reader is not None:
        summary.bad = reader.skipped_count
        for bad in reader.skipped:
            click.echo(f"passed over {bad}", err=True)
        if code == 0 and not summary.read:
            click.echo(_nothing(reader.name, end=end), err=True)
    if summary.left:
        click.echo(_left(options, summary.left, sending.waiting), err=True)
    click.echo(as_json(summary) if as_lines else _told(summary, to))
    sys.stdout.flush()
    sys.exit(code)


def _ended(sending: Sending, parts: Iterable[Events] | None, console: Console, *, quiet: bool) -> int:
    """Send, and say with which code it ended."""
    try:
        if quiet:
            summary = asyncio.run(_run(sending, parts, None))
        elif console.is_terminal:
            with console.status("sending") as status:
                summary = asyncio.run(_run(sending, parts, _shown(status)))
        else:
            summary = asyncio.run(_run(sending, parts, lambda line: click.echo(line, err=True)))
    except KeyboardInterrupt:
        return STOPPED
    except asyncio.CancelledError:
        return TERMINATED
    except TimeoutError:
        return NOT_COUNTED
    except (HeadwaterError, OSError) as error:
        sending.summary.problem = str(error)
        click.echo(f"Error: {error}", err=True)
        return 1
    return 0 if summary.ok else 1


async def _run(sending: Sending, parts: Iterable[Events] | None, watch: Tell | None) -> Summary:
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    return await sending.run(parts, watch)


def _shown(status: Status) -> Tell:
    return lambda line: status.update(line)


def _nothing(name: str, *, end: bool) -> str:
    told = f"{name} holds no events: nothing was sent of it"
    return told + ", not even the heartbeat of --end; give its time with --heartbeat-at" if end else told


def _left(options: Options, count: int, names: list[str]) -> str:
    told = f"{count:,} records in the spool are not known to be settled; "
    commands = [
        f"`{resuming(options, names[first : first + RESUMED])}`" for first in range(0, len(names), RESUMED)
    ]
    return told + " and ".join(commands) + (" sends them" if len(commands) == 1 else " send them")


def _told(summary: Summary, to: str) -> str:
    told = progress(summary, to) + f" in {summary.seconds:.1f} s"
    if summary.connected and summary.counted:
        told += "; settled are late and rejected events too, which headwater status tells apart"
    if summary.before:
        told += f"; {summary.before:,} were accepted before"
    if summary.heartbeats:
        told += f"; {summary.heartbeats:,} heartbeats"
    if summary.bad:
        told += f"; {summary.bad:,} bad records passed over"
    return told
