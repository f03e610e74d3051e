"""Snapshots: a root that is written and read again goes on as if nothing had happened."""

from __future__ import annotations

import os
import pickle
import struct
from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import partial
from hashlib import blake2b
from importlib import metadata
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fuzz import parties
from fuzz.seeds import EVENTS
from headwater.aggregates import UserDefined
from headwater.changes import Change
from headwater.events import Batch
from headwater.machines.lanes import shared
from headwater.machines.messages import Delivery, Welcome
from headwater.machines.messages import Stream as Link
from headwater.machines.records import (
    Idled,
    Merged,
    Opened,
    Planned,
    Rate,
    Resumed,
    Retired,
    Skipped,
    Specified,
)
from headwater.machines.root import RootMachine
from headwater.machines.rootlane import Later
from headwater.machines.state import State
from headwater.node import Node
from headwater.queries import EVERYTHING, Query, Where
from headwater.root import Root
from headwater.windows import Punctuation, Session, Sliding, Tumbling
from headwater_root import snapshots
from headwater_root.snapshots import Snapshots, Unreadable, Unwritable
from tests.harness import Network, batch_of, joined
from tests.machines.test_delivery import QUERIES
from tests.machines.test_keys import Rooted
from tests.machines.world import World, apart
from tests.strategies import (
    COMMUTATIVE,
    EXTREMES,
    LATEST,
    PATH,
    SQUARES,
    Stream,
    Tree,
    batches,
    queries,
    schedules,
    splits,
    streams,
    trees,
)

FUNCTIONS = {function.name: function for function in (SQUARES, EXTREMES, PATH, LATEST)}
CODEC = Snapshots((), FUNCTIONS.get, shared)
HEAD = struct.Struct("<8sIH")


class Run:
    """A tree whose root may be written and read again in between."""

    def __init__(self, first: Sequence[Query], streams: Sequence[Stream], tree: Tree, *, read: bool) -> None:
        self.network = Network(first, streams, tree)
        self._read = read

    def push(self, batch: Batch, *, flush: bool) -> None:
        self.network.push(batch)
        if flush:
            self.network.flush(self.network.home[batch.source])
        self.network.take()

    def add(self, query: Query) -> None:
        self.network.flush_all()
        self._tell(self.network.root.add(query))

    def remove(self, query_id: str, *, at_once: bool) -> None:
        self.network.flush_all()
        self._tell(self.network.root.remove(query_id, at_once=at_once))

    def _tell(self, change: Change) -> None:
        for node in self.network.nodes:
            node.apply(change)

    def restart(self) -> None:
        if self._read:
            network, old = self.network, self.network.root
            new = network.root = CODEC.decode(CODEC.encode(old))
            network.parent = {node: new if above is old else above for node, above in network.parent.items()}
            network.home = {name: new if node is old else node for name, node in network.home.items()}


@settings(max_examples=60)
@given(st.data(), streams(wide=False))
def test_what_follows_is_the_same_to_the_bit(data: st.DataObject, given_streams: list[Stream]) -> None:
    drawn = queries()
    tree = data.draw(trees(len(given_streams)))
    first = [replace(data.draw(drawn), id=f"q{n}") for n in range(data.draw(st.integers(1, 4)))]
    pieces = [[b for b in batches(each, data.draw(splits(len(each)))) if b] for _, each in given_streams]
    steps: list[Callable[[Run], None]] = []
    alive, number = [query.id for query in first], len(first)
    for source, flush in data.draw(schedules([len(p) for p in pieces])):
        batch = batch_of(pieces[source].pop(0))
        steps.append(partial(Run.push, batch=batch, flush=flush))
        action = data.draw(st.sampled_from(["nothing"] * 3 + ["restart"] * 2 + ["add", "remove"]))
        if action == "restart":
            steps.append(Run.restart)
        elif action == "add" and number < 6:
            query = replace(data.draw(drawn), id=f"q{number}")
            alive.append(query.id)
            number += 1
            steps.append(partial(Run.add, query=query))
        elif action == "remove" and alive:
            gone, at_once = alive.pop(data.draw(st.integers(0, len(alive) - 1))), data.draw(st.booleans())
            steps.append(partial(Run.remove, query_id=gone, at_once=at_once))
    found = []
    for read in (False, True):
        run = Run(first, given_streams, tree, read=read)
        for step in steps:
            step(run)
        found.append(repr(run.network.finish()))
    assert found[0] == found[1]


def long_run(root: Root, node: Node, begin: int, end: int) -> str:
    """Some tenths of a millisecond with events, through a node, and what the root makes of them."""
    found = []
    for low in range(begin, end, 10):
        records = [
            (step * 100 + n * 7, "kl"[n % 2], (step * n % 17) / 7, "SE"[n % 2] if n % 5 == 0 else None)
            for step in range(low, low + 10)
            for n in range(14)
        ]
        node.push(Batch.from_records("s", low * 14 + 1, records))
        root.merge(node.flush())
        found += list(root.take())
    return repr(found)


