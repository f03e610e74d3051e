"""A tree under load with a fault every 30 seconds, for as long as asked: `make soak HOURS=8`.

Every hour and at the end the sources come to their end, every window is compared with the oracle, and
another tree begins. Ctrl-C ends it early, with a report; a second one at once.
"""

from __future__ import annotations

import argparse
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from tests.faults.cells import NODE, ROOT, suspended
from tests.faults.processes import Late
from tests.faults.tree import MIB, SOURCES, Shape, Tree, grown

EVERY = 30.0
LAP = 3_600.0
# Of each source; the oracle takes its time.
RATE = 100.0
SHAPE = Shape(network=True, snapshot_mib=0.5, rate=RATE)
# A process that is younger has not come to its size yet, in seconds.
GROWN = 20.0
Fault = Callable[[Tree, random.Random], str]


def kill(tree: Tree, draw: random.Random) -> str:
    name = draw.choice(list(tree.processes))
    tree[name].kill()
    time.sleep(draw.random())
    tree[name].start()
    return f"kill -9 of {name}"


def kill_at_failpoint(tree: Tree, draw: random.Random) -> str:
    # Those that are reached at any time: others need a snapshot, or a spool that is full.
    name, failpoint = draw.choice([("root", each) for each in ROOT[:7]] + [("mid", n) for n in NODE])
    tree[name].kill()
    tree[name].start(failpoint)
    tree[name].code()
    tree[name].start()
    return f"kill -9 of {name} at {failpoint}"


def kill_all(tree: Tree, draw: random.Random) -> str:
    for process in tree.processes.values():
        process.kill()
    for process in tree.processes.values():
        process.start()
    return "kill -9 of everything"


def stop(tree: Tree, draw: random.Random) -> str:
    name, seconds = draw.choice(list(tree.processes)), draw.choice((2, 5, 12))
    tree[name].signal(signal.SIGSTOP)
    time.sleep(seconds)
    tree[name].signal(signal.SIGCONT)
    return f"SIGSTOP of {name}, {seconds} s"


def replace(tree: Tree, draw: random.Random) -> str:
    name = draw.choice(["mid", *SOURCES.values()])
    suspended(tree, name, 3)
    return f"SIGSTOP of {name}, 3 s, and its replacement"


def cut(tree: Tree, draw: random.Random) -> str:
    assert tree.network is not None
    host, neighbour = draw.choice(
        (("top", "middle"), ("middle", "top"), ("middle", "leaf"), ("leaf", "middle"))
    )
    both, seconds = draw.random() < 0.5, draw.choice((2, 5, 10))
    tree.network.drop(host, neighbour, outwards=both)
    time.sleep(seconds)
    tree.network.heal(host)
    return f"{neighbour} {'and' if both else 'to'} {host} cut, {seconds} s"


def narrow(tree: Tree, draw: random.Random) -> str:
    assert tree.network is not None
    tree.network.limit("middle", "top", 64)
    time.sleep(10)
    tree.network.lift("middle", "top")
    return "64 kbit/s to the root, 10 s"


def burst(tree: Tree, draw: random.Random) -> str:
    tree.ask(10 * RATE)
    time.sleep(5)
    tree.ask(RATE)
    return "10x load, 5 s"


# The first ones come more often.
FAULTS: tuple[Fault, ...] = (
    kill,
    kill,
    kill_at_failpoint,
    kill_at_failpoint,
    cut,
    cut,
    stop,
    replace,
    kill_all,
)
FAULTS = (*FAULTS, narrow, burst)


