"""A connection that is of no use is given up by all who share it."""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress

import grpc
import grpc.aio

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
