"""A generated factory through a tree of nodes: windows as they close, and then all of them by the oracle.

Twelve machines in three halls report temperature (2 a second) and vibration (25 a second). A node in
each hall reads its sensors, a gateway merges the halls, the root closes windows. Some events come out of
order, some too late, some are broken: the ledger counts what the windows leave out.

    python examples/factory.py --help
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table

from headwater import Batch, Node, Punctuation, Query, Result, Root, Session, Sliding, Tumbling, Where, oracle
from headwater.durations import SECOND
from headwater.verification import differences, spec_of
from headwater.windows import is_count

HALLS = {
    "hall-A": ("press-1", "press-2", "press-3", "press-4"),
    "hall-B": ("mill-1", "mill-2", "lathe-1", "lathe-2"),
    "hall-C": ("weld-1", "weld-2", "paint-1", "paint-2"),
}
HERTZ = {"temp": 2, "vib": 25}
START = 1_767_938_400 * SECOND  # 2026-01-09 06:00 UTC, so that windows begin at whole minutes of the run
LATENESS = 2 * SECOND
TICK = 5 * SECOND  # how often sensors send and nodes flush: a message of some size costs little more
MARKS = ("job-start", "job-end")

DISPLACED, LATE, BROKEN = 0.03, 0.001, 0.0005  # shares of the events
WATCHED = 6.0  # seconds over which the live screen spreads the run
SHOWN = 2  # rows of each query on the screen: beside its name and beside its window
HEADINGS = ("query", "where", "from – to", "count", "result")

# Celsius and mm/s never overlap, so the value tells what was measured; disjoint predicates share one pass.
TEMPERATURE, VIBRATION = Where(at_least=20), Where(below=20)
QUERIES = (
    Query("temperature", Sliding("10s", "1s"), ["avg", "max"], key_by="machine", where=TEMPERATURE),
    Query("vibration", Tumbling("5s"), ["median", "count"], key_by="machine", where=VIBRATION),
    Query("hottest", Tumbling("15s"), "top(3)", where=TEMPERATURE),
    Query("bursts", Session(gap="2s"), ["max", "count"], where=Where(above=7, below=20), scope="local"),
    Query("jobs", Punctuation(*MARKS), ["avg", "max"]),
    Query("thousand", Tumbling(count=1_000), ["min", "max"]),
)


# The factory


@dataclass(frozen=True)
class Sensor:
    """A source and everything that it will report, in the order in which that arrives."""

    source: oracle.Source
    machine: str
    arrival: NDArray[np.int64]
    ts: NDArray[np.int64]
    value: NDArray[np.float64]
    mark: NDArray[np.int32]

    def batch(self, low: int, high: int) -> Batch:
        """The records that arrive from `low` to before `high`."""
        first, last = np.searchsorted(self.arrival, (low, high)).tolist()
        mark = self.mark[first:last]
        return Batch(
            self.source.name,
            first + 1,
            self.ts[first:last],
            self.value[first:last],
            key=np.zeros(last - first, np.int32),
            keys=(self.machine,),
            mark=mark if (mark >= 0).any() else None,
            marks=MARKS,
        )

    def events(self) -> Iterator[oracle.Event]:
        columns = zip(self.ts.tolist(), self.value.tolist(), self.mark.tolist(), strict=True)
        for seq, (ts, value, mark) in enumerate(columns, start=1):
            named = MARKS[mark] if mark >= 0 else None
            yield oracle.Event(self.source.name, seq, ts, self.machine, value, named)


def factory(events: int, seed: int) -> list[Sensor]:
    """All sensors with about so many events between them; the same ones for the same seed."""
    rng = np.random.default_rng(seed)
    seconds = events / (sum(map(len, HALLS.values())) * sum(HERTZ.values()))
    return [
        _sensor(rng, kind, machine, hall, max(1, round(seconds * hertz)))
        for hall, machines in HALLS.items()
        for machine in machines
        for kind, hertz in HERTZ.items()
    ]


def _sensor(rng: np.random.Generator, kind: str, machine: str, hall: str, size: int) -> Sensor:
    period = SECOND // HERTZ[kind]
    ts = START + np.arange(size, dtype=np.int64) * period + rng.integers(0, period, size)
    value = _temperatures(rng, size) if kind == "temp" else _vibrations(rng, size)
    value[rng.random(size) < BROKEN] = np.nan
    mark = _jobs(rng, size) if kind == "temp" else np.full(size, -1, np.int32)
    arrival = ts + _delays(rng, size)
    order = np.argsort(arrival, kind="stable")
    source = oracle.Source(f"{machine}/{kind}", LATENESS, hall)
    return Sensor(source, machine, arrival[order], ts[order], value[order], mark[order])


def _delays(rng: np.random.Generator, size: int) -> NDArray[np.int64]:
    """How long each event is on its way: nearly all no time, some within the lateness, a few longer."""
    delay = np.zeros(size, np.int64)
    dice = rng.random(size)
    displaced, late = dice < DISPLACED, dice < LATE
    delay[displaced] = rng.integers(0, LATENESS * 3 // 4, int(displaced.sum()))
    delay[late] = rng.integers(LATENESS * 2, LATENESS * 4, int(late.sum()))
    return delay


def _temperatures(rng: np.random.Generator, size: int) -> NDArray[np.float64]:
    """Degrees to a tenth, as a sensor gives them: a slow swing about the machine's own level."""
    swing = 12 * np.sin(np.arange(size) / rng.uniform(60, 200) + rng.uniform(0, 6))
    return np.round(rng.uniform(50, 70) + swing + rng.normal(0, 0.8, size), 1)


