"""Cells whose root is a Spark job: what dies is its driver, a worker of it, or what it stands on."""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import time
from contextlib import ExitStack
from pathlib import Path

from tests.faults.cells import cell, changed_queries, halted, newest, volume
from tests.faults.processes import Process, until
from tests.faults.tree import Shape, Tree

SPARK = Shape(spark="local[*,4]", snapshot_mib=0.03)
# Without records and results that nobody needs any more.
DROPPING = Shape(spark="local[*,4]", snapshot_mib=0.03, keep=False)
EXECUTORS = Shape(spark="local-cluster[2,1,1024]")
DRIVER = (
    # Before it is acknowledged, and behind that before Spark has it.
    "root.synced:9",
    "root.acknowledged:5",
    # In the merging, and where its state is written.
    "spark.merging:5",
    "spark.state:5",
    # Between the outbox and Spark's own commit.
    "spark.merged:2",
    "root.outbox:2",
    "spark.written:2",
    # Snapshots of the control state, and records that go.
    "root.segment:2",
    "root.rolled:2",
    "spark.finished:1",
    # Between what a sink writes and its cursor, and behind that.
    "root.sink.written:3",
    "root.sink.done:3",
)
# Far more than it takes, in seconds.
PATIENCE = 120.0
REPLAYS = "started again it goes on from log and checkpoint; a micro-batch that was not committed is repeated"


def driver(tree: Tree) -> Process:
    return tree["root"]


def merging(tree: Tree, beyond: int | None = None) -> None:
    """Wait until Spark has committed a micro-batch more than there were."""
    commits = tree.root_directory / "checkpoint" / "commits"
    before = len(list(commits.glob("[0-9]*"))) if beyond is None else beyond
    until(
        lambda: len(list(commits.glob("[0-9]*"))) > before,
        lambda: f"Spark does not merge: {driver(tree).log}",
    )


