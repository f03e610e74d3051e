"""A node that runs: the machine is stepped by what arrives and by time."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Sequence
from math import ceil

from headwater.durations import SECOND
from headwater.machines.messages import Ack, Columns, Delivery, Message, Registered, Send
from headwater.machines.node import NodeMachine, Settings
from headwater.machines.sizes import rows
from headwater.sources import SourceId
from headwater_node.ahead import Ahead
from headwater_node.archive import Archive
from headwater_node.configuration import FUTURE
from headwater_node.future import Future
from headwater_node.storm import Storm
from headwater_node.tally import Tally
from headwater_wire import failpoints
from headwater_wire.clock import now, wall
from headwater_wire.conduct import offences_in
from headwater_wire.credentials import Credentials
from headwater_wire.exchange import Exchange
from headwater_wire.messages import Codec
from headwater_wire.offences import Offence
from headwater_wire.pace import Pace

log = logging.getLogger(__name__)
# A parent answers every probe: one that has not for so many microseconds is not there, whatever TCP says.
PATIENCE = 10 * SECOND
# One that follows the root asks it anew who its parent is when it has not reached that for so long.
LOST = 2 * SECOND
# How often is looked whether there is time for what waits, in seconds.
PACED = 0.02
# How often a node says again what was not answered, and looks whether its parent and the root are to hear
# from it, in seconds; and how many flushes there are between at most.
BEAT, FLUSHES = 0.5, 5


def divide_interval(flush_interval: float) -> tuple[float, int, int]:
    """The seconds between two beats of a node, and how many beats there are to a flush and to a tick. A long
    flush interval makes batches rare; the root hears of the node all the same."""
    beats_a_flush = max(1, ceil(flush_interval / BEAT))
    pause = flush_interval / beats_a_flush
    return pause, beats_a_flush, max(1, min(FLUSHES, round(BEAT / pause)))


class NodeRuntime:
    """One node: listens for those below, keeps a stream to its parent."""

    def __init__(
        self,
        name: str,
        parent: str,
        *,
        child: bool,
        flush_interval: float = 0.1,
        future: int = FUTURE,
        settings: Settings | None = None,
        codec: Codec | None = None,
        credentials: Credentials | None = None,
        address: str | None = None,
        archive: Archive | None = None,
        limit: float | None = None,
        follows: bool = False,
        plain_below: bool = False,
    ) -> None:
        """`flush_interval` in seconds; events more than `future` microseconds ahead of the clock wait.
        `address` is where others reach it, if that is not where it listens; `archive` takes what is read;
        more than `limit` items a second wait. One that `follows` begins with the root as its parent, and
        turns to whom that names. `plain_below`: credentials are for the way up alone."""
        token = secrets.token_hex(8)
        self.machine = NodeMachine(name, parent, settings or Settings(), child=child, token=token)
        self._address = address
        self.exchange = Exchange(
            name, self._take, codec or Codec(), credentials, fail=self._halt, plain_below=plain_below
        )
        # Where the root is, for one that follows it.
        self._follows, self._root_address = follows, ""
        self.tally, self.storm, self.future = Tally(), Storm(), Future(future, self.exchange.offences)
        self.machine.beyond_clock = self.future.waiting
        self.ahead = Ahead(self.machine.settings.horizon)
        self.archive = archive
        self.pace = None if limit is None else Pace(limit)
        # Batches that were made, those that were said again, and rows of the first.
        self.batches = self.repeated = self.rows = 0
        # When the parent last said something for this node, by the clock that never goes back.
        self.answered: int | None = None
        self.draining = False
        # Why it can go no further, if so: the caller halts.
        self.failed: Exception | None = None
        self.halted = asyncio.Event()
        self._interval = flush_interval
        self._ready = False
        self._beat: asyncio.Task[None] | None = None
        self._pacing: asyncio.Task[None] | None = None
        # The number of the connection to the parent that the machine knows of.
        self._connection = 0

    async def start(self, listen: str, parent: str) -> int:
        """Begin; gives the port that it listens on."""
        port = await self.exchange.serve(listen)
        self.machine.address = self._address or f"{listen.rpartition(':')[0]}:{port}"
        self.exchange.connect(parent, self.machine.parent, self.machine.settings.root)
        if self._follows:
            self._root_address = parent
        if self.archive is not None:
            self.archive.start()
        self._beat = asyncio.create_task(self._beats())
        if self.pace is not None:
            self._pacing = asyncio.create_task(self._paced(self.pace))
        return port

    # Messages

    def _take(self, sender: str, message: Message) -> Sequence[Send]:
        if self.failed is not None:
            return ()
        if self.draining and isinstance(message, Columns | Delivery):
            # Whoever sent it still has it, and sends it again to whoever comes after this node.
            return ()
        if sender == self.machine.parent:
            self.answered = now()
        if (
            self.pace is not None
            and isinstance(message, Columns | Delivery)
            and not self.pace.takes(sender, message, now())
        ):
            return ()
        return self._stepped(sender, message)

    def _stepped(self, sender: str, message: Message) -> Sequence[Send]:
        refused = self.machine.refusals.count
        if self.archive is not None and isinstance(message, Columns):
            self.archive.came(message, self.machine)
        try:
            sends = self.machine.step(sender, message, now())
        # Whatever it is: half of a message may have been taken, and nothing of a node has to survive it.
        except Exception as error:
            self._halt(error)
            return ()
        if self.archive is not None:
            self.archive.look(self.machine)
        if self._follows and isinstance(message, Registered):
            self._follow()
        if isinstance(message, Columns | Delivery):
            failpoints.reached("node.read")
        elif isinstance(message, Ack):
            failpoints.reached("node.acknowledged")
        if isinstance(message, Columns):
            self.future.look(message.batch, self.machine.sources)
            self.ahead.look(message.batch, self.machine.sources, self.machine.watermark, now())
        self._made(sends)
        more = self.machine.refusals.count - refused
        for who, problem in self.machine.refusals.news() or [(sender, "sends such batches again")] * more:
            self.exchange.offences.note(Offence.BATCH, who, problem)
        for source, count in self.machine.keys.news():
            extra = {"source": SourceId.of(source).name, "keys": count, "limit": self.machine.keys.cap}
            extra["remedy"] = "mend the source, or raise limits.keysPerSource in the manifest"
            log.warning("a source brings too many keys", extra=extra)
        for offence in offences_in(message, sends):
            self.exchange.offences.note(*offence)
        return sends

    def _made(self, sends: Sequence[Send]) -> None:
        """Count the batches among what is to be sent."""
        made = [send.message.partial for send in sends if isinstance(send.message, Delivery)]
        if made:
            failpoints.reached("node.flushed")
            self.batches += len(made)
            self.rows += sum(map(rows, made))

    def _halt(self, error: Exception) -> None:
        # The first reason is the one that counts.
        self.failed = self.failed or error
        self.halted.set()

    async def _paced(self, pace: Pace) -> None:
        """Take what had to wait, when there is time for it."""
        while True:
            while (found := pace.due(now())) is not None and not self.draining and self.failed is None:
                self.exchange.send(self._stepped(*found))
            await asyncio.sleep(PACED)

    # Time

    def _follow(self) -> None:
        """Turn to whom the root has named."""
        told, root = self.machine.told, self.machine.settings.root
        if told is not None:
            self.turn(told[0], self._root_address if told[0] == root else told[1])

    def _find(self) -> None:
        """Where the parent is not reached, ask the root who it is by now; where that is not reached either,
        try the parent again: either may be gone."""
        uplink, machine = self.exchange.uplink, self.machine
        heard = max(uplink.since, self.answered or 0)
        lost = not uplink.connected and now() - uplink.since > LOST
        if not (lost or (uplink.connected and now() - heard > PATIENCE)):
            return
        root, told = machine.settings.root, machine.told
        if uplink.parent != root:
            self.turn(root, self._root_address)
            machine.asks = True
        elif machine.asks and told is not None and told[0] != root:
            machine.asks = False
            self._follow()

    async def _beats(self) -> None:
        pause, beats_a_flush, beats_a_tick = divide_interval(self._interval)
        beats = 0
        while True:
            beats += 1
            ticks = beats % beats_a_tick == 0 or not self.machine.registered
            try:
                self._run_beat(flushes=beats % beats_a_flush == 0 or self.draining, ticks=ticks)
            # Whatever it is, a node whose heart has stopped must not seem alive.
            except Exception as error:
                self._halt(error)
                return
            await self._tell_health()
            await asyncio.sleep(pause)

    def _run_beat(self, *, flushes: bool, ticks: bool) -> None:
        machine = self.machine
        if self._follows:
            self._find()
        uplink = self.exchange.uplink
        if uplink.connected and uplink.connections != self._connection:
            self._connection = uplink.connections
            machine.on_connected(now())
        if machine.child:
            machine.read_until(self.future.until(wall()))
        if flushes:
            sends = machine.flush(now())
            self._made(sends)
            self.exchange.send(sends)
        for name, reason, count in self.tally.look(machine.sources):
            who = SourceId.of(name).name
            self.exchange.offences.note(Offence.RECORDS, who, f"records cannot count: {reason}", times=count)
        self.ahead.settle(machine.sources)
        self.future.settle(machine.sources)
        if ticks:
            sends = machine.tick(now())
            self.repeated += sum(isinstance(send.message, Delivery) for send in sends)
            self.exchange.send(sends)
        if machine.stale:
            self.halted.set()
        changed = self.storm.look(machine.remade, now())
        if changed is not None:
            said = "batches are made again and again" if changed else "batches are no longer made again"
            log.log(logging.WARNING if changed else logging.INFO, said, extra={"remade": machine.remade})

    async def _tell_health(self) -> None:
        ready = self.unready() is None
        if ready != self._ready:
            self._ready = ready
            await self.exchange.ready(ready)

    # Health

    def unready(self) -> str | None:
        """Why nobody should send here at present; None if all is well."""
        if self.failed is not None:
            return f"it has halted: {self.failed}"
        if self.draining:
            return "it is draining"
        if self.machine.stale:
            return "another process has its name"
        uplink = self.exchange.uplink
        if not uplink.connected:
            return f"no stream to {uplink.parent} at {uplink.address} ({uplink.problem or 'not yet open'})"
        if not self.machine.registered:
            return "the root has not given it a generation yet"
        if self._follows and self.machine.told is None:
            return "the root has not said who its parent is"
        if self.machine.asks:
            return "it asks the root who its parent is"
        if self.answered is None or self.answered < uplink.since:
            return f"{uplink.parent} has not answered yet"
        if now() - self.answered > max(PATIENCE, int(10 * self._interval * SECOND)):
            return f"{uplink.parent} has not answered for {(now() - self.answered) // SECOND} seconds"
        return None

    async def drain(self, seconds: float) -> bool:
        """Take nothing more, send everything on, wait for the answer; False if that took too long."""
        self.draining = True
        self.exchange.send(self.machine.leave())
        await self._tell_health()
        held = {"under_way": self.machine.under_way, "held_bytes": self.machine.held_bytes}
        log.info("drain begun", extra=held)
        until = now() + int(seconds * SECOND)
        while not self.machine.drained and now() < until and not self.halted.is_set():
            await asyncio.sleep(min(self._interval, 0.05))
        drained = self.machine.drained
        level = logging.INFO if drained else logging.WARNING
        log.log(level, "drain ended", extra={"drained": drained, "under_way": self.machine.under_way})
        return drained

    def figures(self) -> dict[str, int | str | None]:
        """What an operator asks first.

        `events` are the records of its sources up to where it stands with them, `counted` those of them that
        the root has counted for good as far as is known here; the others are under way. `low` is what the
        watermark would be if there were no other sources.
        """
        sources, committed = self.machine.sources, self.machine.committed
        lows = [source.largest - source.lateness for source in sources.values() if source.position]
        events = sum(source.position for source in sources.values())
        counted = sum(min(committed.get(name, 0), source.position) for name, source in sources.items())
        return {
            "node": self.machine.name,
            "sources": len(sources),
            "events": events,
            "counted": counted,
            "items": self.machine.items,
            "items_up": self.rows,
            "waiting": 0 if self.pace is None else self.pace.waiting,
            "under_way": events - counted,
            "held_bytes": self.machine.held_bytes,
            "low": min(lows, default=None),
            "sent": self.exchange.sent,
            "received": self.exchange.received,
            "dropped": self.exchange.dropped,
            "bytes_up": self.exchange.bytes_up,
            "remade": self.machine.remade,
        }

    def turn(self, parent: str, address: str) -> None:
        """Send to another parent from now on, or to the same one elsewhere; what is not acknowledged is said
        again there."""
        if (parent, address) != (self.exchange.uplink.parent, self.exchange.uplink.address):
            log.info("another parent", extra={"parent": parent, "address": address})
            self.machine.turn(parent)
            self.exchange.connect(address, parent, self.machine.settings.root)

    async def stop(self) -> None:
        for task in (self._beat, self._pacing):
            if task is not None:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
        if self._beat is not None and self.archive is not None:
            await asyncio.to_thread(self.archive.close)
        await self.exchange.close()
