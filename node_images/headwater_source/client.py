"""A source that runs: a spool, a machine and a stream to a child."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence

from headwater.changes import Change
from headwater.durations import SECOND
from headwater.machines.messages import Columns, Message, Send, Welcome
from headwater.machines.source import Settings, SourceMachine
from headwater_source.spool import Spool
from headwater_wire import failpoints
from headwater_wire.clock import now
from headwater_wire.credentials import Credentials
from headwater_wire.exchange import Exchange
from headwater_wire.messages import Codec
from headwater_wire.outgoing import MESSAGE_LIMIT
from headwater_wire.v1 import tree_pb2 as pb

log = logging.getLogger(__name__)
# How long a child to which the root has sent us may be out of reach, in microseconds.
PATIENCE = 3 * SECOND


class _Codec(Codec):
    """A source has no queries: it need not know the functions of those that come."""

    def changes(self, sent: Iterable[pb.Change]) -> tuple[Change, ...]:
        return ()


class SourceClient:
    """Sends what is appended to a spool, until the root has counted it.

    It begins at any child, and goes on at the one that is to read it, as the root says; when that one cannot
    be reached it begins again. With credentials the name of the first child is `child`; without one, its
    certificate has to bear its address.
    """

    def __init__(
        self,
        name: str,
        child: str | None,
        spool: Spool,
        settings: Settings | None = None,
        credentials: Credentials | None = None,
    ) -> None:
        self.name, self.spool = name, spool
        self.machine = SourceMachine(name, spool, settings or Settings())
        # A child assembles nothing for sources: what the spool gives at once is one message.
        self.exchange = Exchange(name, self._take, _Codec(), credentials, limit=MESSAGE_LIMIT)
        # Up to this number records were sent, acknowledged or not.
        self.sent = 0
        self._offset = 0
        self._first = (child or "", "")
        self._beat: asyncio.Task[None] | None = None
        # Why it can go no further, if so: what is on disk is sent when the source is opened again.
        self.failed: Exception | None = None

    def start(self, address: str) -> None:
        self._first = (self._first[0], address)
        self._turn(*self._first)
        self._beat = asyncio.create_task(self._run())

    def push(self) -> None:
        """Send now what was appended, as far as there is room on the way."""
        self.exchange.send(self._sends())

    async def _run(self) -> None:
        ticks = 0
        while self.failed is None:
            ticks += 1
            # What is appended is pushed at once: there is haste only while something is not answered.
            busy = self.machine.busy or not self.exchange.uplink.connected
            try:
                self._follow()
                self.push()
                if ticks % 5 == 0 or not busy:
                    self.exchange.send(self.machine.tick(now()))
            except Exception as error:
                self._fail(error)
            await asyncio.sleep(0.05 if busy else 0.5)

    def _turn(self, child: str, address: str) -> None:
        self.machine.turn()
        self.exchange.connect(address, child, "root")

    def _follow(self) -> None:
        """Be where the root says; back to where we began if nobody is there."""
        uplink, machine = self.exchange.uplink, self.machine
        if uplink.connected:
            machine.child = uplink.peer
            if machine.assigned is None:
                return
            child, address = machine.assigned
            if child == uplink.peer:
                machine.avoid = ""
            elif child and address and child != machine.avoid:
                log.info("sent on", extra={"source": self.name, "child": child, "address": address})
                machine.assigned = None
                self._turn(child, address)
        elif uplink.address != self._first[1] and now() - uplink.since > PATIENCE:
            machine.avoid = uplink.parent
            log.warning("back to where it began", extra={"source": self.name, "child": uplink.parent})
            self._turn(*self._first)

    def _fail(self, error: Exception) -> None:
        self.failed = error
        log.error("the source cannot go on", extra={"source": self.name, "problem": str(error)})

    def _take(self, sender: str, message: Message) -> Sequence[Send]:
        if self.failed is not None:
            return ()
        try:
            return self._taken(sender, message)
        except Exception as error:
            self._fail(error)
            return ()

    def _taken(self, sender: str, message: Message) -> Sequence[Send]:
        before = self.machine.fenced
        answers = self.machine.step(sender, message, now())
        if self.machine.fenced is not None and before is None:
            extra = {"source": self.name, "problem": self.machine.fenced}
            log.warning("fenced: nothing is sent", extra=extra)
        if isinstance(message, Welcome) and message.opening == self.spool.opening:
            self._offset = message.offset
        # What was acknowledged has made room for more.
        return [*answers, *self._sends()]

    def _sends(self) -> list[Send]:
        sends = self.machine.send(now())
        for each in sends:
            if isinstance(each.message, Columns):
                batch = each.message.batch
                failpoints.reached("source.sent")
                self.sent = max(self.sent, self._offset + batch.first - 1 + len(batch))
        return sends

    @property
    def done(self) -> bool:
        return self.machine.done

    async def stop(self) -> None:
        if self._beat is not None:
            self._beat.cancel()
            await asyncio.gather(self._beat, return_exceptions=True)
        await self.exchange.close()
