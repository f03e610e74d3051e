"""The driver: one thread that starts Spark, runs the query, and ends both."""

from __future__ import annotations

import fcntl
import logging
import os
import secrets
import subprocess
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import grpc
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from headwater.errors import HeadwaterError, RetryableError
from headwater_spark import orphans, pods, query, reach, service, session
from headwater_spark.checkpoint import Checkpoint
from headwater_spark.inbox import Inbox
from headwater_spark.merging import Job
from headwater_spark.query import Batch, SparkFailed
from headwater_spark.reach import CheckpointNotShared, Nonce
from headwater_spark.service import Service
from headwater_spark.settings import CLUSTER, SparkSettings
from headwater_wire import failpoints
from headwater_wire.credentials import Credentials

log = logging.getLogger(__name__)
LOOK = 0.05
# How often the JVM is asked whether the query still runs, in seconds.
WATCH = 0.5
# How long a JVM of before may take to end, in seconds.
PATIENCE = 60.0
# How long executors are asked why a query has failed, in seconds.
BRIEF = 15.0
# Streaming queries look through long texts by a pattern that recurses: the stack of a thread is soon full.
_STACK = "-Xss8m"


class CheckpointHeld(RetryableError):
    """The JVM of another driver is still there."""

    def __init__(self, directory: Path) -> None:
        super().__init__(
            f"{directory}: the Spark job of another root works on this checkpoint and does not end; end it, "
            "then start this one again"
        )


