"""Batches that no sound node makes: nobody stops at one, and what is right counts as if it had never come."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest

from headwater.aggregates import UserDefined
from headwater.events import Batch, Record
from headwater.machines import root
from headwater.machines.messages import (
    Ack,
    Ask,
    Delivery,
    Hello,
    Register,
    Registered,
    Standing,
    Stream,
    Tell,
)
from headwater.machines.node import NodeMachine, Settings
from headwater.node import Node
from headwater.partials import Partial
from headwater.prefix import Prefix
from headwater.queries import Query, Where
from headwater.results import Result
from headwater.windows import Punctuation, Session, Sliding, Tumbling
from headwater_wire.errors import Malformed
from headwater_wire.v1 import tree_pb2 as pb
from tests.machines.world import CODEC, Disk

SPAN = UserDefined("span", lambda v: (v, v), lambda a, b: (min(a[0], b[0]), max(a[1], b[1])), lambda s: s[1])
QUERIES = [
    Query("order", Punctuation("S", "E", merge="order"), ["sum", "median"], key_by="key"),
    Query("overlap", Punctuation("S", "E", merge="overlap"), "last"),
    Query("keyed", Tumbling(10), ["sum", "first", "stddev"], key_by="key"),
    Query("local", Sliding(20, 5), "count", scope="local"),
    Query("plain", Tumbling(10), ["median", "product", "last", SPAN]),
    Query("unbroken", Tumbling(10), ["max", "top(2)"], emit_empty=True, where=Where(at_least=1.0)),
    Query("session", Session(15), ["sum", "distinct"], key_by="key"),
    Query("count", Tumbling(count=3), "sum"),
]
SOURCES = ("a", "b")
EVENTS: dict[str, Sequence[Sequence[Record]]] = {
    "a": (
        [(1, None, None, "S"), (2, "k", 1.0, None), (30, "l", 2.0, None), (31, None, None, "E")],
        [(50, None, None, "S"), (49, "k", 3.0, None), (70, "k", 1.0, None), (80, None, None, "E")],
    ),
    "b": (
        [(3, "k", 4.0, "S"), (12, "k", 0.5, None), (11, "m", 2.5, None), (33, None, None, None)],
        [(52, "m", 6.0, None), (51, "k", 7.0, "E"), (75, "l", float("nan"), None), (81, "m", 1.0, "S")],
    ),
}
LATENESS = 5
SEEDS = 60
EXTREMES = (0, 1, 7, 1_000, 2**31 - 1, 2**62, 2**63 - 1, -1, -(2**62), -(2**63))


@dataclass
class Tree:
    """A root that knows two sources and a node, and the batches that the node would send."""

    machine: root.RootMachine
    found: list[Result]
    names: list[str]
    generation: int
    batches: list[Partial]

    def send(self, partial: Partial, id: str) -> bool:
        """Deliver and commit; whether it was acknowledged."""
        stream = Stream("n", self.generation, 1)
        sends = [*self.machine.step("n", Delivery(stream, id, 0, partial), 5), *self.machine.commit()]
        return any(isinstance(each.message, Ack) for each in sends)


def tree() -> Tree:
    found: list[Result] = []
    nonces = iter(range(1_000))
    machine = root.RootMachine(
        QUERIES, root.Settings(expected=2), Disk(), lambda: f"n{next(nonces)}", lambda _, r: found.extend(r)
    )
    machine.begin()
    names = []
    for name in SOURCES:
        hello = Hello(name, f"spool {name}", f"opening {name}", 0, 0, LATENESS)
        challenge: Any = machine.step("n", hello, 1)[0].message
        welcome: Any = machine.step("n", replace(hello, echo=challenge.nonce), 1)[-1].message
        names.append(welcome.source)
    register = Register("n", "t", False)
    first: Any = machine.step("n", register, 1)[0].message
    joined: Any = machine.step("n", replace(register, echo=first.nonce), 1)[-1].message
    sources = machine.engine.sources
    return Tree(machine, found, names, joined.generation, made({n: sources[n].prefix for n in names}))


def made(prefixes: dict[str, Prefix]) -> list[Partial]:
    """Two batches, and a third that lets every window end."""
    engine = Node(QUERIES)
    for name, prefix in prefixes.items():
        engine.admit(name, lateness=LATENESS, prefix=prefix)
    batches = []
    for part in range(2):
        for name, events in zip(prefixes, EVENTS.values(), strict=True):
            engine.push(Batch.from_records(name, 4 * part + 1, events[part]))
        batches.append(engine.flush())
    for name in prefixes:
        engine.push(Batch.from_records(name, 9, [(500, None, None, "E"), (1_000, None, None, None)]))
    return [*batches, engine.flush()]


def said(partial: Partial) -> bytes:
    return CODEC.encode("n", "p", Delivery(Stream("n", 1, 1), "x", 0, partial)).SerializeToString(
        deterministic=True
    )


def fields(message: Any) -> Iterator[tuple[Any, Any, Any, bool]]:
    for field, value in message.ListFields():
        # A version that the root does not know means that its log is not the newest: that it halts for.
        if field.name == "version":
            continue
        repeated = bool(field.is_repeated)
        yield message, field, value, repeated
        if field.message_type is not None and not field.message_type.GetOptions().map_entry:
            for each in value if repeated else [value]:
                yield from fields(each)


def mutate(envelope: pb.Envelope, rng: random.Random) -> None:
    message, field, value, repeated = rng.choice(list(fields(envelope.delivery.partial)))
    if repeated and field.message_type is not None and field.message_type.GetOptions().map_entry:
        value[rng.choice(["late", "odd"])] = rng.choice([0, 3, 2**40])
    elif repeated:
        place = rng.randrange(len(value))
        if rng.random() < 0.5:
            del value[place]
        elif field.message_type is not None:
            value.add().CopyFrom(rng.choice(value))
        else:
            value.append(rng.choice(value))
    elif field.type == field.TYPE_BYTES:
        data = bytearray(value)
        place = 8 * rng.randrange(max(len(data) // 8, 1))
        how = rng.random()
        if how < 0.4 and data:
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        elif how < 0.7:
            data[place : place + 8] = rng.choice(EXTREMES).to_bytes(8, "little", signed=True)
        elif how < 0.85:
            data = data[:place]
        else:
            data += data[place : place + 8]
        setattr(message, field.name, bytes(data))
    elif field.cpp_type in (field.CPPTYPE_INT32, field.CPPTYPE_INT64):
        setattr(message, field.name, rng.choice([each for each in EXTREMES if -(2**31) <= each < 2**31]))
    elif field.cpp_type in (field.CPPTYPE_UINT32, field.CPPTYPE_UINT64):
        setattr(message, field.name, rng.choice([0, 1, 7, 1_000, 2**31 - 1]))
    else:
        message.ClearField(field.name)


def spoiled(partial: Partial, rng: random.Random) -> Partial | None:
    """A batch with some things changed, if it can be read at all."""
    envelope = CODEC.encode("n", "root", Delivery(Stream("n", 1, 1), "x", 0, partial))
    for _ in range(rng.choice([1, 1, 1, 2, 4])):
        mutate(envelope, rng)
    try:
        message = CODEC.decode(envelope)
    except Malformed:
        return None
    assert isinstance(message, Delivery)
    return message.partial


def expected() -> list[Result]:
    clean = tree()
    assert all(clean.send(batch, str(place)) for place, batch in enumerate(clean.batches))
    assert {result.query for result in clean.found} == {query.id for query in QUERIES}
    return clean.found


@pytest.mark.parametrize("chunk", range(3))
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_no_batch_stops_the_root(chunk: int) -> None:
    right, refused = expected(), 0
    for seed in range(chunk * SEEDS, (chunk + 1) * SEEDS):
        rng, here = random.Random(seed), tree()
        place = rng.randrange(2)
        for number in range(place):
            here.send(here.batches[number], f"before {number}")
        bad = spoiled(here.batches[place], rng)
        if bad is None:
            continue
        before = here.machine.engine.sources[here.names[0]].prefix, here.machine.engine.account(here.names[1])
        taken = here.send(bad, "bad")
        after = here.machine.engine.sources[here.names[0]].prefix, here.machine.engine.account(here.names[1])
        refused += here.machine.refusals.count
        rest = [here.send(batch, str(n)) for n, batch in enumerate(here.batches[place:])]
        if not taken:
            assert before == after
            assert all(rest)
            assert here.found == right, seed
    assert refused


def node(names: Sequence[str], opened: Sequence[Prefix]) -> NodeMachine:
    """An intermediate that knows the sources."""
    machine = NodeMachine("i", "root", Settings(), child=False, token="t")
    machine.step("root", Registered("i", "t", 1, tuple(QUERIES)), 0)
    sends = machine.step("n", Ask(Stream("n", 1, 1), 0, tuple(names), 0), 0)
    asked = next(each.message for each in sends if isinstance(each.message, Ask))
    standings = {name: Standing(prefix, LATENESS, "") for name, prefix in zip(names, opened, strict=True)}
    machine.step("root", Tell(asked.stream, 0, standings), 0)
    return machine


@pytest.mark.parametrize("chunk", range(2))
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_no_batch_stops_an_intermediate(chunk: int) -> None:
    clean = tree()
    prefixes = [clean.machine.engine.sources[name].prefix for name in clean.names]
    first = clean.batches[0]

    def sent(*batches: Partial) -> tuple[NodeMachine, list[Partial]]:
        machine = node(clean.names, prefixes)
        for place, batch in enumerate(batches):
            machine.step("n", Delivery(Stream("n", 1, 1), str(place), 0, batch), 1)
        sends = machine.flush(10**9)
        return machine, [each.message.partial for each in sends if isinstance(each.message, Delivery)]

    (right,) = sent(first)[1]
    refused = 0
    for seed in range(chunk * SEEDS, (chunk + 1) * SEEDS):
        bad = spoiled(first, random.Random(seed))
        if bad is None:
            continue
        machine, made = sent(bad, first)
        refused += machine.refusals.count
        if machine.refusals.count:
            assert [said(partial) for partial in made] == [said(right)]
        # Whatever it made of one that it took, does not stop the root either.
        above = tree()
        for place, batch in enumerate([*made, *above.batches]):
            above.send(batch, str(place))
    assert refused


def test_a_refused_batch_is_told_of_once_and_not_answered() -> None:
    here = tree()
    batch = here.batches[0]
    bad = replace(batch, sources={code + 1: name for code, name in batch.sources.items()})
    bad.events = []
    for turn in range(3):
        bad.parts = {99: next(iter(batch.parts.values()))}
        assert here.machine.step("n", Delivery(Stream("n", here.generation, 1), str(turn), 0, bad), 5) == []
    assert here.machine.refusals.count == 3
    ((sender, problem),) = here.machine.refusals.news()
    assert (sender, here.machine.refusals.news()) == ("n", [])
    assert problem == (
        "the partial cannot be merged:\n  - parts: have one of no group; send those of the queries"
    )
