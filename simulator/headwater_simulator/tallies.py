"""What came of many runs, in figures."""

from __future__ import annotations

import multiprocessing
import signal
from collections import Counter
from collections.abc import Generator, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import cache
from itertools import islice

from headwater_simulator.reached import Code, Line
from headwater_simulator.runs import Outcome, run

# As many seeds wait for each worker, with the one that it runs.
AHEAD = 4


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


def tallies(seeds: range, jobs: int, *, coverage: bool = False) -> Generator[Tally, None, None]:
    """Run seeds in as many processes, and tell of each as it is done; whoever closes it ends them at once.

    `coverage` looks at every line, which takes several times as long."""
    if jobs == 1:
        for seed in seeds:
            yield _tally(seed, coverage)
        return
    left, under_way = iter(seeds), set[Future[Tally]]()
    others = set(multiprocessing.active_children())
    pool = ProcessPoolExecutor(min(jobs, len(seeds)), multiprocessing.get_context("spawn"))
    try:
        while True:
            with _without_interrupts():
                for seed in islice(left, AHEAD * jobs - len(under_way)):
                    under_way.add(pool.submit(_tally, seed, coverage))
            if not under_way:
                return
            done, under_way = wait(under_way, return_when=FIRST_COMPLETED)
            # If a process was killed, that comes after what the others have done.
            for each in sorted(done, key=lambda each: each.exception() is not None):
                yield each.result()
    except BaseException:
        for worker in set(multiprocessing.active_children()) - others:
            worker.terminate()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


@contextmanager
def _without_interrupts() -> Iterator[None]:
    """Processes that are started meanwhile never see Ctrl-C: it is the first one's business to end them."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _tally(seed: int, coverage: bool) -> Tally:
    total = Tally()
    with _code().watched(total.reached) if coverage else nullcontext():
        total.add(run(seed))
    return total


@cache
def _code() -> Code:
    return Code()
