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
from headwater_spark import query, reach, service, session
from headwater_spark.checkpoint import Checkpoint
from headwater_spark.inbox import Inbox
from headwater_spark.merging import Job
from headwater_spark.query import Batch, SparkFailed
from headwater_spark.service import Service
from headwater_spark.settings import SparkSettings, cores
from headwater_wire import failpoints

log = logging.getLogger(__name__)
LOOK = 0.05
# How often the JVM is asked whether the query still runs, in seconds.
WATCH = 0.5
# How long a JVM of before may take to end, in seconds.
PATIENCE = 60.0
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
    ) -> None:
        """`directory` is for Spark's logs and scratch files; `write` takes what each micro-batch came to."""
        self._settings, self._directory, self._checkpoint = settings, directory, checkpoint
        self._job, self._inbox, self._write = job, inbox, write
        self.ui: str | None = None
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
            host = session.LOOPBACK
            token = secrets.token_hex(16)
            server, port = service.served(Service(self._inbox, token, self._inbox.finish), host)
            # A failpoint in a worker is one of the driver's.
            os.environ[failpoints.VICTIM] = str(os.getpid())
            held = self._session(lock)
            if self._ending.is_set():
                return
            if self._settings.apart:
                reach.check(held, self._checkpoint, self._settings.slots)
            running.append(self._query(held, {"address": f"{host}:{port}", "token": token}))
            self._started.set()
            while not self._ending.wait(WATCH):
                if not running[0].isActive:
                    raise SparkFailed(query.cause(running[0]) or "it has stopped without a reason")
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
            master=settings.master,
            memory=settings.memory,
            partitions=self._checkpoint.buckets,
            streaming=True,
            brief=settings.brief,
            ui=settings.ui,
            conf={
                "spark.python.daemon.module": "headwater_spark.daemon",
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

    def _query(self, held: SparkSession, inbox: dict[str, str]) -> StreamingQuery:
        settings = self._settings
        options = {**inbox, "bytes": str(settings.batch_bytes), "parts": str(cores())}
        return query.started(held, self._checkpoint, self._job, options, settings.interval, self._write)

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
