"""The root at work: log in, machine, log out. What it is by itself is the embedded root; the same with the
merging elsewhere overrides a few places."""

from __future__ import annotations

import asyncio
import logging
import secrets
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from headwater import topology
from headwater.degraded import Degraded
from headwater.errors import HeadwaterError, PermanentError
from headwater.machines.messages import Delivery, Fenced, Message, Send, Welcome
from headwater.machines.records import Record
from headwater.machines.root import RootMachine, Settings
from headwater.queries import Query
from headwater.results import Results
from headwater.root import Root
from headwater.sources import SourceId
from headwater.topology.tree import SNAPSHOT_AFTER
from headwater_root import asked as askings
from headwater_root import resultlines
from headwater_root.asked import Asked
from headwater_root.complaints import Complaints
from headwater_root.control import NAME, Control, Unmerged
from headwater_root.delivery import Deliveries, sinks_of
from headwater_root.log import Log
from headwater_root.outbox import BOUND, Outbox
from headwater_root.sinks.writer import Writer
from headwater_root.snapshots import Snapshots, Unreadable, Unwritable
from headwater_root.timings import Timings
from headwater_root.volume import Volume
from headwater_wire import failpoints
from headwater_wire import records as stored
from headwater_wire.clock import now
from headwater_wire.conduct import offences_in
from headwater_wire.credentials import Credentials
from headwater_wire.exchange import Exchange
from headwater_wire.messages import Codec
from headwater_wire.offences import Offence
from headwater_wire.pace import Pace

log = logging.getLogger(__name__)


# How long batches wait for others, so that one fsync makes all of them durable.
GROUP_SECONDS = 0.002
# How often is looked whether there is time for what waits, in seconds.
PACED = 0.02
# How often it is looked what time alone brings about, in seconds.
BEAT = 0.02
# How many bytes of records lie behind a snapshot before there is another one.
# What a root with its windows in Spark has in its directory.
SPARK = "spark.json"


class Journal:
    """The log as the machine sees it."""

    def __init__(self, log: Log, syncs: Timings, volume: Volume) -> None:
        self._log, self._syncs, self._volume = log, syncs, volume
        # Of the last record, in bytes.
        self.size = 0

    @property
    def term(self) -> int:
        return self._log.epoch

    def append(self, record: Record) -> int:
        data = stored.encode(record)
        self.size = len(data)
        failpoints.reached("root.append")
        with self._volume:
            position = self._log.append([data])[-1]
        failpoints.reached("root.appended")
        return position

    def sync(self) -> None:
        failpoints.reached("root.applied")
        begin = perf_counter()
        with self._volume:
            self._log.sync()
        self._syncs.add(perf_counter() - begin)
        failpoints.reached("root.synced")


class StateUnreadable(PermanentError):
    """The log begins with a state that this program cannot read, and the records before it are gone."""

    def __init__(self, directory: Path, first: int, why: Unreadable) -> None:
        super().__init__(
            f"{directory}: {why}; the log begins with record {first}, so no other can be replayed: start the "
            "release that wrote it, with the functions that it had, or begin anew in another directory"
        )


class OtherEngine(PermanentError):
    """A directory that another kind of root has written."""

    def __init__(self, directory: Path) -> None:
        super().__init__(
            f"{directory}: its windows are in the checkpoint of a Spark job; start that (root.engine: "
            "spark), or begin anew in another directory"
        )


