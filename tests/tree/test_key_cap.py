"""A device that makes keys up, against real processes: the cap holds, and nobody else notices (rule 15)."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from click.testing import CliRunner

from headwater.events import Batch
from headwater.machines.source import Settings, SourceMachine
from headwater.topology.tree import KEYS_PER_SOURCE
from headwater_cli.app import main
from headwater_cli.feeds import Kept, beat
from headwater_source.client import SourceClient
from headwater_source.columns import Coded, Events
from headwater_source.source import Source
from tests.tree.processes import Tree, tree

SECOND = 1_000_000
BEGIN = 1_700_000_000 * SECOND
KEYS = 10_000_000
# What a process may take at most; before the flood it is about 60 MB.
BOUND = 600 * 2**20
QUERIES = [
    {"id": "t", "aggregate": ["sum", "count"], "window": {"type": "tumbling", "length": "1s"}},
    {"id": "k", "aggregate": ["max", "avg"], "window": {"type": "tumbling", "length": "2s"}, "keyBy": "key"},
]


def keyed(after: int, rows: int) -> tuple[np.ndarray[tuple[int], np.dtype[np.int64]], tuple[str, ...]]:
    """Times and keys of records of the flood: no key comes twice, and all are long."""
    numbers = np.arange(after + 1, after + rows + 1)
    return BEGIN + numbers * 20, tuple(f"made-up-{number:056d}" for number in numbers.tolist())


@dataclass
class Flood:
    """A spool of ten million records, which are made when they are read."""

    id: str = "flood"
    opening: str = "first"
    opened_at: int = 0
    earlier: tuple[tuple[str, int], ...] = ()
    base: int = 0
    head: int = KEYS

    @property
    def counted(self) -> int:
        return self.base

    def read(self, after: int, limit: int) -> Batch | None:
        rows = min(limit, self.head - after)
        if not rows:
            return None
        ts, keys = keyed(after, rows)
        return Batch("flood", after + 1, ts, np.ones(rows), key=np.arange(rows), keys=keys)

    def trim(self, upto: int) -> None:
        self.base = upto

    def confirm(self, opening: str) -> None:
        """It is never opened again."""


def good() -> Events:
    """Ten seconds of somebody else, with a few keys."""
    ts = BEGIN + np.arange(2_000) * 5_000
    return Events(
        ts,
        np.arange(2_000, dtype=np.float64) % 7,
        key=Coded(np.arange(2_000, dtype=np.int32) % 3, ("a", "b", "c")),
    )


def peak(pid: int) -> int:
    """The most memory that a process has had, in bytes."""
    (line,) = [each for each in Path(f"/proc/{pid}/status").read_text().splitlines() if "VmHWM" in each]
    return int(line.split()[1]) * 1_024


async def flooded(running: Tree, directory: Path) -> SourceMachine:
    """Both send at the same time, until one is in quarantine and all of the other is counted."""
    spool = Flood()
    client = SourceClient("flood", None, spool, Settings(lateness=SECOND, site="here"))  # type: ignore[arg-type]  # as good as a spool
    client.start(running.address)
    try:
        given = {"spool": directory / "good", "site": "here", "lateness": "1s"}
        async with asyncio.timeout(120), Source("good", running.address, **given) as source:  # type: ignore[arg-type]  # by name
            for part in (good(), beat(BEGIN + 3_600 * SECOND)):
                await source.append(part)
            while client.machine.fenced is None:
                await asyncio.sleep(0.05)
            await source.flush()
    finally:
        await client.stop()
    assert client.sent < KEYS // 10
    return client.machine


def test_ten_million_keys_of_one_source_are_the_trouble_of_that_source(tmp_path: Path) -> None:
    # Nobody reads a console here, and many results come.
    sinks = [{"type": "jsonlines", "path": "lines"}]
    with tree(tmp_path / "tree", expected=2, queries=QUERIES, sinks=sinks) as running:
        machine = asyncio.run(flooded(running, tmp_path))
        assert machine.fenced is not None
        assert f"limits.keysPerSource is {KEYS_PER_SOURCE:,}" in machine.fenced
        assert machine.fenced.endswith("headwater source release flood")
        done = CliRunner().invoke(main, ["status", "--json", "--root", f"127.0.0.1:{running.above}"])
        assert done.exit_code == 0, done.output
        told = json.loads(done.stdout)
        assert [each["name"] for each in told["quarantined"]] == ["flood"]
        sources = {each["name"]: each for each in told["sources"]}
        # As many as the cap allows were read, and all of them are counted.
        counted = sources["flood"]["position"]
        assert (counted, sources["flood"]["state"]) == (KEYS_PER_SOURCE, "retired")
        assert (sources["good"]["counted"], sources["good"]["late"]) == (2_000, 0)
        peaks = {
            name: peak(process.pid) for name, process in zip(("root", "child"), running.running, strict=True)
        }
        print({name: f"{most / 2**20:.0f} MiB" for name, most in peaks.items()})
        assert max(peaks.values()) < BOUND
        running.stop()
        ts, keys = keyed(0, counted)
        flood = Events(ts, np.ones(counted), key=Coded(np.arange(counted, dtype=np.int32), keys))
        feeds = [
            Kept("good", "here", SECOND, [good(), beat(BEGIN + 3_600 * SECOND)]),
            Kept("flood", "here", SECOND, [flood]),
        ]
        assert running.differing(feeds) == 0
        assert len(running.rows()) > KEYS_PER_SOURCE
