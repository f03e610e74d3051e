"""The Spark root without Spark: what it acknowledges, keeps and drops while nothing is merged."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from time import monotonic, sleep

import grpc.aio
import pytest

from headwater.durations import SECOND
from headwater.machines.messages import Delivery
from headwater.machines.root import Settings
from headwater_root.metrics import RootMetrics
from headwater_root.runtime import RootRuntime
from headwater_spark import finals, query, runtime
from headwater_spark.__main__ import _master
from headwater_spark.checkpoint import CheckpointDiffers
from headwater_spark.query import SparkFailed
from headwater_spark.runtime import SparkRoot
from headwater_spark.settings import SparkSettings
from headwater_wire.v1 import control_pb2, control_pb2_grpc
from tests.harness import joined
from tests.patience import PATIENCE
from tests.root.pump import QUERIES, Pump


def opened(directory: Path, settings: SparkSettings | None = None) -> SparkRoot:
    return SparkRoot(QUERIES, directory, Settings(), segment_bytes=1, spark=settings)


def closed(root: RootRuntime) -> None:
    asyncio.run(root.stop())


def test_records_stay_until_spark_has_done_with_them(tmp_path: Path) -> None:
    pump, root = Pump(), opened(tmp_path)
    pump.introduce(root)
    for _ in range(3):
        pump.send(root, 10)
        root.shorten()
    # There are snapshots, and all records: nobody has merged them.
    assert root.log.snapshot[0] > 1
    assert root.log.first == 1
    assert (root.windows, root.outbox.last) == (0, 0)
    assert root.lag == root.log.committed
    middle = root.log.committed // 2
    root.inbox.finish(middle)
    until = monotonic() + PATIENCE
    # What Spark has written is made durable first, beside everything else.
    while root.log.first == 1 and monotonic() < until:
        root.shorten()
        sleep(0.01)
    assert 1 < root.log.first <= middle + 1
    assert [at for at, _ in root.log.read(root.log.first - 1)][-1] == root.log.committed
    closed(root)


def test_what_is_acknowledged_is_counted_without_windows(tmp_path: Path) -> None:
    pump, plain = Pump(), Pump()
    spark, embedded = opened(tmp_path / "spark"), RootRuntime(QUERIES, tmp_path / "embedded", Settings())
    for each, root in ((pump, spark), (plain, embedded)):
        each.introduce(root)
        each.send(root, 25)
    assert spark.machine.committed == embedded.machine.committed
    assert spark.machine.engine.watermark == embedded.machine.engine.watermark
    assert spark.machine.engine.held == 0
    assert (spark.windows, embedded.windows) == (0, 24)
    position, counted = spark.machine.position, spark.machine.committed
    closed(spark)
    again = opened(tmp_path / "spark")
    # Each opening is a record itself.
    assert (again.machine.position, again.machine.committed) == (position + 1, counted)
    assert again.inbox.records == again.log.committed
    closed(again)
    closed(embedded)


def test_far_behind_nothing_more_is_acknowledged(tmp_path: Path) -> None:
    pump, root = Pump(), opened(tmp_path, SparkSettings(backlog_bytes=3_000))
    pump.introduce(root)
    while not root.full:
        pump.send(root, 1)
    before = root.log.committed
    assert root._take("c", Delivery(joined(root.machine), "more", 0, pump.node.flush())) == ()
    root._commit()
    assert root.log.committed == before
    root.inbox.finish(before)
    assert not root.full
    pump.send(root, 1)
    assert root.log.committed > before
    closed(root)


def test_a_spark_that_has_failed_is_told_also_while_nothing_more_is_taken(tmp_path: Path) -> None:
    async def run() -> None:
        root = opened(tmp_path, SparkSettings(backlog_bytes=1))
        assert root.full
        # Without Spark.
        await RootRuntime.start(root, "127.0.0.1:0")
        root._driver.failed = SparkFailed("the JVM is gone")
        async with asyncio.timeout(PATIENCE):
            while root.failed is None:
                await asyncio.sleep(0.01)
        assert "the JVM is gone" in (root.unready() or "")
        await root.stop()

    asyncio.run(run())


@pytest.mark.parametrize("master", ["k8s://https://cluster:6443", "spark://host:7077", "local[x]", "yarn"])
def test_a_master_whose_executors_would_be_elsewhere_is_refused(master: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "headwater_spark", "--topology", "t", "--directory", str(tmp_path / "d")]
    done = subprocess.run([*command, "--master", master], capture_output=True, text=True)
    assert done.returncode == 2
    assert "tasks run on its own machine; give local[4]" in done.stderr
    assert not (tmp_path / "d").exists()


@pytest.mark.parametrize(
    "option, value, told",
    [
        ("--memory", "plenty", "give one such as 512m or 2g"),
        ("--memory", "0g", "give one such as 512m or 2g"),
        ("--buckets", "0", "give 1 to 1024"),
        ("--buckets", "-3", "give 1 to 1024"),
    ],
)
def test_options_that_mean_nothing_are_refused(option: str, value: str, told: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "headwater_spark", "--topology", "t", "--directory", str(tmp_path / "d")]
    done = subprocess.run([*command, f"{option}={value}"], capture_output=True, text=True)
    assert done.returncode == 2
    assert told in done.stderr
    assert not (tmp_path / "d").exists()


def test_a_directory_stays_with_its_buckets(tmp_path: Path) -> None:
    closed(opened(tmp_path, SparkSettings(buckets=3)))
    with pytest.raises(CheckpointDiffers, match="it has 3 buckets, and 4 are asked for; leave that out"):
        opened(tmp_path, SparkSettings(buckets=4))
    closed(opened(tmp_path))
    closed(opened(tmp_path, SparkSettings(buckets=3)))


@pytest.mark.parametrize(
    "given, meant",
    [
        ("local", "local[1,4]"),
        ("local[3]", "local[3,4]"),
        ("local[*]", "local[*,4]"),
        ("local[2,1]", "local[2,1]"),
        ("local-cluster[2,1,1024]", "local-cluster[2,1,1024]"),
    ],
)
def test_tasks_are_tried_again_unless_the_user_says_how_often(given: str, meant: str) -> None:
    assert _master(given) == meant


def test_a_spark_that_fails_while_the_root_ends_is_told(tmp_path: Path) -> None:
    async def run() -> Exception | None:
        root = opened(tmp_path)
        root._driver.failed = SparkFailed("java.lang.OutOfMemoryError: Java heap space")
        await root.settle()
        failed = root.failed
        await root.stop()
        return failed

    assert "Java heap space; nothing is lost, and give it more with --memory" in str(asyncio.run(run()))


def test_a_spark_that_stands_still_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    pump, root = Pump(), opened(tmp_path)
    pump.introduce(root)
    monkeypatch.setattr(runtime, "STANDS", -1.0)
    root._look()
    # Spark is not up yet.
    assert not caplog.records
    monkeypatch.setattr(type(root._driver), "up", True)
    root._look()
    assert [record.getMessage()[:38] for record in caplog.records] == [
        "Spark has merged nothing for a while, "
    ]
    monkeypatch.undo()
    closed(root)


def test_status_says_for_how_long_nothing_was_merged(tmp_path: Path) -> None:
    async def run() -> None:
        pump, root = Pump(), opened(tmp_path)
        # Without Spark.
        port = await RootRuntime.start(root, "127.0.0.1:0")
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            stub = control_pb2_grpc.ControlStub(channel)  # type: ignore[no-untyped-call]  # generated

            async def until_still(is_wanted: Callable[[int], bool]) -> None:
                async with asyncio.timeout(PATIENCE):
                    while not is_wanted((await stub.Status(control_pb2.StatusRequest())).merge_stalled):
                        await asyncio.sleep(0.01)

            # Who is there makes no window final.
            await until_still(lambda still: still == 0)
            pump.introduce(root)
            pump.send(root, 3)
            await until_still(lambda still: still > SECOND)
            row = {"bucket": 0, "first": 1, "last": root.log.committed, "finals": finals.packed([])}
            root._write(query._batch([{**row, "emitted": "{}", "degraded": "[]"}]))
            await until_still(lambda still: still == 0)
            pump.send(root, 3)
            # Not from when anything was last merged.
            assert (await stub.Status(control_pb2.StatusRequest())).merge_stalled < SECOND
        await root.stop()

    asyncio.run(run())


def test_executors_of_their_own_are_counted() -> None:
    assert SparkSettings(master="local-cluster[2, 3, 1024]").slots == 6
    assert SparkSettings(master="local-cluster[2,3,1024]").apart
    assert not SparkSettings(master="local[2,4]").apart


def test_the_table_of_metrics_has_those_of_spark(tmp_path: Path) -> None:
    root = opened(tmp_path)
    page = (Path(__file__).parents[2] / "docs" / "spark.md").read_text()
    named = set(re.findall(r"^\| `headwater_root_(\w+)` \| gauge \|", page, re.MULTILINE))
    assert {name for name, _, _ in root.gauges()} == named
    metrics = RootMetrics(root, "t").collect()
    shown = {metric.name: metric.samples[0].value for metric in metrics if metric.samples}
    assert shown["headwater_root_unmerged_records"] == root.log.committed == 1
    closed(root)


def test_status_names_queries_of_which_too_many_windows_wait(tmp_path: Path) -> None:
    """The home bucket makes the windows, so it is what tells."""

    async def run() -> list[tuple[str, int, list[str]]]:
        root = opened(tmp_path)
        # Without Spark.
        port = await RootRuntime.start(root, "127.0.0.1:0")
        crowded = {"query": "jobs", "reason": "3 windows wait", "waiting": 3, "sources": ["press"]}
        row = {"bucket": 0, "first": 1, "last": 1, "finals": finals.packed([]), "emitted": "{}"}
        home, other = {**row, "degraded": json.dumps([crowded])}, {**row, "degraded": "[]"}
        root._write(query._batch([other, home]))
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            stub = control_pb2_grpc.ControlStub(channel)  # type: ignore[no-untyped-call]  # generated
            told = (await stub.Status(control_pb2.StatusRequest())).degraded
        await root.stop()
        return [(each.query, each.waiting, [source.name for source in each.sources]) for each in told]

    assert asyncio.run(run()) == [("jobs", 3, ["press"])]
