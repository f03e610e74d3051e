"""A node that runs: the machine is stepped by what arrives and by time."""

from __future__ import annotations

import asyncio
import secrets

from headwater.machines.node import NodeMachine, Settings
from headwater_wire.clock import now
from headwater_wire.exchange import Exchange
from headwater_wire.messages import Codec


class NodeRuntime:
    """One node: listens for those below, keeps a stream to its parent."""

    def __init__(
        self,
        name: str,
        parent: str,
        *,
        child: bool,
        flush_interval: float = 0.1,
        settings: Settings | None = None,
        codec: Codec | None = None,
        address: str | None = None,
    ) -> None:
        """`address` is where others reach it, if that is not where it listens."""
        self._address = address
        token = secrets.token_hex(8)
        self.machine = NodeMachine(name, parent, settings or Settings(), child=child, token=token)
        self.exchange = Exchange(
            name, lambda sender, message: self.machine.step(sender, message, now()), codec or Codec()
        )
        self._interval = flush_interval
        self._beat: asyncio.Task[None] | None = None

    async def start(self, listen: str, parent: str) -> int:
        """Begin; gives the port that it listens on."""
        port = await self.exchange.serve(listen)
        self.machine.address = self._address or f"{listen.rpartition(':')[0]}:{port}"
        self.exchange.connect(parent)
        self._beat = asyncio.create_task(self._beats())
        return port

    async def _beats(self) -> None:
        ticks = 0
        while True:
            self.exchange.send(self.machine.flush(now()))
            ticks += 1
            # Flushes are frequent; to say again what was not answered need not be.
            if ticks % 3 == 0:
                self.exchange.send(self.machine.tick(now()))
            await asyncio.sleep(self._interval)

    async def drain(self, seconds: float) -> bool:
        """Send everything on and wait until it is acknowledged; False if that took too long."""
        self.exchange.send(self.machine.leave())
        until = now() + int(seconds * 1e6)
        while not self.machine.drained and now() < until:
            self.exchange.send(self.machine.flush(now()))
            await asyncio.sleep(self._interval)
        return self.machine.drained

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
            "under_way": events - counted,
            "held_bytes": self.machine.held_bytes,
            "low": min(lows, default=None),
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
