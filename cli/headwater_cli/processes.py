"""Nodes and root as processes of this machine; none of them outlives this one."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from time import monotonic
from typing import Any

from headwater_cli.rates import Rates

PATIENCE = 150.0
STEADY = 6.0
_SETPRIV = ("setpriv", "--pdeathsig", "KILL", "--")


def dying_with_parent(command: Sequence[str]) -> list[str]:
    """A command whose process Linux ends when whoever started it ends, however that happens.

    A program does it, not code of ours between fork and exec: that would run what gRPC has for forks, whose
    threads then find their files closed, and abort.
    """
    return [*_SETPRIV, *command] if _has_setpriv() else list(command)


@cache
def _has_setpriv() -> bool:
    """Whether there is one that knows the option; a small system may have another."""
    if sys.platform != "linux" or shutil.which(_SETPRIV[0]) is None:
        return False
    return subprocess.run([*_SETPRIV, "true"], stderr=subprocess.DEVNULL, check=False).returncode == 0


@dataclass(slots=True)
class Process:
    """A program that prints JSON lines; the first one says where it listens."""

    name: str
    command: Sequence[str]
    # Where its log goes; without, to the standard error of this process.
    log: Path | None = None
    port: int = 0
    last: dict[str, Any] = field(default_factory=dict)
    rates: Rates = field(default_factory=Rates)
    # Over so long that a burst each second does not show.
    steady: Rates = field(default_factory=lambda: Rates(STEADY))
    _running: asyncio.subprocess.Process | None = None
    _reading: asyncio.Task[None] | None = None

    async def start(self) -> None:
        # On the screen only what is amiss, unless asked otherwise; a file takes everything.
        level = "warning" if self.log is None else "info"
        with nullcontext() if self.log is None else self.log.open("ab") as log:
            self._running = await asyncio.create_subprocess_exec(
                *dying_with_parent([sys.executable, *self.command]),
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                env={"HEADWATER_LOG_LEVEL": level, **os.environ},
                start_new_session=True,
            )
        assert self._running.stdout is not None
        try:
            line = await asyncio.wait_for(self._running.stdout.readline(), PATIENCE)
        except TimeoutError:
            raise RuntimeError(
                f"{self.name} did not listen within {PATIENCE:.0f} s; ask for fewer nodes"
            ) from None
        if not line:
            raise RuntimeError(f"{self.name} ended with code {await self._running.wait()} before it listened")
        self.port = int(json.loads(line)["port"])
        self._reading = asyncio.create_task(self._read(self._running.stdout))

    @property
    def pid(self) -> int:
        assert self._running is not None
        return self._running.pid

    async def _read(self, stream: asyncio.StreamReader) -> None:
        async for line in stream:
            self.last = json.loads(line)
            self.rates.take(monotonic(), self.last)
            self.steady.take(monotonic(), self.last)

    def figure(self, name: str) -> int:
        """A figure as it was said last; 0 before that."""
        return int(self.last.get(name) or 0)

    @property
    def ended(self) -> int | None:
        return None if self._running is None else self._running.returncode

    def hang_up(self) -> None:
        """Have it read its configuration again."""
        if self._running is not None and self._running.returncode is None:
            self._running.send_signal(signal.SIGHUP)

    def kill(self) -> None:
        if self._running is not None and self._running.returncode is None:
            self._running.kill()

    async def stop(self) -> int | None:
        """Ask it to end, wait, and make it if it does not."""
        if self._running is None:
            return None
        if self._running.returncode is None:
            self._running.terminate()
            try:
                await asyncio.wait_for(self._running.wait(), PATIENCE)
            except TimeoutError:
                self._running.kill()
                await self._running.wait()
        if self._reading is not None:
            await self._reading
        return self._running.returncode
