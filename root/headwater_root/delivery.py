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
        if sink.type == "console":
            found.append(Console(directory / f"{number}-console"))
        elif sink.type == "jsonlines":
            found.append(JsonLines(directory / (sink.path or f"{number}-jsonlines")))
        elif sink.type == "parquet":
            found.append(Parquet(directory / (sink.path or f"{number}-parquet")))
        else:
            log.warning("the embedded root has no such sink", extra={"sink": sink.type})
    return found


class Deliveries:
    """Delivers the outbox to every sink; a sink that fails is tried again, later and later."""

    def __init__(self, outbox: Outbox, sinks: Sequence[Sink]) -> None:
        self._outbox = outbox
        # By a name of its own: there may be two of a kind.
        self._sinks = {f"{number}-{sink.name}": sink for number, sink in enumerate(sinks)}
        self._tasks: list[asyncio.Task[None]] = []
        # By sink: why it cannot deliver at present.
        self.failing: dict[str, str] = {}

    def start(self) -> None:
        self._tasks = [asyncio.create_task(self._serve(*each)) for each in self._sinks.items()]

    async def _serve(self, name: str, sink: Sink) -> None:
        wait = FIRST_WAIT
        while True:
            try:
                await asyncio.to_thread(self._catch_up, sink)
            except (OSError, HeadwaterError) as error:
                if name not in self.failing:
                    log.warning("a sink fails", extra={"sink": name, "problem": str(error)})
                self.failing[name] = str(error)
                await asyncio.sleep(wait)
                wait = min(2 * wait, LONGEST_WAIT)
            else:
                if self.failing.pop(name, None) is not None:
                    log.info("a sink has recovered", extra={"sink": name})
                wait = FIRST_WAIT
                await asyncio.sleep(LOOK)

    def _catch_up(self, sink: Sink) -> None:
        for position, rows in self._outbox.read(sink.cursor):
            sink.deliver(position, rows)

    @property
    def behind(self) -> int:
        """How far the slowest sink is behind, in positions."""
        return max(self.lags.values(), default=0)

    @property
    def lags(self) -> dict[str, int]:
        """How far each sink is behind, in positions."""
        last = self._outbox.last
        return {name: max(last - sink.cursor, 0) for name, sink in self._sinks.items()}

    async def stop(self) -> None:
        """Deliver what is there, as far as that works at once, and end."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for name, sink in self._sinks.items():
            try:
                await asyncio.to_thread(self._catch_up, sink)
            except (OSError, HeadwaterError) as error:
                self.failing[name] = str(error)
                log.warning("a sink ends behind the outbox", extra={"sink": name, "problem": str(error)})
            sink.close()
