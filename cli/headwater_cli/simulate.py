"""`headwater simulate`: whole runs of the tree with faults, from seeds."""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

import click

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
def simulate(
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
    writes; the same seed is always the same run. Ends with code 1 if one fails.

    \b
    headwater simulate --seeds 1000
    headwater simulate --seeds 1000 --from 50000 --keep failed/
    headwater simulate --from 4711 --trace
    headwater simulate --plan failed/4711.json --trace
    """
    if plan is not None or traced:
        _one(_read(plan) if plan is not None else first, traced)
        return
    if keep is not None:
        _make(keep)
    began = time.monotonic()
    try:
        total = _all(range(first, first + seeds), jobs, coverage, quiet=as_json)
    except BrokenProcessPool:
        raise click.ClickException(
            "one of its processes was killed, perhaps for want of memory; give fewer --jobs"
        ) from None
    taken = time.monotonic() - began
    if as_json:
        click.echo(json.dumps(_figures(total, taken)))
    else:
        _report(total, taken, first, coverage=coverage, transitions=transitions)
    for outcome in sorted(total.failures, key=lambda failed: failed.plan.seed):
        _failed(outcome, keep, shrinks=not no_shrink)
    if total.failures:
        raise SystemExit(1)


def _make(folder: Path) -> None:
    """Before the first seed: what fails must not be lost for want of a place."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / ".writable").touch()
        (folder / ".writable").unlink()
    except OSError as error:
        raise click.ClickException(f"--keep {folder}: {error.strerror}; give a folder to write to") from None


def _all(seeds: range, jobs: int, coverage: bool, quiet: bool) -> Tally:
    """All of them, with a line of progress now and then."""
    total, began, said = Tally(), time.monotonic(), time.monotonic()
    for block in tallies(seeds, jobs, coverage=coverage):
        total.join(block)
        now = time.monotonic()
        if now - said >= EVERY and not quiet:
            said = now
            rate = total.seeds / (now - began)
            click.echo(
                f"{total.seeds:,} of {len(seeds):,} seeds, {rate:.1f} a second, "
                f"{sum(total.faults.values()):,} faults, {len(total.failures)} failed",
                err=True,
            )
    return total


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
        code = Code()
        missed = code.missed(total.reached)
        reached = len(code.functions) - len(missed)
        share = reached / len(code.functions)
        click.echo(
            f"lines    {reached:,} of {len(code.functions):,} of the machines ({share:.1%}); never reached:"
        )
        for line in missed:
            click.echo(f"  {code.told(line)}")


def _listed(counted: Counter[str]) -> str:
    ranked = sorted(counted.items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{kind} {times:,}" for kind, times in ranked)


def _figures(total: Tally, taken: float) -> dict[str, object]:
    return {
        "seeds": total.seeds,
        "seconds": round(taken, 1),
        "steps": total.steps,
        "faults": dict(total.faults),
        "logged": dict(total.logged),
        "failed": {outcome.plan.seed: outcome.failure for outcome in total.failures},
    }


def _failed(outcome: Outcome, keep: Path | None, *, shrinks: bool) -> None:
    seed = outcome.plan.seed
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
    path = keep / f"{seed}.json"
    path.write_text(outcome.plan.to_json())
    click.echo(f"kept; again: headwater simulate --plan {path} --trace", err=True)


def _read(path: Path) -> Plan:
    try:
        return Plan.of_json(path.read_text())
    except (ValueError, TypeError, KeyError, IndexError) as error:
        raise click.ClickException(
            f"{path}: it is no plan ({error}); give a file that --keep has written"
        ) from None


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
