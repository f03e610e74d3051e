"""A plan: everything that a seed decides before its run begins, as data that can be cut down and kept."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from random import Random
from typing import Any

from headwater_simulator.catalogue import QUERIES, apart

# When sources have said all and faults cease, by the clock of the run; and the time of their last heartbeat.
CEASES, END = 200, 2_000
# A time that no clock has come to: what carries it waits (rule 15).
FAR = 1 << 40
# With which the names of nodes begin, from the children up.
LETTERS = "ciab"


@dataclass(frozen=True, slots=True)
class Said:
    """A record of a source, and when it has it."""

    when: int
    ts: int
    key: str | None = None
    value: float | None = None
    mark: str | None = None


@dataclass(frozen=True, slots=True)
class Feed:
    """A source, and all that it will ever say."""

    name: str
    site: str
    lateness: int
    begins: int
    records: tuple[Said, ...]


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that happens to `who` at a time; what the others mean is up to the kind."""

    at: int
    kind: str
    who: str = ""
    other: str = ""
    span: int = 0
    number: int = 0


@dataclass(frozen=True, slots=True)
class Plan:
    """`layers` from the children up; `parents` also says which child a source begins at."""

    seed: int
    queries: tuple[str, ...]
    layers: tuple[tuple[str, ...], ...]
    parents: Mapping[str, str]
    feeds: tuple[Feed, ...]
    faults: tuple[Fault, ...]
    expected: int
    # Shares of messages, and the longest time that one takes.
    loss: float
    repeat: float
    delay: int
    # Whether count queries stand apart, messages and records are bytes, the root keeps snapshots, and bounds
    # are so low that everything has to wait.
    lanes: bool
    wire: bool
    snapshots: bool
    tight: bool
    # As many distinct keys a source may bring until faults cease; 0: as many as it likes.
    cap: int = 0

    @property
    def nodes(self) -> tuple[str, ...]:
        return tuple(name for layer in self.layers for name in layer)

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=1)

    @staticmethod
    def of_json(text: str) -> Plan:
        read: dict[str, Any] = json.loads(text)
        feeds = tuple(
            Feed(**{**feed, "records": tuple(Said(**said) for said in feed["records"])})
            for feed in read["feeds"]
        )
        faults = tuple(Fault(**fault) for fault in read["faults"])
        layers = tuple(tuple(layer) for layer in read["layers"])
        plan = Plan(
            **{**read, "queries": tuple(read["queries"]), "layers": layers, "feeds": feeds, "faults": faults}
        )
        plan.check()
        return plan

    def check(self) -> None:
        """Raise ValueError if it names something that there is not."""
        for what, given, known in (
            ("query", self.queries, QUERIES.keys()),
            ("kind of fault", [fault.kind for fault in self.faults], KINDS.keys()),
            ("child", [self.parents.get(feed.name) for feed in self.feeds], {*self.layers[0]}),
            ("parent", [self.parents.get(name) for name in self.nodes], {*self.nodes, "root"}),
        ):
            unknown = [each for each in given if each not in known]
            if unknown or (not given and what not in ("kind of fault",)):
                raise ValueError(f"no such {what}: {unknown[0] if unknown else 'none is named'}")


def draw(seed: int) -> Plan:
    """The plan of a seed."""
    rng = Random(seed)
    queries = tuple(rng.sample(sorted(QUERIES), rng.choice([1, 2, 2, 3, 4])))
    lanes = rng.random() < 0.4
    if lanes and not any(apart(QUERIES[name]) for name in queries):
        queries = (*queries, rng.choice([name for name in sorted(QUERIES) if apart(QUERIES[name])]))
    layers, parents = _tree(rng)
    feeds = tuple(_feed(rng, f"s{number}") for number in range(rng.choice([1, 2, 2, 3, 4])))
    for feed in feeds:
        parents[feed.name] = rng.choice(layers[0])
    faults = _faults(rng, layers, feeds) if rng.random() < 0.95 else ()
    # Those who come later are waited for, or not.
    total, early = len(feeds), sum(not feed.begins for feed in feeds)
    return Plan(
        seed,
        queries,
        layers,
        parents,
        feeds,
        faults,
        expected=max(rng.choice([total - 1, total, total, early, early, total + 1]), 1),
        loss=rng.choice([0, 0, 0.05, 0.15]),
        repeat=rng.choice([0, 0, 0.1, 0.2]),
        delay=rng.choice([1, 4, 15]),
        lanes=lanes,
        wire=rng.random() < 0.1,
        snapshots=rng.random() < 0.5,
        tight=rng.random() < 0.4,
        cap=rng.choice([0, 0, 0, 0, 0, 0, 0, 1, 2, 2]),
    )


def _tree(rng: Random) -> tuple[tuple[tuple[str, ...], ...], dict[str, str]]:
    """One to four layers of nodes, each not wider than the one below it."""
    layers: list[tuple[str, ...]] = []
    width = rng.choice([1, 2, 2, 3])
    for depth in range(rng.choice([1, 2, 2, 2, 3, 4])):
        layers.append(tuple(f"{LETTERS[depth]}{number}" for number in range(width)))
        width = rng.randint(1, min(width, 2))
    parents: dict[str, str] = {}
    for below, above in zip(layers, [*layers[1:], ("root",)], strict=True):
        parents |= {name: rng.choice(above) for name in below}
    return tuple(layers), parents


