"""Nodes that come, go and are replaced, as real processes: whoever reads a source, each event counts once."""

from __future__ import annotations

import asyncio
import json
import shutil
import signal
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from pathlib import Path

import pytest

from headwater.machines.records import Admitted, Assigned, Began
from headwater.machines.source import Settings
from headwater.topology import topology_of
from headwater_cli.feeds import Kept, beat
from headwater_cli.verify import differing
from headwater_root.log import Log
from headwater_source.client import SourceClient
from headwater_source.columns import Events
from headwater_source.spool import Spool
from headwater_wire import records as stored
from headwater_wire.messages import Codec
from tests.patience import PATIENCE
from tests.programs import Program, until
from tests.spools import LATENESS, append, disordered
from tests.tree.processes import QUERIES, document

SECOND = 1_000_000


class Grove:
    """A root and nodes as processes, sources in this one; what was sent is compared with what came out."""

    def __init__(self, directory: Path, stack: ExitStack, expected: int) -> None:
        self.directory, self._stack = directory, stack
        self._manifest = document(QUERIES, expected)
        self.path = directory / "topology.json"
        self.path.write_text(json.dumps(self._manifest))
        self.feeds: dict[str, Kept] = {}
        self._started = 0
        self.top = self.root()

    def _log(self) -> Path:
        self._started += 1
        return self.directory / f"{self._started}.log"

    def port(self) -> int:
        """A free port that nobody else gets before the end of the test: it is bound, so that it is given to
        none who asks for any, but may be listened on by whoever asks for it."""
        held = self._stack.enter_context(socket.socket())
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(("127.0.0.1", 0))
        return int(held.getsockname()[1])

    def root(self, port: int | None = None) -> Program:
        command = ["headwater_root", "--topology", self.path, "--directory", self.directory / "root"]
        command += ["--listen", f"127.0.0.1:{port or self.port()}", "--keep-results"]
        return self._stack.enter_context(Program(self._log(), *command))

    def node(self, name: str, port: int | None = None) -> Program:
        given = {
            "name": name,
            "role": "child",
            "listen": f"127.0.0.1:{port or self.port()}",
            "parent": "root",
            "parent_address": f"127.0.0.1:{self.top.port}",
            "flush_interval": 0.02,
            "metrics": "127.0.0.1:0",
        }
        path = self.directory / f"{name}.json"
        path.write_text(json.dumps(given))
        found = self._stack.enter_context(Program(self._log(), "headwater_node", "--config", path))
        until(lambda: found.get("/readyz")[0] == 200, f"{name} is not ready")
        return found

    def spool(self, name: str) -> Spool:
        self.feeds[name] = Kept(name, "here", LATENESS)
        return self._stack.enter_context(Spool.open(self.directory / name, limit_bytes=64 << 20))

    def append(self, name: str, spool: Spool, rows: int) -> None:
        """Some events of a source in some disorder, some of them late."""
        kept = self.feeds[name].kept
        self._append(name, spool, disordered(len(kept), sum(len(part) for part in kept), rows))

    def end(self, name: str, spool: Spool) -> None:
        """Nothing follows: all windows close."""
        self._append(name, spool, beat(3_000 * SECOND))

    def _append(self, name: str, spool: Spool, events: Events) -> None:
        append(spool, events)
        self.feeds[name].kept.append(events)

    @asynccontextmanager
    async def client(self, name: str, spool: Spool, to: str, child: str = "") -> AsyncIterator[SourceClient]:
        found = SourceClient(name, child, spool, Settings("here", LATENESS, rows=500))
        found.start(to)
        try:
            yield found
        finally:
            await found.stop()

    def assert_exact(self) -> None:
        """Everything that was sent is counted once, and every window is the oracle's; ends the root."""
        assert self.top.end(signal.SIGTERM) == 0
        assert differing(topology_of(self._manifest), self.directory, self.feeds.values()) == 0
        with Log.open(self.directory / "root" / "inbox") as log:
            self.assigned = [
                (record.body.source, record.body.child)
                for _, data in log.read(0)
                if isinstance((record := stored.decode(data, Codec())).body, Assigned)
            ]


