"""Messages as bytes: sent as fast as they are taken, and a server that only counts them.

python benchmarks/raw.py    counts what comes in until it is ended; the first line says where it listens
"""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from time import perf_counter, time
from typing import Any

import grpc
import grpc.aio
import numpy as np

from headwater.events import Batch
from headwater.machines import messages as said
from headwater.sources import SourceId
from headwater_wire.exchange import OPTIONS, TREE
from headwater_wire.messages import PROTOCOL, Codec
from headwater_wire.v1 import tree_pb2 as pb

SOURCE = str(SourceId("bench", 1))
SECOND = 1_000_000
START = 1_700_000_000 * SECOND
# Messages that are sent before the first of them is answered.
UNDER_WAY = 6
# How long an answer is waited for, in seconds.
PATIENCE = 2.0
CODEC = Codec()


@dataclass(slots=True)
class Load:
    """Events of one source as messages, `rate` of them in a second of event time."""

    events: int
    keys: int = 1
    rate: int = 1_000_000
    rows: int = 65_536
    first: int = 1
    encoded: list[bytes] = field(default_factory=list)
    # Up to which time each message reaches.
    until: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        rng = np.random.default_rng(7)
        names = tuple(f"device-{n:04}" for n in range(self.keys)) if self.keys > 1 else ()
        value = rng.normal(50, 10, self.rows)
        key = rng.integers(0, self.keys, self.rows)
        stream = said.Stream("bench", 0, 1)
        for begin in range(0, self.events, self.rows):
            size = min(self.rows, self.events - begin)
            number = np.arange(begin, begin + size)
            ts = START + number * SECOND // self.rate
            codes = key[:size] if self.keys > 1 else None
            batch = Batch(SOURCE, self.first + begin, ts, value[:size], key=codes, keys=names)
            columns = said.Columns(stream, f"b/{len(self.encoded)}", batch, "opening")
            self.encoded.append(CODEC.encode("bench", "child", columns).SerializeToString())
            self.until.append(int(ts[-1]))

    @property
    def bytes(self) -> int:
        return sum(map(len, self.encoded))


class Feeder:
    """A source by hand, on one stream: what it has to say is bytes already."""

    def __init__(self, address: str) -> None:
        self._channel = grpc.aio.insecure_channel(address, options=OPTIONS)
        link: Any = self._channel.stream_stream(f"/{TREE}/Link", None, None)
        self._outgoing: asyncio.Queue[bytes] = asyncio.Queue()
        self._call: Any = link(self._said())
        # When each message was handed over.
        self.handed: list[float] = []
        self.rewinds = 0
        self._reading: asyncio.Future[bytes] | None = None

    async def _said(self) -> AsyncIterator[bytes]:
        while True:
            yield await self._outgoing.get()

    def say(self, message: said.Message) -> None:
        self._outgoing.put_nowait(CODEC.encode("bench", "child", message).SerializeToString())

    async def introduce(self) -> None:
        """As a source does, until the root knows it."""
        first = pb.Envelope(protocol=PROTOCOL, sender="bench", to="child")
        self._outgoing.put_nowait(first.SerializeToString())
        hello = said.Hello("bench", "spool", "opening", 0, 0, 0)
        echo = ""
        while True:
            asking = asyncio.create_task(self._again(hello, echo))
            try:
                answer = CODEC.decode(await self._next(("challenge", "welcome")))
            finally:
                asking.cancel()
            if isinstance(answer, said.Challenge):
                echo = answer.nonce
            else:
                return

    async def _again(self, hello: said.Hello, echo: str) -> None:
        while True:
            self.say(said.Hello(hello.name, hello.spool, hello.opening, 0, 0, 0, echo=echo))
            await asyncio.sleep(0.1)

    async def _next(self, kinds: Sequence[str]) -> pb.Envelope:
        while True:
            envelope = pb.Envelope.FromString(await self._call.read())
            if envelope.WhichOneof("message") in kinds:
                return envelope

    async def feed(
        self, load: Load, begin: int = 0, end: int | None = None, *, pace: float | None = None
    ) -> float:
        """Send messages, as many ahead as `UNDER_WAY`, or one every `pace` seconds; how long it took."""
        since = perf_counter()
        end = len(load.encoded) if end is None else end
        sent = answered = begin
        while answered < end:
            while sent < end and sent - answered < UNDER_WAY:
                if pace is not None:
                    await asyncio.sleep(max(since + (sent - begin) * pace - perf_counter(), 0))
                if sent == len(self.handed):
                    self.handed.append(time())
                self._outgoing.put_nowait(load.encoded[sent])
                sent += 1
            kind, number = await self._answer()
            if kind == "silence":
                # As a source does: what is not answered is sent again.
                self.rewinds += 1
                sent = answered
            elif kind == "ack":
                answered = answered + 1 if number is None else max(answered, number + 1)
            elif number is not None:
                # A child that was full has lost some of it.
                self.rewinds += 1
                sent = answered = number // load.rows
        return perf_counter() - since

    async def _answer(self) -> tuple[str, int | None]:
        """The next answer: which message was taken, or which record to go back behind."""
        while True:
            # Not cancelled when it takes long: that would end the stream.
            self._reading = self._reading or asyncio.ensure_future(self._call.read())
            done, _ = await asyncio.wait({self._reading}, timeout=PATIENCE)
            if not done:
                return "silence", None
            data, self._reading = self._reading.result(), None
            if data == b"ack":
                return "ack", None
            envelope = pb.Envelope.FromString(data)
            kind = envelope.WhichOneof("message")
            if kind == "ack":
                return kind, int(envelope.ack.id.rpartition("/")[2])
            if kind == "resync":
                return kind, int(envelope.resync.standings[0].prefix.position)

    async def close(self) -> None:
        self._call.cancel()
        if self._reading is not None:
            self._reading.cancel()
        await self._channel.close(None)


async def _count(requests: AsyncIterator[bytes], context: Any) -> AsyncIterator[bytes]:
    total = 0
    async for data in requests:
        total += len(data)
        yield b"ack"


async def _serve() -> None:
    server = grpc.aio.server(options=OPTIONS)
    handler = grpc.stream_stream_rpc_method_handler(_count)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(TREE, {"Link": handler}),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    print(json.dumps({"port": port}), flush=True)
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    await ended.wait()
    await server.stop(0)


if __name__ == "__main__":
    asyncio.run(_serve())
