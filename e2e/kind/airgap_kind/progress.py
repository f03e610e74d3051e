"""Steps that say what they do and how long they took, on the standard error stream."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO


class Progress:
    def __init__(self, out: TextIO | None = None) -> None:
        self._out = out if out is not None else sys.stderr
        self._start = time.monotonic()
        self._open = False

    def say(self, line: str) -> None:
        """A line of its own, also in the midst of a step."""
        self.close()
        self._out.write(line + "\n")
        self._out.flush()

    def close(self) -> None:
        if self._open:
            self._out.write("\n")
            self._open = False

    @contextmanager
    def step(self, what: str, about: str = "") -> Iterator[None]:
        """`what (about ...) ... done in N s`; nothing is claimed when the step fails."""
        # The line stays open, so that the usual case is one line.
        self.close()
        self._out.write((f"{what} ({about})" if about else what) + " ... ")
        self._out.flush()
        self._open = True
        start = time.monotonic()
        try:
            yield
        except BaseException:
            self.say(f"    ... failed after {seconds(time.monotonic() - start)}")
            raise
        took = seconds(time.monotonic() - start)
        if self._open:
            self._out.write(f"done in {took}\n")
            self._out.flush()
            self._open = False
        else:
            self.say(f"    ... done in {took}")

    def total(self, what: str) -> None:
        self.say(f"{what}, {seconds(time.monotonic() - self._start)} in all")


def seconds(duration: float) -> str:
    return f"{duration:.1f} s" if duration < 10 else f"{duration:.0f} s"
