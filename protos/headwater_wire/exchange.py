"""Envelopes over gRPC: one stream to the parent, any number from below, and whatever is not for this
party is passed on.

It owns sockets and nothing else. Messages may be lost, when a stream breaks or a queue is full: the
machines say again what was not answered.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from time import monotonic
from typing import Any

import grpc
import grpc.aio
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from headwater.machines.messages import Message, Send
from headwater.sources import NAME_LIMIT
from headwater_wire.connections import Connections
from headwater_wire.credentials import Credentials
from headwater_wire.dials import Dials
from headwater_wire.errors import Malformed, NoRoom, OtherPrograms
from headwater_wire.gate import Gate
from headwater_wire.hosts import host_of
from headwater_wire.identity import Guard, Guards, Peer
from headwater_wire.messages import PROTOCOL, Codec
from headwater_wire.offences import PROBLEM_LENGTH, Offence, Offences
from headwater_wire.outgoing import ENVELOPE_LIMIT, MESSAGE_LIMIT, Assemblies, Assembly, Outgoing, parsed
from headwater_wire.unread import Unread
from headwater_wire.uplink import Uplink
from headwater_wire.v1 import tree_pb2 as pb

# After so many seconds of silence a peer is asked for a sign of life, and after so many more given up: a
# machine that vanishes says no goodbye, and TCP alone would wait for hours. Longer than a network is down for
# a moment; short enough that windows wait half a minute, not half a day.
KEEPALIVE = (15.0, 15.0)
# A server lets its clients ask that often before it tells them off (ENHANCE_YOUR_CALM): more than any release
# of them does. gRPC's own five minutes would end every stream that is at rest.
LEAST_KEEPALIVE_MS = 100
OPTIONS = (
    # Pieces are below the limit, and what is put round them makes little.
    ("grpc.max_receive_message_length", MESSAGE_LIMIT + 4_096),
    ("grpc.max_send_message_length", MESSAGE_LIMIT + 4_096),
    # So much of a stream may be on its way. gRPC would find out by pings how much more a link can hold, and
    # takes what waits before a slow one for its width: these pings and all signs of life are too late then.
    ("grpc.http2.bdp_probe", 0),
    ("grpc.http2.lookahead_bytes", 128 << 10),
    ("grpc.dns_min_time_between_resolutions_ms", 1_000),
    ("grpc.so_reuseport", 0),
)
# Bounds of a server, so that nobody takes all descriptors or all memory. A connection that says nothing
# sensible goes after so many milliseconds, and so does one on which no stream is open. A process with many
# sources has their streams on one connection, hence so many.
SERVER_OPTIONS = (
    ("grpc.server_handshake_timeout_ms", 20_000),
    ("grpc.max_connection_idle_ms", 120_000),
    ("grpc.max_concurrent_streams", 16_384),
)
STREAMS = 65_536
# So many parties are known by one stream: a node has those below it.
NAMES = 16_384
FIRST_WAIT, LONGEST_WAIT = 0.05, 1.0
# gRPC waits between attempts by itself, for up to two minutes, and channels of one process to one address
# share that: the waits above are enough.
RECONNECT = (
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 500),
)
# How many seconds one attempt to connect may take. A packet for an address whose owner has just gone gets no
# answer, and only the next attempt reaches the new one. Longer each time that it was not enough, up to gRPC's
# own bound, for a peer that is slow.
FIRST_ATTEMPT, LONGEST_ATTEMPT = 2.0, 20.0
# What an operator can do about a message that is too large, by its kind.
REMEDIES = {
    "columns": "the record is larger than a message: pass over it with `headwater source skip`",
    "delivery": "use fewer or shorter keys, or fewer functions that keep every value",
}
TREE = pb.DESCRIPTOR.services_by_name["Tree"].full_name

log = logging.getLogger(__name__)
unread = Unread()
dials = Dials()
Handle = Callable[[str, Message], Sequence[Send]]


def _keepalive(ask: float, give_up: float) -> tuple[tuple[str, int], ...]:
    return (
        ("grpc.keepalive_time_ms", int(1_000 * ask)),
        ("grpc.keepalive_timeout_ms", int(1_000 * give_up)),
        # While another ping is under way, with which gRPC measures the network, none is sent to keep alive.
        ("grpc.http2.ping_timeout_ms", int(1_000 * give_up)),
        # However long nothing is said: a stream that is at rest must be seen to be dead too.
        ("grpc.http2.max_pings_without_data", 0),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.min_ping_interval_without_data_ms", LEAST_KEEPALIVE_MS),
    )


@dataclass(slots=True)
class _Stream:
    """One stream from below."""

    # Of whoever is at the other end.
    host: str
    guard: Guard
    assembly: Assembly
    queue: Outgoing
    # The sender of the first envelope, once that was heeded, and all senders.
    owner: str = ""
    names: set[str] = field(default_factory=set)

    @property
    def offender(self) -> str:
        """Whoever is to blame for what comes: by certificate, or by the name that they go by, or by host."""
        return self.guard.who or self.host


class _Ended(Exception):
    """A stream is not heard any further."""

    def __init__(self, code: grpc.StatusCode, sentence: str) -> None:
        super().__init__(code, sentence)
        self.code, self.sentence = code, sentence

    @classmethod
    def by(cls, error: Malformed) -> _Ended:
        return cls(grpc.StatusCode.INVALID_ARGUMENT, str(error)[:PROBLEM_LENGTH])


def _check_names(envelope: pb.Envelope) -> None:
    for field_, name in (("sender", envelope.sender), ("to", envelope.to)):
        size = len(name.encode())
        if not 0 < size <= NAME_LIMIT:
            raise Malformed(field_, f"has {size} bytes", f"send 1 to {NAME_LIMIT}")


class Exchange:
    """The post office of one party; `handle` is its machine. Without credentials it speaks plain text."""

    def __init__(
        self,
        name: str,
        handle: Handle,
        codec: Codec,
        credentials: Credentials | None = None,
        *,
        limit: int = ENVELOPE_LIMIT,
        keepalive: tuple[float, float] = KEEPALIVE,
        fail: Callable[[Exception], None] = lambda error: None,
        plain_below: bool = False,
    ) -> None:
        """No envelope of more than `limit` bytes is sent. `keepalive` is how long a peer may be silent before
        it is asked for a sign of life, and how long that may take, in seconds. `fail` takes why this party
        cannot go on: what its parent says is beyond it. `plain_below`: the credentials are for the way up
        alone, and whoever is below speaks plain text."""
        self.name, self._handle, self._codec = name, handle, codec
        self._limit, self._fail = limit, fail
        self._options = (*OPTIONS, *_keepalive(*keepalive))
        # By name: the queue of the stream on which a party below was last heard.
        self._below: dict[str, Outgoing] = {}
        self._above: Outgoing | None = None
        self._root = ""
        self._server: grpc.aio.Server | None = None
        self._up: asyncio.Task[None] | None = None
        # The number of the connection to the parent (`Dials`).
        self._number = 0
        self._looking: asyncio.Task[None] | None = None
        self._offered: list[tuple[str, Callable[[grpc.aio.Server], None]]] = []
        self._health = health.aio.HealthServicer()  # type: ignore[attr-defined]  # made at import
        # Who has no certificate where the tree has some is a device.
        self._credentials, self._guards = (
            credentials,
            Guards(name, sources=plain_below and credentials is not None),
        )
        self._below_credentials = None if plain_below else credentials
        self._assemblies = Assemblies()
        # Kinds of messages of which one was larger than the limit, and was told of.
        self._told: set[str] = set()
        self.uplink = Uplink(name)
        self.offences = Offences()
        self._streams = 0
        self.dropped = self.received = self.sent = 0
        # Messages that were not sent because of their size, and such as could not be read here.
        self.too_large = self.refused = 0
        self.bytes_up = self.bytes_down = self.bytes_below = 0

    @property
    def assembled(self) -> int:
        """Bytes of envelopes that are not complete yet."""
        return self._assemblies.bytes

    # Sending

    def send(self, sends: Sequence[Send]) -> None:
        """Put messages on their way."""
        for each in sends:
            self._route(self._codec.encode(self.name, each.to, each.message))

    def _route(self, envelope: pb.Envelope, data: bytes | None = None, *, upwards: bool = True) -> None:
        """Put an envelope on its way; `data` is what it has come as, if it was sent here."""
        data = envelope.SerializeToString() if data is None else data
        if len(data) > self._limit:
            self._tell_size(envelope, len(data))
            return
        below = self._below.get(envelope.to)
        queue = below or (self._above if upwards else None)
        if queue is None or not queue.put(envelope, data):
            self.dropped += 1
            if below is not None:
                problem = "does not read what it is told, so it is told no more for the time being"
                self.offences.note(Offence.SLOW, envelope.to, problem)

    def _tell_size(self, envelope: pb.Envelope, size: int) -> None:
        """Warn once of each kind: what is not answered is said again and again."""
        self.too_large += 1
        kind = envelope.WhichOneof("message") or "nothing"
        if kind in self._told:
            return
        self._told.add(kind)
        extra = {"to": envelope.to, "kind": kind, "bytes": size, "limit": self._limit}
        remedy = REMEDIES.get(kind, "let there be fewer sources below one node, or fewer queries")
        log.error("a message is too large to be sent", extra={**extra, "remedy": remedy})

    def _arrived(self, envelope: pb.Envelope, data: bytes, *, above: bool) -> Malformed | None:
        """Take an envelope or pass it on; gives what is wrong with it."""
        self.received += 1
        if envelope.to != self.name:
            # Up goes what is for the root, and nothing that has come from there: it would come back.
            self._route(envelope, data, upwards=not above and envelope.to == self._root)
            return None
        try:
            message = self._codec.decode(envelope)
        except Malformed as error:
            return error
        self.send(self._handle(envelope.sender, message))
        return None

    def _refuse(self, error: Malformed, offender: str, sender: str) -> None:
        self.refused += 1
        offence = Offence.NO_ROOM if isinstance(error, NoRoom) else Offence.UNREADABLE
        forwarded = {} if sender in ("", offender) else {"forwarded": sender[:NAME_LIMIT]}
        self.offences.note(offence, offender, str(error), more=forwarded)

    # Below

    def offer(self, name: str, add: Callable[[grpc.aio.Server], None]) -> None:
        """Serve another service beside the tree's; before `serve`."""
        self._offered.append((name, add))

    async def serve(self, address: str) -> int:
        """Listen for parties below; gives the port."""
        connections = Connections(self.offences)
        options = (
            *self._options,
            *SERVER_OPTIONS,
            ("grpc.max_allowed_incoming_connections", connections.bound),
        )
        gates = [Gate(self.offences)] if self._below_credentials else []
        server = grpc.aio.server(options=options, interceptors=gates)
        # Bytes, not messages: what is passed on is not made anew, and the size of the rest is known.
        link = grpc.stream_stream_rpc_method_handler(self.link)
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(TREE, {"Link": link}),))
        health_pb2_grpc.add_HealthServicer_to_server(self._health, server)
        for _, add in self._offered:
            add(server)
        offered = (name for name, _ in self._offered)
        names = (TREE, health.SERVICE_NAME, *offered, reflection.SERVICE_NAME)
        reflection.enable_server_reflection(names, server)
        if self._below_credentials is None:
            port = server.add_insecure_port(address)
        else:
            port = server.add_secure_port(address, self._below_credentials.server())
        await server.start()
        await self._health.set("", health_pb2.HealthCheckResponse.SERVING)
        await self.ready(False)
        self._server = server
        self._looking = asyncio.create_task(connections.watch(port))
        return port

    def refuse_connection(self, host: str, problem: str) -> None:
        """Somebody wanted to connect and may not."""
        self.offences.note(Offence.HANDSHAKE, host, problem)

    async def ready(self, ready: bool) -> None:
        """Tell whoever asks for the health of the tree's service; that of "" says only that this lives."""
        health_states = health_pb2.HealthCheckResponse
        await self._health.set(TREE, health_states.SERVING if ready else health_states.NOT_SERVING)

    async def link(self, requests: AsyncIterator[bytes], context: Any) -> AsyncIterator[bytes]:
        """One stream from below."""
        if self._streams >= STREAMS:
            sentence = f"{self.name} has {STREAMS} streams already; let there be more nodes"
            self.offences.note(Offence.STREAMS, host_of(context.peer()), sentence)
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, sentence)
        self._streams += 1
        queue = Outgoing()
        reading = asyncio.create_task(self._read_below(requests, queue, context))
        # A stream that is over is written to no more.
        reading.add_done_callback(lambda _: queue.turn())
        try:
            while messages := await queue.get():
                self.sent += 1
                for data in messages:
                    yield data
            await reading
        except _Ended as ended:
            # Here and not where it was found: a status that is sent beside a message may get lost.
            await context.abort(ended.code, ended.sentence)
        finally:
            self._streams -= 1
            reading.cancel()
            self._below = {name: held for name, held in self._below.items() if held is not queue}

    async def _read_below(self, requests: AsyncIterator[bytes], queue: Outgoing, context: Any) -> None:
        peer = Peer.of(context.auth_context()) if self._below_credentials else None
        guard = self._guards.guard(peer)
        assembly = self._assemblies.assembly()
        stream = _Stream(host_of(context.peer()), guard, assembly, queue)
        try:
            await self._read_guarded(requests, stream)
            if unread.took_nothing():
                problem = (
                    f"a message of more than {MESSAGE_LIMIT} bytes, or one that cannot be inflated to less"
                )
                self.refused += 1
                self.offences.note(Offence.TOO_LARGE, stream.offender, problem)
        finally:
            assembly.close()
            guard.close()

    async def _read_guarded(self, requests: AsyncIterator[bytes], stream: _Stream) -> None:
        async for message in requests:
            self.bytes_below += len(message)
            sender = ""
            try:
                envelope = parsed(message)
                sender = envelope.sender
                _check_names(envelope)
                # Before anything is kept of it: a piece bears the name of whoever sends the whole.
                if not self._may_pass(stream, envelope):
                    continue
                if not stream.owner:
                    self._agree(envelope, stream)
                    stream.owner = sender
                whole = stream.assembly.take(envelope, message)
                if whole is None or (
                    # What pieces have come to is looked at too.
                    whole[0] is not envelope and not self._may_pass(stream, whole[0])
                ):
                    continue
                # A greeting alone may be of somebody who only looks who is there: answers go where they went.
                if whole[0].WhichOneof("message") is not None or sender not in self._below:
                    self._hear(sender, stream)
            except Malformed as error:
                self._refuse(error, stream.offender, sender)
                # Where somebody keeps to no rules at all, nothing that follows means anything.
                if not isinstance(error, NoRoom):
                    raise _Ended.by(error) from error
                continue
            if whole[0].WhichOneof("message") is not None:
                wrong = self._arrived(*whole, above=False)
                if wrong is not None:
                    self._refuse(wrong, stream.offender, sender)
                    # What a node passes on is its sender's fault, and no reason to end what others say.
                    if sender == stream.owner:
                        raise _Ended.by(wrong)

    def _hear(self, sender: str, stream: _Stream) -> None:
        """What is for the sender goes to this stream from now on."""
        if self._below.get(sender) is stream.queue:
            return
        if len(stream.names) >= NAMES and sender not in stream.names:
            raise NoRoom("sender", f"is the {NAMES + 1}th on its stream", "let there be more nodes")
        stream.names.add(sender)
        self._below[sender] = stream.queue

    def _may_pass(self, stream: _Stream, envelope: pb.Envelope) -> bool:
        """Whether an envelope may be said here; the stream ends if that is not forgivable."""
        refusal = stream.guard.refusal(envelope)
        if refusal is None:
            return True
        offence = Offence.FORWARDED if refusal.dropped else Offence.IDENTITY
        self.offences.note(offence, stream.offender, refusal.sentence, more={"claimed": envelope.sender})
        if not refusal.dropped:
            raise _Ended(refusal.code, refusal.sentence)
        return False

    def _agree(self, envelope: pb.Envelope, stream: _Stream) -> None:
        """The first envelope names the version; the stream ends if it is not one that this party speaks."""
        if not max(PROTOCOL - 1, 1) <= envelope.protocol <= PROTOCOL + 1:
            sentence = f"{envelope.sender} speaks version {envelope.protocol} of the protocol, "
            sentence += f"{self.name} version {PROTOCOL}; upgrade the older one"
            self.offences.note(Offence.VERSION, stream.offender, sentence, more={"claimed": envelope.sender})
            raise _Ended(grpc.StatusCode.FAILED_PRECONDITION, sentence)
        # Only now: that this side answers means that it takes what the other one says.
        answer = pb.Envelope(protocol=PROTOCOL, sender=self.name, to=envelope.sender)
        stream.queue.put(answer, answer.SerializeToString())

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
        # A child assembles nothing for sources.
        self._above = Outgoing(whole=self._limit <= MESSAGE_LIMIT)
        self._up = asyncio.create_task(self._keep(address, self._above))

    async def _keep(self, address: str, queue: Outgoing) -> None:
        wait, attempt = FIRST_WAIT, FIRST_ATTEMPT
        while True:
            problem: Exception | None = None
            assembly = self._assemblies.assembly()
            taken = asyncio.Event()
            begin, number = monotonic(), dials.number(address)
            self._number = number
            try:
                async with self._channel(address, self.uplink.parent, attempt, number) as channel:
                    link: Any = channel.stream_stream(f"/{TREE}/Link", None, None)
                    async for message in link(self._saying(queue, queue.turn(), taken)):
                        wait, attempt = FIRST_WAIT, FIRST_ATTEMPT
                        taken.set()
                        self._heard_above(assembly, message)
            except (grpc.aio.AioRpcError, OSError) as error:
                problem = error
            # Whatever it is, the way up must not end in silence: another stream is opened.
            except Exception as error:
                log.exception("the stream to the parent failed", extra={"parent": self.uplink.parent})
                problem = error
            finally:
                assembly.close()
                # gRPC leaves what it reads from waiting: that ends, and takes nothing of the next stream's.
                queue.turn()
                taken.set()
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                # A call that had failed answers a cancellation with its failure: nobody wants it again.
                return
            if not self.uplink.connected:
                dials.renew(address, number)
                if monotonic() - begin >= attempt:
                    attempt = min(2 * attempt, LONGEST_ATTEMPT)
            if self.uplink.lost(problem):
                wait = LONGEST_WAIT
            await asyncio.sleep(wait)
            wait = min(2 * wait, LONGEST_WAIT)

    def _heard_above(self, assembly: Assembly, message: bytes) -> None:
        self.bytes_down += len(message)
        try:
            whole = assembly.take(parsed(message), message)
        except Malformed as error:
            self._refuse(error, self.uplink.parent, "")
            return
        if whole is None:
            return
        self.uplink.came(whole[0].sender)
        if whole[0].WhichOneof("message") is not None:
            wrong = self._arrived(*whole, above=True)
            if isinstance(wrong, OtherPrograms):
                # From there alone: whoever is below cannot stop this party.
                self._fail(wrong)
            elif wrong is not None:
                self._refuse(wrong, self.uplink.parent, whole[0].sender)

    async def reach(self, address: str, name: str) -> str:
        """Who answers at an address, beside the present parent; raises what hinders it. With credentials
        whoever it is must prove to be `name`, or without one, that the address is its own."""

        ended = asyncio.Event()

        async def greet() -> AsyncIterator[bytes]:
            yield pb.Envelope(protocol=PROTOCOL, sender=self.name, to=self.name).SerializeToString()
            # gRPC leaves what it reads from waiting when a call ends.
            await ended.wait()

        number, peer = dials.number(address), ""
        try:
            async with self._channel(address, name, FIRST_ATTEMPT, number) as channel:
                link: Any = channel.stream_stream(f"/{TREE}/Link", None, None)
                call = link(greet())
                try:
                    async for message in call:
                        peer = parsed(message).sender
                        break
                finally:
                    call.cancel()
        finally:
            ended.set()
            if not peer:
                dials.renew(address, number)
        return peer

    def redial(self, address: str) -> None:
        """Whoever connects to the address of the present parent next makes a new connection, one for all of
        this process: the one there is does not serve."""
        if address == self.uplink.address:
            dials.renew(address, self._number)

    def _channel(self, address: str, name: str, attempt: float, number: int) -> grpc.aio.Channel:
        """`attempt`: how many seconds connecting may take; `number`: that of the connection (`Dials`)."""
        options = (
            *self._options,
            *RECONNECT,
            ("grpc.min_reconnect_backoff_ms", int(1_000 * attempt)),
            ("headwater.dial", number),
        )
        if self._credentials is None:
            return grpc.aio.insecure_channel(address, options=options)
        # A parent is known by its name, wherever it runs.
        override = (("grpc.ssl_target_name_override", name),) if name else ()
        channel = self._credentials.channel()
        return grpc.aio.secure_channel(address, channel, options=(*options, *override))

    async def _saying(self, queue: Outgoing, reader: int, taken: asyncio.Event) -> AsyncIterator[bytes]:
        yield pb.Envelope(protocol=PROTOCOL, sender=self.name, to=self.name).SerializeToString()
        # Until the parent has answered: to write on a stream that it refuses would hide its reason.
        await taken.wait()
        while found := await queue.get(reader):
            for data in found:
                self.bytes_up += len(data)
                yield data
            self.sent += 1

    async def close(self) -> None:
        if self._up is not None:
            self._up.cancel()
            await asyncio.gather(self._up, return_exceptions=True)
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.gather(self._looking, return_exceptions=True)
        if self._server is not None:
            await self._server.stop(0.2)
