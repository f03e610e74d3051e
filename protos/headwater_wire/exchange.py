"""Envelopes over gRPC: one stream to the parent, any number from below, and whatever is not for this
party is passed on.

It owns sockets and nothing else. Messages may be lost, when a stream breaks or a queue is full: the
machines say again what was not answered.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import grpc
import grpc.aio
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from headwater.machines.messages import Message, Send
from headwater_wire.credentials import Credentials
from headwater_wire.errors import Malformed
from headwater_wire.gate import Gate
from headwater_wire.identity import Guard, Guards, Peer
from headwater_wire.messages import PROTOCOL, Codec
from headwater_wire.outgoing import MESSAGE_LIMIT, Assembly, Outgoing
from headwater_wire.uplink import Uplink
from headwater_wire.v1 import tree_pb2 as pb

OPTIONS = (
    # Pieces are below the limit, and what is put round them makes little.
    ("grpc.max_receive_message_length", MESSAGE_LIMIT + 4_096),
    ("grpc.max_send_message_length", MESSAGE_LIMIT + 4_096),
    ("grpc.dns_min_time_between_resolutions_ms", 1_000),
    ("grpc.so_reuseport", 0),
)
FIRST_WAIT, LONGEST_WAIT = 0.05, 2.0
TREE = pb.DESCRIPTOR.services_by_name["Tree"].full_name

log = logging.getLogger(__name__)
Handle = Callable[[str, Message], Sequence[Send]]


class Exchange:
    """The post office of one party; `handle` is its machine. Without credentials it speaks plain text."""

    def __init__(
        self, name: str, handle: Handle, codec: Codec, credentials: Credentials | None = None
    ) -> None:
        self.name, self._handle, self._codec = name, handle, codec
        # By name: the queue of the stream on which a party below was last heard.
        self._below: dict[str, Outgoing] = {}
        self._above: Outgoing | None = None
        self._root = ""
        self._server: grpc.aio.Server | None = None
        self._up: asyncio.Task[None] | None = None
        self._offered: list[tuple[str, Callable[[grpc.aio.Server], None]]] = []
        self._health = health.aio.HealthServicer()  # type: ignore[attr-defined]  # made at import
        self._credentials, self._guards = credentials, Guards(name)
        self.uplink = Uplink(name)
        self.dropped = self.received = self.sent = 0
        self.bytes_up = self.bytes_down = self.bytes_below = 0

    # Sending

    def send(self, sends: Sequence[Send]) -> None:
        """Put messages on their way."""
        for each in sends:
            self._route(self._codec.encode(self.name, each.to, each.message))

    def _route(self, envelope: pb.Envelope, data: bytes | None = None, *, upwards: bool = True) -> None:
        queue = self._below.get(envelope.to) or (self._above if upwards else None)
        if queue is None or not queue.put(envelope, data):
            self.dropped += 1

    def _arrived(self, envelope: pb.Envelope, data: bytes, *, above: bool) -> None:
        self.received += 1
        if envelope.to != self.name:
            # Up goes what is for the root, and nothing that has come from there: it would come back.
            self._route(envelope, data, upwards=not above and envelope.to == self._root)
            return
        try:
            message = self._codec.decode(envelope)
        except Malformed as error:
            # One bad message is its sender's fault, and no reason to end what others say.
            log.warning("refused a message", extra={"sender": envelope.sender, "problem": str(error)})
            return
        self.send(self._handle(envelope.sender, message))

    # Below

    def offer(self, name: str, add: Callable[[grpc.aio.Server], None]) -> None:
        """Serve another service beside the tree's; before `serve`."""
        self._offered.append((name, add))

    async def serve(self, address: str) -> int:
        """Listen for parties below; gives the port."""
        server = grpc.aio.server(options=OPTIONS, interceptors=[Gate()] if self._credentials else [])
        # Bytes, not messages: what is passed on is not made anew, and the size of the rest is known.
        link = grpc.stream_stream_rpc_method_handler(self.link)
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(TREE, {"Link": link}),))
        health_pb2_grpc.add_HealthServicer_to_server(self._health, server)
        for _, add in self._offered:
            add(server)
        offered = (name for name, _ in self._offered)
        names = (TREE, health.SERVICE_NAME, *offered, reflection.SERVICE_NAME)
        reflection.enable_server_reflection(names, server)
        if self._credentials is None:
            port = server.add_insecure_port(address)
        else:
            port = server.add_secure_port(address, self._credentials.server())
        await server.start()
        await self._health.set("", health_pb2.HealthCheckResponse.SERVING)
        await self.ready(False)
        self._server = server
        return port

    async def ready(self, ready: bool) -> None:
        """Tell whoever asks for the health of the tree's service; that of "" says only that this lives."""
        health_states = health_pb2.HealthCheckResponse
        await self._health.set(TREE, health_states.SERVING if ready else health_states.NOT_SERVING)

    async def link(self, requests: AsyncIterator[bytes], context: Any) -> AsyncIterator[bytes]:
        """One stream from below."""
        queue = Outgoing()
        reading = asyncio.create_task(self._read_below(requests, queue, context))
        reading.add_done_callback(lambda _: queue.close())
        try:
            while messages := await queue.get():
                self.sent += 1
                for data in messages:
                    yield data
            await reading
        finally:
            reading.cancel()
            self._below = {name: held for name, held in self._below.items() if held is not queue}

    async def _read_below(self, requests: AsyncIterator[bytes], queue: Outgoing, context: Any) -> None:
        guard = None if self._credentials is None else self._guards.guard(Peer.of(context.auth_context()))
        try:
            await self._read_guarded(requests, queue, context, guard)
        finally:
            if guard is not None:
                guard.close()

    async def _read_guarded(
        self, requests: AsyncIterator[bytes], queue: Outgoing, context: Any, guard: Guard | None
    ) -> None:
        first, assembly = True, Assembly()
        async for message in requests:
            self.bytes_below += len(message)
            whole = self._whole(assembly, message)
            if whole is None:
                continue
            envelope, data = whole
            if guard is not None and (refusal := guard.refusal(envelope)) is not None:
                if not refusal.told:
                    said = "refused a message" if refusal.dropped else "refused a stream"
                    log.warning(said, extra={"sender": envelope.sender, "problem": refusal.sentence})
                if refusal.dropped:
                    continue
                await context.abort(refusal.code, refusal.sentence)
            if first:
                first = False
                if not max(PROTOCOL - 1, 1) <= envelope.protocol <= PROTOCOL + 1:
                    sentence = f"{envelope.sender} speaks version {envelope.protocol} of the protocol, "
                    sentence += f"{self.name} version {PROTOCOL}; upgrade the older one"
                    await context.abort(grpc.StatusCode.FAILED_PRECONDITION, sentence)
                # Only now: that this side answers means that it takes what the other one says.
                queue.put(pb.Envelope(protocol=PROTOCOL, sender=self.name, to=envelope.sender))
            self._below[envelope.sender] = queue
            if envelope.WhichOneof("message") is not None:
                self._arrived(envelope, data, above=False)

    def _whole(self, assembly: Assembly, message: bytes) -> tuple[pb.Envelope, bytes] | None:
        try:
            return assembly.take(message)
        except Malformed as error:
            log.warning("refused a message", extra={"problem": str(error)})
            return None

    # Above

    def connect(self, address: str, parent: str, root: str) -> None:
        """Keep a stream to the parent, from now on, in place of the one there was.

        With credentials it must prove that it is `parent`; without a name, that the address is its own.
        """
        if self._up is not None:
            self._up.cancel()
        self.uplink.turn(parent, address)
        self._guards.above = frozenset((parent, root))
        self._root = root
        self._above = Outgoing()
        self._up = asyncio.create_task(self._keep(address, self._above))

    async def _keep(self, address: str, queue: Outgoing) -> None:
        wait = FIRST_WAIT
        while True:
            problem: grpc.aio.AioRpcError | OSError | None = None
            try:
                async with self._channel(address) as channel:
                    taken, assembly = asyncio.Event(), Assembly()
                    link: Any = channel.stream_stream(f"/{TREE}/Link", None, None)
                    async for message in link(self._saying(queue, taken)):
                        wait = FIRST_WAIT
                        taken.set()
                        self.bytes_down += len(message)
                        whole = self._whole(assembly, message)
                        if whole is None:
                            continue
                        self.uplink.came(whole[0].sender)
                        if whole[0].WhichOneof("message") is not None:
                            self._arrived(*whole, above=True)
            except (grpc.aio.AioRpcError, OSError) as error:
                problem = error
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                # A call that had failed answers a cancellation with its failure: nobody wants it again.
                return
            if self.uplink.lost(problem):
                wait = LONGEST_WAIT
            await asyncio.sleep(wait)
            wait = min(2 * wait, LONGEST_WAIT)

    def _channel(self, address: str) -> grpc.aio.Channel:
        if self._credentials is None:
            return grpc.aio.insecure_channel(address, options=OPTIONS)
        # A parent is known by its name, wherever it runs.
        named = self.uplink.parent
        options = (*OPTIONS, ("grpc.ssl_target_name_override", named)) if named else OPTIONS
        return grpc.aio.secure_channel(address, self._credentials.channel(), options=options)

    async def _saying(self, queue: Outgoing, taken: asyncio.Event) -> AsyncIterator[bytes]:
        yield pb.Envelope(protocol=PROTOCOL, sender=self.name, to=self.name).SerializeToString()
        # Until the parent has answered: to write on a stream that it refuses would hide its reason.
        await taken.wait()
        while True:
            for data in await queue.get():
                self.bytes_up += len(data)
                yield data
            self.sent += 1

    async def close(self) -> None:
        if self._up is not None:
            self._up.cancel()
            await asyncio.gather(self._up, return_exceptions=True)
        if self._server is not None:
            await self._server.stop(0.2)