def _feed(rng: Random, name: str) -> Feed:
    begins = 0 if rng.random() < 0.7 else rng.randint(20, 120)
    lateness = rng.choice([0, 3, 3, 8])
    when, clock, inside = begins, rng.choice([0, begins // 2]) + rng.randint(0, 12), False
    pace, disorder, keys = rng.choice([1, 4, 8]), rng.choice([0, 0.2, 0.4]), rng.choice(["k", "kl", "klm"])
    records: list[Said] = []
    for _ in range(rng.choice([3, 8, 16, 26])):
        when += rng.randint(0, 2 * pace)
        # Some are silent for so long that they are given up.
        if rng.random() < 0.08:
            when += rng.randint(50, 110)
        if when >= CEASES - 20:
            break
        clock += rng.randint(0, pace)
        ts = clock - (rng.randint(0, lateness + 4) if rng.random() < disorder else 0)
        chance = rng.random()
        if chance < 0.08:
            records.append(Said(when, ts))
        elif chance < 0.25:
            inside = not inside
            records.append(Said(when, ts, mark="S" if inside else "E"))
        elif chance < 0.26:
            records.append(Said(when, FAR, value=1.0))
        elif chance < 0.28:
            records.append(Said(when, ts, value=float("inf")))
        else:
            records.append(Said(when, ts, rng.choice(keys), float(rng.randint(-5, 11))))
    return Feed(name, rng.choice(["", "north", "south"]), lateness, begins, tuple(records))


# How often each kind of fault comes, beside the others.
KINDS = {
    "crash": 6,  # a node restarts, empty
    "lose": 1,  # a node ends without a word and never comes back
    "replace": 3,  # another process takes a node's name over while the old one goes on
    "pause": 3,  # a process stands still, and goes on as if nothing had been
    "cut": 3,  # one way between two
    "split": 3,  # both ways between one and all others
    "slow": 2,  # what one sends takes long
    "restart": 3,  # a source begins anew with its spool
    "setback": 1,  # a source begins anew with an older copy of its spool
    "shorten": 3,  # a source begins anew with a copy that lacks its last records
    "respool": 1,  # a source begins anew with a spool of its own, and may come back to the one before
    "refuse": 1,  # the spool of a source is full
    "move": 4,  # a source or a node turns to another parent
    "assign": 1,  # the root sends a source to another child
    "join": 2,  # a new node
    "leave": 2,  # a node ends in order
    "kill": 5,  # the root dies at a failpoint
    "full": 1,  # the root's disk is full
    "add": 2,
    "remove": 1,
    "retire": 2,
    "clock_back": 1,  # a child's clock goes behind: what comes lies in its future
}
FAILPOINTS = ("append", "appended", "sync", "synced", "emit", "emitted")


def _faults(rng: Random, layers: Sequence[Sequence[str]], feeds: Sequence[Feed]) -> tuple[Fault, ...]:
    sources = [feed.name for feed in feeds]
    # By layer, with those that join.
    nodes = [list(layer) for layer in layers]
    faults = []
    # Some runs have a favourite, so that it meets itself.
    kinds, weights = list(KINDS), list(KINDS.values())
    favourite = rng.choices(kinds, weights)[0] if rng.random() < 0.3 else None
    for at in sorted(rng.randint(5, CEASES - 20) for _ in range(rng.randint(1, 9))):
        kind = favourite if favourite and rng.random() < 0.6 else rng.choices(kinds, weights)[0]
        layer = rng.randrange(len(nodes))
        who, other, span, number = rng.choice(nodes[layer]), "", rng.randint(5, 80), rng.randint(0, 9)
        above = nodes[layer + 1] if layer + 1 < len(nodes) else ["root"]
        if kind in ("restart", "setback", "shorten", "respool", "refuse", "retire", "assign"):
            who = rng.choice(sources)
            other = rng.choice(nodes[0]) if kind == "assign" else ""
        elif kind == "pause":
            who = rng.choice([who, who, rng.choice(sources), "root"])
        elif kind in ("cut", "split", "slow"):
            who = rng.choice([who, rng.choice(sources)])
            other = rng.choice([*above, "root", rng.choice(sources)])
            if rng.random() < 0.5:
                who, other = other, who
        elif kind == "move":
            if rng.random() < 0.6:
                who, above = rng.choice(sources), nodes[0]
            other = rng.choice(above)
        elif kind == "join":
            other, who = rng.choice(above), f"{who[0]}{len(nodes[layer])}"
            nodes[layer].append(who)
        elif kind in ("kill", "full"):
            who, other = "root", rng.choice(FAILPOINTS) if kind == "kill" else ""
        elif kind in ("add", "remove"):
            who = "root"
        elif kind == "clock_back":
            who = rng.choice(nodes[0])
        faults.append(Fault(at, kind, who, other, span, number))
    if rng.random() < 0.3:
        # Queries come and go while batches of those before are under way.
        for kind in ("add", "add", "add", "remove"):
            at, span, number = rng.randint(20, CEASES * 2 // 3), rng.randint(5, 80), rng.randint(0, 9)
            faults.append(Fault(at, kind, "root", "", span, number))
    return tuple(faults)