def _vibrations(rng: np.random.Generator, size: int) -> NDArray[np.float64]:
    """mm/s to a hundredth: calm, with a burst of some seconds about once a minute."""
    value = rng.gamma(8.0, 0.25, size).clip(0, 6)
    at = int(rng.integers(0, 60 * HERTZ["vib"]))
    while at < size:
        length = int(rng.integers(1, 6)) * HERTZ["vib"]
        value[at : at + length] += rng.uniform(6, 9)
        at += length + int(rng.integers(30, 90)) * HERTZ["vib"]
    return np.round(value, 2)


def _jobs(rng: np.random.Generator, size: int) -> NDArray[np.int32]:
    """Which records carry a mark: jobs of 20 to 60 seconds with pauses of 5 to 20 between them."""
    mark = np.full(size, -1, np.int32)
    at, running = int(rng.integers(0, 10 * HERTZ["temp"])), False
    while at < size:
        mark[at] = int(running)
        running = not running
        at += int(rng.integers(20, 60) if running else rng.integers(5, 20)) * HERTZ["temp"]
    return mark


# The tree


class Plant:
    """A node in each hall, a gateway above them, and the root; all of them in this process."""

    def __init__(self, sensors: Sequence[Sensor]) -> None:
        self.sensors = sensors
        self.halls = {hall: Node(QUERIES) for hall in HALLS}
        self.gateway = Node(QUERIES)
        self.root = Root(QUERIES, expected=len(sensors))
        for sensor in sensors:
            source = sensor.source
            for node in (self.halls[source.site], self.gateway, self.root):
                node.admit(source.name, lateness=source.lateness, site=source.site)

    def step(self, low: int, high: int) -> list[Result]:
        """Let arrive what is due, send it up the tree, and take the windows that this closes."""
        for sensor in self.sensors:
            batch = sensor.batch(low, high)
            if len(batch):
                self.halls[sensor.source.site].push(batch)
        for node in self.halls.values():
            self.gateway.merge(node.flush())
        self.root.merge(self.gateway.flush())
        return list(self.root.take())

    def finish(self) -> list[Result]:
        self.root.finish()
        return list(self.root.take())


@dataclass
class Run:
    """How far the run is: what the screen shows and the closing line sums up."""

    plant: Plant
    total: int
    events: int = 0
    late: int = 0
    rejected: int = 0
    watermark: int | None = None
    engine: float = 0.0  # seconds in the engine: without the generator, the pacing and the screen
    results: list[Result] = field(default_factory=list)
    closed: Counter[str] = field(default_factory=Counter)

    def timed(self, work: Callable[[], list[Result]]) -> list[Result]:
        began = time.perf_counter()
        fresh = work()
        self.engine += time.perf_counter() - began
        self.results += fresh
        self.closed.update(result.query for result in fresh)
        return fresh

    def count(self) -> None:
        accounts = [self.plant.root.account(sensor.source.name) for sensor in self.plant.sensors]
        self.events = sum(account.accepted for account in accounts)
        self.late = sum(account.late for account in accounts)
        self.rejected = sum(account.rejected for account in accounts)
        self.watermark = self.plant.root.watermark

    def steps(self) -> Iterator[tuple[int, list[Result]]]:
        """Where event time is, and the windows that have closed since the last step."""
        end = max(int(sensor.arrival[-1]) for sensor in self.plant.sensors)
        for low in range(START, end + 1, TICK):
            fresh = self.timed(partial(self.plant.step, low, low + TICK))
            self.count()
            yield low + TICK - START, fresh
        yield end - START, self.timed(self.plant.finish)


