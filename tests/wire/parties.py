"""Exchanges that talk to each other in one process, and what each has heard."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from headwater.machines.messages import Ack, Hello, Message, Send, Stream
from headwater_wire.credentials import Credentials
from headwater_wire.exchange import KEEPALIVE, Exchange
from headwater_wire.messages import Codec
from headwater_wire.outgoing import ENVELOPE_LIMIT
from tests.patience import PATIENCE


class Party:
    """An exchange, and what has arrived for it."""

    def __init__(
        self,
        name: str,
        credentials: Credentials | None = None,
        *,
        codec: Codec | None = None,
        limit: int = ENVELOPE_LIMIT,
        keepalive: tuple[float, float] = KEEPALIVE,
    ) -> None:
        self.heard: list[tuple[str, Message]] = []
        # Why it can go no further.
        self.failed: list[Exception] = []
        self.exchange = Exchange(
            name,
            self._take,
            codec or Codec(),
            credentials,
            limit=limit,
            keepalive=keepalive,
            fail=self.failed.append,
        )

    def _take(self, sender: str, message: Message) -> list[Send]:
        self.heard.append((sender, message))
        # Whoever says hello gets an answer, so that it can be seen that both ways are open.
        return [Send(sender, Ack(Stream("x", 0, 1), "1"))] if isinstance(message, Hello) else []

    def hello(self, to: str, name: str) -> None:
        self.exchange.send([Send(to, Hello(name, "spool", "opening", 0, 0, 0))])


async def until(reached: Callable[[], object]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not reached():
            await asyncio.sleep(0.01)


@asynccontextmanager
async def parties(*made: Party) -> AsyncIterator[None]:
    try:
        yield
    finally:
        for party in reversed(made):
            await party.exchange.close()
