"""A source that is given several addresses begins at any of them, and stays with none that does not serve."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from headwater.machines.messages import Message, Send
from headwater_source.addresses import split_addresses
from headwater_source.client import SourceClient
from headwater_source.spool import Spool
from headwater_wire.credentials import Credentials
from tests.certificates import Authority
from tests.wire.parties import Party, parties, until


@pytest.mark.parametrize(
    "text, addresses",
    [
        ("10.0.0.4:7070", ["10.0.0.4:7070"]),
        ("ipv4:10.0.0.4:7070,10.0.0.5:7071", ["ipv4:10.0.0.4:7070", "ipv4:10.0.0.5:7071"]),
        ("ipv4:10.0.0.4:7070,ipv4:10.0.0.5:7071,", ["ipv4:10.0.0.4:7070", "ipv4:10.0.0.5:7071"]),
        ("ipv4:10.0.0.4:7070, ipv6:[fd00::4]:7070", ["ipv4:10.0.0.4:7070", "ipv6:[fd00::4]:7070"]),
        ("ipv6:[fd00::4]:7070,[fd00::5]:7070", ["ipv6:[fd00::4]:7070", "ipv6:[fd00::5]:7070"]),
        ("a.plant:7070,b.plant:7070,a.plant:7070", ["a.plant:7070", "b.plant:7070"]),
        ("unix:/run/a,b", ["unix:/run/a,b"]),
        ("dns:///a.plant:7070", ["dns:///a.plant:7070"]),
        ("", [""]),
    ],
)
def test_each_address_of_a_list_is_a_target(text: str, addresses: list[str]) -> None:
    assert split_addresses(text) == addresses


class Mute(Party):
    """A child that takes every stream, and whose way up is broken: it answers nothing."""

    def _take(self, sender: str, message: Message) -> list[Send]:
        self.heard.append((sender, message))
        return []


@asynccontextmanager
async def sources(
    directory: Path,
    address: str,
    credentials: Callable[[str], Credentials | None],
    count: int = 1,
    *,
    child: str | None = None,
) -> AsyncIterator[list[SourceClient]]:
    """Sources of one process with an event each."""
    clients = []
    spools = []
    try:
        for number in range(count):
            name = f"s{number}"
            spools.append(spool := Spool.open(directory / name, limit_bytes=1 << 20))
            spool.append([0], [1.0])
            clients.append(client := SourceClient(name, child, spool, credentials=credentials(name)))
            client.start(address)
        yield clients
    finally:
        for client in clients:
            await client.stop()
        for spool in spools:
            spool.close()


def plain(_: str) -> None:
    return None


def peers(clients: list[SourceClient]) -> set[str]:
    return {client.exchange.uplink.peer for client in clients}


@pytest.mark.parametrize("tls", [False, True])
@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("first", ["nobody", "blackhole"])
def test_a_child_is_found_at_any_of_several_addresses(
    tmp_path: Path, first: str, count: int, tls: bool
) -> None:
    """With certificates each address is compared with that of the child which is there."""
    authority = Authority(tmp_path)

    async def run(silent: int) -> None:
        child = Party("child-2", authority.issue("child-2", "127.0.0.1", role="node") if tls else None)
        async with parties(child):
            port = await child.exchange.serve("127.0.0.1:0")
            address = f"ipv4:127.0.0.1:{silent if first == 'blackhole' else _free_port()},127.0.0.1:{port}"
            issue = authority.issue if tls else plain
            async with sources(tmp_path, address, issue, count) as clients:
                await until(lambda: peers(clients) == {"child-2"})

    with socket.socket() as listening:
        # It accepts connections, and nobody ever reads them.
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        asyncio.run(run(listening.getsockname()[1]))


def test_a_child_is_found_at_any_of_several_names(tmp_path: Path) -> None:
    async def run() -> None:
        child = Party("child-2")
        async with parties(child):
            port = await child.exchange.serve("127.0.0.1:0")
            address = f"localhost:{_free_port()},localhost:{port}"
            async with sources(tmp_path, address, plain) as clients:
                await until(lambda: peers(clients) == {"child-2"})

    asyncio.run(run())


@pytest.mark.parametrize("tls", [False, True])
def test_the_other_address_is_tried_when_a_child_dies(tmp_path: Path, tls: bool) -> None:
    authority = Authority(tmp_path)

    async def run() -> None:
        names = ("c0", "c1")
        issued = [authority.issue(name, "127.0.0.1", role="node") if tls else None for name in names]
        children = [Party(name, each) for name, each in zip(names, issued, strict=True)]
        async with parties(*children):
            ports = [await child.exchange.serve("127.0.0.1:0") for child in children]
            address = f"ipv4:127.0.0.1:{ports[0]},127.0.0.1:{ports[1]}"
            async with sources(tmp_path, address, authority.issue if tls else plain) as clients:
                await until(lambda: peers(clients) == {"c0"})
                await children[0].exchange.close()
                await until(lambda: peers(clients) == {"c1"})

    asyncio.run(run())


@pytest.mark.parametrize("child", [None, "plant-ingest"])
@pytest.mark.parametrize("tls", [False, True])
@pytest.mark.parametrize("count", [1, 3])
def test_a_child_that_answers_streams_alone_is_left_for_another_address(
    tmp_path: Path, count: int, tls: bool, child: str | None
) -> None:
    """`child` is a name that the certificates of all children bear, that of a Service."""
    authority = Authority(tmp_path)

    async def run() -> None:
        issued = [
            authority.issue(name, "127.0.0.1", "plant-ingest", role="node") if tls else None
            for name in ("mute", "sound")
        ]
        mute, sound = Mute("mute", issued[0]), Party("sound", issued[1])
        async with parties(mute, sound):
            ports = [await child.exchange.serve("127.0.0.1:0") for child in (mute, sound)]
            address = f"ipv4:127.0.0.1:{ports[0]},127.0.0.1:{ports[1]}"
            issue = authority.issue if tls else plain
            async with sources(tmp_path, address, issue, count, child=child) as clients:
                await until(lambda: peers(clients) == {"mute"} and len(mute.heard) >= count)
                await until(lambda: peers(clients) == {"sound"})
                await until(lambda: {name for name, _ in sound.heard} == {each.name for each in clients})

    asyncio.run(run())


def test_a_source_says_what_each_of_its_addresses_answered(tmp_path: Path) -> None:
    authority = Authority(tmp_path)

    async def run() -> None:
        child = Party("c", authority.issue("c", "127.0.0.1", role="node"))
        async with parties(child):
            dead, port = _free_port(), await child.exchange.serve("127.0.0.1:0")
            address = f"ipv4:127.0.0.1:{dead},127.0.0.1:{port}"

            # Its certificate is of somebody else.
            def issue(name: str) -> Credentials:
                return authority.issue(f"another-{name}")

            async with sources(tmp_path, address, issue) as (client,):
                await until(lambda: "UNAUTHENTICATED" in (client.wait or ""))
                wait = client.wait
                assert wait is not None
                assert f"ipv4:127.0.0.1:{dead}: UNAVAILABLE" in wait
                assert f"ipv4:127.0.0.1:{port}: UNAUTHENTICATED" in wait

    asyncio.run(run())


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
