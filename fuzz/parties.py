"""Parties of a tree as they are when a message reaches them: a root that knows two sources and a node, and
nodes that know them too. All is the same every time, so that an input means the same every time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from headwater.events import Batch
from headwater.machines import root
from headwater.machines.messages import Hello, Register, Registered, Standing, Tell
from headwater.machines.node import NodeMachine, Settings
from headwater.machines.records import Record
from headwater.node import Node
from headwater.partials import Partial
from headwater.prefix import Prefix
from headwater.queries import Query, Where
from headwater.windows import Punctuation, Session, Sliding, Tumbling

LATENESS = 5
SOURCES = ("a", "b")
# Few, since every input begins with new parties; each has a way through the engine of its own.
QUERIES = [
    Query("order", Punctuation("S", "E", merge="order"), ["sum", "median"], key_by="key"),
    Query("keyed", Sliding(20, 5), ["sum", "first", "stddev"], key_by="key"),
    Query("session", Session(15), ["top(2)", "distinct"], where=Where(at_least=1.0)),
    Query("count", Tumbling(count=3), "sum"),
]


class Disk:
    """A log in memory."""

    term = 1

    def __init__(self) -> None:
        self.records: list[Record] = []

    def append(self, record: Record) -> int:
        self.records.append(record)
        return len(self.records)

    def sync(self) -> None:
        """Nothing is lost here."""


def root_machine() -> root.RootMachine:
    """A root to which `n` is a node, and which has admitted the sources."""
    nonces = iter(range(1 << 30))
    settings = root.Settings(expected=2)
    machine = root.RootMachine(QUERIES, settings, Disk(), lambda: f"n{next(nonces)}", lambda _, found: None)
    machine.begin()
    for name in SOURCES:
        hello = Hello(name, f"spool {name}", f"opening {name}", 0, 0, LATENESS)
        challenge: Any = machine.step("n", hello, 1)[0].message
        machine.step("n", replace(hello, echo=challenge.nonce), 1)
    register = Register("n", "t", True)
    first: Any = machine.step("n", register, 1)[0].message
    machine.step("n", replace(register, echo=first.nonce), 1)
    return machine


def node_machine(prefixes: dict[str, Prefix], *, child: bool) -> NodeMachine:
    """The node `i`, whose parent is the root; it knows where the sources stand."""
    machine = NodeMachine("i", "root", Settings(), child=child, token="t")
    machine.step("root", Registered("i", "t", 1, tuple(QUERIES), assigned=tuple(prefixes)), 0)
    machine.flush(1)
    stream = machine._upwards.link.stream
    standings: dict[str, Standing | None] = {
        name: Standing(prefix, LATENESS, "") for name, prefix in prefixes.items()
    }
    machine.step("root", Tell(stream, 0, standings), 1)
    return machine


def batches(prefixes: dict[str, Prefix], events: Mapping[str, Sequence[Sequence[Any]]]) -> list[Partial]:
    """What a node makes of events, a batch for each part of them."""
    engine = Node(QUERIES)
    for name, prefix in prefixes.items():
        engine.admit(name, lateness=LATENESS, prefix=prefix)
    made, position = [], dict.fromkeys(prefixes, 0)
    for part in range(len(next(iter(events.values())))):
        for name, given in zip(prefixes, events.values(), strict=True):
            engine.push(Batch.from_records(name, position[name] + 1, given[part]))
            position[name] += len(given[part])
        made.append(engine.flush())
    return made
