"""One cell as a program: `python -m tests.faults.cell NAME FILE`; FILE gets what came of it as JSON."""

from __future__ import annotations

import json
import signal
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path

from tests.faults.listed import CELLS
from tests.faults.tree import Verdict, grown


@dataclass(slots=True)
class Outcome:
    """A row of the table; with a `problem`, why it has failed."""

    cell: str
    recoveries: list[tuple[str, float]] = field(default_factory=list)
    verdict: Verdict = field(default_factory=Verdict)
    seconds: float = 0.0
    problem: str = ""

    @classmethod
    def read(cls, text: str) -> Outcome:
        given = json.loads(text)
        return cls(**{**given, "verdict": Verdict(**given["verdict"])})

    def written(self) -> str:
        return json.dumps(asdict(self))


def run(name: str) -> Outcome:
    """Put a cell's fault on a tree; raises if something is not as it must be."""
    cell, begin = CELLS[name], time.monotonic()
    with tempfile.TemporaryDirectory(prefix=f"headwater-{name}-") as directory, ExitStack() as stack:
        tree = stack.enter_context(grown(Path(directory), cell.shape))
        try:
            cell.before(tree, stack)
            tree.begin()
            cell.fault(tree, stack)
            verdict = tree.finish()
        except BaseException:
            for process in tree.processes.values():
                print(f"--- {process.name}\n{process.log}", file=sys.stderr)
            raise
        recoveries = tree.recoveries
        # Before what it stands on goes.
        tree.end()
    return Outcome(name, recoveries, verdict, time.monotonic() - begin)


def _ended(number: int, frame: object) -> None:
    raise KeyboardInterrupt


def main() -> int:
    name, path = sys.argv[1:]
    signal.signal(signal.SIGTERM, _ended)
    try:
        outcome = run(name)
    except KeyboardInterrupt:
        return 130
    Path(path).write_text(outcome.written())
    return 0


if __name__ == "__main__":
    sys.exit(main())
