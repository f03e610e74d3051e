"""Processes of a cell: each can be started again in the same place, and none outlives the cell."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any

from headwater_cli.processes import dying_with_parent
from headwater_wire.failpoints import VARIABLE

# A machine may be slow: so long is waited for what must come, in seconds.
PATIENCE = 240.0
LOOK = 0.02


class Late(AssertionError):
    """What must come did not."""


def until(reached: Callable[[], object], what: Callable[[], str] | str, patience: float = PATIENCE) -> None:
    end = time.monotonic() + patience
    while not reached():
        if time.monotonic() > end:
            raise Late(f"after {patience:.0f} s: {what if isinstance(what, str) else what()}")
        time.sleep(LOOK)


class Process:
    """A program that may be started many times, one process after the other."""

    def __init__(self, name: str, role: str, command: Sequence[object], directory: Path) -> None:
        self.name, self.role, self.command = name, role, [str(each) for each in command]
        self._directory = directory
        self._running: subprocess.Popen[bytes] | None = None
        self._logs: list[Path] = []
        self._began = 0.0

    def start(self, failpoint: str = "") -> None:
        assert self.ended, f"{self.name} runs"
        self._began = time.monotonic()
        # Another one of this name, which still writes, may have been here before.
        names = (self._directory / f"{self.name}.{number}.log" for number in count(1))
        self._logs.append(next(log for log in names if not log.exists()))
        environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
        if failpoint:
            environment[VARIABLE] = failpoint
        with self._logs[-1].open("wb") as log:
            self._running = subprocess.Popen(
                dying_with_parent(self.command),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=log,
                env=environment,
                # Ctrl-C is for the cell, which ends them.
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        assert self._running is not None
        return self._running.pid

    @property
    def age(self) -> float:
        """How long ago it was started, in seconds."""
        return time.monotonic() - self._began

    @property
    def ended(self) -> bool:
        return self._running is None or self._running.poll() is not None

    def signal(self, given: signal.Signals) -> None:
        assert self._running is not None
        self._running.send_signal(given)

    def kill(self) -> None:
        if self._running is not None:
            self._running.kill()
            self._running.wait()

    def code(self) -> int:
        """How it ended, once it has."""
        until(lambda: self.ended, lambda: f"{self.name} does not end: {self.log}")
        assert self._running is not None
        return self._running.returncode

    def stop(self) -> int:
        """Ask it to end; gives the exit code."""
        self.signal(signal.SIGTERM)
        return self.code()

    @property
    def log(self) -> str:
        """What its last life has said, the end of it."""
        return self._logs[-1].read_text()[-2_000:] if self._logs else ""

    def said(self, message: str) -> list[dict[str, Any]]:
        """Lines of its last life."""
        lines = (line for line in self._logs[-1].read_text().splitlines() if line.startswith("{"))
        return [found for line in lines if (found := json.loads(line))["message"] == message]

    def memory(self) -> tuple[int, int]:
        """The largest that it was in memory and its present size, in bytes; 0 once it is gone."""
        try:
            status = Path(f"/proc/{self.pid}/status").read_text()
        except (OSError, AssertionError):
            return 0, 0
        found = dict(
            line.split(":", 1) for line in status.splitlines() if line.startswith(("VmHWM", "VmRSS"))
        )
        kib = {name: int(value.split()[0]) for name, value in found.items()}
        return 1_024 * kib.get("VmHWM", 0), 1_024 * kib.get("VmRSS", 0)


class Memory:
    """The largest size of the processes of each role, looked at all the time."""

    EVERY = 0.1

    def __init__(self, processes: Mapping[str, Process]) -> None:
        self._processes = processes
        self.peaks: dict[str, int] = {}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def _watch(self) -> None:
        while not self._over.wait(self.EVERY):
            self.look()

    def look(self) -> None:
        for process in list(self._processes.values()):
            peak, _ = process.memory()
            self.peaks[process.role] = max(self.peaks.get(process.role, 0), peak)

    def stop(self) -> None:
        self._over.set()
        self._thread.join()


def python(*command: object, before: Sequence[str] = ()) -> list[str]:
    """A module as a command, behind what puts it somewhere else."""
    return [*before, sys.executable, "-m", *map(str, command)]
