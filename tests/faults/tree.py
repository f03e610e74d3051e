"""The tree of a cell: two sources, a child for each, an intermediate node and the root, all as processes."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyarrow import parquet

from headwater.durations import SECOND
from headwater.topology import Topology, topology_of
from headwater_cli.verify import compared
from headwater_root import resultlines
from headwater_root.outbox import Outbox
from tests.faults.kept import Kept
from tests.faults.load import Desk, Sent
from tests.faults.network import Network
from tests.faults.processes import Memory, Process, python, until
from tests.faults.volume import Volume

MIB = 2**20
# No process may ever be larger than that, whatever happens: interpreter, numpy and gRPC are about 60 MiB, a
# child holds at most 32 MiB of columns, and a link 16 MiB of batches.
MEMORY_BOUND = 256 * MIB
SOURCES = {"s1": "c1", "s2": "c2"}
# Events a second of each source.
RATE = 200.0
PORTS = {"root": 7000, "mid": 7100, "c1": 7201, "c2": 7202}
# Where the replacement of a node listens: beside it.
BESIDE = 50

QUERIES = [
    {"id": "t", "aggregate": ["sum", "count", "median"], "window": {"type": "tumbling", "length": "1s"}},
    {
        "id": "k",
        "aggregate": ["max", "avg"],
        "window": {"type": "sliding", "length": "2s", "slide": "1s"},
        "keyBy": "key",
    },
    {"id": "s", "aggregate": "count", "window": {"type": "session", "gap": "30ms"}, "keyBy": "key"},
    {"id": "n", "aggregate": ["sum", "last"], "window": {"type": "tumbling", "count": 100}},
]


def manifest(engine: str = "embedded") -> dict[str, Any]:
    sources = [{"class": "s", "site": "here", "expected": len(SOURCES), "rate": RATE, "lateness": "1s"}]
    sinks = [{"type": "jsonlines", "path": "lines"}]
    if engine == "spark":
        sinks.append({"type": "parquet", "path": "table"})
    return {
        "apiVersion": "headwater.dev/v1alpha1",
        "kind": "AggregationTopology",
        "metadata": {"name": "faults"},
        "spec": {
            "sources": sources,
            "queries": QUERIES,
            "root": {"engine": engine, "sinks": sinks},
        },
    }


@dataclass(slots=True)
class Verdict:
    """What came of a cell."""

    events: int = 0
    late: int = 0
    rejected: int = 0
    windows: int = 0
    wrong: int = 0
    # By role, in MiB.
    memory: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Shape:
    """How a tree differs from the usual one."""

    network: bool = False
    snapshot_mib: float = 64.0
    spool_bytes: int = 64 * MIB
    rate: float = RATE
    # Programs whose clock can be stepped.
    stepped: bool = False
    # Where the tasks of a root that is a Spark job run; none: it is no Spark job.
    spark: str = ""
    # Whether the root keeps what it need not; otherwise the cell does.
    keep: bool = True


class Tree:
    """Processes by their names, and what they have done."""

    def __init__(self, directory: Path, shape: Shape, network: Network | None) -> None:
        self.directory, self.shape, self.network = directory, shape, network
        self.start = time.time_ns() // 1_000 // SECOND * SECOND
        self.manifest = directory / "topology.json"
        document = manifest("spark" if shape.spark else "embedded")
        self.manifest.write_text(json.dumps(document))
        self.topology: Topology = topology_of(document)
        self.root_directory = directory / "root"
        self.desks = {name: Desk(directory / name) for name in SOURCES}
        # By the words that a row of the table has: how long it took until all was well, in seconds.
        self.recoveries: list[tuple[str, float]] = []
        self.processes: dict[str, Process] = {}
        # By node: whether it listens beside its place.
        self._places: dict[str, int] = {}
        # What the directory of the root lies on, if that is a volume of its own.
        self.root_volume: Volume | None = None
        # Every process that runs a cell has an address of its own.
        pid = os.getpid()
        self._address = f"127.{64 + pid // 65_536 % 64}.{pid // 256 % 256}.{pid % 256}"
        self.add("root", "root", self._root())
        self.add("mid", "intermediate", self._node("mid", "intermediate", "root"))
        for name in SOURCES.values():
            self.add(name, "child", self._node(name, "child", "mid"))
        for name in SOURCES:
            self.add(name, "source", self._source(name))
        self.memory = Memory(self.processes)
        self.kept = None if shape.keep else Kept(self.root_directory, directory / "kept")

    # Processes

    def __getitem__(self, name: str) -> Process:
        return self.processes[name]

    def add(self, name: str, role: str, command: list[str]) -> Process:
        process = self.processes[name] = Process(name, role, command, self.directory)
        return process

    def replacement(self, name: str) -> Process:
        """Another process with the name of a node, at the address beside it."""
        role = self[name].role
        self._places[name] = BESIDE - self._places.get(name, 0)
        command = self._node(name, role, "mid" if role == "child" else "root", beside=self._places[name])
        return self.add(f"{name}-again", role, command)

    def replaced(self, name: str) -> None:
        """The replacement is the node from now on."""
        self.processes[name] = self.processes.pop(f"{name}-again")

    def _root(self) -> list[str]:
        spark = ["headwater_spark", "--brief", "--no-ui", "--master", self.shape.spark]
        command = [
            *(spark if self.shape.spark else ["headwater_root"]),
            "--topology",
            self.manifest,
            "--directory",
            self.root_directory,
        ]
        command += ["--listen", f"{self._at('root', 'root')}:{PORTS['root']}"]
        if self.shape.keep:
            command.append("--keep-results")
        return self._python("root", *command, "--snapshot-mib", self.shape.snapshot_mib)

    def _node(self, name: str, role: str, parent: str, beside: int = 0) -> list[str]:
        above = self._at(parent, name)
        given = {
            "name": name,
            "role": role,
            "listen": f"{'0.0.0.0' if self.network else self._address}:{PORTS[name] + beside}",
            "advertise": f"{self._at(name, name)}:{PORTS[name] + beside}",
            "parent": parent,
            "parent_address": f"ipv4:{above}:{PORTS[parent]},{above}:{PORTS[parent] + BESIDE}",
            "flush_interval": 0.05,
        }
        path = self.directory / f"{name}{beside or ''}.json"
        path.write_text(json.dumps(given))
        return self._python(name, "headwater_node", "--config", path)

    def _source(self, name: str) -> list[str]:
        child = SOURCES[name]
        at = self._at(child, name)
        to = f"ipv4:{at}:{PORTS[child]},{at}:{PORTS[child] + BESIDE}"
        desk = self.desks[name].directory
        return self._python(name, "tests.faults.sender", name, to, desk, self.start, self.shape.spool_bytes)

    def _python(self, name: str, *command: object) -> list[str]:
        before = self.network.command(_host(name)) if self.network else []
        if self.shape.stepped:
            self.step(name, 0)
            return python("tests.faults.stepped", self._clock(name), *command, before=before)
        return python(*command, before=before)

    def _at(self, name: str, seen_from: str) -> str:
        if self.network is None:
            return self._address
        if name == seen_from:
            # Where it listens: for its neighbours, not only for itself.
            return self.network.ADDRESSES[_host(name)]
        return self.network.address(_host(name), _host(seen_from))

    def _clock(self, name: str) -> Path:
        return self.directory / f"{name}.clock"

    def step(self, name: str, microseconds: int) -> None:
        """Set the wall clock of a process so much beside the true time."""
        temporary = self._clock(name).with_suffix(".new")
        temporary.write_text(str(microseconds))
        temporary.replace(self._clock(name))

    # Load

    def ask(self, rate: float) -> None:
        for desk in self.desks.values():
            desk.ask(rate)

    def begin(self) -> None:
        """Start everything, and wait until events of every source are counted."""
        self.ask(self.shape.rate)
        for process in list(self.processes.values()):
            process.start()
        self.memory.start()
        self.settle("the tree does not begin")

    def heads(self) -> dict[str, int]:
        return {name: desk.told[0] for name, desk in self.desks.items()}

    def settle(self, problem: str = "it does not recover") -> None:
        """Wait until everything that is accepted by now is counted, and something that came later."""
        heads = self.heads()

        def reached() -> bool:
            return all(desk.told[1] > heads[name] for name, desk in self.desks.items())

        def told() -> str:
            ended = [process.name for process in self.processes.values() if process.ended]
            state = {name: desk.told for name, desk in self.desks.items()}
            return f"{problem}: (accepted, counted) {state}, wanted beyond {heads}, ended {ended}"

        until(reached, told)

    def recover(self, what: str, since: float | None = None) -> float:
        """Wait until all is well, and note how long that took since the fault was over."""
        begin = time.monotonic() if since is None else since
        self.settle(f"{what}: it does not recover")
        self.recoveries.append((what, time.monotonic() - begin))
        return self.recoveries[-1][1]

    def crash(self, name: str, failpoint: str) -> None:
        """Let a process run into a failpoint, start it again, and wait until all is well."""
        self.crashes(name, (failpoint,), failpoint.partition(":")[0])

    def crashes(self, name: str, failpoints: Sequence[str], what: str = "since the last one") -> None:
        """The same with several, the next one before the tree has recovered from the one before."""
        process = self[name]
        process.kill()
        for failpoint in failpoints:
            process.start(failpoint)
            if (code := process.code()) != -9:
                raise AssertionError(f"{name} ended with {code} instead of at {failpoint}: {process.log}")
        begin = time.monotonic()
        process.start()
        self.recover(what, begin)

    # The end

    def mend(self) -> None:
        """Undo whatever fault there is: everything runs, and nothing is in its way."""
        if self.network is not None:
            self.network.mend()
        for name in [name.removesuffix("-again") for name in self.processes if name.endswith("-again")]:
            # The later one is the node.
            self[name].kill()
            self.replaced(name)
        for process in self.processes.values():
            if process.ended:
                process.start()
            else:
                process.signal(signal.SIGCONT)

    def finish(self) -> Verdict:
        """Let the sources come to their end, end everything, and compare with the oracle."""
        for desk in self.desks.values():
            desk.ask(self.shape.rate, end=True)
        for name in SOURCES:
            if (code := self[name].code()) != 0:
                raise AssertionError(f"{name} ended with {code}: {self[name].log}")
        self.memory.look()
        # From below: a node that drains needs its parent.
        for name, process in reversed(self.processes.items()):
            if process.ended:
                continue
            # Everything is counted; that the parent has said so may take a slow machine longer than a drain.
            allowed = (0,) if name == "root" else (0, 3)
            if (code := process.stop()) not in allowed:
                raise AssertionError(f"{name} ended with {code}: {process.log}")
        self.memory.stop()
        if self.kept is not None:
            assert self.kept.put_back(), "the root has kept all of its log"
        return self._verdict()

    def _verdict(self) -> Verdict:
        feeds = [Sent(name, self.start, desk.count or 0) for name, desk in self.desks.items()]
        found = compared(self.topology, self.directory, feeds)
        verdict = Verdict(windows=found.windows, wrong=found.differing)
        assert set(found.accounts) == set(SOURCES), f"{sorted(found.accounts)}: a source has come twice"
        for feed in feeds:
            account = found.accounts[feed.name]
            sent = feed.count + 1
            assert account.accepted == sent, f"{feed.name}: {account.accepted} of {sent} records are settled"
            assert account.heartbeats == 1
            assert account.accepted == account.counted + account.late + account.rejected
            assert (account.late, account.rejected) == found.judged[feed.name]
            verdict.events += feed.count
            verdict.late += account.late
            verdict.rejected += account.rejected
        self._check_delivered()
        verdict.memory = {role: round(peak / MIB) for role, peak in self.memory.peaks.items()}
        large = {role: peak for role, peak in self.memory.peaks.items() if peak > MEMORY_BOUND}
        assert not large, f"larger than {MEMORY_BOUND} bytes: {large}"
        return verdict

    def _check_delivered(self) -> None:
        """The sink has every result once."""
        outbox = Outbox(self.root_directory / "outbox")
        made = [row["id"] for _, lines in outbox.read(0) for row in resultlines.decode(lines)]
        lines = (self.root_directory / "sinks" / "lines" / "results.jsonl").read_bytes()
        delivered = [row["id"] for row in resultlines.decode(lines)]
        assert len(set(delivered)) == len(delivered), "a result was delivered twice"
        assert delivered == made, f"{len(delivered)} results delivered, {len(made)} made"
        if self.shape.spark:
            table = parquet.read_table(self.root_directory / "sinks" / "table" / "results")
            ids: list[Any] = table.column("id").to_pylist()
            assert sorted(ids) == sorted(made)

    def end(self) -> None:
        if self.kept is not None:
            self.kept.end()
        for process in self.processes.values():
            process.kill()


def _host(name: str) -> str:
    return {"root": "top", "mid": "middle"}.get(name, "leaf")


@contextmanager
def grown(directory: Path, shape: Shape) -> Iterator[Tree]:
    """A tree whose sources send; everything of it ends with the block."""
    with ExitStack() as stack:
        network = stack.enter_context(Network()) if shape.network else None
        tree = Tree(directory, shape, network)
        stack.callback(tree.end)
        yield tree