# What one sees


def clock(ts: int) -> str:
    """A time as minutes and seconds since the start."""
    minutes, tenths = divmod(round(abs(ts) / (SECOND // 10)), 600)
    return f"{'-' if ts < 0 else ''}{minutes:02d}:{tenths / 10:04.1f}"


def cells(result: Result, query: Query) -> tuple[str, str, str, str, str]:
    """A window as one reads it: query, place, from and to, events, values."""
    if is_count(query.window):
        span = f"#{result.start + 1:,}–{result.end:,}"
    else:
        span = f"{clock(result.start - START)}–{clock(result.end - START)}"
    values = " ".join(f"{name} {number(value)}" for name, value in result.values.items() if name != "count")
    return query.id, result.key or result.site or "all halls", span, f"{result.count:,}", values


def number(value: Any) -> str:
    if isinstance(value, tuple):
        return " ".join(map(number, value))
    return f"{value:.1f}"


def kind(query: Query) -> str:
    """What sort of window it is, shorter than the window says it itself."""
    window = query.window
    return f"{window.start}..{window.ends_with}" if isinstance(window, Punctuation) else str(window)


class Screen:
    """The last windows of each query in a table that stays in its place, and the progress below."""

    def __init__(self, run: Run, console: Console) -> None:
        self.run = run
        self.last: dict[str, deque[Result]] = {query.id: deque(maxlen=SHOWN) for query in QUERIES}
        self.live = Live(console=console, auto_refresh=False)
        self.gap = 2 if console.width >= 90 else 1  # so that it fits into 80 characters too
        self.turn = 0
        self.drawn = 0.0

    def __enter__(self) -> Screen:
        self.live.__enter__()
        return self

    def __exit__(self, *raised: Any) -> None:
        self.live.update(self._picture(), refresh=True)
        self.live.__exit__(*raised)

    def show(self, fresh: Sequence[Result]) -> None:
        """One window of each query that has new ones; in turn, or only the last machine would be seen."""
        self.turn += 1
        for query, group in groupby(sorted(fresh, key=lambda r: r.query), key=lambda r: r.query):
            rows = list(group)
            self.last[query].append(rows[self.turn % len(rows)])
        if time.perf_counter() - self.drawn > 0.08:
            self.live.update(self._picture(), refresh=True)
            self.drawn = time.perf_counter()

    def _picture(self) -> Group:
        table = Table(box=None, padding=(0, self.gap, 0, 0), pad_edge=False, header_style="dim")
        for heading, width in zip(HEADINGS, (18, 12, 16, 5, 21), strict=True):
            table.add_column(heading, min_width=width, no_wrap=True)
        table.columns[HEADINGS.index("count")].justify = "right"
        for query in QUERIES:
            rows = [cells(result, query)[1:] for result in self.last[query.id]]
            rows += [("", "", "", "")] * (SHOWN - len(rows))
            for name, row in zip((f"[bold]{query.id}", f"[dim]{kind(query)}"), rows, strict=True):
                table.add_row(name, *row)
        return Group(table, "", self._progress())

    def _progress(self) -> Table:
        run = self.run
        line = Table.grid(padding=(0, self.gap))
        line.add_row(
            ProgressBar(total=run.total, completed=run.events, width=8 * self.gap),
            f"{run.events:,} events",
            f"{len(run.results):,} windows",
            f"watermark {'–' if run.watermark is None else clock(run.watermark - START)}",
            f"{run.late:,} late",
            f"{run.rejected:,} rejected",
        )
        return line


class Lines:
    """For a log or a pipe: a row now and then, each of another query."""

    def __init__(self, run: Run, rows: int = 18) -> None:
        self.run, self.every = run, max(1, run.total // rows)
        self.next, self.turn = 0, 0

    def __enter__(self) -> Lines:
        self._line(*HEADINGS, "events", "watermark")
        return self

    def __exit__(self, *raised: Any) -> None:
        pass

    def show(self, fresh: Sequence[Result]) -> None:
        query = QUERIES[self.turn % len(QUERIES)]
        mine = [result for result in fresh if result.query == query.id]
        if mine and self.run.events >= self.next and self.run.watermark is not None:
            row = cells(mine[self.turn % len(mine)], query)
            self._line(*row, f"{self.run.events:,}", clock(self.run.watermark - START))
            self.turn += 1
            self.next = self.run.events + self.every

    def _line(self, query: str, where: str, span: str, count: str, values: str, events: str, at: str) -> None:
        print(
            f"{query:<11}  {where:<12}  {span:<16}  {count:>5}  {values:<21}  {events:>9}  {at:>9}",
            flush=True,
        )


def watch(run: Run, view: Screen | Lines, speed: float | None) -> None:
    """Run to the end, no faster than `speed` seconds of event time in a second."""
    began = time.perf_counter()
    with view:
        for now, fresh in run.steps():
            view.show(fresh)
            ahead = now / SECOND / speed - (time.perf_counter() - began) if speed else 0.0
            if ahead > 0:
                time.sleep(ahead)


# Whether it is right


def wrong(run: Run) -> list[str]:
    """A line for each window, and each source's ledger, that differs from the oracle's."""
    sensors = run.plant.sensors
    events = [list(sensor.events()) for sensor in sensors]
    expected = oracle.windows(
        [event for own in events for event in own],
        [sensor.source for sensor in sensors],
        [spec_of(query) for query in QUERIES],
    )
    lines = differences(expected, [_row(result) for result in run.results])
    for sensor, own in zip(sensors, events, strict=True):
        name = sensor.source.name
        account = run.plant.root.account(name)
        told = (account.counted, account.late, account.rejected)
        judged = tuple(map(len, oracle.judge(own, sensor.source)))
        if told != judged:
            lines.append(f"{name}: counted, late, rejected are {told} instead of {judged}")
    return lines


def _row(result: Result) -> oracle.Row:
    place = (result.query, result.site, result.key, result.start, result.end)
    return oracle.Row(*place, result.count, result.values)


def summary(run: Run) -> str:
    rate = run.events / run.engine if run.engine else 0.0
    shown = f"{round(rate, -3):,.0f}" if rate >= 1_000 else f"{rate:.0f}"
    return f"{run.events:,} events in {run.engine:.1f} s ({shown} events/s), {len(run.results):,} windows"


def checked(run: Run, console: Console) -> int:
    """Compare with the oracle, which takes its time, and say how it went; gives the exit code."""
    note = f"The oracle computes all {len(run.results):,} windows anew, the naive way ..."
    began = time.perf_counter()
    if console.is_terminal:
        with console.status(note):
            lines = wrong(run)
    else:
        print(note, flush=True)
        lines = wrong(run)
    took = time.perf_counter() - began
    print(f"{run.late:,} late and {run.rejected:,} broken events left out; the oracle took {took:.1f} s")
    if not lines:
        print(f"{summary(run)}: every window equals the oracle")
        return 0
    print("\n".join(lines[:20]))
    print(f"{summary(run)}: {len(lines):,} differences from the oracle")
    return 1


def _positive(kind: Callable[[str], Any]) -> Callable[[str], Any]:
    def parse(text: str) -> Any:
        value = kind(text.replace(",", "").replace("_", ""))
        if not 0 < value < float("inf"):
            raise argparse.ArgumentTypeError(f"{text} is not above zero")
        return value

    parse.__name__ = "number"  # argparse names the type by it
    return parse


def arguments(given: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="Run a generated factory (12 machines in 3 halls) through a tree of nodes, show windows "
        "as they close, and compare every one with the oracle.",
        epilog="Exit code: 0 all windows equal the oracle's, 1 some differ, 130 interrupted.",
    )
    add = parser.add_argument
    add("--events", type=_positive(int), default=300_000, help="about how many events (default: 300,000)")
    add("--seed", type=int, default=1, help="another factory for another seed (default: %(default)s)")
    add(
        "--speed",
        type=_positive(float),
        help="seconds of event time in a second, e.g. 60; by default slow enough to watch on a terminal "
        f"({WATCHED:g} s for all), as fast as possible otherwise",
    )
    add("--no-verify", action="store_true", help="do not compare with the oracle, which takes the longest")
    add("--plain", action="store_true", help="lines instead of a live screen (so it is if piped anyway)")
    return parser.parse_args(given)


def main(given: Sequence[str] | None = None) -> int:
    options = arguments(given)
    console = Console()
    sensors = factory(options.events, options.seed)
    run = Run(Plant(sensors), total=sum(len(sensor.ts) for sensor in sensors))
    plain, speed = options.plain or not console.is_terminal, options.speed
    if speed is None and not plain:
        speed = max(int(sensor.arrival[-1]) - START for sensor in sensors) / SECOND / WATCHED
    try:
        watch(run, Lines(run) if plain else Screen(run, console), speed)
        if not options.no_verify:
            return checked(run, console)
    except KeyboardInterrupt:
        run.count()
        print(f"\ninterrupted: {summary(run)} so far, not compared with the oracle")
        return 130
    print(f"{summary(run)}: not compared with the oracle (--no-verify)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
