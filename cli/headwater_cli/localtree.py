"""A tree as processes of this machine: nodes that begin, turn to another parent, and end."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine, Iterable, Sequence
from pathlib import Path
from typing import Any

from headwater.durations import SECOND
from headwater.planning.trees import ROOT, Tree
from headwater.topology import Topology
from headwater_cli.nodes import Nodes
from headwater_cli.processes import Process


class LocalTree:
    """The root and the nodes that there are at present."""

    def __init__(
        self,
        topology: Topology,
        document: dict[str, Any],
        directory: Path,
        *,
        spark: bool,
        limits: tuple[float, float] | None = None,
        log: Path | None = None,
    ) -> None:
        """Files are kept in `directory`; processes log to `log`. No node takes more items a second than the
        first of the `limits`, nor the root than the second."""
        self._topology, self._document, self._directory = topology, document, directory
        self._spark, self._limits, self._log = spark, limits, log
        # The root, then nodes in the order in which they were begun.
        self.processes: list[Process] = []
        self.tree = Tree()
        # The codes of those that were ended before the others.
        self.ended: dict[str, int | None] = {}

    @property
    def root(self) -> Process:
        return self.processes[0]

    def process(self, name: str) -> Process:
        return next(process for process in self.processes if process.name == name)

    def layers(self) -> list[Nodes]:
        """From the children up."""
        found = {process.name: process for process in self.processes}
        return [
            Nodes(layer_name(number), [found[name] for name in names if name in found])
            for number, names in enumerate(self.tree.layers, start=1)
        ]

    async def start(self, tree: Tree) -> None:
        """The root, layers from the top down, children last."""
        manifest = self._directory / "topology.json"
        manifest.write_text(json.dumps(self._document))
        program = ["headwater_spark", "--brief"] if self._spark else ["headwater_root"]
        command = ["-m", *program, "--topology", str(manifest), "--directory", str(self._directory / "root")]
        if self._limits is not None:
            command += ["--ingest-limit", f"{self._limits[1]:.12g}"]
        await self._begin(Process(ROOT, [*command, "--status", "--keep-results"], self._log))
        await self.begin(tree, tree.nodes)

    async def begin(self, tree: Tree, names: Iterable[str]) -> None:
        """Start nodes of a tree; those above them are there, or among them."""
        fresh = set(names)
        self.tree = tree
        for number in range(len(tree.layers), 0, -1):
            await _all(
                self._node(name, number, tree.parents[name])
                for name in tree.layers[number - 1]
                if name in fresh
            )

    def turn(self, name: str, parent: str) -> None:
        """Have a node send to another parent."""
        path = self._directory / f"{name}.json"
        above = self.process(parent)
        given = json.loads(path.read_text())
        given |= {"parent": parent, "parent_address": f"127.0.0.1:{above.port}"}
        path.write_text(json.dumps(given))
        self.process(name).hang_up()

    async def end(self, names: Sequence[str]) -> None:
        """End nodes to which nobody sends any more; what they hold, their parents take."""
        for name in names:
            process = self.process(name)
            # Nobody is to wonder that it ends.
            self.ended[name] = None
            self.ended[name] = await process.stop()
            self.processes.remove(process)

    def kill(self) -> None:
        """Nobody waits for anything any more."""
        for process in self.processes:
            process.kill()

    async def stop(self) -> dict[str, int | None]:
        """End everything; gives the code of each process that ever was."""
        # From the edge to the root: what a node still holds, its parent takes.
        places = {name: place for place, names in enumerate(self.tree.layers) for name in names}
        last = len(self.tree.layers)
        codes: dict[str, int | None] = {}
        for process in sorted(
            self.processes, key=lambda each: last + 1 if each.name == ROOT else places.get(each.name, last)
        ):
            codes[process.name] = await process.stop()
        return {**self.ended, **codes}

    async def _node(self, name: str, layer: int, parent: str) -> None:
        role = "child" if layer == 1 else "intermediate"
        given: dict[str, Any] = {
            "name": name,
            "role": role,
            "listen": "127.0.0.1:0",
            "parent": parent,
            "parent_address": f"127.0.0.1:{self.process(parent).port}",
            "flush_interval": self._topology.flush_interval / SECOND,
            "idle_after": self._topology.idle_after / SECOND,
            "horizon": self._topology.horizon / SECOND,
        }
        if self._limits is not None:
            given["ingest_limit"] = self._limits[0]
        if role == "child" and (archive := self._document["spec"].get("archive")):
            given["archive"] = archive
        path = self._directory / f"{name}.json"
        path.write_text(json.dumps(given))
        await self._begin(
            Process(name, ["-m", "headwater_node", "--config", str(path), "--status"], self._log)
        )

    async def _begin(self, process: Process) -> None:
        self.processes.append(process)
        await process.start()


def layer_name(number: int) -> str:
    return "children" if number == 1 else f"layer {number}"


async def _all(starting: Iterable[Coroutine[Any, Any, None]]) -> None:
    """All of them, or none goes on starting when one has failed: who stops them has to know of each."""
    tasks = [asyncio.create_task(each) for each in starting]
    try:
        await asyncio.gather(*tasks)
    except BaseException:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise
