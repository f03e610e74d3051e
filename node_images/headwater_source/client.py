"""A source that runs: a spool, a machine and a stream to a child."""

from __future__ import annotations

import asyncio

from headwater.machines.source import Settings, SourceMachine
from headwater_source.spool import Spool
from headwater_wire.clock import now
from headwater_wire.exchange import Exchange
from headwater_wire.messages import Codec


class SourceClient:
    """Sends what is appended to a spool, until the root has counted it."""

    def __init__(self, name: str, child: str, spool: Spool, settings: Settings | None = None) -> None:
        self.spool = spool
        self.machine = SourceMachine(name, spool, settings or Settings(), child)
        self.exchange = Exchange(
            name, lambda sender, message: self.machine.step(sender, message, now()), Codec()
        )
        self._beat: asyncio.Task[None] | None = None

    def start(self, address: str) -> None:
        self.exchange.connect(address)
        self._beat = asyncio.create_task(self._beats())

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
