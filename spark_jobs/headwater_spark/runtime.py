"""The root with its windows in Spark: the log, the machine and the outbox are those of the embedded root.

What is acknowledged is in the log, and no more; windows follow from it in their own time. So nodes are
answered at once, also while Spark starts, and a log that Spark falls behind with is worked off in bounded
portions; at a bound nothing more is acknowledged until it has caught up.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from time import monotonic
from typing import Any

from headwater.degraded import Degraded
from headwater.durations import SECOND
from headwater.machines.records import Assigned, Began, Joined, Left, Record
from headwater.machines.root import Settings
from headwater.queries import Query
from headwater.topology import query_document
from headwater.windowless import Windowless
from headwater_root.control import Unmerged
from headwater_root.runtime import Journal, RootRuntime
from headwater_spark import checkpoint
from headwater_spark.buckets import Buckets
from headwater_spark.driver import LOOK, Driver
from headwater_spark.inbox import Inbox
from headwater_spark.merging import Job
from headwater_spark.query import Batch
from headwater_spark.settings import SparkSettings
from headwater_wire import failpoints

# How long the end waits for windows that are not out yet, in seconds.
PATIENCE = 120.0
# For how long nothing may be merged until it is told, in seconds: far longer than a micro-batch takes.
STANDS = 60.0
log = logging.getLogger(__name__)


# Who is there, and what there is to be: none of these makes a window final.
_WINDOWLESS = (Began, Joined, Left, Assigned)


class _Tidings(Journal):
    """Tells the inbox what is appended, before it is applied."""

    inbox: Inbox
    # The last record that may bring windows about.
    wanted: int

    def append(self, record: Record) -> int:
        position = super().append(record)
        self.inbox.appended(self.size, record.watermark)
        if not isinstance(record.body, _WINDOWLESS):
            self.wanted = position
        return position

    def sync(self) -> None:
        super().sync()
        self.inbox.committed()


class _Durable:
    """Makes durable, in a thread, what Spark has written up to a record: it does not do so itself. Without
    it the power must not fail once those records are gone."""

    def __init__(self, position: int) -> None:
        self.position = position
        self._thread = threading.Thread(target=os.sync, name="sync", daemon=True)
        self._thread.start()

    @property
    def done(self) -> bool:
        return not self._thread.is_alive()


class SparkRoot(RootRuntime):
    """A root on a directory; `checkpoint` in it is Spark's, and `spark` has its logs."""

    _engine = Windowless

    def __init__(
        self,
        queries: Sequence[Query],
        directory: Path,
        settings: Settings,
        *arguments: Any,
        spark: SparkSettings | None = None,
        **options: Any,
    ) -> None:
        self._spark = spark or SparkSettings()
        # Executors have another working directory.
        directory = directory.absolute()
        self._durable: _Durable | None = None
        # The last record whose windows are out.
        self.merged = 0
        # Up to when the end waits for Spark, and when it was last seen to have come further.
        self._until: float | None = None
        self._moved = 0, monotonic()
        # Whether this process has seen a micro-batch: until then Spark starts.
        self._has_merged = False
        # The last record that was merged, and since when it is the last although others wait.
        self._progress = 0, monotonic()
        # As the last micro-batch told it: the windows are not here.
        self._crowded: tuple[Degraded, ...] = ()
        super().__init__(queries, directory, settings, *arguments, **options)
        job = Job(
            self._checkpoint.id,
            json.dumps([query_document(each) for each in self.machine.queries]),
            settings.expected,
            Buckets(self._checkpoint.buckets).home,
        )
        self._driver = Driver(
            self._spark,
            directory / "spark",
            self._checkpoint,
            job,
            self.inbox,
            self._write,
            self._credentials,
        )

    def _journal(self, directory: Path) -> Journal:
        # Each costs something with every micro-batch, however little it has to do.
        buckets = self._spark.buckets or max(self._spark.slots, 2)
        held = self.log.committed
        self._checkpoint = checkpoint.opened(
            directory,
            (self._spark.checkpoint or directory / "checkpoint").absolute(),
            buckets=buckets,
            records=held,
        )
        if self._spark.buckets not in (0, found := self._checkpoint.buckets):
            what = f"it has {found} buckets, and {self._spark.buckets} are asked for"
            remedy = "leave that out, since state is kept by bucket, or begin anew in another directory"
            raise checkpoint.CheckpointDiffers(directory, what, remedy)
        self._checkpoint.mend()
        self._checkpoint.check(self.log.first, held, self.outbox.last)
        self.merged = self._checkpoint.done()
        self.inbox = Inbox(
            self.log, self.merged, lambda: self.machine.engine.watermark, lambda: self.outbox.full
        )
        self._tidings = _Tidings(self.log, self.syncs, self.volume)
        self._tidings.inbox, self._tidings.wanted = self.inbox, held
        return self._tidings

    @property
    def full(self) -> bool:
        return super().full or self.inbox.bytes >= self._spark.backlog_bytes

    def shorten(self) -> None:
        super().shorten()
        if self._durable is None:
            finished = self.inbox.finished
            if not self._keep and self.log.can_truncate(finished + 1):
                self._durable = _Durable(finished)
        elif self._durable.done:
            failpoints.reached("spark.finished")
            with self.volume:
                self.log.truncate(self._durable.position + 1)
            self._durable = None

    def _drop_records(self) -> None:
        """They go when what Spark has made of them is durable."""

    @property
    def lag(self) -> int:
        """How many records are in the log whose windows are not out."""
        return max(self.log.committed - self.merged, 0)

    async def start(self, listen: str) -> int:
        if not self._spark.apart:
            port = await super().start(listen)
            self._driver.start()
            return port
        # Nothing is acknowledged before it is sure that what comes of it will not be lost.
        self._driver.start()
        await asyncio.to_thread(self._driver.wait)
        if self._driver.failed is not None:
            raise self._driver.failed
        self._moved = self.merged, monotonic()
        try:
            return await super().start(listen)
        except BaseException:
            # There is nothing to wait for.
            await asyncio.to_thread(self._driver.stop)
            raise

    def _look(self) -> None:
        if self._driver.failed is not None:
            raise self._driver.failed
        if self._tidings.wanted <= self.merged or self._progress[0] != self.merged:
            self._progress = self.merged, monotonic()
        waits = not self.lag or self.outbox.full or not self._driver.up
        if waits or self._moved[0] != self.merged:
            self._moved = self.merged, monotonic()
        elif monotonic() - self._moved[1] > STANDS:
            log.warning(
                "Spark has merged nothing for a while, see spark/spark.log and spark/spark.out",
                extra={"seconds": STANDS, "records": self.lag},
            )
            self._moved = self.merged, monotonic()

    def unready(self) -> str | None:
        if self._driver.failed is not None and self.failed is None:
            return f"it has halted: {type(self._driver.failed).__name__}: {self._driver.failed}"
        return self._driver.waits or super().unready()

    def _write(self, batch: Batch) -> None:
        """One micro-batch, in a thread of Spark's; raises what ends the query."""
        failpoints.reached("spark.merged")
        # Somebody else may have the log by now.
        self.log.check()
        if batch.lines:
            self.outbox.write(batch.first, self.log.epoch, batch.lines)
        failpoints.reached("spark.written")
        # Not by adding: these are all since ever.
        dict.update(self.emitted, batch.emitted)
        self._crowded = batch.degraded
        self.merged, self._has_merged = batch.last, True
        self._progress = batch.last, monotonic()

    def _unmerged(self) -> Unmerged:
        return Unmerged(self.lag, int(self._merge_stalled * SECOND), self._merge_obstacle)

    @property
    def _merge_obstacle(self) -> str:
        """Why nothing is merged, where this process knows."""
        if self.outbox.full:
            return "the outbox is full: a sink does not keep up"
        return self._driver.waits or ("" if self._has_merged else "Spark is starting")

    @property
    def _merge_stalled(self) -> float:
        """For how many seconds nothing was merged though records wait whose windows are not out."""
        return monotonic() - self._progress[1] if self._tidings.wanted > self.merged else 0.0

    def _degraded(self) -> Sequence[Degraded]:
        return self._crowded

    def gauges(self) -> Iterator[tuple[str, str, float]]:
        yield "merged_position", "Position of the last record whose windows are out.", self.merged
        yield "unmerged_records", "Records in the log that Spark has not merged.", self.lag
        said = "Seconds since Spark last merged a record while others wait for it."
        yield "merge_stalled_seconds", said, self._merge_stalled
        yield "backlog_bytes", "Bytes of records that Spark has not done with.", self.inbox.bytes
        yield "spark_up", "1 while the Spark query runs.", self._driver.up
        yield "executors", "Executors of their own that are there.", self._driver.executors

    def figures(self) -> dict[str, Any]:
        return {**super().figures(), "merged": self.merged, "unmerged": self.lag, "ui": self._driver.ui}

    async def settle(self) -> None:
        await super().settle()
        # Whoever ends it asks twice.
        self._until = until = self._until or monotonic() + PATIENCE
        # Not where nothing was taken: a Spark that has only begun to start would come up for it first.
        while (
            self.failed is None
            and self._tidings.wanted > self.merged
            and self._driver.alive
            and self._driver.waits is None
            and monotonic() < until
        ):
            if self.outbox.full:
                # Sinks that do not deliver: the rest is for the next start.
                break
            await asyncio.sleep(LOOK)
        if self.failed is None and self._driver.failed is not None:
            self.failed = self._driver.failed
        elif self._tidings.wanted > self.merged and self._driver.up:
            log.warning("windows of some records are left for the next start", extra={"records": self.lag})

    async def stop(self) -> None:
        """Put out the windows of all that was taken, if Spark is there to do so, and end it."""
        await self.settle()
        await asyncio.to_thread(self._driver.stop)
        await super().stop()
