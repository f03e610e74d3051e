"""Sinks beside each other: each reads the outbox at its own pace, and none holds another back."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from pathlib import Path

from headwater import topology
from headwater.errors import HeadwaterError
from headwater_root.outbox import Outbox
from headwater_root.sinks import Sink
from headwater_root.sinks.console import Console
from headwater_root.sinks.jsonlines import JsonLines
from headwater_root.sinks.parquet import Parquet

log = logging.getLogger(__name__)
LOOK, FIRST_WAIT, LONGEST_WAIT = 0.05, 0.1, 10.0


def sinks_of(asked: Sequence[topology.Sink], directory: Path) -> list[Sink]:
    """The sinks of a topology, each in a directory of its own; those of other programs are left out."""
    found: list[Sink] = []
    for number, sink in enumerate(asked):
        # There may be two of a type, and who fails must be known.
        name = f"{number}-{sink.type}"
        made: Console | JsonLines | Parquet
        if sink.type == "console":
            made = Console(directory / name)
        elif sink.type == "jsonlines":
            made = JsonLines(directory / (sink.path or name))
        elif sink.type == "parquet":
            made = Parquet(directory / (sink.path or name))
        else:
            log.warning("the embedded root has no such sink", extra={"sink": name})
            continue
        made.name = name
        found.append(made)
    return found


class Deliveries:
    """Delivers the outbox to every sink; a sink that fails is tried again, later and later."""

    def __init__(self, outbox: Outbox, sinks: Sequence[Sink]) -> None:
        self._outbox, self._sinks = outbox, list(sinks)
        self._tasks: list[asyncio.Task[None]] = []
        # By sink: why it cannot deliver at present.
        self.failing: dict[str, str] = {}

    def start(self) -> None:
        self._tasks = [asyncio.create_task(self._serve(sink)) for sink in self._sinks]

    async def _serve(self, sink: Sink) -> None:
        wait = FIRST_WAIT
        while True:
            try:
                await asyncio.to_thread(self._catch_up, sink)
            except (OSError, HeadwaterError) as error:
                if sink.name not in self.failing:
                    log.warning("a sink fails", extra={"sink": sink.name, "problem": str(error)})
                self.failing[sink.name] = str(error)
                await asyncio.sleep(wait)
                wait = min(2 * wait, LONGEST_WAIT)
            else:
                if self.failing.pop(sink.name, None) is not None:
                    log.info("a sink has recovered", extra={"sink": sink.name})
                wait = FIRST_WAIT
                await asyncio.sleep(LOOK)

    def _catch_up(self, sink: Sink) -> None:
        for position, rows in self._outbox.read(sink.cursor):
            sink.deliver(position, rows)

    @property
    def behind(self) -> int:
        """How far the slowest sink is behind, in positions."""
        return max((self._outbox.last - sink.cursor for sink in self._sinks), default=0)

    @property
    def lags(self) -> dict[str, int]:
        """How far each sink is behind, in positions."""
        last = self._outbox.last
        return {sink.name: max(last - sink.cursor, 0) for sink in self._sinks}

    async def stop(self) -> None:
        """Deliver what is there, as far as that works at once, and end."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for sink in self._sinks:
            try:
                await asyncio.to_thread(self._catch_up, sink)
            except (OSError, HeadwaterError) as error:
                self.failing[sink.name] = str(error)
            sink.close()
