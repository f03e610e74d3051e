"""The embedded root: log in, machine, log out."""

from __future__ import annotations

import asyncio
import logging
import secrets
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter

import numpy as np

from headwater import topology
from headwater.errors import HeadwaterError, PermanentError
from headwater.machines.messages import Delivery, Fenced, Message, Send, Welcome
from headwater.machines.records import Record
from headwater.machines.root import RootMachine, Settings
from headwater.queries import Query
from headwater.results import Results
from headwater.sources import SourceId
from headwater_root import resultlines
from headwater_root.complaints import Complaints
from headwater_root.control import NAME, Control
from headwater_root.delivery import Deliveries, sinks_of
from headwater_root.log import Log
from headwater_root.outbox import BOUND, Outbox
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

log = logging.getLogger(__name__)


# How long batches wait for others, so that one fsync makes all of them durable.
GROUP_SECONDS = 0.002
# How many bytes of records lie behind a snapshot before there is another one.
SEGMENT_BYTES = 64 * 2**20


class _Journal:
    """The log as the machine sees it."""

    def __init__(self, log: Log, syncs: Timings, volume: Volume) -> None:
        self._log, self._syncs, self._volume = log, syncs, volume

    @property
    def term(self) -> int:
        return self._log.epoch

    def append(self, record: Record) -> int:
        data = stored.encode(record)
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


class RootRuntime:
    """A root on a directory: what it was, it is again after a restart."""

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
        segment_bytes: int = SEGMENT_BYTES,
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
        self.deliveries = Deliveries(self.outbox, sinks_of(sinks, directory / "sinks"), keep=keep_results)
        self.machine = RootMachine(
            queries,
            settings,
            _Journal(self.log, self.syncs, self.volume),
            lambda: secrets.token_hex(8),
            self._emit,
        )
        # Windows put out, of each query by its number.
        self.emitted: Counter[int] = Counter()
        self._snapshots = Snapshots(queries, functions, settings.apart)
        self._keep, self._segment_bytes = keep_results, segment_bytes
        try:
            self.deliveries.check(self.log.committed)
            self._replay(codec)
        except BaseException:
            self.log.close()
            raise
        self.exchange = Exchange("root", self._take, codec, credentials)
        self._complaints = Complaints()
        self._committing: asyncio.TimerHandle | None = None
        self._beat: asyncio.Task[None] | None = None
        # Why it can go no further, if so: the caller halts.
        self.failed: Exception | None = None
        control = Control(
            name, self.machine, self.deliveries, self.emitted, self.exchange.send, self._halt, functions
        )
        self.exchange.offer(NAME, control.join)

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
        if self.failed is not None or (self.outbox.full and isinstance(message, Delivery)):
            return ()
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
        if self.failed is None and not self.outbox.full:
            try:
                sends = self.machine.commit()
                failpoints.reached("root.published")
                self.exchange.send(sends)
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
                # At the bound nothing more is acknowledged until the sinks have caught up.
                if not self.outbox.full:
                    self._tick()
                    self.shorten()
            # Whatever it is, a root whose heart has stopped must not seem alive.
            except Exception as error:
                self.failed = error
            await asyncio.sleep(0.01)
        await self.exchange.ready(False)

    def _tick(self) -> None:
        engine, waited = self.machine.engine, not self.machine.engine.started
        self.exchange.send(self.machine.tick(now()))
        if waited and engine.started:
            told = {"sources": len(engine.sources), "expected": self.machine.settings.expected}
            log.warning("started without all sources that are expected", extra=told)

    def figures(self) -> dict[str, int | None]:
        """What an operator asks first."""
        engine = self.machine.engine
        accounts = [engine.account(name) for name in engine.sources]
        return {
            "position": self.machine.position,
            "watermark": engine.watermark,
            "sources": len(accounts),
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
        }

    async def stop(self) -> None:
        if self._committing is not None:
            self._committing.cancel()
        if self._beat is not None:
            self._beat.cancel()
            await asyncio.gather(self._beat, return_exceptions=True)
        await self.exchange.close()
        await self.deliveries.stop()
        self.log.close()
