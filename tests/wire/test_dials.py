"""A connection that is of no use is given up by all who share it."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence
from contextlib import suppress

import grpc
import grpc.aio

from headwater.machines.messages import Challenge, Message, Send
from headwater_wire.dials import Dials
from headwater_wire.exchange import Exchange
from headwater_wire.messages import Codec
from tests.patience import PATIENCE


def test_a_connection_is_given_up_once_for_all() -> None:
    dials = Dials()
    assert dials.number("a") == 0
    dials.renew("a", 0)
    # The others have found out the same.
    dials.renew("a", 0)
    assert (dials.number("a"), dials.number("b")) == (1, 0)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


async def _forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError, asyncio.CancelledError):
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()
    writer.close()


def test_a_stranger_at_an_address_is_left_as_soon_as_a_child_is_there() -> None:
    """Behind one address first a server that knows nothing of trees, then a child. The stranger keeps every
    connection open, and the sources of one process share theirs."""

    async def run() -> None:
        stranger = grpc.aio.server()
        strange = stranger.add_insecure_port("127.0.0.1:0")
        await stranger.start()
        child = Exchange("c", lambda sender, message: [], Codec())
        below = await child.serve("127.0.0.1:0")
        behind = [strange]

        async def connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            there, here = await asyncio.open_connection("127.0.0.1", behind[0])
            await asyncio.gather(_forward(reader, here), _forward(there, writer))

        port = _free_port()
        service = await asyncio.start_server(connect, "127.0.0.1", port)
        sources = [Exchange(f"s{n}", lambda sender, message: [], Codec()) for n in range(12)]
        try:
            for source in sources:
                source.connect(f"127.0.0.1:{port}", "", "root")
            async with asyncio.timeout(PATIENCE):
                while not all(each.uplink.problem for each in sources):
                    await asyncio.sleep(0.01)
                assert all("UNIMPLEMENTED" in str(each.uplink.problem) for each in sources)
                behind[0] = below
                while not all(each.uplink.connected for each in sources):
                    await asyncio.sleep(0.01)
            assert {each.uplink.peer for each in sources} == {"c"}
        finally:
            for each in (*sources, child):
                await each.close()
            service.close()
            await stranger.stop(None)

    asyncio.run(run())


def test_a_silent_connection_is_made_anew_once_for_all_sources() -> None:
    async def run() -> None:
        child = Exchange("c", lambda sender, message: [], Codec())
        port = await child.serve("127.0.0.1:0")
        accepted = 0

        async def connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal accepted
            accepted += 1
            there, here = await asyncio.open_connection("127.0.0.1", port)
            await asyncio.gather(_forward(reader, here), _forward(there, writer))

        way = _free_port()
        service = await asyncio.start_server(connect, "127.0.0.1", way)
        sources = [Exchange(f"s{n}", lambda sender, message: [], Codec()) for n in range(12)]
        try:
            for round_ in (1, 2):
                for source in sources:
                    # As a source does whose child is silent.
                    source.redial(f"127.0.0.1:{way}")
                    source.connect(f"127.0.0.1:{way}", "", "root")
                async with asyncio.timeout(PATIENCE):
                    while not all(each.uplink.connected for each in sources):
                        await asyncio.sleep(0.01)
                assert accepted == round_
        finally:
            for each in (*sources, child):
                await each.close()
            service.close()

    asyncio.run(run())


def test_who_looks_who_is_there_takes_no_answers_away() -> None:
    """A source may try the address at which it is connected already."""
    answers: list[str] = []

    def take(sender: str, message: Message) -> Sequence[Send]:
        answers.append(type(message).__name__)
        return []

    async def run() -> None:
        child = Exchange("c", lambda sender, message: [], Codec())
        port = await child.serve("127.0.0.1:0")
        source = Exchange("s", take, Codec())
        try:
            source.connect(f"127.0.0.1:{port}", "", "root")
            async with asyncio.timeout(PATIENCE):
                while not source.uplink.connected:
                    await asyncio.sleep(0.01)
                before = asyncio.all_tasks()
                assert await source.reach(f"127.0.0.1:{port}", "") == "c"
                child.send([Send("s", Challenge("s", "opening", "nonce"))])
                while not answers:
                    await asyncio.sleep(0.01)
                # Nothing of the try is left.
                while any("consume_request" in repr(task) for task in asyncio.all_tasks() - before):
                    await asyncio.sleep(0.01)
        finally:
            for each in (source, child):
                await each.close()

    asyncio.run(run())
    assert answers == ["Challenge"]