def asked_of(key_by: str | None) -> list[Query]:
    return [
        # Together: windows of more than a thousand slices.
        Query("w", Sliding(110_000, 5_500), [*COMMUTATIVE], key_by=key_by),
        Query("f", Tumbling(100), "count", key_by=key_by),
        Query("e", Sliding(2_000, 100), ["sum", "max"], key_by=key_by, where=Where(above=1.0)),
        Query("p", Tumbling(1_000), [PATH], key_by=key_by),
        Query("s", Session(50), ["avg", SQUARES], key_by=key_by),
        Query("m", Punctuation("S", "E"), ["sum", "median"], key_by=key_by),
        Query("c", Sliding(count=3_000, every=100), ["stddev", "last"], key_by=key_by),
    ]


@pytest.mark.parametrize("key_by", [None, "key"])
def test_long_windows_of_every_function_go_on(key_by: str | None) -> None:
    asked = asked_of(key_by)
    node, root = Node(asked), Root(asked)
    for each in (root, node):
        each.admit("s", lateness=0)
    # Beyond the blocks that long windows are folded from, and what is carried along.
    long_run(root, node, 0, 1_250)
    data = CODEC.encode(root)
    again, other = CODEC.decode(data), Node(asked)
    other.admit("s", lateness=0, prefix=again.sources["s"].prefix)
    assert long_run(root, node, 1_250, 1_400) == long_run(again, other, 1_250, 1_400)
    assert repr(again.account("s")) == repr(root.account("s"))


def test_what_is_one_object_stays_it() -> None:
    asked = [Query("q", Tumbling(10), ["quantile(0.25)", SQUARES])]
    root = CODEC.decode(CODEC.encode(Root(asked)))
    assert root.queries[0].where is EVERYTHING
    assert root.queries[0].custom == (SQUARES,)
    assert root.queries == asked


def test_a_state_that_could_not_be_read_is_not_written() -> None:
    odd = UserDefined("odd", lambda value: st, lambda one, two: one, lambda state: 0)
    with pytest.raises(Unwritable, match="'odd', which is not found by its name"):
        CODEC.encode(Root([Query("q", Tumbling(10), odd)]))
    for held in (
        Run,
        Run.add,
        os.system,
        [CODEC.encode],
        lambda: 0,
        print,
        np.frompyfunc(min, 2, 1),
        iter(""),
    ):
        with pytest.raises(Unwritable):
            CODEC.encode(held)
    assert CODEC.decode(CODEC.encode([Fraction(1, 3), {"a": (1j, None, {2})}])) == [
        Fraction(1, 3),
        {"a": (1j, None, {2})},
    ]


class Runs:
    """What an attacker would have written: a call."""

    def __init__(self, function: Callable[..., Any], *given: Any) -> None:
        self._call = function, given

    def __reduce__(self) -> tuple[Callable[..., Any], Any]:
        return self._call


def found(module: str, name: str) -> bytes:
    """What reads the name of a module."""
    words = b"".join(b"\x8c%c%b\x94" % (len(word), word.encode()) for word in (module, name))
    return b"\x80\x04" + words + b"\x93."


@pytest.mark.parametrize(
    "evil",
    [
        Runs(os.system, "exit 1"),
        Runs(eval, "1"),
        Runs(getattr, "", "upper"),
        Runs(snapshots.Snapshots, (), None, None),
        found("headwater.machines.root", "RootMachine.restore"),
        found("headwater.queries", "np"),
        found("headwater.queries", "validate"),
        found("headwater.queries", "dataclass"),
        found("headwater.no_such", "Thing"),
        found("headwater_root.log", "Log"),
    ],
)
def test_bytes_that_name_anything_else_are_refused(evil: Runs | bytes) -> None:
    pickled = evil if isinstance(evil, bytes) else pickle.dumps(evil, protocol=4)
    with pytest.raises(Unreadable, match="which is no part of a state"):
        CODEC.decode(HEAD.pack(b"HWSTATE\n", snapshots.FORMAT, 1) + b"1" + pickled)


