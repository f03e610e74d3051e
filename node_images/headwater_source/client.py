"""A source that runs: a spool, a machine and a stream to a child."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

import grpc
import grpc.aio

from headwater.machines.messages import Columns, Message, Send, Welcome
from headwater.machines.source import Settings, SourceMachine
from headwater_source.spool import Spool
from headwater_wire.clock import now
from headwater_wire.exchange import FIRST_WAIT, LONGEST_WAIT, OPTIONS, Exchange
from headwater_wire.messages import PROTOCOL, Codec
from headwater_wire.v1 import tree_pb2 as pb
from headwater_wire.v1 import tree_pb2_grpc


class SourceClient:
    """Sends what is appended to a spool, until the root has counted it.

    Without the name of a child, whoever listens at the address is asked for theirs.
    """

    def __init__(self, name: str, child: str | None, spool: Spool, settings: Settings | None = None) -> None:
        self.name, self.spool = name, spool
        self.machine = SourceMachine(name, spool, settings or Settings(), child or "")
        self.exchange = Exchange(name, self._step, Codec())
        # Up to this number records were sent, acknowledged or not.
        self.sent = 0
        self._offset = 0
        self._beat: asyncio.Task[None] | None = None

    def start(self, address: str) -> None:
        self._beat = asyncio.create_task(self._run(address))

    def push(self) -> None:
        """Send now what was appended, as far as there is room on the way."""
        self.exchange.send(self._sends())

    async def _run(self, address: str) -> None:
        if not self.machine.child:
            self.machine.child = await child_at(address, self.name)
        self.exchange.connect(address)
        ticks = 0
        while True:
            self.push()
            ticks += 1
            if ticks % 5 == 0 or self.machine.source is None:
                self.exchange.send(self.machine.tick(now()))
            await asyncio.sleep(0.05)

    def _step(self, sender: str, message: Message) -> Sequence[Send]:
        answers = self.machine.step(sender, message, now())
        if isinstance(message, Welcome) and message.opening == self.spool.opening:
            self._offset = message.offset
        # What was acknowledged has made room for more.
        return [*answers, *self._sends()]

    def _sends(self) -> list[Send]:
        sends = self.machine.send(now())
        for each in sends:
            if isinstance(each.message, Columns):
                batch = each.message.batch
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


async def child_at(address: str, name: str) -> str:
    """Who listens there: a party says its name in the first envelope of every stream."""
    wait = FIRST_WAIT
    while True:
        try:
            async with grpc.aio.insecure_channel(address, options=OPTIONS) as channel:
                stub = tree_pb2_grpc.TreeStub(channel)  # type: ignore[no-untyped-call]  # generated
                async for envelope in stub.Link(_introduced(name)):
                    return str(envelope.sender)
        except grpc.aio.AioRpcError:
            pass
        await asyncio.sleep(wait)
        wait = min(2 * wait, LONGEST_WAIT)


async def _introduced(name: str) -> AsyncIterator[pb.Envelope]:
    yield pb.Envelope(protocol=PROTOCOL, sender=name, to=name)
    await asyncio.Event().wait()
