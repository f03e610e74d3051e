"""What came of many runs, in figures."""

from __future__ import annotations

import multiprocessing
import signal
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import nullcontext
from dataclasses import dataclass, field

from headwater_simulator.reached import Code, Line
from headwater_simulator.runs import Outcome, run

# As many seeds a worker takes at a time.
BLOCK = 10


@dataclass(slots=True)
class Tally:
    """Sums over runs; of those that failed, each outcome."""

    seeds: int = 0
    steps: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    # What the root has logged, by kind; and what each kind of machine answered to what.
    logged: Counter[str] = field(default_factory=Counter)
    transitions: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    reached: set[Line] = field(default_factory=set)
    failures: list[Outcome] = field(default_factory=list)

    def add(self, outcome: Outcome) -> None:
        self.seeds += 1
        self.steps += outcome.steps
        self.faults += outcome.faults
        self.logged += outcome.logged
        self.transitions += outcome.transitions
        if outcome.failure is not None:
            self.failures.append(outcome)

    def join(self, other: Tally) -> None:
        self.seeds += other.seeds
        self.steps += other.steps
        self.faults += other.faults
        self.logged += other.logged
        self.transitions += other.transitions
        self.reached |= other.reached
        self.failures += other.failures


def tally(seeds: range, *, coverage: bool = False) -> Tally:
    """Run seeds, one after the other; `coverage` looks at every line, which takes several times as long."""
    total = Tally()
    with Code().watched(total.reached) if coverage else nullcontext():
        for seed in seeds:
            total.add(run(seed))
    return total


def tallies(seeds: range, jobs: int, *, coverage: bool = False) -> Iterator[Tally]:
    """Run seeds in as many processes, and tell of each block as it is done."""
    blocks = [seeds[begin : begin + BLOCK] for begin in range(0, len(seeds), BLOCK)]
    work = [(block, coverage) for block in blocks]
    if jobs == 1:
        yield from map(_work, work)
        return
    # Ctrl-C is the first process's business: it ends the others, each behind its block.
    pool = ProcessPoolExecutor(
        min(jobs, len(work)),
        multiprocessing.get_context("spawn"),
        initializer=signal.signal,
        initargs=(signal.SIGINT, signal.SIG_IGN),
    )
    try:
        for done in as_completed([pool.submit(_work, each) for each in work]):
            yield done.result()
    finally:
        pool.shutdown(cancel_futures=True)


def _work(given: tuple[range, bool]) -> Tally:
    seeds, coverage = given
    return tally(seeds, coverage=coverage)
