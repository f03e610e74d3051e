"""Whether executors see the checkpoint: with one that they cannot see Spark commits without any error, and
all state is gone with the first executor.

At each start the driver writes a nonce into the checkpoint. It is another one each time, and in a file of
another name: a copy of the checkpoint that an earlier life left on some machine does not have it. Every
executor that is there then reads it before anything is acknowledged; and every worker of any executor reads
it before it takes the state of a bucket, also of those that come later.
"""

from __future__ import annotations

import logging
import os
import re
import secrets
import socket
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from threading import Event, Thread
from time import monotonic, sleep
from typing import Any

from pyspark.sql import SparkSession

from headwater.errors import PermanentError, RetryableError
from headwater_root import files

# How long executors may take to come, in seconds.
PATIENCE = 180.0
# How often it is looked who is there, in seconds.
LOOK = 0.2
# Of a session: a stage of all executors at once for which they do not suffice fails soon, and is tried again
# with those that are there. Spark's own way is to wait for minutes, in which nothing can end it.
SETTINGS = {
    "spark.scheduler.barrier.maxConcurrentTasksCheck.interval": "1s",
    "spark.scheduler.barrier.maxConcurrentTasksCheck.maxFailures": "3",
}
_PREFIX = "nonce-"
_BLIND = re.compile(r"CheckpointNotShared: .*?executors on (?P<hosts>.+?) do not see")
log = logging.getLogger(__name__)


class CheckpointNotShared(PermanentError):
    """An executor that does not see the checkpoint."""

    exit_code = 6

    def __init__(self, directory: Path, hosts: Iterable[str]) -> None:
        super().__init__(
            f"{directory}: executors on {', '.join(sorted(set(hosts)))} do not see the driver's checkpoint; "
            "give them the same volume at the same path (--executor-template), or run without executors "
            "(root.spark.executors: 0)"
        )


class ExecutorsMissing(RetryableError):
    """Executors that do not come, or cannot run a task."""

    def __init__(self, wanted: int, why: str) -> None:
        super().__init__(
            f"of {wanted} executors none could be used within {PATIENCE:.0f} s ({why}); see why they do not "
            "start, or give them more room, then start the root again"
        )


@dataclass(frozen=True, slots=True)
class Nonce:
    """A file in the checkpoint of a driver, of this life."""

    directory: Path
    word: str

    @property
    def path(self) -> Path:
        return self.directory / f"{_PREFIX}{self.word}"

    @property
    def seen(self) -> bool:
        """Whether it can be read here."""
        try:
            return self.path.read_text() == self.word
        except OSError:
            return False

    def check(self) -> None:
        """Raise unless this process sees it; it is looked for once."""
        _seen(self)


@lru_cache(maxsize=4)
def _seen(nonce: Nonce) -> None:
    # What raises is not kept: the next task of this worker looks again.
    if not nonce.seen:
        raise CheckpointNotShared(nonce.directory, [socket.gethostname()])


def written(directory: Path) -> Nonce:
    """A nonce in a checkpoint, in place of those of earlier lives."""
    nonce = Nonce(directory, secrets.token_hex(16))
    for old in directory.glob(f"{_PREFIX}*"):
        old.unlink(missing_ok=True)
    files.replace(nonce.path, nonce.word.encode())
    return nonce


def blamed(directory: Path, told: str) -> CheckpointNotShared | None:
    """What a worker has raised, from how Spark tells it."""
    found = _BLIND.search(told)
    return None if found is None else CheckpointNotShared(directory, found["hosts"].split(", "))


def present(session: SparkSession) -> int:
    """How many executors there are."""
    tracker: Any = session.sparkContext._jsc
    # The driver is one of them.
    return len(tracker.sc().statusTracker().getExecutorInfos()) - 1


def awaited(session: SparkSession, wanted: int, told: Callable[[int], None], unwanted: Event) -> None:
    """Wait for executors, for as long as they may take; `told` how many have come. Those that come later are
    none the worse for it, but one there must be."""
    until = monotonic() + PATIENCE
    while (there := present(session)) < wanted and not unwanted.is_set():
        told(there)
        if monotonic() > until:
            if there:
                log.warning("not all executors have come", extra={"executors": there, "wanted": wanted})
                return
            raise ExecutorsMissing(wanted, "none has come")
        sleep(LOOK)
    told(there)


def check(
    session: SparkSession, nonce: Nonce, tasks: int, unwanted: Event, patience: float = PATIENCE
) -> None:
    """Let every executor that is there read the nonce, and raise if one cannot. `tasks` is how many each runs
    at once."""
    context = session.sparkContext

    def looked(_: Iterable[int]) -> Iterator[tuple[str, int, bool]]:
        # The parent of a worker is one for each executor.
        yield socket.gethostname(), os.getppid(), nonce.seen

    until, why = monotonic() + patience, "they changed all the time"
    while monotonic() < until and not unwanted.is_set():
        there = max(present(session), 1)
        try:
            # As many at once as all of them can run, so that none has two of them and another none.
            slots = there * tasks
            with _cancelled(context, until, unwanted):
                found = context.parallelize(range(slots), slots).barrier().mapPartitions(looked).collect()
        except Exception as error:
            # One has gone, or another has come, while they were asked.
            why = str(error).strip().partition("\n")[0][:300]
            sleep(LOOK)
            continue
        if blind := [host for host, _, seen in found if not seen]:
            raise CheckpointNotShared(nonce.directory, blind)
        if len({(host, parent) for host, parent, _ in found}) >= there:
            return
    if not unwanted.is_set():
        raise ExecutorsMissing(there, why)


@contextmanager
def _cancelled(context: Any, until: float, unwanted: Event) -> Iterator[None]:
    """Jobs that are not done by then, or are not wanted any more, are given up."""
    done = Event()

    def watch() -> None:
        while not done.wait(LOOK):
            if monotonic() > until or unwanted.is_set():
                with suppress(Exception):
                    context.cancelAllJobs()
                return

    watching = Thread(target=watch, name="reach", daemon=True)
    watching.start()
    try:
        yield
    finally:
        done.set()
        watching.join()
