"""`headwater simulate`: whole runs of the tree with faults, from seeds."""

from __future__ import annotations

import json
import os
import signal
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing, contextmanager
from pathlib import Path

import click
from click.core import ParameterSource

from headwater_cli.interrupts import TERMINATED
from headwater_simulator.plans import Plan
from headwater_simulator.reached import Code
from headwater_simulator.runs import Outcome, run
from headwater_simulator.shrinking import shrink
from headwater_simulator.tallies import Tally, tallies
from headwater_simulator.traces import trace

# Seconds between two lines of progress, and lines of a trace that are shown.
EVERY, TAIL = 5.0, 30
# ... and around each fault.
AROUND = 4


@click.command()
@click.option("--seeds", type=click.IntRange(1), default=100, show_default=True, help="How many runs.")
@click.option("--from", "first", type=click.IntRange(0), default=0, show_default=True, help="The first seed.")
@click.option(
    "--jobs",
    type=click.IntRange(1),
    default=lambda: os.cpu_count() or 1,
    show_default="one for each processor",
    help="Runs at the same time.",
)
@click.option("--coverage", is_flag=True, help="Tell which lines of the machines no run has reached; slow.")
@click.option("--transitions", is_flag=True, help="Tell what each kind of machine answered to what.")
@click.option(
    "--keep", type=click.Path(path_type=Path), help="Write the plan of what fails into this folder."
)
@click.option("--plan", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="Run a kept plan.")
@click.option("--trace", "traced", is_flag=True, help="Tell all that happens, in one run (--from or --plan).")
@click.option("--no-shrink", is_flag=True, help="Leave a run that fails as long as it is.")
@click.option("--json", "as_json", is_flag=True, help="The figures as JSON.")
@click.pass_context
def simulate(
    context: click.Context,
    seeds: int,
    first: int,
    jobs: int,
    coverage: bool,
    transitions: bool,
    keep: Path | None,
    plan: Path | None,
    traced: bool,
    no_shrink: bool,
    as_json: bool,
) -> None:
    """Run the real machines of sources, nodes and root on a simulated network, clock and disk.

    A seed is a whole run: a tree, queries, sources and faults. The invariants are looked at after every step,
    and the windows are compared with the oracle's. A seed that fails is cut down to a short one, which --keep
    writes; the same seed is always the same run. Ends with code 1 if one fails; with 130 after Ctrl-C
    and 143 after SIGTERM, and a list of those that have failed until then.

    \b
    headwater simulate --seeds 1000
    headwater simulate --seeds 1000 --from 50000 --keep failed/
    headwater simulate --from 4711 --trace
    headwater simulate --plan failed/4711.json --trace
    """
    if plan is not None or traced:
        _refuse_others(context, "--plan" if plan is not None else "--trace", seeds)
        _one(_read(plan) if plan is not None else first, traced)
        return
    if keep is not None:
        _make(keep)
    total, cut = Tally(), set[int]()
    try:
        with _terminable():
            began = time.monotonic()
            _all(total, range(first, first + seeds), jobs, coverage, keep, quiet=as_json)
            taken = time.monotonic() - began
            total.failures.sort(key=_seed)
            if as_json:
                click.echo(json.dumps(_figures(total, taken, coverage=coverage, transitions=transitions)))
            else:
                _report(total, taken, first, coverage=coverage, transitions=transitions)
            for outcome in total.failures:
                _failed(outcome, keep, shrinks=not no_shrink)
                cut.add(_seed(outcome))
    except BrokenProcessPool:
        _stopped(total, cut, seeds, keep)
        raise click.ClickException(
            "one of its processes was killed, perhaps for want of memory; give fewer --jobs"
        ) from None
    except KeyboardInterrupt:
        _stopped(total, cut, seeds, keep)
        raise
    except _Terminated:
        _stopped(total, cut, seeds, keep)
        click.echo("stopped", err=True)
        raise SystemExit(TERMINATED) from None
    if total.failures:
        raise SystemExit(1)


