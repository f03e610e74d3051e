"""A source that runs: a spool, a machine and a stream to a child."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence

from headwater.machines.messages import Message, Send
from headwater.machines.source import Settings, SourceMachine
from headwater.node import Change
from headwater_source.spool import Spool
from headwater_wire.clock import now
from headwater_wire.credentials import Credentials
from headwater_wire.exchange import Exchange
from headwater_wire.messages import Codec
from headwater_wire.v1 import tree_pb2 as pb

log = logging.getLogger(__name__)


class _Codec(Codec):
    """A source has no queries: it need not know the functions of those that come."""

    def changes(self, sent: Iterable[pb.Change]) -> tuple[Change, ...]:
        return ()


class SourceClient:
    """Sends what is appended to a spool, until the root has counted it."""

    def __init__(
        self,
        name: str,
        child: str,
        spool: Spool,
        settings: Settings | None = None,
        credentials: Credentials | None = None,
    ) -> None:
        self.spool = spool
        self.machine = SourceMachine(name, child, spool, settings or Settings("root"))
        self.exchange = Exchange(name, self._take, _Codec(), credentials)
        self._beat: asyncio.Task[None] | None = None

    def start(self, address: str) -> None:
        self.exchange.connect(address, self.machine.child, self.machine.settings.root)
        self._beat = asyncio.create_task(self._beats())

    def _take(self, sender: str, message: Message) -> Sequence[Send]:
        before = self.machine.fenced
        sends = self.machine.step(sender, message, now())
        if self.machine.fenced and not before:
            log.warning(
                "fenced: another spool goes by this name, nothing is sent",
                extra={"source": self.machine.name},
            )
        return sends

    async def _beats(self) -> None:
        ticks = 0
        while True:
            self.exchange.send(self.machine.send(now()))
            ticks += 1
            if ticks % 5 == 0 or self.machine.source is None:
                self.exchange.send(self.machine.tick(now()))
            await asyncio.sleep(0.05)

    @property
    def done(self) -> bool:
        return self.machine.done

    async def stop(self) -> None:
        if self._beat is not None:
            self._beat.cancel()
            await asyncio.gather(self._beat, return_exceptions=True)
        await self.exchange.close()