def test_code_that_was_not_installed_writes_them_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def version(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", version)
    snapshots._release.cache_clear()
    try:
        data = CODEC.encode([1])
    finally:
        snapshots._release.cache_clear()
    assert CODEC.decode(data) == [1]
    assert data.startswith(HEAD.pack(b"HWSTATE\n", snapshots.FORMAT, 7) + b"unknown")


def test_what_is_no_snapshot_or_of_another_format_is_told() -> None:
    data = CODEC.encode(Root([Query("q", Tumbling(10), SQUARES)]))
    for wrong in (b"", b"HWLOG", data[1:]):
        with pytest.raises(Unreadable, match="that no release wrote"):
            CODEC.decode(wrong)
    other = HEAD.pack(b"HWSTATE\n", 999, 5) + b"9.1.4"
    with pytest.raises(Unreadable, match=r"release 9\.1\.4 wrote the state of the root in format 999, and"):
        CODEC.decode(other)
    for size in (len(data) - 1, len(data) // 2, HEAD.size + 5):
        with pytest.raises(Unreadable, match="cannot be read"):
            CODEC.decode(data[:size])
    with pytest.raises(Unreadable, match="the function 'squares' is not there; install the package"):
        Snapshots((), lambda name: None, shared).decode(data)


# What is in a state of this format. Whoever changes that raises FORMAT, then this.
SHAPE = (8, "999a249bd718eb25")


class Shapes(pickle.Pickler):
    """Notes the attributes of each class of the engine."""

    def __init__(self) -> None:
        super().__init__(BytesIO(), protocol=4)
        self.found: dict[str, set[str]] = {}

    def persistent_id(self, held: object) -> object:
        kind = type(held)
        name = CODEC.name_of(held)
        if name is None and kind.__module__.startswith("headwater."):
            attributes = getattr(held, "__dict__", {}) or getattr(kind, "__slots__", ())
            self.found.setdefault(f"{kind.__module__}.{kind.__name__}", set()).update(attributes)
        return name


def test_a_name_in_quarantine_stays_there_when_the_state_is_read_again() -> None:
    before = Rooted()
    joined(before.machine)
    before.greet(0)
    before.count("a", "b", "c")
    before.machine.step("c", before.report, 0)
    codec = Snapshots(before.machine.queries, lambda name: None, apart)
    data = codec.encode(before.machine.state)
    after = Rooted()
    after.machine.restore(codec.decode(data))
    assert after.machine.quarantined == before.machine.quarantined
    assert list(after.machine.quarantined) == ["s"]
    assert after.greet(0) == before.greet(0)
    assert after.machine.release("s")
    assert isinstance(after.greet(9_000_000).message, Welcome)


def test_a_change_of_the_state_is_a_change_of_the_format() -> None:
    world = World(7, QUERIES, lanes=True)
    world.run()
    machine = world.machines["root"]
    assert isinstance(machine, RootMachine)
    shapes = Shapes()
    decided = (Opened("s", "o", 1), Idled("s"), Resumed("s"), Skipped("s", 1), Retired("s"))
    plan = Specified(1, "d", (Planned("n", "root"),), (Rate("s", 0, 1.0),))
    states: list[object] = [machine.state, plan, *(Later(1, body, None) for body in decided)]
    for key_by in (None, "key"):
        asked = [*asked_of(key_by), Query("z", Tumbling(1_000), emit_empty=key_by is None, key_by=key_by)]
        node, root = Node(asked), Root(asked)
        for each in (root, node):
            each.admit("s", lateness=0)
        long_run(root, node, 0, 20)
        root.remove("f")
        states.append(root)
    shapes.dump(states)
    listed = "\n".join(f"{name}: {' '.join(sorted(held))}" for name, held in sorted(shapes.found.items()))
    found = (snapshots.FORMAT, blake2b(listed.encode(), digest_size=8).hexdigest())
    assert found == SHAPE, f"raise snapshots.FORMAT and put {found} here; the state is\n{listed}"


@pytest.mark.parametrize("older", snapshots.OLDER)
def test_a_state_of_an_older_format_is_read_and_gone_on_with(older: int) -> None:
    # Written by a release with that format: two sources and the first of two batches.
    written = (Path(__file__).parent / "kept" / f"state-format-{older}").read_bytes()
    assert HEAD.unpack_from(written)[1] == older
    partials = parties.batches(
        {name: source.prefix for name, source in parties.root_machine().engine.sources.items()}, EVENTS
    )

    def final(state: State) -> list[Any]:
        return list(state.apply(state.position + 1, Merged(partials[1])))

    machine = parties.root_machine()
    machine.step("n", Delivery(Link("n", 1, 1), "1", 0, partials[0]), 5)
    machine.commit()
    state, _ = Snapshots(parties.QUERIES, lambda name: None, shared).decode(written)
    assert state.position == machine.position
    assert vars(state.members).keys() == vars(machine.members).keys()
    found = final(state)
    assert found
    expected = final(machine.state)
    counted = [place for place, each in enumerate(found) if each.measure == "count"]
    # The first event of the first of them was counted by a release that kept no times, until format 7.
    assert [found[place].first_time is None for place in counted] == [older < 7, False]
    if older < 7:
        expected[counted[0]] = replace(expected[counted[0]], first_time=None)
    assert found == expected
