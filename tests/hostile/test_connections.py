"""Many connections, readers that do not read, floods of pings: the source that behaves goes on."""

from __future__ import annotations

import resource
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress

import pytest

from headwater_wire.v1 import tree_pb2 as pb
from tests.hostile.ground import PATIENCE, Ground, Talker, first, ground
from tests.programs import until

HOST = "127.0.0.1"
IDLE = 10_000
# Bytes that an idle connection may cost a program: this many are more than it has ever taken.
CONNECTION_BYTES = 64 << 10
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0"
PING = b"\0\0\x08\x06\0\0\0\0\0" + b"12345678"


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ground]:
    with ground(tmp_path_factory.mktemp("connections")) as found:
        yield found
        found.assert_exact()


@contextmanager
def descriptors(wanted: int) -> Iterator[int]:
    """As many as this process may have, up to those that are wanted."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, most), hard))
    try:
        yield max(soft, most)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def connected(stack: ExitStack, port: int, count: int, said: bytes = b"") -> list[socket.socket]:
    made = []
    for _ in range(count):
        held = stack.enter_context(socket.create_connection((HOST, port), PATIENCE))
        if said:
            held.sendall(said)
        made.append(held)
    return made


def open_files(tree: Ground, name: str) -> int:
    (line,) = [
        line
        for line in tree.programs[name].get("/metrics")[1].splitlines()
        if line.startswith("process_open_fds")
    ]
    return int(float(line.split()[1]))


@pytest.mark.parametrize("said", [b"", PREFACE], ids=["silent", "speaking HTTP/2"])
def test_ten_thousand_idle_connections(tree: Ground, said: bytes) -> None:
    with descriptors(IDLE + 1_000) as most, ExitStack() as stack:
        count = min(IDLE, most - 500)
        before, files = tree.resident("leaf"), open_files(tree, "leaf")
        connected(stack, tree.programs["leaf"].port, count, said)
        until(lambda: open_files(tree, "leaf") >= files + count * 9 // 10, "they are not taken")
        tree.healthy()
        # A new stream is served beside them.
        with Talker(tree.programs["leaf"].port) as talker:
            talker.begin("x-new")
        cost = (tree.resident("leaf") - before) // count
        print(f"{count} idle connections, {cost} bytes each")
        assert cost < CONNECTION_BYTES
    until(lambda: open_files(tree, "leaf") < files + 100, "they are not let go")
    tree.healthy()


def test_connections_beyond_the_bound_are_closed(tree: Ground) -> None:
    """A node with few descriptors keeps some for itself, and says who takes the others."""
    files = 900
    tree.node("narrow", "mid", "child", runner=("tests.hostile.limited", files))
    narrow, bound = tree.programs["narrow"], files - 450
    with ExitStack() as stack, Talker(narrow.port) as talker:
        talker.begin("x-before")
        made = connected(stack, narrow.port, 2 * bound)
        closed = 0
        for each in made:
            each.settimeout(0.05)
            with suppress(TimeoutError, ConnectionError):
                closed += each.recv(1) == b""
        assert closed >= bound
        until(lambda: ("connections", HOST) in tree.offences("narrow"), "nobody is told")
        (line,) = tree.told("narrow", "connections", HOST)
        assert f"of {bound} connections are taken" in line["problem"]
        assert open_files(tree, "narrow") < files - 300
        # Whoever was there before is served on.
        stream = pb.StreamId(opener="x-before", number=1)
        talker.say(pb.Envelope(sender="x-before", to="narrow", probe=pb.Probe(stream=stream, id="p")))
        talker.hear_of("commit")
        assert narrow.get("/readyz")[0] == 200
    tree.healthy()


def test_a_reader_that_does_not_read(tree: Ground) -> None:
    name = "x-slow"
    stream = pb.StreamId(opener=name, number=1)
    probe = pb.Envelope(sender=name, to="leaf", probe=pb.Probe(stream=stream, id="p"))
    said = probe.SerializeToString()
    # So that the library takes little in advance.
    options = [("grpc.http2.lookahead_bytes", 4_096), ("grpc.http2.bdp_probe", 0)]
    port = tree.programs["leaf"].port
    with tree.attacked("leaf", "slow", name), Talker(port, options=options) as talker:
        # Each is answered; of the answers not one is taken.
        talker.say(first(name), *[said] * 25_000)
        until(lambda: ("slow", name) in tree.offences("leaf"), "all is answered")
        tree.healthy()


@pytest.mark.parametrize("victim", ["leaf", "root"])
def test_a_flood_of_pings_ends_the_connection(tree: Ground, victim: str) -> None:
    before = tree.resident(victim)
    with socket.create_connection((HOST, tree.programs[victim].port), PATIENCE) as flood:
        heard = b""
        with suppress(ConnectionError):
            flood.sendall(PREFACE)
            for _ in range(200):
                flood.sendall(PING * 100)
        with suppress(ConnectionError):
            while data := flood.recv(1 << 16):
                heard += data
                # The status of HTTP/2 for it is ENHANCE_YOUR_CALM.
                if b"too_many_pings" in heard:
                    break
        assert b"too_many_pings" in heard
    tree.healthy()
    assert tree.resident(victim) - before < 32 << 20


@pytest.mark.parametrize("victim", ["leaf", "root"])
def test_noise_instead_of_http(tree: Ground, victim: str) -> None:
    for _ in range(50):
        with (
            socket.create_connection((HOST, tree.programs[victim].port), PATIENCE) as noisy,
            suppress(ConnectionError),
        ):
            noisy.sendall(b"\x16\x03\x01" + bytes(range(256)) * 40)
            while noisy.recv(1 << 16):
                pass
    tree.healthy()
