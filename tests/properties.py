"""The property tests for as long as asked: `make properties MINUTES=10`.

Each round gives every property test of the suite a hundred examples from a fresh seed. What fails is
minimised and kept in .hypothesis, where `make test` finds it and tries it first.
"""

from __future__ import annotations

import argparse
import functools
import importlib
import inspect
import random
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis.database import DirectoryBasedExampleDatabase
from hypothesis.errors import HypothesisException

EXAMPLES = 100  # of a test in a round: enough to get beyond the simplest ones, few enough to take turns
EVERY = 10.0  # seconds between two lines of progress
REPOSITORY = Path(__file__).resolve().parents[1]


class TimeIsOver(BaseException):
    """Leaves a test in the middle; no Exception, which Hypothesis would take for a failure."""


@dataclass
class Failure:
    test: str
    error: BaseException

    def __str__(self) -> str:
        """The error, to whose end Hypothesis has added the minimal example."""
        path, _, name = self.test.rpartition(".")
        replay = f"make test ARGS={path.replace('.', '/')}.py::{name}"
        told = "".join(traceback.format_exception(self.error))
        return f"{'=' * 100}\n{self.test} failed\n\n{told}\nreplay (it is kept in .hypothesis): {replay}\n"


@dataclass
class Soak:
    """How long to go on, and what has been found so far."""

    until: float
    began: float = field(default_factory=time.monotonic)
    examples: int = 0
    failures: list[Failure] = field(default_factory=list)
    reported: float = field(default_factory=time.monotonic)
    minimising: bool = False

    @property
    def over(self) -> bool:
        return time.monotonic() >= self.until

    def counted(self, check: Callable[..., None]) -> Callable[..., None]:
        """The test's body, counted, until the time is over; a failure is minimised all the same."""

        @functools.wraps(check)
        def body(*args: Any, **kwargs: Any) -> None:
            if self.over and not self.minimising:
                raise TimeIsOver
            self.examples += 1
            self.report()
            try:
                check(*args, **kwargs)
            except HypothesisException:
                raise
            except Exception:
                self.minimising = True
                raise

        return body

    def report(self) -> None:
        now = time.monotonic()
        if now - self.reported >= EVERY:
            self.reported = now
            doing = ", minimising one" if self.minimising else ""
            print(f"{now - self.began:6.0f} s  {self.summary()}{doing}", flush=True)

    def summary(self) -> str:
        return f"{self.examples:,} examples, {len(self.failures)} failures"

    def run(self, name: str, test: Callable[[], None]) -> bool:
        """A hundred examples of one test; gives whether all of them passed."""
        self.minimising = False
        try:
            test()
        except TimeIsOver:
            return True
        except Exception as error:
            self.failures.append(Failure(name, error))
            print(f"{name} failed; the others go on", flush=True)
            return False
        finally:
            self.minimising = False
        return True


def property_tests() -> dict[str, Any]:
    """Every Hypothesis test of the suite by its full name, as long as it needs nothing of pytest."""
    found = {}
    for path in sorted((REPOSITORY / "tests").glob("test_*.py")):
        module = importlib.import_module(f"tests.{path.stem}")
        for name, test in vars(module).items():
            if getattr(test, "is_hypothesis_test", False) and test.__module__ == module.__name__:
                if inspect.signature(test).parameters:
                    print(f"left out: {module.__name__}.{name} needs arguments of pytest")
                else:
                    found[f"{module.__name__}.{name}"] = test
    return found


def take_settings() -> None:
    """Make these the defaults; a test takes them on when its module is imported, so this comes before."""
    settings.register_profile(
        "soak",
        max_examples=EXAMPLES,
        deadline=None,
        derandomize=False,
        database=DirectoryBasedExampleDatabase(REPOSITORY / ".hypothesis" / "examples"),
        suppress_health_check=list(HealthCheck),
    )
    settings.load_profile("soak")


def soak(minutes: float, seed: int) -> int:
    """Take turns until the time is over, nothing is left that passes, or Ctrl-C; gives the exit code."""
    take_settings()
    tests, draw = property_tests(), random.Random(seed)
    state = Soak(until=time.monotonic() + minutes * 60)
    for test in tests.values():
        test.hypothesis.inner_test = state.counted(test.hypothesis.inner_test)
    print(f"{len(tests)} property tests for {minutes:g} minutes, --seed {seed}", flush=True)
    stopped, waiting = False, set(tests)
    try:
        while tests and not state.over:
            # In another order each round: a short soak does not reach all of them.
            for name, test in draw.sample(list(tests.items()), len(tests)):
                # As hypothesis.seed does it, which would take the database away as well.
                test._hypothesis_internal_use_seed = draw.getrandbits(64)
                if state.over:
                    break
                waiting.discard(name)
                if not state.run(name, test):
                    del tests[name]  # it would only find its kept example again
    except KeyboardInterrupt:
        stopped = True
    for failure in state.failures:
        print(f"\n{failure}")
    if waiting:
        print(f"not reached in this time: {', '.join(sorted(waiting))}")
    print(f"{'interrupted: ' if stopped else ''}{state.summary()}")
    return 1 if state.failures else 130 if stopped else 0


def main(given: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.properties", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--minutes", type=float, default=10.0, help="how long (default: %(default)g)")
    parser.add_argument("--seed", type=int, help="repeat a run (default: another one each time)")
    options = parser.parse_args(given)
    seed = random.SystemRandom().getrandbits(32) if options.seed is None else options.seed
    return soak(options.minutes, seed)


if __name__ == "__main__":
    sys.exit(main())
