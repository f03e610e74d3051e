"""A connection that is of no use is given up by all who share it."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import grpc
import grpc.aio
import pytest

from headwater.machines.messages import Challenge, Message, Send
from headwater_wire.dials import Dials, targets_of
from headwater_wire.exchange import Exchange
from headwater_wire.messages import Codec
from tests.certificates import Authority
from tests.patience import PATIENCE
from tests.wire.parties import Party, parties, until


def test_a_connection_is_given_up_once_for_all() -> None:
    dials = Dials()
    assert dials.number("a") == 0
    dials.renew("a", 0)
    # The others have found out the same.
    dials.renew("a", 0)
    assert (dials.number("a"), dials.number("b")) == (1, 0)


@pytest.mark.parametrize(
    "addresses, targets",
    [
        ("10.0.0.4:7070", ["10.0.0.4:7070"]),
        ("ipv4:10.0.0.4:7070,10.0.0.5:7071", ["ipv4:10.0.0.4:7070", "ipv4:10.0.0.5:7071"]),
        ("ipv4:10.0.0.4:7070,ipv4:10.0.0.5:7071,", ["ipv4:10.0.0.4:7070", "ipv4:10.0.0.5:7071"]),
        ("ipv6:[fd00::4]:7070,[fd00::5]:7070", ["ipv6:[fd00::4]:7070", "ipv6:[fd00::5]:7070"]),
        ("a.plant:7070,b.plant:7070", ["a.plant:7070", "b.plant:7070"]),
        ("unix:/run/a,b", ["unix:/run/a,b"]),
        ("dns:///a.plant:7070", ["dns:///a.plant:7070"]),
        ("", [""]),
    ],
)
def test_each_of_several_addresses_is_a_target(addresses: str, targets: list[str]) -> None:
    assert targets_of(addresses) == targets


@pytest.mark.parametrize("sources", [1, 3])
@pytest.mark.parametrize("first", ["nobody", "blackhole"])
def test_with_certificates_a_child_is_found_at_any_of_several_addresses(
    tmp_path: Path, first: str, sources: int
) -> None:
    """Each is compared with the certificate of the child that is there."""
    authority = Authority(tmp_path)

    async def run(silent: int) -> None:
        child = Party("child-2", authority.issue("child-2", "127.0.0.1", role="node"))
        below = [Party(f"s{n}", authority.issue(f"s{n}")) for n in range(sources)]
        async with parties(child, *below):
            port = await child.exchange.serve("127.0.0.1:0")
            before = silent if first == "blackhole" else _free_port()
            for source in below:
                source.exchange.connect(f"ipv4:127.0.0.1:{before},127.0.0.1:{port}", "", "root")
            await until(lambda: all(source.exchange.uplink.connected for source in below))
            assert {source.exchange.uplink.peer for source in below} == {"child-2"}

    with socket.socket() as listening:
        # It accepts connections, and nobody ever reads them.
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        asyncio.run(run(listening.getsockname()[1]))


def test_with_certificates_the_other_address_is_tried_when_a_child_dies(tmp_path: Path) -> None:
    authority = Authority(tmp_path)

    async def run() -> None:
        children = [Party(f"c{n}", authority.issue(f"c{n}", "127.0.0.1", role="node")) for n in range(2)]
        source = Party("s1", authority.issue("s1"))
        async with parties(*children, source):
            ports = [await child.exchange.serve("127.0.0.1:0") for child in children]
            uplink = source.exchange.uplink
            source.exchange.connect(f"ipv4:127.0.0.1:{ports[0]},127.0.0.1:{ports[1]}", "", "root")
            await until(lambda: uplink.peer == "c0")
            await children[0].exchange.close()
            await until(lambda: uplink.peer == "c1")

    asyncio.run(run())


def test_a_refusal_at_one_of_several_addresses_is_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    authority = Authority(tmp_path)

    async def run() -> None:
        child = Party("c", authority.issue("c", "127.0.0.1", role="node"))
        # Its certificate is of somebody else.
        source = Party("s1", authority.issue("s2"))
        async with parties(child, source):
            port = await child.exchange.serve("127.0.0.1:0")
            address = f"ipv4:127.0.0.1:{_free_port()},127.0.0.1:{port}"
            source.exchange.connect(address, "", "root")
            problems: list[str] = []

            def has_alternated() -> bool:
                problem = source.exchange.uplink.problem
                if problem and problems[-1:] != [problem]:
                    problems.append(problem)
                return len(problems) >= 5

            await until(has_alternated)
            (refusal,) = [each for each in caplog.records if each.getMessage() == "the parent refuses"]
            assert vars(refusal)["address"] == f"ipv4:127.0.0.1:{port}"

    asyncio.run(run())


def test_a_child_is_found_at_any_of_several_names() -> None:
    async def run() -> None:
        child, source = Party("child-2"), Party("s1")
        async with parties(child, source):
            port = await child.exchange.serve("127.0.0.1:0")
            source.exchange.connect(f"localhost:{_free_port()},localhost:{port}", "", "root")
            await until(lambda: source.exchange.uplink.connected)

    asyncio.run(run())


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