def children(pid: int) -> list[int]:
    """All processes below one."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == pid:
            found += [int(path.parent.name), *children(int(path.parent.name))]
    return found


def _signalled(pid: int, given: signal.Signals) -> bool:
    """Whether it was still there."""
    try:
        os.kill(pid, given)
    except ProcessLookupError:
        return False
    return True


def command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
    except OSError:
        return ""


@cell("kill -9 at one failpoint after the other", "driver of the Spark root", REPLAYS, DROPPING, brief=False)
def spark_failpoints_in_a_row(tree: Tree, stack: ExitStack) -> None:
    merging(tree)
    tree.crashes("root", DRIVER)


@cell("kill -9 at some failpoints", "driver of the Spark root", REPLAYS, DROPPING)
def spark_failpoints(tree: Tree, stack: ExitStack) -> None:
    merging(tree)
    tree.crashes("root", ("root.acknowledged:5", "spark.merging:5", "spark.written:2", "spark.finished:1"))


@cell(
    "kill -9 while Spark commits a micro-batch",
    "driver of the Spark root",
    REPLAYS,
    SPARK,
    brief=False,
)
def spark_commits(tree: Tree, stack: ExitStack) -> None:
    _killed_writing(tree, tree.root_directory / "checkpoint" / "commits", "kill in a commit")


@cell(
    "kill -9 while Spark uploads the state of a micro-batch",
    "driver of the Spark root",
    REPLAYS,
    SPARK,
    brief=False,
)
def spark_uploads(tree: Tree, stack: ExitStack) -> None:
    _killed_writing(tree, tree.root_directory / "checkpoint" / "state", "kill in an upload")


def _killed_writing(tree: Tree, directory: Path, what: str) -> None:
    """Kill driver and JVM as soon as something new is seen in a directory: a temporary file, or the file
    itself."""
    for _ in range(5):
        merging(tree)
        jvms = [pid for pid in children(driver(tree).pid) if "SparkSubmit" in command(pid)]
        before = _files(directory)
        end = time.monotonic() + PATIENCE
        while not _files(directory) - before:
            assert time.monotonic() < end, f"Spark writes nothing: {driver(tree).log}"
        for pid in jvms:
            _signalled(pid, signal.SIGKILL)
        driver(tree).kill()
        begin = time.monotonic()
        driver(tree).start()
        tree.recover(what, begin)


def _files(directory: Path) -> set[str]:
    return {name for _, _, names in os.walk(directory) for name in names}


@cell(
    "stopped, and started with other queries",
    "Spark root",
    "the windows of the others go on",
    SPARK,
    brief=False,
)
def spark_other_queries(tree: Tree, stack: ExitStack) -> None:
    merging(tree)
    changed_queries(tree)


def _workers(tree: Tree) -> None:
    """Python workers die: their task is tried again, and the driver goes on."""
    for _ in range(2):
        workers = [pid for pid in children(driver(tree).pid) if "daemon pyspark.worker" in command(pid)]
        killed = [_signalled(pid, signal.SIGKILL) for pid in workers]
        assert any(killed)
        _goes_on(tree, "behind dead workers, until the second commit")


def _goes_on(tree: Tree, what: str) -> None:
    """Spark commits twice more, in the same driver."""
    begin = time.monotonic()
    merging(tree)
    merging(tree)
    tree.recoveries.append((what, time.monotonic() - begin))
    assert not driver(tree).ended


@cell(
    "kill -9 of an executor",
    "one of two executors of the Spark root",
    "its tasks are run by the other one, from the checkpoint, and another one is started",
    EXECUTORS,
    brief=False,
)
def spark_executor(tree: Tree, stack: ExitStack) -> None:
    merging(tree)
    for _ in range(2):
        executors = [
            pid for pid in children(driver(tree).pid) if "CoarseGrainedExecutorBackend" in command(pid)
        ]
        assert len(executors) == 2
        os.kill(executors[0], signal.SIGKILL)
        _goes_on(tree, "until the second commit behind it")


@cell(
    "dead Python workers, a second driver, a checkpoint that is gone, a torn log",
    "Spark root",
    "a task is tried again; without its checkpoint the root halts, code 4, before it acknowledges anything; "
    "what was never acknowledged is cut; a second driver finds the log held, or fences the first one",
    SPARK,
)
def spark_misfortunes(tree: Tree, stack: ExitStack) -> None:
    merging(tree)
    root = driver(tree)
    _workers(tree)
    _second(tree, "another process has this log open")
    _gone(tree, root)
    _torn(tree, root)
    _suspended(tree, root)


def _second(tree: Tree, words: str) -> None:
    second = tree.add("root-second", "root", tree._root())
    second.start()
    halted(second, words)
    del tree.processes["root-second"]


def _alone(checkpoint: Path) -> None:
    """Wait until the JVM of a driver that was killed has gone too: it would write where it did before."""
    with (checkpoint / "lock").open("rb") as file:

        def free() -> bool:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
            return True

        until(free, "the JVM does not end")


def _gone(tree: Tree, root: Process) -> None:
    root.kill()
    held = tree.root_directory / "checkpoint"
    _alone(held)
    away = held.with_name("away")
    held.rename(away)
    before = {path.name: path.stat().st_size for path in (tree.root_directory / "inbox").glob("*.log")}
    root.start()
    halted(root, "is not there; put it back")
    assert not root.said("started")
    after = {path.name: path.stat().st_size for path in (tree.root_directory / "inbox").glob("*.log")}
    assert before == after
    # An empty one in its place is no better.
    held.mkdir()
    root.start()
    halted(root, "is not there; put it back")
    shutil.rmtree(held)
    away.rename(held)
    begin = time.monotonic()
    root.start()
    tree.recover("since the checkpoint is back", begin)


def _torn(tree: Tree, root: Process) -> None:
    root.kill()
    root.start("root.written:8")
    assert root.code() == -9
    path = newest(tree)
    os.truncate(path, path.stat().st_size - 7)
    begin = time.monotonic()
    root.start()
    tree.recover("behind a torn log", begin)
    assert root.said("a torn end of the log was cut")


def _suspended(tree: Tree, root: Process) -> None:
    """Where locks do not reach: the first driver sleeps, a second one takes over, the first one wakes up."""
    merging(tree)
    root.signal(signal.SIGSTOP)
    # Those that have just begun are found in the next turn; one may have ended meanwhile.
    workers: list[int] = []
    while found := [pid for pid in children(root.pid) if pid not in workers]:
        workers += [pid for pid in found if _signalled(pid, signal.SIGSTOP)]
    for lock in (tree.root_directory / "inbox" / "lock", tree.root_directory / "checkpoint" / "lock"):
        lock.unlink()
    old, tree.processes["root"] = root, Process("root", "root", tree._root(), tree.directory)
    new = tree["root"]
    # The address is the first one's until that has ended: the second one cannot listen, and takes its log.
    new.start()
    code = new.code()
    assert code == 2, new.log
    for pid in [*workers, old.pid]:
        _signalled(pid, signal.SIGCONT)
    halted(old, "it must exit, the later one goes on")
    begin = time.monotonic()
    new.start()
    tree.recover("since the second driver is started", begin)


@cell(
    "the volume of log and checkpoint is full, then freed",
    "Spark root",
    "it halts with code 4 and says what to do; with room it goes on",
    SPARK,
    before=volume,
    brief=False,
)
def spark_full_volume(tree: Tree, stack: ExitStack) -> None:
    merging(tree)
    root = driver(tree)
    assert tree.root_volume is not None
    tree.root_volume.fill()
    assert root.code() == 4, root.log
    tree.root_volume.free()
    begin = time.monotonic()
    root.start()
    tree.recover("since there is room and the root is started", begin)
