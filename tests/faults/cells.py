"""The cells: a fault each, put on a tree under load. What is checked at the end is the same for all."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from headwater.durations import SECOND
from headwater_root import segments
from tests.faults.processes import Process, until
from tests.faults.tree import MIB, PORTS, RATE, SOURCES, Shape, Tree
from tests.faults.volume import Volume

DAY = 86_400 * SECOND
USUAL = Shape()
Fault = Callable[[Tree, ExitStack], None]


@dataclass(frozen=True, slots=True)
class Cell:
    """`what` and `where` are words of the table, `happens` what an operator sees. Those that are not `brief`
    run by `make faults` alone."""

    name: str
    fault: Fault
    what: str
    where: str
    happens: str
    shape: Shape
    brief: bool
    # Before anything is started.
    before: Fault


CELLS: dict[str, Cell] = {}


def cell(
    what: str,
    where: str,
    happens: str,
    shape: Shape = USUAL,
    *,
    brief: bool = True,
    before: Fault = lambda tree, stack: None,
) -> Callable[[Fault], Fault]:
    """Put a fault into the list."""

    def listed(fault: Fault) -> Fault:
        name = fault.__name__.replace("_", "-")
        found = Cell(name, fault, what, where, happens, shape, brief, before)
        assert found.name not in CELLS
        # By these the row of the table is known.
        assert (what, where) not in {(other.what, other.where) for other in CELLS.values()}
        CELLS[found.name] = found
        return fault

    return listed


def under_way(tree: Tree) -> None:
    """Wait until a source has sent what is not counted yet."""
    heads = tree.heads()
    until(lambda: any(head > heads[name] for name, head in tree.heads().items()), "no source sends")


def again(tree: Tree, what: str, *names: str) -> None:
    """Start processes and wait until all is well."""
    begin = time.monotonic()
    for name in names:
        tree[name].start()
    tree.recover(what, begin)


# Processes that die


@cell("no fault", "-", "nothing: how long an event takes until its source knows that it is counted")
def nothing(tree: Tree, stack: ExitStack) -> None:
    # On a quick machine it would be over before there is something to compare.
    until(lambda: sum(tree.heads().values()) > 1_000, "sources do not send")
    tree.recover("-")


SNAPSHOTS = Shape(snapshot_mib=0.03)
ROOT = (
    "root.append:5",
    "root.appended:6",
    "root.applied:7",
    "root.written:8",
    "root.synced:9",
    "root.outbox:2",
    "root.published:5",
    "root.sink.written:2",
    "root.sink.done:2",
    "root.segment:2",
    "root.rolled:2",
)
NODE = ("node.read:3", "node.flushed:2", "node.acknowledged:2")
# A spool so small that it is trimmed soon.
SMALL = Shape(spool_bytes=MIB // 8, rate=2 * RATE)
SOURCE = ("source.written:3", "source.accepted:3", "source.sent:3", "source.trim:1")
REPLAYS = "started again it replays its log; nodes and sources say again what was not answered"
ASKS = "the new process asks where its sources stand; from there they, or its children, send again"
OPENS = "the spool is opened again; what was accepted is sent, and what was not has no number"
EACH, ROW = "kill -9 at each failpoint", "kill -9 at one failpoint after the other"


@cell(EACH, "root", REPLAYS, SNAPSHOTS, brief=False)
def root_failpoints(tree: Tree, stack: ExitStack) -> None:
    for failpoint in ROOT:
        tree.crash("root", failpoint)


@cell(EACH, "intermediate", ASKS, brief=False)
def intermediate_failpoints(tree: Tree, stack: ExitStack) -> None:
    for failpoint in NODE:
        tree.crash("mid", failpoint)


@cell(EACH, "child", ASKS, brief=False)
def child_failpoints(tree: Tree, stack: ExitStack) -> None:
    for failpoint in NODE:
        tree.crash("c1", failpoint)


@cell(EACH, "source", OPENS, SMALL, brief=False)
def source_failpoints(tree: Tree, stack: ExitStack) -> None:
    for failpoint in SOURCE:
        tree.crash("s1", failpoint)


@cell(ROW, "root", REPLAYS, SNAPSHOTS)
def root_failpoints_in_a_row(tree: Tree, stack: ExitStack) -> None:
    tree.crashes("root", ROOT)


@cell(ROW, "intermediate", ASKS)
def intermediate_failpoints_in_a_row(tree: Tree, stack: ExitStack) -> None:
    tree.crashes("mid", NODE)


@cell(ROW, "child", ASKS)
def child_failpoints_in_a_row(tree: Tree, stack: ExitStack) -> None:
    tree.crashes("c1", NODE)


@cell(ROW, "source", OPENS, SMALL)
def source_failpoints_in_a_row(tree: Tree, stack: ExitStack) -> None:
    tree.crashes("s1", SOURCE)


def _random(tree: Tree, kills: int) -> None:
    seed = int(os.environ.get("HEADWATER_FAULTS_SEED") or random.SystemRandom().getrandbits(32))
    print(f"HEADWATER_FAULTS_SEED={seed}", flush=True)
    draw = random.Random(seed)
    names = list(tree.processes)
    for _ in range(kills):
        time.sleep(draw.random() * 0.8)
        name = draw.choice(names)
        tree[name].kill()
        time.sleep(draw.random() * 0.3)
        tree[name].start()
    tree.recover(f"{kills} kills, each started again within 0.3 s, some before the one before was well")


@cell("kill -9 at random, 8 times", "any", "as at failpoints")
def random_kills(tree: Tree, stack: ExitStack) -> None:
    _random(tree, 8)


@cell("kill -9 at random, 40 times", "any", "as at failpoints", brief=False)
def many_random_kills(tree: Tree, stack: ExitStack) -> None:
    _random(tree, 40)


@cell("kill -9 of everything at once", "all", "all are started again, in any order")
def all_at_once(tree: Tree, stack: ExitStack) -> None:
    for process in tree.processes.values():
        process.signal(signal.SIGKILL)
    for process in tree.processes.values():
        process.kill()
    again(tree, "all", *random.sample(list(tree.processes), len(tree.processes)))


@cell("stopped, and started with other queries", "root", "the windows of the others go on; see docs/tree.md")
def other_queries(tree: Tree, stack: ExitStack) -> None:
    changed_queries(tree)


def changed_queries(tree: Tree) -> None:
    """One query less, one more, and one that is another by the same name."""
    document = json.loads(tree.manifest.read_text())
    queries = {query["id"]: query for query in document["spec"]["queries"]}
    del queries["s"]
    queries["t"] = {**queries["t"], "aggregate": ["sum", "count"]}
    fresh = {"id": "new", "aggregate": "max", "window": {"type": "tumbling", "length": "1s"}, "keyBy": "key"}
    document["spec"]["queries"] = [*queries.values(), fresh]
    tree.manifest.write_text(json.dumps(document))
    for _ in range(2):
        # The second time there is nothing to change.
        under_way(tree)
        assert tree["root"].stop() == 0
        again(tree, "since it is started", "root")
    told = [line["query"] for line in tree["root"].said("another query is asked for")]
    assert told == []


# Processes that stop for a while


def suspended(tree: Tree, name: str, seconds: float) -> None:
    """Stop a process while another one has its name, and let it go on."""
    old = tree[name]
    under_way(tree)
    old.signal(signal.SIGSTOP)
    later = tree.replacement(name)
    later.start()
    begin = time.monotonic()
    until(lambda: later.said("parent connected"), lambda: f"the replacement does not start: {later.log}")
    time.sleep(max(begin + seconds - time.monotonic(), 0))
    old.signal(signal.SIGCONT)
    awake = time.monotonic()
    if (code := old.code()) != 5 or not old.said("ended: another process has this node's name since"):
        raise AssertionError(f"{name} ended with {code} instead of 5: {old.log}")
    tree.recover(f"since SIGCONT after {seconds:.0f} s", awake)
    tree.replaced(name)


_HAPPENS = "the old process hears that it is stale and ends with code 5; the new one goes on"


@cell("SIGSTOP 5 s, its replacement runs", "child", _HAPPENS)
def suspended_child(tree: Tree, stack: ExitStack) -> None:
    suspended(tree, "c1", 5)


@cell("SIGSTOP 5 s, its replacement runs", "intermediate", _HAPPENS, brief=False)
def suspended_intermediate(tree: Tree, stack: ExitStack) -> None:
    suspended(tree, "mid", 5)


@cell("SIGSTOP 30 s, its replacement runs", "child", _HAPPENS, brief=False)
def long_suspended_child(tree: Tree, stack: ExitStack) -> None:
    suspended(tree, "c1", 30)


@cell("SIGSTOP 30 s, its replacement runs", "intermediate", _HAPPENS)
def long_suspended_intermediate(tree: Tree, stack: ExitStack) -> None:
    suspended(tree, "mid", 30)


def _slow(tree: Tree, name: str, seconds: float) -> None:
    """Let a process run for a tenth of the time only."""
    slow, end = tree[name], time.monotonic() + seconds
    while time.monotonic() < end:
        slow.signal(signal.SIGSTOP)
        time.sleep(0.18)
        slow.signal(signal.SIGCONT)
        time.sleep(0.02)
    tree.ask(tree.shape.rate)
    tree.recover("since it runs freely")


@cell(
    "a parent that reads slowly (stopped 90 % of the time for 8 s)",
    "intermediate",
    "children hold a bounded number of batches, then sources wait with theirs in the spool",
)
def slow_intermediate(tree: Tree, stack: ExitStack) -> None:
    tree.ask(5 * RATE)
    _slow(tree, "mid", 8)


@cell(
    "a parent that reads slowly (stopped 90 % of the time for 8 s)",
    "root",
    "the same, one layer up",
    brief=False,
)
def slow_root(tree: Tree, stack: ExitStack) -> None:
    tree.ask(5 * RATE)
    _slow(tree, "root", 8)


# The network

NETWORK = Shape(network=True)


def _cut(tree: Tree, host: str, neighbour: str, seconds: float, *, outwards: bool) -> None:
    assert tree.network is not None
    tree.network.drop(host, neighbour, outwards=outwards)
    time.sleep(seconds)
    tree.network.heal(host)
    tree.recover(f"after {seconds:.0f} s")


_WAITS = "windows wait; sources accept into their spools; TCP or a new stream goes on"


@cell("partition, both ways, 8 s", "intermediate | root", _WAITS, NETWORK)
def partition(tree: Tree, stack: ExitStack) -> None:
    _cut(tree, "top", "middle", 8, outwards=True)


@cell("partition, both ways, 45 s", "intermediate | root", _WAITS, NETWORK, brief=False)
def long_partition(tree: Tree, stack: ExitStack) -> None:
    _cut(tree, "top", "middle", 45, outwards=True)


@cell("partition, what goes up is lost, 8 s", "child | intermediate", _WAITS, NETWORK)
def partition_up(tree: Tree, stack: ExitStack) -> None:
    _cut(tree, "middle", "leaf", 8, outwards=False)


@cell("partition, what goes down is lost, 45 s", "intermediate | root", _WAITS, NETWORK, brief=False)
def long_partition_down(tree: Tree, stack: ExitStack) -> None:
    _cut(tree, "middle", "top", 45, outwards=False)


@cell(
    "established connections are dead, new ones pass",
    "intermediate | root",
    "keepalive gives the stream up, another one is opened; nothing is healed",
    NETWORK,
)
def established(tree: Tree, stack: ExitStack) -> None:
    assert tree.network is not None
    assert tree.network.drop_established("top", PORTS["root"]) == 1
    tree.recover("since the fault")


@cell(
    "64 kbit/s for 10 s",
    "intermediate -> root",
    "the link is full, the spools grow, windows come later",
    NETWORK,
)
def narrow(tree: Tree, stack: ExitStack) -> None:
    assert tree.network is not None
    tree.network.limit("middle", "top", 64)
    tree.ask(3 * RATE)
    time.sleep(10)
    tree.ask(RATE)
    tree.network.lift("middle", "top")
    tree.recover("since the link is as before")


@cell(
    "10x overload for 5 s",
    "a tree whose way to the root takes 512 kbit/s",
    "batches under way are bounded, sources keep the rest in their spools until it is through",
    NETWORK,
)
def overload(tree: Tree, stack: ExitStack) -> None:
    assert tree.network is not None
    tree.network.limit("middle", "top", 512)
    tree.ask(10 * RATE)
    time.sleep(5)
    tree.ask(RATE)
    tree.recover("since the burst is over, all of it counted")


# The root's disk


def volume(tree: Tree, stack: ExitStack) -> None:
    # All that is written in the time of a cell is less than that.
    tree.root_volume = stack.enter_context(Volume(tree.root_directory, 16 * 1_024))


@cell(
    "the volume of the log is full, then freed",
    "root",
    "it halts with code 4 and says what to do, also when it is started again too early; with room it goes on",
    before=volume,
)
def full_volume(tree: Tree, stack: ExitStack) -> None:
    root = tree["root"]
    assert tree.root_volume is not None
    tree.root_volume.fill()
    halted(root, "make room on the volume and start the root again")
    root.start()
    halted(root, "make room on the volume and start the root again")
    tree.root_volume.free()
    again(tree, "since there is room and the root is started", "root")


def halted(root: Process, words: str) -> None:
    """Wait until the root has ended with code 4, and has said so in these words."""
    code = root.code()
    said = [line["problem"] for line in root.said("halted")]
    if code != 4 or len(said) != 1 or words not in said[0]:
        raise AssertionError(f"the root ended with {code}, and not with {words!r}: {root.log}")


def newest(tree: Tree) -> Path:
    return segments.listed(tree.root_directory / "inbox", segments.FORMAT)[-1].path


@cell(
    "a torn record at the end of the log",
    "root",
    "what nobody was told of is cut, with a warning, and sent again",
)
def torn(tree: Tree, stack: ExitStack) -> None:
    root = tree["root"]
    root.kill()
    # What is written then is not fsynced: a machine that loses its power may keep a part of it.
    root.start("root.written:8")
    assert root.code() == -9
    path = newest(tree)
    os.truncate(path, path.stat().st_size - 7)
    again(tree, "since it is started", "root")
    (line,) = root.said("a torn end of the log was cut")
    assert line["bytes"] > 0


@cell(
    "a flipped byte in a committed record",
    "root",
    "it does not start: code 4, with file, offset and remedy; with the byte as it was all goes on",
)
def flipped(tree: Tree, stack: ExitStack) -> None:
    root = tree["root"]
    root.kill()
    path = newest(tree)
    whole = path.read_bytes()
    at = len(whole) // 2
    path.write_bytes(whole[:at] + bytes([whole[at] ^ 0x40]) + whole[at + 1 :])
    damaged = path.read_bytes()
    root.start()
    halted(root, "and it was committed; restore the directory from a copy, whole")
    (line,) = root.said("halted")
    assert str(path) in line["problem"]
    assert "offset " in line["problem"]
    # It has changed nothing of what it refused.
    assert path.read_bytes() == damaged
    path.write_bytes(whole)
    again(tree, "since the copy is back and the root is started", "root")


# Clocks


@cell(
    "wall clock set back by 3 days, then right",
    "child",
    "its sources wait (`a source waits: ...`), their events lie too far in the future; then they go on",
    Shape(stepped=True),
)
def clock_back(tree: Tree, stack: ExitStack) -> None:
    tree.step("c1", -3 * DAY)
    until(
        lambda: tree["c1"].said("a source waits: its next event lies too far in the future"),
        lambda: f"nobody waits: {tree['c1'].log}",
    )
    time.sleep(2)
    tree.step("c1", 0)
    tree.recover("since it is right")
    assert tree["c1"].said("a source goes on")


@cell(
    "wall clocks stepped by up to 3 days, each otherwise",
    "all but children, which go ahead",
    "nothing: no result and no timeout depends on them",
    Shape(stepped=True),
)
def clocks(tree: Tree, stack: ExitStack) -> None:
    for name, days in (("root", -3), ("mid", 2), ("s1", -1), ("s2", 3), *((c, 3) for c in SOURCES.values())):
        tree.step(name, days * DAY)
    tree.recover("-")
    time.sleep(2)
    for name in tree.processes:
        tree.step(name, 0)
    tree.recover("back again")