class _Terminated(BaseException):
    """SIGTERM has come; no run may catch this."""


@contextmanager
def _terminable() -> Iterator[None]:
    """SIGTERM is an exception meanwhile, as Ctrl-C is; where somebody else has taken it, that stays."""
    if signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return

    def terminate(number: int, frame: object) -> None:
        # Once: what is done about it has its time.
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        raise _Terminated

    signal.signal(signal.SIGTERM, terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _refuse_others(context: click.Context, one: str, seeds: int) -> None:
    """One run is told in one way: options of many must not be dropped without a word."""
    given = [
        option
        for option, name in (
            ("--seeds", "seeds"),
            ("--from", "first"),
            ("--coverage", "coverage"),
            ("--transitions", "transitions"),
            ("--keep", "keep"),
            ("--json", "as_json"),
        )
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE
        and not (one == "--trace" and (option == "--from" or (option == "--seeds" and seeds == 1)))
    ]
    if given:
        raise click.UsageError(
            f"{' and '.join(given)}: not with {one}, which is one run and tells how it went; drop one of them"
        )


def _seed(outcome: Outcome) -> int:
    return outcome.plan.seed


def _make(folder: Path) -> None:
    """Before the first seed: what fails must not be lost for want of a place."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / ".writable").touch()
        (folder / ".writable").unlink()
    except OSError as error:
        raise click.ClickException(f"--keep {folder}: {error.strerror}; give a folder to write to") from None


def _all(
    total: Tally,
    seeds: range,
    jobs: int,
    coverage: bool,
    keep: Path | None,
    *,
    quiet: bool,
) -> None:
    """All of them, with a line of progress now and then. Each that fails is told and kept at once, uncut."""
    began = said = time.monotonic()
    with closing(tallies(seeds, jobs, coverage=coverage)) as found:
        for each in found:
            total.join(each)
            for outcome in each.failures:
                if keep is not None:
                    _write(outcome, keep)
                click.echo(f"seed {_seed(outcome)} failed: {outcome.failure}", err=True)
            now = time.monotonic()
            if now - said >= EVERY and not quiet:
                said = now
                rate = total.seeds / (now - began)
                click.echo(
                    f"{total.seeds:,} of {len(seeds):,} seeds, {rate:.1f} a second, "
                    f"{sum(total.faults.values()):,} faults, {len(total.failures)} failed",
                    err=True,
                )


def _stopped(total: Tally, cut: set[int], seeds: int, keep: Path | None) -> None:
    """Before its end: what it has found until then is not lost."""
    failed = sorted(total.failures, key=_seed)
    listed = ", ".join(str(_seed(outcome)) for outcome in failed) or "none"
    click.echo(f"{total.seeds:,} of {seeds:,} seeds were run; failed: {listed}", err=True)
    for outcome in failed:
        if _seed(outcome) in cut:
            continue
        if keep is not None and _write(outcome, keep):
            click.echo(f"kept as it is, not cut down: {_path(outcome, keep)}", err=True)
        else:
            click.echo(f"again: headwater simulate --from {_seed(outcome)} --trace", err=True)


def _path(outcome: Outcome, keep: Path) -> Path:
    return keep / f"{_seed(outcome)}.json"


def _write(outcome: Outcome, keep: Path) -> bool:
    """Keep its plan, in place of the one that there was; False if that cannot be."""
    path = _path(outcome, keep)
    part = path.with_suffix(".part")
    try:
        part.write_text(outcome.plan.to_json())
        part.replace(path)
    except OSError as error:
        click.echo(f"seed {_seed(outcome)} is not kept: {path}: {error.strerror}", err=True)
        return False
    return True


def _report(total: Tally, taken: float, first: int, *, coverage: bool, transitions: bool) -> None:
    click.echo(
        f"seeds {first:,} to {first + total.seeds - 1:,}: {total.seeds:,} runs in {taken:.1f} s "
        f"({total.seeds / taken:.1f} a second), {total.steps:,} steps, {len(total.failures)} failed"
    )
    click.echo(f"faults   {sum(total.faults.values()):,}: {_listed(total.faults)}")
    click.echo(f"logged   {sum(total.logged.values()):,}: {_listed(total.logged)}")
    click.echo(f"answers  {len(total.transitions)} kinds (--transitions lists them)")
    if transitions:
        for (role, why, said), times in sorted(total.transitions.items()):
            click.echo(f"  {role:12} {why:10} -> {said or 'nothing':40} {times:,}")
    if coverage:
        lines, missed = _coverage(total)
        reached = lines - len(missed)
        click.echo(
            f"lines    {reached:,} of {lines:,} of the machines ({reached / lines:.1%}); never reached:"
        )
        for line in missed:
            click.echo(f"  {line}")


def _coverage(total: Tally) -> tuple[int, list[str]]:
    """How many lines the machines have, and those that no run has reached."""
    code = Code()
    return len(code.functions), [code.told(line) for line in code.missed(total.reached)]


def _listed(counted: Counter[str]) -> str:
    ranked = sorted(counted.items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{kind} {times:,}" for kind, times in ranked)


def _figures(total: Tally, taken: float, *, coverage: bool, transitions: bool) -> dict[str, object]:
    figures: dict[str, object] = {
        "seeds": total.seeds,
        "seconds": round(taken, 1),
        "steps": total.steps,
        "faults": dict(total.faults),
        "logged": dict(total.logged),
        "failed": {_seed(outcome): outcome.failure for outcome in total.failures},
    }
    if transitions:
        figures["transitions"] = [
            {"machine": role, "to": why, "answers": said.split(), "times": times}
            for (role, why, said), times in sorted(total.transitions.items())
        ]
    if coverage:
        lines, missed = _coverage(total)
        figures["coverage"] = {"lines": lines, "reached": lines - len(missed), "missed": missed}
    return figures


def _failed(outcome: Outcome, keep: Path | None, *, shrinks: bool) -> None:
    seed = _seed(outcome)
    click.echo(f"\nseed {seed} failed: {outcome.failure}", err=True)
    if shrinks:
        click.echo("cutting it down...", err=True)
        outcome = shrink(outcome)
        feeds = sum(len(feed.records) for feed in outcome.plan.feeds)
        click.echo(
            f"fails alike with {len(outcome.plan.faults)} faults and {feeds} records: {outcome.failure}",
            err=True,
        )
    lines, _ = trace(outcome.plan)
    befell = [place for place, line in enumerate(lines) if " ## " in line]
    shown = {near for place in befell for near in range(place - AROUND, place + AROUND + 1)}
    before = -1
    for place, line in enumerate(lines):
        if place in shown or place >= len(lines) - TAIL:
            if place > before + 1:
                click.echo(f"      ... {place - before - 1} lines", err=True)
            click.echo(line, err=True)
            before = place
    if keep is None:
        click.echo(
            f"again, uncut: headwater simulate --from {seed} --trace; --keep FOLDER keeps it cut", err=True
        )
        return
    if _write(outcome, keep):
        click.echo(f"kept; again: headwater simulate --plan {_path(outcome, keep)} --trace", err=True)


def _read(path: Path) -> Plan:
    try:
        plan = Plan.of_json(path.read_text())
    except (ValueError, TypeError, KeyError, IndexError, RecursionError) as error:
        raise click.BadParameter(
            f"{path}: it is no plan ({error}); give a file that --keep has written", param_hint="--plan"
        ) from None
    for fault in plan.futile:
        click.echo(f"{fault.kind} at {fault.at} befalls nobody: whom it names is not in the plan", err=True)
    return plan


def _one(plan: Plan | int, traced: bool) -> None:
    if traced:
        lines, outcome = trace(plan)
        for line in lines:
            click.echo(line)
    else:
        outcome = run(plan)
    if outcome.failure is not None:
        raise click.ClickException(f"seed {outcome.plan.seed} failed: {outcome.failure}")
    click.echo(f"seed {outcome.plan.seed}: {outcome.steps:,} steps, nothing is wrong")
