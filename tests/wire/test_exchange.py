"""Streams that are abused, too small, led in circles or dead."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from headwater.aggregates import UserDefined
from headwater.machines.messages import Ask, Hello, Message, Registered, Send, Stream
from headwater.queries import Query
from headwater.windows import Tumbling
from headwater_wire.credentials import Credentials
from headwater_wire.messages import PROTOCOL, Codec
from headwater_wire.outgoing import MESSAGE_LIMIT
from headwater_wire.v1 import tree_pb2 as pb
from tests.certificates import Authority
from tests.patience import PATIENCE
from tests.wire.parties import Party, parties, until

LINK = "/headwater.v1.Tree/Link"
# How a frame of HTTP/2 begins that answers a ping: eight bytes, the type 6, the flag ACK, and no stream.
PONG = b"\x00\x00\x08\x06\x01\x00\x00\x00\x00"


def asked(sources: int) -> list[Send]:
    """A question of so many bytes and more."""
    return [Send("root", Ask(Stream("c", 1, 1), 0, ("s" * sources,), 0))]


# Pieces


@asynccontextmanager
async def stream(
    port: int, credentials: Credentials | None = None, plain: Sequence[tuple[str, int]] = ()
) -> AsyncIterator[Any]:
    """A stream to the root by somebody who writes what they like; `plain`: options without credentials."""
    address = f"127.0.0.1:{port}"
    if credentials is None:
        channel = grpc.aio.insecure_channel(address, options=plain)
    else:
        options = [("grpc.ssl_target_name_override", "root")]
        channel = grpc.aio.secure_channel(address, credentials.channel(), options)
    async with channel:
        link: Any = channel.stream_stream(LINK, None, None)
        call = link()
        yield call
        call.cancel()


def first(name: str) -> bytes:
    return pb.Envelope(sender=name, to=name, protocol=PROTOCOL).SerializeToString()


def piece(name: str) -> bytes:
    """One that does not end."""
    return pb.Envelope(sender=name, to="root", piece=pb.Piece(data=bytes(100_000))).SerializeToString()


async def ended(call: Any) -> tuple[grpc.StatusCode, str]:
    async with asyncio.timeout(PATIENCE):
        return await call.code(), await call.details()


def test_nobody_sends_pieces_before_it_has_said_who_it_is(tmp_path: Path) -> None:
    authority = Authority(tmp_path)

    async def run() -> None:
        for held, mine, code in (
            (None, None, grpc.StatusCode.FAILED_PRECONDITION),
            (authority.issue("root"), authority.issue("other"), grpc.StatusCode.UNAUTHENTICATED),
        ):
            root = Party("root", held)
            async with parties(root):
                port = await root.exchange.serve("127.0.0.1:0")
                async with stream(port, mine) as call:
                    await call.write(piece("c"))
                    assert (await ended(call))[0] is code
                assert root.exchange.assembled == 0

    asyncio.run(run())


def test_sources_send_no_pieces(tmp_path: Path) -> None:
    authority = Authority(tmp_path)

    async def run() -> None:
        root = Party("root", authority.issue("root"))
        async with parties(root):
            port = await root.exchange.serve("127.0.0.1:0")
            async with stream(port, authority.issue("s1")) as call:
                await call.write(first("s1"))
                assert pb.Envelope.FromString(await call.read()).sender == "root"
                await call.write(piece("s1"))
                code, sentence = await ended(call)
                assert code is grpc.StatusCode.PERMISSION_DENIED
                assert "says piece, but its certificate is no node's" in sentence
            assert root.exchange.assembled == 0

    asyncio.run(run())


def test_what_a_stream_has_begun_goes_with_it() -> None:
    async def run() -> None:
        root = Party("root")
        async with parties(root):
            port = await root.exchange.serve("127.0.0.1:0")
            async with stream(port) as call:
                await call.write(first("c"))
                await call.write(piece("c"))
                await call.write(piece("c"))
                await until(lambda: root.exchange.assembled == 200_000)
            await until(lambda: root.exchange.assembled == 0)

    asyncio.run(run())


# How a stream ends


def test_whoever_is_refused_hears_why_though_the_answer_before_is_still_being_written() -> None:
    """A status that is sent beside the first message gets lost."""
    # So many bytes are taken before somebody reads: the answer to the first envelope is longer.
    few = [("grpc.http2.lookahead_bytes", 5), ("grpc.http2.bdp_probe", 0)]

    async def run() -> None:
        root = Party("root")
        async with parties(root):
            port = await root.exchange.serve("127.0.0.1:0")
            async with stream(port, plain=few) as call:
                await call.write(first("c"))
                await call.write(b"\xff")
                await until(lambda: root.exchange.refused)
                async with asyncio.timeout(PATIENCE):
                    assert pb.Envelope.FromString(await call.read()).sender == "root"
                code, sentence = await ended(call)
                assert code is grpc.StatusCode.INVALID_ARGUMENT
                assert "envelope: cannot be read" in sentence

    asyncio.run(run())


# Sizes


def test_what_is_too_large_is_told_once_and_holds_nothing_up(caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        root, child = Party("root"), Party("c", limit=2 * MESSAGE_LIMIT)
        async with parties(root, child):
            port = await root.exchange.serve("127.0.0.1:0")
            child.exchange.connect(f"127.0.0.1:{port}", "root", "root")
            for _ in range(3):
                child.exchange.send(asked(2 * MESSAGE_LIMIT))
            # In pieces, and as it is.
            child.exchange.send(asked(MESSAGE_LIMIT + 1))
            child.hello("root", "c")
            await until(lambda: child.heard)
            assert [type(message) for _, message in root.heard] == [Ask, Hello]
            assert (child.exchange.too_large, child.exchange.dropped) == (3, 0)

    asyncio.run(run())
    (told,) = [record for record in caplog.records if "too large" in record.getMessage()]
    assert vars(told)["bytes"] > vars(told)["limit"] == 2 * MESSAGE_LIMIT
    assert (vars(told)["kind"], vars(told)["to"]) == ("ask", "root")
    assert vars(told)["remedy"]


# Ways


def test_what_comes_from_above_for_nobody_does_not_go_back_up() -> None:
    async def run() -> None:
        root, node, gone = Party("root"), Party("c"), Party("d")
        async with parties(root, node):
            port = await root.exchange.serve("127.0.0.1:0")
            node.exchange.connect(f"127.0.0.1:{port}", "root", "root")
            below = await node.exchange.serve("127.0.0.1:0")
            async with parties(gone):
                gone.exchange.connect(f"127.0.0.1:{below}", "c", "root")
                gone.hello("root", "d")
                await until(lambda: gone.heard)
            dropped = node.exchange.dropped
            async with asyncio.timeout(PATIENCE):
                # What is said while the stream of d is not yet seen to be over is lost on that.
                while node.exchange.dropped == dropped:
                    root.hello("d", "x")
                    await asyncio.sleep(0.02)
            # Behind it, on the same stream: had it come back, it would have done so before this.
            node.hello("root", "c")
            await until(lambda: len(root.heard) == 2)
            assert [sender for sender, _ in root.heard] == ["d", "c"]
            assert root.exchange.received == 2

    asyncio.run(run())


class Faulty(Codec):
    """Raises what nobody expects, once."""

    raised = False

    def decode(self, envelope: pb.Envelope) -> Message:
        if not self.raised:
            self.raised = True
            raise ZeroDivisionError
        return super().decode(envelope)


def test_the_way_up_does_not_end_in_silence(caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        root, child = Party("root"), Party("c", codec=Faulty())
        async with parties(root, child):
            port = await root.exchange.serve("127.0.0.1:0")
            child.exchange.connect(f"127.0.0.1:{port}", "root", "root")
            async with asyncio.timeout(PATIENCE):
                while not child.heard:
                    child.hello("root", "c")
                    await asyncio.sleep(0.05)

    asyncio.run(run())
    told = [record.getMessage() for record in caplog.records]
    assert told.count("the stream to the parent failed") == 1


def unknown(to: str) -> Registered:
    query = Query("q", Tumbling("1s"), UserDefined("none", abs, max, abs))
    return Registered(to, "token", 1, (query,))


def test_what_only_the_root_may_tell_does_not_stop_a_party_if_it_comes_from_below() -> None:
    async def run() -> None:
        root, child = Party("root"), Party("c")
        async with parties(root, child):
            port = await root.exchange.serve("127.0.0.1:0")
            child.exchange.connect(f"127.0.0.1:{port}", "root", "root")
            child.exchange.send([Send("root", unknown("root"))])
            await until(lambda: root.exchange.refused)
            async with asyncio.timeout(PATIENCE):
                # Its stream has ended with that: what is said on the next one is heard.
                while not child.heard:
                    child.hello("root", "c")
                    await asyncio.sleep(0.05)
            assert (root.failed, root.exchange.refused) == ([], 1)
            root.exchange.send([Send("c", unknown("c"))])
            await until(lambda: child.failed)
            assert "'none' is no function of an installed package" in str(child.failed[0])

    asyncio.run(run())


# Life


class Relay:
    """Passes on what comes, until it is frozen: those who are connected then hear nothing more, not even that
    somebody has gone. Whoever connects afterwards is served again."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._frozen: set[asyncio.StreamReader] = set()
        self._readers: list[asyncio.StreamReader] = []
        self._writers: list[asyncio.StreamWriter] = []
        self._tasks: list[asyncio.Task[None]] = []
        # What has come, by from whom.
        self._passed = {"client": b"", "server": b""}
        # Who has given up a connection that was frozen.
        self.gave_up: list[str] = []

    async def __aenter__(self) -> Relay:
        self._listening = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        self.port = int(self._listening.sockets[0].getsockname()[1])
        return self

    async def __aexit__(self, *_: object) -> None:
        self._listening.close()
        for writer in self._writers:
            writer.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        above, up = await asyncio.open_connection("127.0.0.1", self._port)
        self._readers += [reader, above]
        self._writers += [writer, up]
        self._tasks += [
            asyncio.create_task(self._pass("client", reader, up)),
            asyncio.create_task(self._pass("server", above, writer)),
        ]

    async def _pass(self, who: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(65_536):
                self._passed[who] += data
                if reader not in self._frozen:
                    writer.write(data)
                    await writer.drain()
        if reader in self._frozen:
            self.gave_up.append(who)
        else:
            writer.close()

    def signs(self, who: str) -> int:
        """How many signs of life one has given when it was asked for them."""
        return self._passed[who].count(PONG)

    def freeze(self) -> None:
        self._frozen.update(self._readers)


@contextmanager
def elsewhere(port: int) -> Iterator[Relay]:
    """A relay in a thread: it passes on also while the loop of the test waits."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    relay = Relay(port)
    try:
        asyncio.run_coroutine_threadsafe(relay.__aenter__(), loop).result(PATIENCE)
        try:
            yield relay
        finally:
            asyncio.run_coroutine_threadsafe(relay.__aexit__(), loop).result(PATIENCE)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What was told of the way up."""
    return [record.getMessage() for record in caplog.records if record.getMessage().startswith("parent")]


def test_a_peer_that_vanishes_is_given_up_by_both_sides(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)

    async def run() -> None:
        root, child = Party("root", keepalive=(0.2, 0.5)), Party("c", keepalive=(0.2, 0.5))
        async with parties(root, child):
            port = await root.exchange.serve("127.0.0.1:0")
            async with Relay(port) as relay:
                child.exchange.connect(f"127.0.0.1:{relay.port}", "root", "root")
                child.hello("root", "c")
                await until(lambda: child.heard)
                relay.freeze()
                await until(lambda: {"client", "server"} <= set(relay.gave_up))
                # Another stream is opened, and all goes on.
                await until(lambda: len(said(caplog)) >= 3)
                assert said(caplog)[:3] == ["parent connected", "parent lost", "parent connected"]
                while len(child.heard) < 2:
                    # What is said on a stream that breaks is lost, and said again.
                    child.hello("root", "c")
                    await asyncio.sleep(0.05)

    asyncio.run(run())


def test_a_stream_at_rest_and_a_loop_that_waits_for_its_disk_are_not_given_up(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)

    async def run() -> None:
        # They ask often, and give nobody up because the machine is slow.
        root, child = Party("root", keepalive=(0.2, 60.0)), Party("c", keepalive=(0.2, 60.0))
        async with parties(root, child):
            port = await root.exchange.serve("127.0.0.1:0")
            with elsewhere(port) as relay:
                child.exchange.connect(f"127.0.0.1:{relay.port}", "root", "root")
                child.hello("root", "c")
                await until(lambda: child.heard)
                # Nothing is said, and signs of life are asked for many times, and given.
                await until(lambda: relay.signs("client") >= 4 and relay.signs("server") >= 4)
                # On purpose not asyncio's: nobody of this process answers meanwhile but gRPC itself, which
                # asks again only once it has taken the answer in.
                wanted = {who: relay.signs(who) + 3 for who in ("client", "server")}
                end = time.monotonic() + 60
                while any(relay.signs(who) < count for who, count in wanted.items()):
                    assert time.monotonic() < end, "there is no sign of life while the loop waits"
                    time.sleep(0.05)
                child.hello("root", "c")
                await until(lambda: len(child.heard) == 2)

    asyncio.run(run())
    assert said(caplog) == ["parent connected"]