@dataclass
class Report:
    """What was found so far."""

    began: float = field(default_factory=time.monotonic)
    faults: Counter[str] = field(default_factory=Counter)
    recoveries: list[float] = field(default_factory=list)
    # By role: when, and how large a process was then.
    sizes: dict[str, list[tuple[float, int]]] = field(default_factory=dict)
    peaks: dict[str, int] = field(default_factory=dict)
    events: int = 0
    windows: int = 0
    wrong: int = 0
    problems: list[str] = field(default_factory=list)

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.began

    def measure(self, tree: Tree) -> None:
        """Note how large the processes are that have run for some time."""
        for process in tree.processes.values():
            _, size = process.memory()
            if size and process.age > GROWN:
                self.sizes.setdefault(process.role, []).append((self.seconds, size))

    def slope(self, role: str) -> str:
        """By how much processes of a role grow, in MiB an hour."""
        found = self.sizes.get(role, [])
        if len({when for when, _ in found}) < 3:
            return f"{role} (too short to tell)"
        when, size = np.array(found).T
        return f"{role} {np.polyfit(when / 3_600, size / MIB, 1)[0]:+.2f}"

    def __str__(self) -> str:
        lines = [
            f"{self.seconds / 3_600:.2f} hours, {self.faults.total()} faults, {self.events:,} events",
            f"wrong windows: {self.wrong} of {self.windows:,}",
        ]
        if self.recoveries:
            p50, p99 = np.quantile(self.recoveries, (0.5, 0.99))
            worst = max(self.recoveries)
            lines.append(f"recovery: p50 {p50:.1f} s, p99 {p99:.1f} s, longest {worst:.1f} s")
        roles = ("source", "child", "intermediate", "root")
        lines.append("memory slope, MiB/h: " + ", ".join(self.slope(role) for role in roles))
        peaks = ", ".join(f"{role} {self.peaks.get(role, 0)}" for role in roles)
        lines.append(f"peak memory, MiB: {peaks}")
        lines += [f"{count:5} {what}" for what, count in self.faults.most_common()]
        return "\n".join([*lines, *self.problems])


def lap(report: Report, draw: random.Random, until: float) -> bool:
    """One tree, until a moment; False if Ctrl-C came."""
    with (
        tempfile.TemporaryDirectory(prefix="headwater-soak-") as directory,
        grown(Path(directory), SHAPE) as tree,
    ):
        tree.begin()
        going = True
        try:
            _faults(tree, report, draw, until)
        except KeyboardInterrupt:
            going = False
            print("ending: what was sent is compared; Ctrl-C again leaves at once", flush=True)
            tree.mend()
        verdict = tree.finish()
        for role, peak in verdict.memory.items():
            report.peaks[role] = max(report.peaks.get(role, 0), peak)
        report.events += verdict.events
        report.windows += verdict.windows
        report.wrong += verdict.wrong
        print(
            f"{report.seconds:6.0f} s  compared: {verdict.windows:,} windows, {verdict.wrong} wrong",
            flush=True,
        )
        return going


def _faults(tree: Tree, report: Report, draw: random.Random, until: float) -> None:
    while time.monotonic() < until:
        due = time.monotonic() + EVERY
        time.sleep(max(min(due, until) - time.monotonic(), 0) * 0.5)
        report.measure(tree)
        fault = draw.choice(FAULTS)
        before = len(tree.recoveries)
        told = fault(tree, draw)
        # A replacement has waited for that already.
        took = tree.recoveries[-1][1] if len(tree.recoveries) > before else tree.recover(told)
        report.faults[fault.__name__.replace("_", " ")] += 1
        report.recoveries.append(took)
        print(f"{report.seconds:6.0f} s  {told}: recovered after {took:.1f} s", flush=True)
        time.sleep(max(min(due, until) - time.monotonic(), 0))


def soak(hours: float, seed: int) -> int:
    draw, report, going = random.Random(seed), Report(), True
    end = time.monotonic() + 3_600 * hours
    print(f"a fault every {EVERY:.0f} s for {hours:g} hours, --seed {seed}", flush=True)
    try:
        while going and time.monotonic() < end:
            going = lap(report, draw, min(end, time.monotonic() + LAP))
    except KeyboardInterrupt:
        going = False
    except (AssertionError, Late, RuntimeError) as error:
        report.problems.append(f"FAILED: {error}")
    print(f"\n{report}", flush=True)
    if report.wrong or report.problems:
        return 1
    return 0 if going else 130


def main(given: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.faults.soak", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--hours", type=float, default=1.0, help="how long (default: %(default)g)")
    parser.add_argument(
        "--seed", type=int, help="the same faults in the same order (default: others each time)"
    )
    options = parser.parse_args(given)
    seed = random.SystemRandom().getrandbits(32) if options.seed is None else options.seed
    return soak(options.hours, seed)


if __name__ == "__main__":
    sys.exit(main())
