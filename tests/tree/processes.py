"""A tree of real processes for tests: a root, a child, and what came out of them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headwater.topology import Topology, topology_of
from headwater_cli.feeds import Feed
from headwater_cli.verify import differing
from headwater_root import resultlines
from headwater_root.outbox import Outbox


def document(
    queries: list[dict[str, Any]],
    expected: int = 1,
    limits: dict[str, int] | None = None,
    sinks: list[dict[str, str]] | None = None,
) -> dict[str, Any]:
    return {
        "apiVersion": "headwater.dev/v1alpha1",
        "kind": "AggregationTopology",
        "metadata": {"name": "test"},
        "spec": {
            "sources": [{"class": "s", "site": "here", "expected": expected, "rate": 100, "lateness": "1s"}],
            "queries": queries,
            "limits": limits or {},
            "root": {"engine": "embedded", "sinks": sinks or [{"type": "console"}]},
        },
    }


QUERIES = [
    {"id": "t", "aggregate": ["sum", "count", "median"], "window": {"type": "tumbling", "length": "1s"}},
    {"id": "k", "aggregate": ["max", "avg"], "window": {"type": "tumbling", "length": "1s"}, "keyBy": "key"},
]


@dataclass(slots=True)
class Tree:
    """Root and child `leaf`; `address` is where the child listens."""

    directory: Path
    topology: Topology
    running: list[subprocess.Popen[str]] = field(default_factory=list)
    above: int = 0
    port: int = 0
    # Where the child archives raw events, if it does.
    archive: Path | None = None
    # After how many seconds of silence the child calls a source idle; None: as usual.
    idle_after: float | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def started(self, *arguments: object) -> tuple[subprocess.Popen[str], int]:
        process = subprocess.Popen(
            [sys.executable, "-m", *map(str, arguments)], stdout=subprocess.PIPE, text=True
        )
        self.running.append(process)
        assert process.stdout is not None
        return process, int(json.loads(process.stdout.readline())["port"])

    def child(self, listen: str = "127.0.0.1:0") -> subprocess.Popen[str]:
        given = {
            "name": "leaf",
            "role": "child",
            "listen": listen,
            "parent": "root",
            "parent_address": f"127.0.0.1:{self.above}",
            "flush_interval": 0.03,
            "archive": None if self.archive is None else {"path": str(self.archive)},
            "idle_after": self.idle_after,
        }
        path = self.directory / "leaf.json"
        path.write_text(json.dumps(given))
        process, self.port = self.started("headwater_node", "--config", path)
        return process

    def stop(self) -> None:
        for process in reversed(self.running):
            process.terminate()
            process.wait(20)

    def rows(self) -> list[Any]:
        outbox = Outbox(self.directory / "root" / "outbox")
        return [row for _, lines in outbox.read(0) for row in resultlines.decode(lines)]

    def differing(self, feeds: Iterable[Feed]) -> int:
        """Of a tree that has stopped."""
        return differing(self.topology, self.directory, feeds)


@contextmanager
def tree(
    directory: Path,
    expected: int = 1,
    queries: list[dict[str, Any]] | None = None,
    limits: dict[str, int] | None = None,
    sinks: list[dict[str, str]] | None = None,
    archive: Path | None = None,
    idle_after: float | None = None,
) -> Iterator[Tree]:
    manifest = document(queries or QUERIES, expected, limits, sinks)
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / "topology.json"
    path.write_text(json.dumps(manifest))
    found = Tree(directory, topology_of(manifest), archive=archive, idle_after=idle_after)
    try:
        command = ["headwater_root", "--topology", path, "--directory", directory / "root", "--keep-results"]
        _, found.above = found.started(*command)
        found.child()
        yield found
    finally:
        for process in found.running:
            process.kill()
            process.wait()
            assert process.stdout is not None
            process.stdout.close()
