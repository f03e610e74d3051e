"""The programs as processes, with what they print and log; all of them end with the test."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.patience import PATIENCE


class Program:
    """A program that says on its first line where it listens."""

    def __init__(self, log: Path, *command: object, environment: Mapping[str, str] | None = None) -> None:
        self._log, self.first = log, dict[str, Any]()
        with log.open("wb") as errors:
            self._running = subprocess.Popen(
                [sys.executable, "-m", *map(str, command)],
                stdout=subprocess.PIPE,
                stderr=errors,
                env={**os.environ, **(environment or {})},
                text=True,
            )

    def __enter__(self) -> Program:
        assert self._running.stdout is not None
        try:
            line = self._running.stdout.readline()
            assert line, self._log.read_text()
            self.first = json.loads(line)
        except BaseException:
            # Nobody else ends what was not entered.
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._running.kill()
        self._running.communicate()

    @property
    def port(self) -> int:
        return int(self.first["port"])

    @property
    def pid(self) -> int:
        return self._running.pid

    def end(self, given: signal.Signals | None = None) -> int:
        """Send a signal, if one is given, and wait for the exit code."""
        if given is not None:
            self._running.send_signal(given)
        self._running.communicate(timeout=PATIENCE)
        return self._running.returncode

    def signal(self, given: signal.Signals) -> None:
        self._running.send_signal(given)

    def kill(self) -> None:
        self._running.kill()
        self._running.wait()

    @property
    def lines(self) -> list[dict[str, Any]]:
        """What it has logged; every line is an object of JSON."""
        # The last one may be half written.
        lines = self._log.read_text().splitlines(keepends=True)
        return [json.loads(line) for line in lines if line.endswith("\n")]

    def said(self, message: str) -> list[dict[str, Any]]:
        return [line for line in self.lines if line["message"] == message]

    def get(self, path: str) -> tuple[int, str]:
        """What its HTTP endpoint answers."""
        return get(int(self.first["metrics"]), path)


def get(port: int, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=30) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def until(reached: Callable[[], object], what: str) -> None:
    end = time.monotonic() + PATIENCE
    while not reached():
        assert time.monotonic() < end, what
        time.sleep(0.05)
