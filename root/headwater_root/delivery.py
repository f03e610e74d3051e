"""Sinks beside each other: each reads the outbox at its own pace, and none holds another back.

A sink has a thread of its own, and one that hangs (a pipe that nobody reads) ends with the process: what it
has not delivered stays in the outbox for the next one.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from time import monotonic

from headwater import topology
from headwater.errors import HeadwaterError, PermanentError
from headwater_root.outbox import Outbox
from headwater_root.sinks import Sink
from headwater_root.sinks.console import Console
from headwater_root.sinks.jsonlines import JsonLines
from headwater_root.sinks.parquet import Parquet

log = logging.getLogger(__name__)
LOOK, FIRST_WAIT, LONGEST_WAIT = 0.05, 0.1, 10.0
# How long the end waits for sinks that still deliver, in seconds.
PATIENCE = 10.0
# How often the outbox is trimmed, unless it is full.
TRIM = 1.0


class AheadOfLog(PermanentError):
    """Results were delivered of records that the log does not have: it was lost or is an older copy."""

    def __init__(self, delivered: int, committed: int) -> None:
        super().__init__(
            f"there are results of the log up to position {delivered}, but it ends with {committed}; what "
            "comes next would be taken for delivered, so give the root the newest copy of its log, or begin "
            "anew in another directory"
        )


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


def catch_up(outbox: Outbox, sink: Sink) -> None:
    """Deliver what the sink has not got yet."""
    for position, rows in outbox.read(sink.cursor):
        sink.deliver(position, rows)


class _Serving:
    """One sink, in its thread: whatever it raises is told and tried again."""

    def __init__(self, outbox: Outbox, sink: Sink, failing: dict[str, str], ended: threading.Event) -> None:
        self.sink, self._outbox, self._failing, self._ended = sink, outbox, failing, ended
        self.thread = threading.Thread(target=self._run, name=f"sink {sink.name}", daemon=True)

    def _run(self) -> None:
        wait = FIRST_WAIT
        while True:
            last = self._ended.is_set()
            if self._caught_up():
                wait, pause = FIRST_WAIT, LOOK
            else:
                wait, pause = min(2 * wait, LONGEST_WAIT), wait
            if last:
                break
            self._ended.wait(pause)
        self.sink.close()

    def _caught_up(self) -> bool:
        name = self.sink.name
        try:
            catch_up(self._outbox, self.sink)
        except Exception as error:
            if name not in self._failing:
                known = isinstance(error, OSError | HeadwaterError)
                said = {"sink": name, "problem": str(error)}
                log.warning("a sink fails", extra=said, exc_info=None if known else error)
            self._failing[name] = str(error)
            return False
        if self._failing.pop(name, None) is not None:
            log.info("a sink has recovered", extra={"sink": name})
        return True


class Deliveries:
    """Delivers the outbox to every sink; a sink that fails is tried again, later and later.

    What every sink has is trimmed, and without sinks the oldest results at the bound; unless `keep` is set.
    """

    def __init__(
        self, outbox: Outbox, sinks: Sequence[Sink], *, keep: bool = False, patience: float = PATIENCE
    ) -> None:
        self._outbox, self._sinks, self._keep, self._patience = outbox, list(sinks), keep, patience
        # By sink: why it cannot deliver at present.
        self.failing: dict[str, str] = {}
        self._over, self._ended = threading.Event(), asyncio.Event()
        self._serving: list[_Serving] = []
        self._trimming: asyncio.Task[None] | None = None

    def check(self, committed: int) -> None:
        """Refuse a log that ends before what was delivered; tell of sinks that have missed something."""
        reached = max([self._outbox.last, *(sink.cursor for sink in self._sinks)])
        if reached > committed:
            raise AheadOfLog(reached, committed)
        for sink in self._sinks:
            if sink.cursor < self._outbox.trimmed:
                log.warning("a sink begins behind results that are gone", extra={"sink": sink.name})

    def start(self) -> None:
        self._serve()
        self._trimming = asyncio.create_task(self._trims())

    def _serve(self) -> None:
        self._serving = [_Serving(self._outbox, sink, self.failing, self._over) for sink in self._sinks]
        for each in self._serving:
            each.thread.start()

    async def _trims(self) -> None:
        waited = 0.0
        while not self._ended.is_set():
            await self._pause(LOOK)
            waited += LOOK
            if waited >= TRIM or self._outbox.full:
                waited = 0.0
                await asyncio.to_thread(self._trim)

    async def _pause(self, seconds: float) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._ended.wait(), seconds)

    def _trim(self) -> None:
        if self._keep:
            return
        try:
            if self._sinks:
                self._outbox.trim(min(sink.cursor for sink in self._sinks))
            else:
                self._outbox.shrink()
        except OSError as error:
            # What is there longer than it must be does no harm.
            log.warning("the outbox cannot be trimmed", extra={"problem": str(error)})

    @property
    def last(self) -> int:
        """The highest position that has results."""
        return self._outbox.last

    @property
    def behind(self) -> int:
        """How far the slowest sink is behind, in positions."""
        return max((self._outbox.last - sink.cursor for sink in self._sinks), default=0)

    @property
    def cursors(self) -> list[tuple[str, int]]:
        """Each sink, and up to which position it has delivered."""
        return [(sink.name, sink.cursor) for sink in self._sinks]

    @property
    def lags(self) -> dict[str, int]:
        """How far each sink is behind, in positions."""
        last = self._outbox.last
        return {sink.name: max(last - sink.cursor, 0) for sink in self._sinks}

    async def stop(self) -> None:
        """Deliver what is there, as far as that works at once, and end."""
        self._over.set()
        self._ended.set()
        if self._trimming is not None:
            await asyncio.gather(self._trimming, return_exceptions=True)
        if not self._serving:
            self._serve()
        until = monotonic() + self._patience
        for each in self._serving:
            await asyncio.to_thread(each.thread.join, max(until - monotonic(), 0.0))
            if each.thread.is_alive():
                problem = "hangs; what it has not delivered stays in the outbox"
                log.warning("a sink does not end", extra={"sink": each.sink.name, "problem": problem})
        await asyncio.to_thread(self._trim)
