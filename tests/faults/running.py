"""Cells beside each other, each in a process of its own with nothing that another one has."""

from __future__ import annotations

import fcntl
import subprocess
import tempfile
import threading
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import TracebackType

from headwater_cli.processes import dying_with_parent
from tests.faults import network
from tests.faults.cell import Outcome
from tests.faults.processes import python

# How long a cell that was asked to end may take to end what it has started, in seconds.
PATIENCE = 30.0
# A cell that takes longer hangs.
LONGEST = 900.0


class Running:
    """Runs cells in the order in which they are given, so many at a time. With a folder for outcomes that
    others have too, each is run by one of them."""

    def __init__(self, names: Iterable[str], jobs: int, outcomes: Path | None = None) -> None:
        # Once, before several of them would.
        network.ready()
        self._over = threading.Event()
        self._processes: set[subprocess.Popen[str]] = set()
        self._outcomes = outcomes
        self._pool = ThreadPoolExecutor(jobs)
        self._found = {name: self._pool.submit(self._run, name) for name in names}

    def future(self, name: str) -> Future[Outcome]:
        return self._found[name]

    def __enter__(self) -> Running:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        for process in list(self._processes):
            process.terminate()
        self._pool.shutdown(cancel_futures=True)

    def _run(self, name: str) -> Outcome:
        if self._outcomes is None:
            return self._ran(name)
        kept = self._outcomes / f"{name}.json"
        with kept.with_suffix(".lock").open("w") as lock:
            # Whoever has it runs this cell.
            fcntl.flock(lock, fcntl.LOCK_EX)
            if kept.exists():
                return Outcome.read(kept.read_text())
            found = self._ran(name)
            # One that was told to end has nothing to say.
            if not (found.problem and self._over.is_set()):
                kept.write_text(found.written())
            return found

    def _ran(self, name: str) -> Outcome:
        with tempfile.NamedTemporaryFile(prefix="headwater-cell-") as file:
            if self._over.is_set():
                return Outcome(name, problem="not run")
            process = subprocess.Popen(
                dying_with_parent(python("tests.faults.cell", name, file.name)),
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                # Ctrl-C is for this process, which asks them to end.
                start_new_session=True,
            )
            self._processes.add(process)
            try:
                said, _ = process.communicate(timeout=LONGEST)
            except subprocess.TimeoutExpired:
                process.terminate()
                said, _ = process.communicate(timeout=PATIENCE)
            finally:
                self._processes.discard(process)
            if process.returncode:
                return Outcome(name, problem=f"ended with {process.returncode}\n{said}")
            return Outcome.read(Path(file.name).read_text())
