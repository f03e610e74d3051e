"""A tree that a plan is applied to, as real processes: nodes follow the root, sources are dealt out, and
every window is right while nodes come, go and are killed."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack, ExitStack, contextmanager
from pathlib import Path

import pytest

from headwater_operator.rootclient import RootClient, RootRefuses, connected
from headwater_operator.specification import Specification
from headwater_source.client import SourceClient
from headwater_wire.v1 import control_pb2 as pb
from tests.programs import Program, until
from tests.tree.processes import QUERIES, document
from tests.tree.test_moves import Grove, at, counted, reached

SOURCES = 6
RATES = (("here", 1_000_000, 100.0),)
OWNER = "a uid"
DOCUMENTS = tuple(json.dumps(query) for query in QUERIES)


class Managed(Grove):
    """Root and nodes that know no more than where the root is."""

    def root(self, port: int | None = None) -> Program:
        # The log has every query as a change.
        self._manifest = document([], SOURCES, sinks=[{"type": "jsonlines", "path": "out"}])
        self.path.write_text(json.dumps(self._manifest))
        command = ["headwater_root", "--topology", self.path, "--managed"]
        command += ["--directory", self.directory / "root"]
        command += ["--listen", f"127.0.0.1:{port or self.port()}", "--keep-results"]
        return self._stack.enter_context(Program(self._log(), *command))

    def follower(self, name: str, role: str = "child", port: int | None = None) -> Program:
        given = {
            "name": name,
            "role": role,
            "listen": f"127.0.0.1:{port or self.port()}",
            "root_address": f"127.0.0.1:{self.top.port}",
            "flush_interval": 0.02,
            "metrics": "127.0.0.1:0",
        }
        path = self.directory / f"{name}.json"
        path.write_text(json.dumps(given))
        return self._stack.enter_context(Program(self._log(), "headwater_node", "--config", path))

    @contextmanager
    def control(self) -> Iterator[RootClient]:
        with connected(f"127.0.0.1:{self.top.port}", None) as client:
            yield client

    def plan(self, generation: int, *nodes: tuple[str, str, float]) -> pb.ApplySpecReply:
        with self.control() as client:
            return client.apply(Specification(OWNER, generation, SOURCES, DOCUMENTS, nodes, RATES))

    def nodes(self) -> dict[str, pb.NodeStatus]:
        with self.control() as client:
            return {each.name: each for each in client.status().nodes}

    def reads(self) -> dict[str, int]:
        return {name: each.sources for name, each in self.nodes().items() if each.child}

    def parents(self) -> dict[str, str]:
        return {name: each.parent for name, each in self.nodes().items()}


@contextmanager
def managed(directory: Path) -> Iterator[Managed]:
    with ExitStack() as stack:
        yield Managed(directory, stack, SOURCES)


def ready(*nodes: Program) -> None:
    for node in nodes:
        until(lambda node=node: node.get("/readyz")[0] == 200, "it is not ready")  # type: ignore[misc]


def test_a_tree_is_planned_widened_and_loses_nodes_and_every_window_is_right(tmp_path: Path) -> None:
    async def run(trees: Managed) -> None:
        mid, a, b = trees.follower("mid", "intermediate"), trees.follower("a"), trees.follower("b")
        for node in (mid, a, b):
            status, said = node.get("/readyz")
            assert status != 200, said
        async with AsyncExitStack() as clients:
            spools = {f"s{n}": trees.spool(f"s{n}") for n in range(SOURCES)}
            sources: list[SourceClient] = []

            async def sent(rows: int) -> None:
                for name, spool in spools.items():
                    trees.append(name, spool, rows)
                for each in sources:
                    each.push()

            for name, spool in spools.items():
                trees.append(name, spool, 1_000)
                # All of them begin at one child.
                sources.append(await clients.enter_async_context(trees.client(name, spool, at(a))))
            await reached(lambda: len(trees.nodes()) == 3, "the nodes are not there")
            await asyncio.sleep(1)
            with trees.control() as client:
                assert client.status().totals.sources == 0, "nobody is admitted before there are queries"
            reply = trees.plan(1, ("mid", "root", 0), ("a", "mid", 400.0), ("b", "mid", 400.0))
            assert [(each.id, each.HasField("problems")) for each in reply.queries] == [
                ("t", False),
                ("k", False),
            ]
            await asyncio.to_thread(ready, mid, a, b)
            for each in sources:
                await counted(each)
            assert trees.reads() == {"a": 3, "b": 3}
            below = {"mid": "root", "a": "mid", "b": "mid"}
            await reached(lambda: trees.parents() == below, f"parents: {trees.parents()}")
            # Wider: another child and another intermediate; one child is to have nobody.
            await sent(2_000)
            new, c = trees.follower("new", "intermediate"), trees.follower("c")
            plan = [("mid", "root", 0.0), ("new", "root", 0.0), ("a", "mid", 200.0), ("c", "new", 450.0)]
            trees.plan(2, *plan)
            await asyncio.to_thread(ready, new, c)
            await reached(lambda: trees.reads() == {"a": 2, "b": 0, "c": 4}, f"dealt out: {trees.reads()}")
            await reached(lambda: trees.parents()["c"] == "new", f"parents: {trees.parents()}")
            assert await asyncio.to_thread(b.end, signal.SIGTERM) == 0
            await sent(2_000)
            # An intermediate is killed, and nobody plans: whoever is below it asks, and waits for it.
            mid.kill()
            await sent(1_000)
            await reached(lambda: a.get("/readyz")[0] != 200, "it seems ready without a parent")
            trees.plan(3, ("new", "root", 0), ("a", "new", 200.0), ("c", "new", 450.0))
            await reached(lambda: trees.parents()["a"] == "new", "it keeps to a parent that is gone")
            await sent(1_000)
            # The root comes back at the same place and knows the plan.
            port = trees.top.port
            trees.top.kill()
            trees.top = trees.root(port)
            await sent(1_000)
            with trees.control() as client:
                assert client.status().generation == 3
            for name, spool in spools.items():
                trees.end(name, spool)
            for each in sources:
                each.push()
                await counted(each)

    with managed(tmp_path) as trees:
        asyncio.run(run(trees))
        trees.assert_exact()


def test_sources_whose_child_has_ended_are_told_until_they_have_another(tmp_path: Path) -> None:
    def unassigned() -> int:
        with trees.control() as client:
            return client.status().totals.unassigned

    async def run() -> None:
        a, b = trees.follower("a"), trees.follower("b")
        trees.plan(1, ("a", "root", 400.0), ("b", "root", 400.0))
        await asyncio.to_thread(ready, a, b)
        spools = {f"s{n}": trees.spool(f"s{n}") for n in range(SOURCES)}

        async def spoken(via: Program) -> None:
            """All devices come, are counted, and go."""
            async with AsyncExitStack() as clients:
                for name, spool in spools.items():
                    trees.append(name, spool, 100)
                    await counted(await clients.enter_async_context(trees.client(name, spool, at(via))))

        await spoken(a)
        # Of those that have not come nobody says anything; of those that are away, the child is known.
        assert (trees.reads(), unassigned()) == ({"a": 3, "b": 3}, 0)
        assert await asyncio.to_thread(a.end, signal.SIGTERM) == 0
        await reached(lambda: unassigned() == 3, f"{unassigned()} have no child")
        await spoken(b)
        assert unassigned() == 0

    with managed(tmp_path) as trees:
        asyncio.run(run())


def test_a_plan_is_judged_whole_and_an_older_one_refused(tmp_path: Path) -> None:
    def wrong(nodes: Sequence[tuple[str, str, float]], *words: str, generation: int = 4) -> None:
        with pytest.raises(RootRefuses) as caught:
            trees.plan(generation, *nodes)
        assert all(word in str(caught.value) for word in words), str(caught.value)

    with managed(tmp_path) as trees:
        wrong([("a", "b", 1)], "nodes[0].parent: is 'b'", "or the root")
        wrong([("a", "b", 1), ("b", "a", 1)], "nodes[0].parent", "leads back to the node itself")
        wrong([("a", "root", 1), ("a", "root", 1)], "has a node twice")
        wrong([("a", "root", -1)], "nodes[0].capacity: is -1.0")
        wrong([("", "root", 1)], "nodes[0].node")
        with trees.control() as client:
            assert client.status().generation == 0, "nothing of it was applied"
        trees.plan(5, ("a", "root", 1.0))
        wrong([("a", "root", 1)], "is 4, but 5 was applied already", "plan what is asked for now")
        # What a volume was used for before says nothing of what it is used for now.
        with trees.control() as client:
            client.apply(Specification("another uid", 1, SOURCES, DOCUMENTS, (("a", "root", 1.0),), RATES))
            assert client.status().generation == 1
            client.apply(Specification(OWNER, 5, SOURCES, DOCUMENTS, (("a", "root", 1.0),), RATES))
        # The same again changes nothing.
        with trees.control() as client:
            before = client.status().position
            trees.plan(5, ("a", "root", 1.0))
            assert client.status().position == before
            # A query that cannot be taken is told of, and leaves the others and what there was of it.
            bad = json.dumps({"id": "t", "aggregate": "sum", "window": {"type": "tumbling", "length": "0s"}})
            more = json.dumps({**QUERIES[1], "id": "more"})
            told = client.apply(
                Specification(OWNER, 6, SOURCES, (bad, "{", more), (("a", "root", 1.0),), RATES)
            )
            assert [each.id for each in told.queries] == ["t", "", "more"]
            assert [bool(each.problems.problems) for each in told.queries] == [True, True, False]
            assert told.queries[0].problems.problems[0].field == "window.length"
            active = {each.id for each in client.queries() if each.state == pb.ListedQuery.STATE_ACTIVE}
            assert active == {"t", "more"}
            # Too many of them, in as many parts as it takes.
            many = tuple((f"n{n}", "root", 1.0) for n in range(10_001))
            with pytest.raises(RootRefuses, match="10001 entries"):
                client.apply(Specification(OWNER, 7, SOURCES, (), many, RATES))
            client.apply(Specification(OWNER, 7, SOURCES, (), many[:-1], RATES))
            assert client.status().digest == Specification(OWNER, 7, SOURCES, (), many[:-1], RATES).digest
