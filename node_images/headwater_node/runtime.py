"""A node that runs: the machine is stepped by what arrives and by time."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from headwater.durations import SECOND
from headwater.errors import FunctionFailed, OtherQueries
from headwater.machines.messages import Columns, Delivery, Message, Send
from headwater.machines.node import NodeMachine, Settings
from headwater.queries import Query
from headwater_node.configuration import FUTURE
from headwater_node.future import Future
from headwater_node.storm import Storm
from headwater_node.tally import Tally
from headwater_wire.clock import now, wall
from headwater_wire.credentials import Credentials
from headwater_wire.exchange import Exchange
from headwater_wire.messages import Codec

log = logging.getLogger(__name__)
# A parent answers every probe: one that has not for so many microseconds is not there, whatever TCP says.
PATIENCE = 10 * SECOND


class NodeRuntime:
    """One node: listens for those below, keeps a stream to its parent."""

    def __init__(
        self,
        name: str,
        parent: str,
        queries: Sequence[Query],
        *,
        child: bool,
        flush_interval: float = 0.1,
        future: int = FUTURE,
        settings: Settings | None = None,
        codec: Codec | None = None,
        credentials: Credentials | None = None,
    ) -> None:
        """`flush_interval` in seconds; events more than `future` microseconds ahead of the clock wait."""
        settings = settings or Settings("root")
        self.machine = NodeMachine(name, parent, queries, settings, child=child)
        self.exchange = Exchange(name, self._take, codec or Codec(), credentials)
        self.tally, self.storm, self.future = Tally(), Storm(), Future(future)
        self.batches = self.repeated = 0
        # When the parent last said something for this node, by the clock that never goes back.
        self.answered: int | None = None
        self.draining = False
        # Why it can go no further, if so: the caller halts.
        self.failed: Exception | None = None
        self.halted = asyncio.Event()
        self._interval = flush_interval
        self._ready = False
        self._strangers: set[str] = set()
        self._beat: asyncio.Task[None] | None = None

    async def start(self, listen: str, parent: str) -> int:
        """Begin; gives the port that it listens on."""
        port = await self.exchange.serve(listen)
        self.exchange.connect(parent, self.machine.parent, self.machine.settings.root)
        self._beat = asyncio.create_task(self._beats())
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
        try:
            sends = self.machine.step(sender, message, now())
        except OtherQueries as error:
            if sender not in self._strangers:
                log.error("refused a batch", extra={"sender": sender, "problem": str(error)})
            self._strangers.add(sender)
            return ()
        except FunctionFailed as error:
            self._halt(error)
            return ()
        if isinstance(message, Columns):
            self.future.look(message.batch, self.machine.engine.sources)
        self.batches += sum(isinstance(send.message, Delivery) for send in sends)
        return sends

    def _halt(self, error: Exception) -> None:
        self.failed = error
        self.halted.set()

    # Time

    async def _beats(self) -> None:
        ticks = 0
        while True:
            ticks += 1
            try:
                # Flushes are frequent; to say again what was not answered need not be.
                self._flush(again=ticks % 3 == 0)
            # Whatever it is, a node whose heart has stopped must not seem alive.
            except Exception as error:
                self._halt(error)
                return
            await self._tell_health()
            await asyncio.sleep(self._interval)

    def _flush(self, *, again: bool) -> None:
        machine = self.machine
        if machine.child:
            machine.engine.read_until(self.future.until(wall()))
        sends = machine.flush(now())
        self.batches += sum(isinstance(send.message, Delivery) for send in sends)
        self.exchange.send(sends)
        self.tally.look(machine.engine.sources)
        if again:
            sends = machine.tick(now())
            self.repeated += sum(isinstance(send.message, Delivery) for send in sends)
            self.exchange.send(sends)
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
            return "it has halted"
        if self.draining:
            return "it is draining"
        uplink = self.exchange.uplink
        if not uplink.connected:
            return f"no stream to {uplink.parent} at {uplink.address} ({uplink.problem or 'not yet open'})"
        if self.answered is None or self.answered < uplink.since:
            return f"{uplink.parent} has not answered yet"
        if now() - self.answered > max(PATIENCE, int(10 * self._interval * SECOND)):
            return f"{uplink.parent} has not answered for {(now() - self.answered) // SECOND} seconds"
        return None

    @property
    def under_way(self) -> int:
        """Batches that the parent has not acknowledged."""
        return len(self.machine._sent)

    async def drain(self, seconds: float) -> bool:
        """Take nothing more, send everything on, wait for the answer; False if that took too long."""
        self.draining = True
        await self._tell_health()
        log.info("drain begun", extra={"under_way": self.under_way, "rows": self.machine.rows})
        until = now() + int(seconds * SECOND)
        while not self.machine.drained and now() < until and self.failed is None:
            await asyncio.sleep(min(self._interval, 0.05))
        drained = self.machine.drained
        level = logging.INFO if drained else logging.WARNING
        log.log(level, "drain ended", extra={"drained": drained, "under_way": self.under_way})
        return drained

    def figures(self) -> dict[str, int | str]:
        """What an operator asks first."""
        return {
            "node": self.machine.name,
            "sources": len(self.machine.engine.sources),
            "sent": self.exchange.sent,
            "received": self.exchange.received,
            "dropped": self.exchange.dropped,
            "bytes_up": self.exchange.bytes_up,
            "remade": self.machine.remade,
        }

    async def stop(self) -> None:
        if self._beat is not None:
            self._beat.cancel()
            await asyncio.gather(self._beat, return_exceptions=True)
        await self.exchange.close()