@contextmanager
def grove(directory: Path, expected: int = 1) -> Iterator[Grove]:
    with ExitStack() as stack:
        yield Grove(directory, stack, expected)


def at(node: Program) -> str:
    return f"127.0.0.1:{node.port}"


async def reached(asked: Callable[[], object], what: str) -> None:
    try:
        async with asyncio.timeout(PATIENCE):
            while not asked():
                await asyncio.sleep(0.02)
    except TimeoutError:
        pytest.fail(what)


async def counted(client: SourceClient) -> None:
    await reached(lambda: client.done, f"{client.name} is not counted: {vars(client.exchange.uplink)}")


async def assigned(client: SourceClient, child: str, address: str) -> None:
    await reached(lambda: client.machine.assigned == (child, address), f"it is not assigned to {child}")


async def ended(program: Program, *signals: signal.Signals) -> int:
    return await asyncio.to_thread(program.end, *signals)


def test_a_source_is_sent_on_to_its_child_and_comes_back_when_that_is_killed(tmp_path: Path) -> None:
    async def run(trees: Grove) -> None:
        a, b = trees.node("a"), trees.node("b")
        spool = trees.spool("s")
        trees.append("s", spool, 3_000)
        async with trees.client("s", spool, at(a)) as client:
            await counted(client)
        # It says hello to another child than that which it is assigned to.
        trees.append("s", spool, 3_000)
        async with trees.client("s", spool, at(b)) as client:
            await counted(client)
            # It is read where it is until its child is known to be reachable.
            uplink = client.exchange.uplink
            await reached(lambda: (uplink.peer, uplink.address) == ("a", at(a)), "it is not at its child")
            trees.append("s", spool, 12_000)
            client.push()
            await reached(lambda: client.sent > 8_000, "nothing is under way")
            a.kill()
            trees.append("s", spool, 3_000)
            trees.end("s", spool)
            await counted(client)
            await assigned(client, "b", at(b))
            assert (client.exchange.uplink.peer, client.exchange.uplink.address) == ("b", at(b))

    with grove(tmp_path) as trees:
        asyncio.run(run(trees))
        trees.assert_exact()
        assert trees.assigned == [("s", "a"), ("s", "b")]


def test_a_later_process_with_the_name_of_a_node_takes_over(tmp_path: Path) -> None:
    async def run(trees: Grove) -> None:
        first = trees.node("c")
        port = trees.port()
        spool = trees.spool("s")
        async with trees.client("s", spool, f"ipv4:{at(first)},127.0.0.1:{port}") as client:
            trees.append("s", spool, 3_000)
            await counted(client)
            trees.append("s", spool, 12_000)
            client.push()
            await reached(lambda: client.sent > 6_000, "nothing is under way")
            first.signal(signal.SIGSTOP)
            second = trees.node("c", port)
            trees.append("s", spool, 3_000)
            # What it has under way is of a generation that is over.
            assert await ended(first, signal.SIGCONT) == 5
            (line,) = first.said("ended: another process has this node's name since")
            assert line["node"] == "c"
            trees.end("s", spool)
            await counted(client)
            assert await ended(second, signal.SIGTERM) == 0

    with grove(tmp_path) as trees:
        asyncio.run(run(trees))
        trees.assert_exact()


