"""What the benchmarks of the project share: the command line, the clock, the table and the JSON.

    python benchmarks/NAME.py [--quick] [--json] [--only PATTERN]

A row compares what was measured here with something measured in the same run, because a figure alone
says more about the machine than about the code. A target that is missed is printed as missed; the exit
code is 0 all the same: benchmarks are never tests.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import platform
import re
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

# One repeat, from fresh state; gives the speed reached.
Run = Callable[[], float]

_TARGET = re.compile(
    r"(?P<sign>>=|<=) (?P<bound>[\d.]+)(?:/(?P<divisor>\d+))?(?: (?P<unit>M|ms|MB|%|cores)|x)?"
)


@dataclass(frozen=True, slots=True)
class Row:
    """One figure, alone or against another one.

    `target` is written as in the issue: `>= 1/4` is about a ratio of speeds, `<= 1.5x` about a ratio of
    times (or sizes), `>= 100 M`, `<= 60 ms` about the value itself.
    """

    row: str
    value: float
    unit: str
    against: str | None = None
    ratio: float | None = None
    target: str | None = None
    # The other figure, for the table.
    reference: float | None = None

    @property
    def met(self) -> bool | None:
        if self.target is None:
            return None
        asked = _asked(self.target)
        bound = float(asked["bound"]) / float(asked["divisor"] or 1)
        reached = self.value if asked["unit"] else self.ratio
        if reached is None:
            raise ValueError(f"{self.row}: {self.target!r} is about a ratio, but there is none")
        return reached >= bound if asked["sign"] == ">=" else reached <= bound

    def as_json(self, benchmark: str) -> dict[str, Any]:
        return {
            "benchmark": benchmark,
            "row": self.row,
            "value": _rounded(self.value),
            "unit": self.unit,
            "against": self.against,
            "ratio": None if self.ratio is None else _rounded(self.ratio),
            "target": self.target,
            "met": self.met,
        }


@dataclass(frozen=True, slots=True)
class Clock:
    """How often things are measured: at least `least` times, then until `seconds` are over.

    What takes far longer than that is measured once: it is far from any target.
    """

    least: int
    seconds: float

    def fastest(self, runs: Sequence[Run]) -> list[float]:
        """The best speed of each; they take turns, so that a noisy moment hits all of them."""
        gc.collect()
        # The prepared events are many objects; collecting garbage must not walk them while it is timed.
        gc.freeze()
        try:
            begin = time.perf_counter()
            best = [run() for run in runs]
            if time.perf_counter() - begin > 10 * self.seconds:
                return best
            # That was to warm up.
            best = [0.0] * len(runs)
            repeats, end = 0, time.perf_counter() + self.seconds
            while repeats < self.least or time.perf_counter() < end:
                best = [max(speed, run()) for speed, run in zip(best, runs, strict=True)]
                repeats += 1
            return best
        finally:
            gc.unfreeze()


@dataclass(frozen=True, slots=True)
class Case:
    """Rows that are measured together, under the name that `--only` selects them by."""

    name: str
    measure: Callable[[Clock], Iterable[Row]]


@dataclass(frozen=True, slots=True)
class Reference:
    """Something to be measured against: what runs beside it, or a figure from elsewhere."""

    name: str
    speed: Run | float
    target: str | None = None


def speeds(
    name: str, unit: str, ours: Run, references: Sequence[Reference] = (), target: str | None = None
) -> Case:
    """A case that gives one row against each reference, and one alone if `target` is about the value."""

    def measure(clock: Clock) -> Iterable[Row]:
        running = [reference.speed for reference in references if not isinstance(reference.speed, float)]
        value, *measured = clock.fastest([ours, *running])
        if target is not None or not references:
            yield Row(name, value, unit, target=target)
        for reference in references:
            speed = reference.speed if isinstance(reference.speed, float) else measured.pop(0)
            yield against(name, value, unit, reference.name, speed, reference.target)

    return Case(name, measure)


def against(row: str, value: float, unit: str, name: str, speed: float, target: str | None) -> Row:
    """A row of two speeds. Where the target is a limit, the ratio is that of the times: above 1 is slower."""
    slower = target is not None and _asked(target)["sign"] == "<="
    return Row(row, value, unit, name, speed / value if slower else value / speed, target, speed)


def main(benchmark: str, cases: Callable[[bool], Sequence[Case]], about: str) -> None:
    """The command line of one benchmark; `cases` is told whether it has to be quick."""
    parser = argparse.ArgumentParser(prog=f"benchmarks/{benchmark}.py", description=about)
    parser.add_argument("--quick", action="store_true", help="fewer events and repeats: within a minute")
    parser.add_argument("--json", action="store_true", help="a list of rows as JSON instead of the table")
    parser.add_argument("--only", metavar="PATTERN", help="only rows whose name the expression matches")
    given = parser.parse_args()
    offered = cases(given.quick)
    try:
        wanted = re.compile(given.only or "", re.IGNORECASE)
    except re.error as error:
        parser.error(f"--only: {given.only!r} is no regular expression ({error})")
    chosen = [case for case in offered if wanted.search(case.name)]
    if not chosen:
        listed = "\n  ".join(case.name for case in offered)
        parser.error(f"--only: no row matches {given.only!r}; there are\n  {listed}")
    clock = Clock(3, 0.1) if given.quick else Clock(5, 2.0)
    rows: list[Row] = []
    for place, case in enumerate(chosen, 1):
        _progress(f"[{place}/{len(chosen)}] {case.name}")
        for row in case.measure(clock):
            rows.append(row)
            _told(row)
    _progress("")
    if given.json:
        print(json.dumps([row.as_json(benchmark) for row in rows], indent=2))
    else:
        _show(benchmark, rows)


def _asked(target: str) -> re.Match[str]:
    found = _TARGET.fullmatch(target)
    if found is None:
        raise ValueError(f"{target!r} is no target: write '>= 1/4', '<= 1.5x' or '>= 100 M'")
    return found


def _rounded(figure: float) -> float:
    return float(f"{figure:.4g}")


def _figure(figure: float | None) -> str:
    if figure is None:
        return ""
    return f"{figure:,.0f}" if abs(figure) >= 100 else f"{figure:.3g}"


def _told(row: Row) -> None:
    """A row as soon as it is there, where nobody watches: a long run may be cut short."""
    if not sys.stderr.isatty():
        against = f" against {row.against}: {_figure(row.ratio)}" if row.against else ""
        print(f"  {row.row}: {_figure(row.value)} {row.unit}{against}", file=sys.stderr, flush=True)


def _progress(line: str) -> None:
    if sys.stderr.isatty():
        print(f"\r\x1b[K{line}", end="", file=sys.stderr, flush=True)
    elif line:
        print(line, file=sys.stderr, flush=True)


def _show(benchmark: str, rows: Sequence[Row]) -> None:
    table = Table(title=benchmark, box=box.SIMPLE_HEAD)
    for heading in ("row", "value", "unit", "against", "its value", "ratio", "target", ""):
        numeric = heading in ("value", "its value", "ratio", "target")
        table.add_column(heading, justify="right" if numeric else "left", no_wrap=True)
    before: Row | None = None
    for row in rows:
        again = before is not None and before.row == row.row and before.value == row.value
        limit = row.target is not None and row.target.startswith("<=")
        table.add_row(
            "" if again else row.row,
            "" if again else _figure(row.value),
            "" if again else row.unit,
            row.against or "",
            _figure(row.reference),
            "" if row.ratio is None else f"{_figure(row.ratio)}{'x' if limit else ''}",
            row.target or "",
            {True: Text("met", "green"), False: Text("MISSED", "bold red"), None: Text()}[row.met],
        )
        before = row
    # A table in a file or a pipe is as wide as it needs to be.
    console = Console(width=None if sys.stdout.isatty() else 160)
    console.print(table)
    asked = [row for row in rows if row.met is not None]
    missed = [row for row in asked if not row.met]
    console.print(
        f"{len(asked) - len(missed)} of {len(asked)} targets met. Python {platform.python_version()}, "
        f"numpy {np.__version__}, {os.cpu_count()} cores, {platform.machine()}.",
        highlight=False,
    )