class RootRuntime:
    """A root on a directory: what it was, it is again after a restart."""

    # What makes the windows.
    _engine: type[Root] = Root
    # A limit on the rows that it takes, if it has one.
    pace: Pace | None = None
    _pacing: asyncio.TimerHandle | None = None

    def __init__(
        self,
        queries: Sequence[Query],
        directory: Path,
        settings: Settings,
        sinks: Sequence[topology.Sink] = (),
        codec: Codec | None = None,
        credentials: Credentials | None = None,
        *,
        name: str = "",
        functions: topology.Functions = lambda name: None,
        keep_results: bool = False,
        segment_bytes: int = SNAPSHOT_AFTER,
    ) -> None:
        """`name` is that of the topology, `functions` finds users' functions by their names; `keep_results`
        leaves every result in the outbox and every record in the log, for whoever reads them there.
        Behind `segment_bytes` of records the log goes on with the state as it is then."""
        codec = codec or Codec()
        self.syncs, self.volume = Timings(), Volume()
        self.log = Log.open(directory / "inbox")
        if self.log.torn:
            # Nobody was told of it: a crash came before it was durable, and whoever sent it sends it again.
            log.warning("a torn end of the log was cut", extra={"bytes": self.log.torn})
        self.outbox = Outbox(directory / "outbox", bound=sys.maxsize if keep_results else BOUND)
        try:
            self.deliveries = Deliveries(
                self.outbox,
                sinks_of(sinks, directory / "sinks", Writer(name, self.log.epoch)),
                keep=keep_results,
                overtaken=lambda: self.log.overtaken,
            )
            journal = self._journal(directory)
            asked = askings.read(directory, queries, functions)
            if not self.log.committed:
                # Before the first record: what that begins with must be known for ever.
                askings.write(directory, asked)
        except BaseException:
            self.log.close()
            raise
        self.machine = RootMachine(
            asked.first, settings, journal, lambda: secrets.token_hex(8), self._emit, self._engine
        )
        # Windows put out, of each query by its number.
        self.emitted: Counter[int] = Counter()
        self._snapshots = Snapshots([*asked.first, *queries], functions, settings.apart)
        self._keep, self._segment_bytes = keep_results, segment_bytes
        try:
            self.deliveries.check(self.log.committed)
            self._replay(codec)
            self._change(asked)
            askings.write(directory, asked)
        except BaseException:
            self.log.close()
            raise
        self._credentials = credentials
        self.exchange = Exchange("root", self._take, codec, credentials)
        self._complaints = Complaints()
        self._committing: asyncio.TimerHandle | None = None
        self._beat: asyncio.Task[None] | None = None
        # Why it can go no further, if so: the caller halts.
        self.failed: Exception | None = None
        control = Control(
            name,
            self.machine,
            self.deliveries,
            self.emitted,
            self.exchange.send,
            self._halt,
            functions,
            self._unmerged,
            self._degraded,
        )
        self.exchange.offer(NAME, control.join)

    def _journal(self, directory: Path) -> Journal:
        """What is appended goes here; raises if the directory is not this root's."""
        if (directory / SPARK).exists():
            raise OtherEngine(directory)
        return Journal(self.log, self.syncs, self.volume)

    @property
    def full(self) -> bool:
        """Whether nothing more is acknowledged until somebody has caught up."""
        return self.outbox.full

    def _replay(self, codec: Codec) -> None:
        """Be what the log says, and begin a term."""
        begin = perf_counter()
        self._restore()
        self.restored = self.machine.position
        for position, data in self.log.read(self.restored):
            self.machine.replay(position, stored.decode(data, codec))
        if self.restored:
            # An opening writes the snapshot that there is: better the state as it is than the old one again.
            self._roll()
        self.replay_seconds, self.replayed = perf_counter() - begin, self.machine.position
        self.machine.begin()

    def _change(self, asked: Asked) -> None:
        """Log what the manifest asks for that it did not before, and no longer; again does no harm."""
        present = set(self.machine.engine.active)
        for id in asked.removed:
            if id in present:
                present.discard(id)
                self.machine.remove(id)
                log.info("a query is no longer asked for", extra={"query": id})
        for query in asked.added:
            if query.id not in present:
                self.machine.add(query)
                log.info("another query is asked for", extra={"query": query.id})

    def _restore(self) -> None:
        """Be what the newest snapshot says, if there is one."""
        _, data = self.log.snapshot
        # A state that is large is written more seldom: never more bytes of it than of records.
        self._long = max(self._segment_bytes, len(data))
        if not data:
            return
        try:
            state, emitted = self._snapshots.decode(data)
        except Unreadable as error:
            if self.log.first > 1:
                raise StateUnreadable(self.log.directory, self.log.first, error) from error
            log.warning("the whole log is replayed", extra={"problem": str(error)})
            return
        self.machine.restore(state)
        self.emitted.update(emitted)

    def shorten(self) -> None:
        """Where much lies behind the newest snapshot, take another one; the records before it go."""
        if self.log.tail_size >= self._long and self.machine.settled:
            self._roll()

    def _roll(self) -> None:
        # The results of all records are in the outbox, durably, and what was decided on the way is done: the
        # list of it would only grow.
        for engine in self.machine.engines.values():
            engine.decisions.clear()
        try:
            data = self._snapshots.encode((self.machine.state, dict(self.emitted)))
        except Unwritable as error:
            # All goes on, and a restart takes longer.
            log.warning("the log cannot be shortened", extra={"problem": str(error)})
            self._long = 2 * self.log.tail_size
            return
        with self.volume:
            self.log.roll(data)
            failpoints.reached("root.rolled")
            self._long = max(self._segment_bytes, len(data))
            self._drop_records()

    def _drop_records(self) -> None:
        """Let go of records that nobody needs."""
        if not self._keep:
            self.log.truncate(self.log.committed + 1)

    def _emit(self, position: int, results: Results) -> None:
        # One file for each record that makes windows final: a replay writes the same ones.
        for block in results.blocks:
            numbers, counts = np.unique(block.query, return_counts=True)
            self.emitted.update(dict(zip(numbers.tolist(), counts.tolist(), strict=True)))
        lines = resultlines.encode(results)
        with self.volume:
            self.outbox.write(position, self.log.epoch, lines)

    @property
    def windows(self) -> int:
        """How many windows were put out, since the beginning of the log."""
        return self.emitted.total()

    def _halt(self, error: HeadwaterError) -> None:
        self.failed = error

    async def start(self, listen: str) -> int:
        port = await self.exchange.serve(listen)
        self.deliveries.start()
        self._beat = asyncio.create_task(self._beats())
        await self.exchange.ready(True)
        return port

    def _take(self, sender: str, message: Message) -> Sequence[Send]:
        if self.failed is not None or (self.full and isinstance(message, Delivery)):
            return ()
        if isinstance(message, Delivery) and self.pace is not None:
            pace = self.pace
            if not pace.takes(sender, message, now()):
                self._await_time(pace)
                return ()
        return self._stepped(sender, message)

    def _await_time(self, pace: Pace) -> None:
        if self._pacing is None:
            self._pacing = asyncio.get_running_loop().call_later(PACED, self._paced, pace)

    def _paced(self, pace: Pace) -> None:
        """Take what had to wait, when there is time for it."""
        self._pacing = None
        while self.failed is None and not self.full and (found := pace.due(now())) is not None:
            self.exchange.send(self._stepped(*found))
        if pace.waiting:
            self._await_time(pace)

    def _stepped(self, sender: str, message: Message) -> Sequence[Send]:
        refused = self.machine.refusals.count
        try:
            sends = self.machine.step(sender, message, now())
        except Exception as error:
            self.failed = error
            return ()
        if self.machine.waits and self._committing is None:
            # Soon: what has come by then is one group.
            self._committing = asyncio.get_running_loop().call_later(GROUP_SECONDS, self._commit)
        for each in sends:
            self._told(each.message)
        for offence in offences_in(message, sends):
            self.exchange.offences.note(*offence)
        more = self.machine.refusals.count - refused
        for who, problem in self.machine.refusals.news() or [(sender, "sends such batches again")] * more:
            self.exchange.offences.note(Offence.BATCH, who, problem)
        return sends

    def _commit(self) -> None:
        self._committing = None
        if self.failed is None and not self.full:
            try:
                sends = self.machine.commit()
                failpoints.reached("root.published")
                self.exchange.send(sends)
                failpoints.reached("root.acknowledged")
                self.shorten()
            except Exception as error:
                self.failed = error

    def _told(self, message: Message) -> None:
        """Let the operator know what a source was told, if it is news."""
        if isinstance(message, Welcome):
            self._complaints.settled(SourceId.of(message.source).name)
        elif isinstance(message, Fenced):
            self.exchange.offences.count(Offence.FENCED, message.name)
            if self._complaints.is_news(message.name, message.reason):
                extra = {"source": message.name, "problem": message.reason}
                log.warning("a source is fenced", extra=extra)

    def unready(self) -> str | None:
        """Why nobody should send here at present; None if all is well."""
        if self.failed is not None:
            return f"it has halted: {self.failed}"
        return "it does not listen" if self._beat is None else None

    async def _beats(self) -> None:
        while self.failed is None:
            try:
                self._look()
                # At the bound nothing more is acknowledged until the sinks have caught up.
                if not self.full:
                    self._tick()
                    self.shorten()
            # Whatever it is, a root whose heart has stopped must not seem alive.
            except Exception as error:
                self.failed = error
            await asyncio.sleep(BEAT)
        await self.exchange.ready(False)

    def _look(self) -> None:
        """Raise if something that runs beside has ended."""

    def _tick(self) -> None:
        engine, waited = self.machine.engine, not self.machine.engine.started
        self.exchange.send(self.machine.tick(now()))
        if waited and engine.started:
            told = {"sources": len(engine.sources), "expected": self.machine.settings.expected}
            log.warning("started without all sources that are expected", extra=told)

    def _unmerged(self) -> Unmerged | None:
        """The records whose windows are not out; None where they are out with the record."""
        return None

    def _degraded(self) -> Sequence[Degraded]:
        """The queries of which too many windows wait, as far as it is known here."""
        return self.machine.engine.degraded

    def gauges(self) -> Iterator[tuple[str, str, float]]:
        """Metrics of this kind of root alone: name, meaning and value."""
        yield from ()

    def figures(self) -> dict[str, Any]:
        """What an operator asks first."""
        engine = self.machine.engine
        accounts = [engine.account(name) for name in engine.sources]
        return {
            "position": self.machine.position,
            "watermark": engine.watermark,
            "sources": len(accounts),
            "items": self.machine.items,
            "waiting": 0 if self.pace is None else self.pace.waiting,
            "accepted": sum(account.accepted for account in accounts),
            "counted": sum(account.counted for account in accounts),
            "heartbeats": sum(account.heartbeats for account in accounts),
            "late": sum(account.late for account in accounts),
            "rejected": sum(account.rejected for account in accounts),
            "windows": self.windows,
            "refused": self.machine.refused,
            "outbox_bytes": self.outbox.bytes,
            "outbox_full": int(self.outbox.full),
            "sinks_behind": self.deliveries.behind,
            "sinks_failing": len(self.deliveries.failing),
            "lags": {name: lag for name, lag in self.deliveries.lags.items() if lag},
        }

    async def settle(self) -> None:
        """Take no more, and put out the windows of what was taken."""
        for timer in (self._committing, self._pacing):
            if timer is not None:
                timer.cancel()
        if self._beat is not None:
            self._beat.cancel()
            await asyncio.gather(self._beat, return_exceptions=True)
        await self.exchange.close()

    async def stop(self) -> None:
        await self.settle()
        await self.deliveries.stop()
        self.log.close()
