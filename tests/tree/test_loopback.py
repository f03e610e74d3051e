"""A tree over real gRPC on the loopback: sources with spools, a child, an intermediate, the embedded root."""

from __future__ import annotations

import asyncio
from pathlib import Path

import numpy as np
from pyarrow.dataset import dataset

from headwater import oracle
from headwater.machines import source as sources
from headwater.machines.root import Settings
from headwater.queries import Query
from headwater.sources import SourceId
from headwater.topology import Sink
from headwater.verification import differences, spec_of
from headwater.windows import Punctuation, Session, Sliding, Tumbling
from headwater_node.runtime import NodeRuntime
from headwater_root import resultlines
from headwater_root.runtime import RootRuntime
from headwater_source.client import SourceClient
from headwater_source.spool import Spool
from tests.patience import PATIENCE

QUERIES = [
    Query("t", Tumbling("1s"), ["sum", "median"]),
    Query("k", Sliding("2s", "500ms"), ["max", "first", "avg"], key_by="key"),
    Query("s", Session("5ms"), "count"),
    Query("o", Punctuation("S", "E", merge="order"), "sum"),
    Query("n", Tumbling(count=700), ["sum", "last"]),
]
SECOND = 1_000_000


def filled(directory: Path, seed: int, events: int) -> Spool:
    rng = np.random.default_rng(seed)
    spool = Spool.open(directory, limit_bytes=64 << 20)
    for part in range(4):
        ts = np.sort(rng.integers(0, 10 * SECOND // 4, events // 4)) + part * 10 * SECOND // 4
        mark = np.full(len(ts), -1)
        mark[:: len(ts) // 4] = [0, 1] * (len(mark[:: len(ts) // 4]) // 2) + [0] * (
            len(mark[:: len(ts) // 4]) % 2
        )
        spool.append(
            ts,
            rng.integers(-50, 50, len(ts)).astype(float),
            key=rng.integers(0, 3, len(ts)),
            keys=("a", "b", "c"),
            mark=mark,
            marks=("S", "E"),
        )
    spool.append([60 * SECOND], [np.nan], bare=[True])
    return spool


def contents(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


async def through_a_tree(directory: Path, spools: list[Spool]) -> RootRuntime:
    sinks = [Sink("jsonlines", "lines"), Sink("parquet", "tables")]
    root = RootRuntime(
        QUERIES,
        directory / "root",
        Settings(expected=len(spools)),
        sinks,
        keep_results=True,
        segment_bytes=30_000,
    )
    port = await root.start("127.0.0.1:0")
    middle = NodeRuntime("m", "root", child=False, flush_interval=0.03)
    above = await middle.start("127.0.0.1:0", f"127.0.0.1:{port}")
    child = NodeRuntime("c", "m", child=True, flush_interval=0.03)
    below = await child.start("127.0.0.1:0", f"127.0.0.1:{above}")
    settings = sources.Settings(rows=2_000)
    clients = [SourceClient(f"s{n}", "c", spool, settings) for n, spool in enumerate(spools)]
    try:
        for client in clients:
            client.start(f"127.0.0.1:{below}")
        async with asyncio.timeout(PATIENCE):
            while not all(client.done for client in clients):
                await asyncio.sleep(0.05)
    finally:
        for client in clients:
            await client.stop()
        await child.stop()
        await middle.stop()
        await root.stop()
    return root


def test_what_comes_out_of_a_tree_is_what_the_oracle_says(tmp_path: Path) -> None:
    spools = [filled(tmp_path / f"s{n}", n, 4_000) for n in range(3)]
    records = {f"s{n}": spool.read(0, 10_000) for n, spool in enumerate(spools)}
    root = asyncio.run(through_a_tree(tmp_path, spools))
    engine = root.machine.engine
    events, names = [], []
    for name, known in engine.sources.items():
        names.append(oracle.Source(name, known.lateness, known.site))
        batch = records[SourceId.of(name).name]
        assert batch is not None
        assert known.position == len(batch)
        for row in range(len(batch)):
            bare = batch.bare is not None and bool(batch.bare[row])
            key = None if batch.key is None else batch.keys[batch.key[row]]
            mark = None
            if batch.mark is not None and batch.mark[row] >= 0:
                mark = batch.marks[batch.mark[row]]
            value = None if bare else float(batch.value[row])
            events.append(oracle.Event(name, row + 1, int(batch.ts[row]), key, value, mark))
    expected = oracle.windows(events, names, [spec_of(q) for q in QUERIES], watermark=engine.watermark)
    assert len(expected) > 100
    rows = [row for _, lines in root.outbox.read(0) for row in resultlines.decode(lines)]
    found = [
        oracle.Row(
            r["query"],
            r["site"],
            r["key"],
            r["start"],
            r["end"],
            r["count"],
            r["values"],
            first_time=r["first_time"],
            last_time=r["last_time"],
        )
        for r in rows
    ]
    wrong = differences(expected, found)
    assert not wrong, "\n".join(wrong[:8])
    # Each sink has delivered every result once.
    lines = (tmp_path / "root" / "sinks" / "lines" / "results.jsonl").read_bytes()
    assert list(resultlines.decode(lines)) == rows
    assert dataset(tmp_path / "root" / "sinks" / "tables").count_rows() == len(rows)
    # A root that comes back from its log is where it was, and writes the same results again.
    files = contents(tmp_path / "root" / "outbox")
    again = RootRuntime(QUERIES, tmp_path / "root", Settings(expected=len(spools)))
    assert again.machine.committed == root.machine.committed
    assert again.machine.engine.watermark == engine.watermark
    assert again.windows == len(rows)
    assert 0 < again.restored <= again.replayed
    assert contents(tmp_path / "root" / "outbox") == files
    again.log.close()
    # The opening is a record behind the snapshot that it wrote.
    third = RootRuntime(QUERIES, tmp_path / "root", Settings(expected=len(spools)))
    assert 0 < third.restored < third.replayed
    assert third.machine.committed == root.machine.committed
    assert contents(tmp_path / "root" / "outbox") == files
    third.log.close()