class Driver:
    """Spark, for one root; `failed` says why it can go no further, if so."""

    def __init__(
        self,
        settings: SparkSettings,
        directory: Path,
        checkpoint: Checkpoint,
        job: Job,
        inbox: Inbox,
        write: Callable[[Batch], None],
        credentials: Credentials | None = None,
    ) -> None:
        """`directory` is for Spark's logs and scratch files; `write` takes what each micro-batch came to.
        With `credentials` what executors elsewhere read is nothing that others could."""
        self._settings, self._directory, self._checkpoint = settings, directory, checkpoint
        self._job, self._inbox, self._write, self._credentials = job, inbox, write, credentials
        self.ui: str | None = None
        # Of their own: how many are there, and for what the start waits, if it does.
        self.executors = 0
        self.waits: str | None = None
        self.failed: HeadwaterError | None = None
        self._started, self._ending = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="spark", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def wait(self) -> None:
        """Until the query runs or has failed."""
        self._started.wait()

    @property
    def up(self) -> bool:
        """Whether the query runs."""
        return self._started.is_set() and self.alive

    @property
    def alive(self) -> bool:
        return self._thread.is_alive() and self.failed is None

    def stop(self) -> None:
        """End the query and the JVM; returns when they are gone."""
        self._ending.set()
        self._inbox.close()
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        running: list[StreamingQuery] = []
        held: SparkSession | None = None
        server: grpc.Server | None = None
        lock: int | None = None
        try:
            lock = self._lock()
            nonce = reach.written(self._checkpoint.directory) if self._settings.apart else None
            if self._settings.executors is not None:
                orphans.remove(self._settings.executors)
            server, inbox = self._served()
            # A failpoint in a worker is one of the driver's.
            os.environ[failpoints.VICTIM] = str(os.getpid())
            held = self._session(lock)
            if nonce is not None:
                self._reached(held, nonce)
            # Somebody who has not been asked must not be given anything to do.
            if self._ending.is_set():
                return
            running.append(self._query(held, inbox, nonce))
            self._started.set()
            while not self._ending.wait(WATCH):
                if not running[0].isActive:
                    raise self._ended(held, running[0], nonce)
                if nonce is not None:
                    self.executors = reach.present(held)
        except HeadwaterError as error:
            self._fail(error)
        # Whatever pyspark and py4j raise.
        except Exception as error:
            self._fail(SparkFailed(_told(held, error)))
        finally:
            self._started.set()
            self._end(running, held)
            if server is not None:
                server.stop(None)
            if lock is not None:
                os.close(lock)

    def _served(self) -> tuple[grpc.Server, dict[str, str]]:
        """The inbox, where executors reach it, and what they have to know for that."""
        token, executors = secrets.token_hex(16), self._settings.executors
        inbox = Service(self._inbox, token, self._inbox.finish)
        if executors is None:
            server, address = service.served(inbox, session.LOOPBACK)
            return server, {"address": address, "token": token, "ca": ""}
        server, address = service.served(inbox, executors.address, pods.INBOX_PORT, self._credentials)
        ca = self._credentials.ca.read_text() if self._credentials is not None else ""
        return server, {"address": address, "token": token, "ca": ca}

    def _reached(self, held: SparkSession, nonce: Nonce) -> None:
        """Raise unless executors come, and all of them see the checkpoint."""
        begin, wanted = monotonic(), self._settings.count

        def told(there: int) -> None:
            self.executors = there
            self.waits = f"executors are awaited: {there} of {wanted} are there"

        reach.awaited(held, wanted, told, self._ending)
        self.waits = "executors are asked whether they see the checkpoint"
        reach.check(held, nonce, self._settings.tasks, self._ending)
        self.waits = None
        seconds = round(monotonic() - begin, 1)
        log.info("executors see the checkpoint", extra={"executors": self.executors, "seconds": seconds})

    def _ended(self, held: SparkSession, running: StreamingQuery, nonce: Nonce | None) -> HeadwaterError:
        """Why a query has ended by itself."""
        told = query.cause(running) or "it has stopped without a reason"
        if nonce is not None:
            if (blind := reach.blamed(nonce.directory, told)) is not None:
                return blind
            # State that is not there cannot be loaded, and that is before any code of ours runs.
            try:
                reach.check(held, nonce, self._settings.tasks, self._ending, BRIEF)
            except CheckpointNotShared as error:
                return error
            except Exception:
                log.debug("executors cannot be asked any more", exc_info=True)
        return SparkFailed(told)

    def _fail(self, error: HeadwaterError) -> None:
        if not self._ending.is_set():
            self.failed = error

    def _lock(self) -> int:
        """Whoever works on the checkpoint has the lock, and the JVM too: it may live longer than its
        driver."""
        path = self._checkpoint.directory / "lock"
        lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        until = monotonic() + PATIENCE
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return lock
            except BlockingIOError:
                if monotonic() > until or self._ending.is_set():
                    os.close(lock)
                    raise CheckpointHeld(self._checkpoint.directory) from None
            sleep(LOOK)

    def _session(self, lock: int) -> SparkSession:
        begin, settings = monotonic(), self._settings
        conf = dict(settings.conf or {})
        options = conf.pop("spark.driver.extraJavaOptions", "")
        made = session.started(
            "headwater",
            self._directory,
            master=settings.master if settings.executors is None else CLUSTER,
            memory=settings.memory,
            partitions=self._checkpoint.buckets,
            streaming=True,
            brief=settings.brief,
            ui=settings.ui,
            scratch=pods.SCRATCH if settings.executors is not None else None,
            conf={
                "spark.python.daemon.module": "headwater_spark.daemon",
                **reach.SETTINGS,
                **(pods.settings(settings.executors) if settings.executors is not None else {}),
                **conf,
                "spark.driver.extraJavaOptions": f"{_STACK} {options}".strip(),
            },
            inherited=(lock,),
            unwanted=self._ending.is_set,
        )
        self.ui = made.sparkContext.uiWebUrl
        seconds = round(monotonic() - begin, 1)
        log.info("the Spark session is there", extra={"seconds": seconds, "ui": self.ui})
        return made

    def _query(self, held: SparkSession, inbox: dict[str, str], nonce: Nonce | None) -> StreamingQuery:
        settings = self._settings
        options = {**inbox, "bytes": str(settings.batch_bytes), "parts": str(settings.slots)}
        return query.started(
            held, self._checkpoint, self._job, options, settings.interval, self._write, nonce
        )

    def _end(self, running: list[StreamingQuery], held: SparkSession | None) -> None:
        # A JVM that is gone cannot stop anything.
        for each in running:
            with suppress(Exception):
                each.stop()
        if held is not None:
            session.ended(held)


def _told(held: SparkSession | None, error: Exception) -> str:
    gateway: Any = None if held is None else held.sparkContext._gateway
    if gateway is None:
        return session.cause(error)
    try:
        code = gateway.proc.wait(1.0)
    except subprocess.TimeoutExpired:
        return session.cause(error)
    by = f"by signal {-code} (9 may be the kernel's, for want of memory)" if code < 0 else f"with {code}"
    return f"its JVM ended {by}; nothing is lost, start the root again"
