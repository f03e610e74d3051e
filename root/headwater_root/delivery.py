"""Sinks beside each other: each reads the outbox at its own pace, and none holds another back.

A sink has a thread of its own, and one that hangs (a pipe that nobody reads) ends with the process: what it
has not delivered stays in the outbox for the next one. What has come together there is delivered together.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from time import monotonic

from headwater import topology
from headwater.durations import SECOND
from headwater.errors import HeadwaterError, Invalid, PermanentError, Problem
from headwater_root.outbox import Outbox
from headwater_root.sinks import Sink, postgres, webhook
from headwater_root.sinks.console import Console
from headwater_root.sinks.jsonlines import JsonLines
from headwater_root.sinks.parquet import Parquet
from headwater_root.sinks.postgres import Postgres
from headwater_root.sinks.webhook import Webhook
from headwater_root.sinks.writer import NOBODY, Writer
from headwater_wire import failpoints

log = logging.getLogger(__name__)
LOOK, FIRST_WAIT, LONGEST_WAIT = 0.05, 0.1, 10.0
# How long the end waits for sinks that still deliver, in seconds.
PATIENCE = 10.0
# From how long a delivery is said to hang, in seconds: longer than a sink waits for another machine.
HANGS = 60.0
# How often the outbox is trimmed, unless it is full, and how often it is looked whether it is.
TRIM, LOOK_FULL = 1.0, 0.25
# How much is delivered together, unless one file of the outbox alone is larger.
GROUP_BYTES = 4 * 2**20


class AheadOfLog(PermanentError):
    """Results were delivered of records that the log does not have: it was lost or is an older copy."""

    def __init__(self, delivered: int, committed: int) -> None:
        super().__init__(
            f"there are results of the log up to position {delivered}, but it ends with {committed}; what "
            "comes next would be taken for delivered, so give the root the newest copy of its log, or begin "
            "anew in another directory"
        )


class Overtaken(PermanentError):
    """A later opening of the log has taken over: it delivers from now on."""

    def __init__(self) -> None:
        super().__init__(
            "the log was opened again by another root, which delivers from now on; this one must exit"
        )


@dataclass(frozen=True, slots=True)
class Trouble:
    """Why a sink cannot deliver, since when by the monotonic clock, and how often it has tried."""

    problem: str
    since: float
    attempts: int = 1

    @property
    def seconds(self) -> float:
        return monotonic() - self.since

    def __str__(self) -> str:
        times = "once" if self.attempts == 1 else f"{self.attempts} times"
        return f"for {self.seconds:.0f} s, tried {times}: {self.problem}"


def sinks_of(
    asked: Sequence[topology.Sink],
    directory: Path,
    writer: Writer = NOBODY,
    environment: Mapping[str, str] = os.environ,
) -> list[Sink]:
    """The sinks of a topology, each in a directory of its own; `Invalid` says why one cannot be had."""
    found: list[Sink] = []
    for number, sink in enumerate(asked):
        made = _made(
            sink, f"{number}-{sink.type}", f"spec.root.sinks[{number}]", directory, writer, environment
        )
        # There may be two of a type, and who fails must be known.
        made.name = f"{number}-{sink.type}"
        found.append(made)
    return found


def _made(
    sink: topology.Sink,
    name: str,
    field: str,
    directory: Path,
    writer: Writer,
    environment: Mapping[str, str],
) -> Console | JsonLines | Parquet | Postgres | Webhook:
    timeout = sink.timeout / SECOND
    if sink.type == "postgres":
        address = postgres.address_of(sink, field, environment)
        table = sink.table or postgres.TABLE
        place = _named(sink.type, sink.dsn, sink.dsn_env, sink.secret_ref, table)
        retention = sink.retention
        return Postgres(directory / place, address, writer, table=table, timeout=timeout, retention=retention)
    if sink.type == "webhook":
        headers, url = webhook.headers_of(sink, field, environment), sink.url or ""
        return Webhook(directory / _named(sink.type, url), url, writer, headers=headers, timeout=timeout)
    if sink.type == "parquet":
        if find_spec("pyarrow") is None:
            remedy = "install it: pip install 'headwater[arrow]'"
            problem = Problem(field, "needs pyarrow, which is not installed", remedy)
            raise Invalid("the sink cannot be opened", [problem])
        return Parquet(directory / (sink.path or name))
    if sink.type == "jsonlines":
        return JsonLines(directory / (sink.path or name))
    return Console(directory / name)


def _named(*target: str | None) -> str:
    """A directory for a sink by where it leads: with another order of sinks, each keeps its cursor."""
    return f"{target[0]}-{hashlib.sha256(repr(target).encode()).hexdigest()[:12]}"


def catch_up(outbox: Outbox, sink: Sink, overtaken: Callable[[], bool] = lambda: False) -> None:
    """Deliver what the sink has not got yet."""
    # Most of the time there is nothing, and to see that must cost nothing.
    found = outbox.read(sink.cursor) if sink.cursor < outbox.last else ()
    for position, rows in groups(found):
        if overtaken():
            raise Overtaken
        sink.deliver(position, rows)
        failpoints.reached("root.sink.done")
    if sink.cursor > outbox.last:
        # The other side remembers more of this log than there is: it would take nothing that is new.
        raise AheadOfLog(sink.cursor, outbox.last)


def groups(files: Iterable[tuple[int, bytes]], limit: int = GROUP_BYTES) -> Iterator[tuple[int, bytes]]:
    """Files of the outbox together, each time up to a position."""
    held: list[bytes] = []
    size = last = 0
    for position, rows in files:
        if held and size + len(rows) > limit:
            yield last, b"".join(held)
            held, size = [], 0
        held.append(rows)
        size, last = size + len(rows), position
    if held:
        yield last, b"".join(held)


class _Serving:
    """One sink, in its thread: whatever it raises is told and tried again."""

    def __init__(
        self,
        outbox: Outbox,
        sink: Sink,
        failing: dict[str, Trouble],
        failures: Counter[str],
        overtaken: Callable[[], bool],
        ended: threading.Event,
    ) -> None:
        self.sink, self._outbox, self._overtaken, self._ended = sink, outbox, overtaken, ended
        self._failing, self._failures = failing, failures
        # When the delivery began that is under way.
        self._begun: float | None = None
        self.thread = threading.Thread(target=self._run, name=f"sink {sink.name}", daemon=True)

    def _run(self) -> None:
        wait = FIRST_WAIT
        while True:
            last = self._ended.is_set()
            asked = self._caught_up()
            if asked is None:
                wait, pause = FIRST_WAIT, LOOK
            else:
                wait, pause = min(2 * wait, LONGEST_WAIT), max(wait, asked)
            if last:
                break
            self._ended.wait(pause)
        self.sink.close()

    def _caught_up(self) -> float | None:
        """None if all is delivered, else for how many seconds the other side asks to be left alone."""
        name = self.sink.name
        try:
            if name in self._failing:
                self.sink.recall()
            catch_up(self._outbox, self.sink, self._begins)
            self.sink.tidy()
        except Exception as error:
            self._failures[name] += 1
            before = self._failing.get(name)
            if before is None:
                known = isinstance(error, OSError | HeadwaterError)
                said = {"sink": name, "problem": str(error)}
                log.warning("a sink fails", extra=said, exc_info=None if known else error)
                self._failing[name] = Trouble(str(error), monotonic())
            else:
                self._failing[name] = Trouble(str(error), before.since, before.attempts + 1)
            return error.wait if isinstance(error, webhook.NotTaken) else 0.0
        finally:
            self._begun = None
        if self._failing.pop(name, None) is not None:
            log.info("a sink has recovered", extra={"sink": name})
        return None

    def _begins(self) -> bool:
        self._begun = monotonic()
        return self._overtaken()

    @property
    def hangs(self) -> Trouble | None:
        """What is to be said of a delivery that takes too long."""
        begun = self._begun
        if begun is None or monotonic() - begun < HANGS:
            return None
        return Trouble("one delivery has not come to an end; nothing behind it is lost", begun)


class Deliveries:
    """Delivers the outbox to every sink; a sink that fails is tried again, later and later.

    What every sink has is trimmed, and without sinks the oldest results at the bound; unless `keep` is set.
    """

    def __init__(
        self,
        outbox: Outbox,
        sinks: Sequence[Sink],
        *,
        keep: bool = False,
        patience: float = PATIENCE,
        overtaken: Callable[[], bool] = lambda: False,
    ) -> None:
        """`overtaken` says whether a later opening of the log delivers instead."""
        self._outbox, self._sinks, self._keep, self._patience = outbox, list(sinks), keep, patience
        self._overtaken = overtaken
        self._failing: dict[str, Trouble] = {}
        # By sink: how often it could not deliver, since the start.
        self.failures: Counter[str] = Counter()
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
        self._serving = [
            _Serving(self._outbox, sink, self._failing, self.failures, self._overtaken, self._over)
            for sink in self._sinks
        ]
        for each in self._serving:
            each.thread.start()

    async def _trims(self) -> None:
        waited = 0.0
        while not self._ended.is_set():
            await self._pause(LOOK_FULL)
            waited += LOOK_FULL
            if waited >= TRIM or self._outbox.full:
                waited = 0.0
                await asyncio.to_thread(self._trim)

    async def _pause(self, seconds: float) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._ended.wait(), seconds)

    def _trim(self) -> None:
        try:
            if self._keep or self._overtaken():
                return
            if self._sinks:
                self._outbox.trim(min(sink.cursor for sink in self._sinks))
            else:
                self._outbox.shrink()
        # Whatever it is, it is tried again: with nobody to trim it the outbox would fill up.
        except Exception as error:
            known = isinstance(error, OSError)
            said = {"problem": str(error)}
            log.warning("the outbox cannot be trimmed", extra=said, exc_info=None if known else error)

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

    @property
    def failing(self) -> dict[str, Trouble]:
        """By sink: why it cannot deliver at present."""
        hanging = {each.sink.name: each.hangs for each in self._serving}
        return self._failing | {name: trouble for name, trouble in hanging.items() if trouble is not None}

    @property
    def failing_seconds(self) -> dict[str, float]:
        """For how long each sink has been failing; 0 for one that does not."""
        failing = self.failing
        return {
            sink.name: failing[sink.name].seconds if sink.name in failing else 0.0 for sink in self._sinks
        }

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