def test_a_root_with_an_older_copy_of_its_log_halts(tmp_path: Path) -> None:
    async def run(trees: Grove) -> None:
        child = trees.node("c")
        spool = trees.spool("s")
        async with trees.client("s", spool, at(child)) as client:
            trees.append("s", spool, 3_000)
            await counted(client)
            port = trees.top.port
            assert await ended(trees.top, signal.SIGTERM) == 0
            shutil.copytree(tmp_path / "root", tmp_path / "copy")
            trees.top = trees.root(port)
            trees.append("s", spool, 3_000)
            await counted(client)
            trees.top.kill()
            shutil.rmtree(tmp_path / "root")
            shutil.copytree(tmp_path / "copy", tmp_path / "root")
            trees.append("s", spool, 3_000)
            trees.top = trees.root(port)
            assert await ended(trees.top) == 4
            (line,) = trees.top.said("halted")
            assert "c has heard of record" in line["problem"]
            assert "give the root the newest copy of its log" in line["problem"]
            # It has counted nothing of what came behind the copy.
            assert spool.counted == 6_000
            assert not client.done

    def records(directory: Path) -> list[bytes]:
        with Log.open(directory / "inbox") as log:
            return [data for _, data in log.read(0)]

    with grove(tmp_path) as trees:
        asyncio.run(run(trees))
        found, copied = records(tmp_path / "root"), records(tmp_path / "copy")
        # A term was begun, and that is all.
        assert found[:-1] == copied
        assert isinstance(stored.decode(found[-1], Codec()).body, Began)


def test_a_root_whose_log_is_gone_halts_and_can_begin_anew_with_its_nodes(tmp_path: Path) -> None:
    async def run(trees: Grove) -> None:
        child = trees.node("c")
        spool = trees.spool("s")
        async with trees.client("s", spool, at(child)) as client:
            trees.append("s", spool, 3_000)
            await counted(client)
            port, below = trees.top.port, child.port
            assert await ended(trees.top, signal.SIGTERM) == 0
            shutil.rmtree(tmp_path / "root")
            trees.append("s", spool, 1_000)
            trees.top = trees.root(port)
            assert await ended(trees.top) == 4
            (line,) = trees.top.said("halted")
            assert "c is of generation 1, but the log here ends at record 1" in line["problem"]
            # The node is not sent away for it: it waits for the root that it knows.
            assert child.get("/healthz")[0] == 200
            child.kill()
            # On purpose: the source goes on, with what its spool still has.
            shutil.rmtree(tmp_path / "root")
            trees.top = trees.root(port)
            trees.node("c", below)
            await counted(client)
            assert spool.counted == 4_000

    with grove(tmp_path) as trees:
        asyncio.run(run(trees))
        assert trees.top.end(signal.SIGTERM) == 0
    with Log.open(tmp_path / "root" / "inbox") as log:
        bodies = [stored.decode(data, Codec()).body for _, data in log.read(0)]
    (admitted,) = [body for body in bodies if isinstance(body, Admitted)]
    assert admitted.offset == 3_000


def test_a_child_that_drains_leaves_its_sources_to_others(tmp_path: Path) -> None:
    async def run(trees: Grove) -> None:
        a, b = trees.node("a"), trees.node("b")
        spools = {name: trees.spool(name) for name in ("s0", "s1")}
        async with trees.client("s1", spools["s1"], at(a)) as client:
            trees.append("s1", spools["s1"], 100)
            await counted(client)
        # One knows both children, the other knows one and is sent on.
        async with (
            trees.client("s0", spools["s0"], f"ipv4:{at(a)},{at(b)}") as one,
            trees.client("s1", spools["s1"], at(b)) as other,
        ):
            clients = {"s0": one, "s1": other}
            for name, spool in spools.items():
                trees.append(name, spool, 3_000)
            for client in clients.values():
                await counted(client)
            # It is read where it is until its child is known to answer.
            await reached(
                lambda: {client.exchange.uplink.peer for client in clients.values()} == {"a"},
                "not all are read by their child",
            )
            for name, spool in spools.items():
                trees.append(name, spool, 12_000)
                clients[name].push()
            await reached(lambda: one.sent > 5_000 and other.sent > 5_000, "nothing is under way")
            assert await ended(a, signal.SIGTERM) == 0
            (line,) = a.said("drain ended")
            assert line["drained"] is True
            for name, spool in spools.items():
                trees.end(name, spool)
            for client in clients.values():
                await counted(client)
                await assigned(client, "b", at(b))
            assert [client.exchange.uplink.peer for client in clients.values()] == ["b", "b"]

    with grove(tmp_path, expected=2) as trees:
        asyncio.run(run(trees))
        trees.assert_exact()
        assert {name for name, child in trees.assigned if child == "b"} == {"s0", "s1"}
