"""A plan: everything that a seed decides before its run begins, as data that can be cut down and kept."""

from __future__ import annotations

import json
import re
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
# ... and those of sources; and what stands for the root, and for nobody.
SOURCE, ROOT, NOBODY = "s", "r", "-"


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

    def check(self) -> None:
        """Raise ValueError if it has a value that no run can have."""
        if not isinstance(self.site, str):
            raise ValueError(f"site of {self.name} is {self.site!r}; give a text")
        _whole(f"lateness of {self.name}", self.lateness, 0, END)
        _whole(f"begins of {self.name}", self.begins, 0, CEASES - 1)
        for place, said in enumerate(self.records):
            where = f"of records[{place}] of {self.name}"
            _whole(f"when {where}", said.when, 0, CEASES - 1)
            if said.ts != FAR:
                _whole(f"ts {where}", said.ts, -END, END - 1)
            for what, given in (("key", said.key), ("mark", said.mark)):
                if given is not None and not isinstance(given, str):
                    raise ValueError(f"{what} {where} is {given!r}; give a text or null")
            if said.value is not None and type(said.value) not in (int, float):
                raise ValueError(f"value {where} is {said.value!r}; give a number or null")


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
    # Whether sources connect by address and notice when a connection ends; otherwise they know children by
    # name, and what is sent to one that is gone is lost without a word.
    addresses: bool = False

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

    @property
    def futile(self) -> tuple[Fault, ...]:
        """Faults that befall nobody: whom they name was cut away."""
        joined = {
            fault.who
            for fault in self.faults
            if fault.kind == "join" and fault.who[0] in LETTERS[: len(self.layers)]
        }
        known = {"root", *self.nodes, *joined, *(feed.name for feed in self.feeds)}
        needed = ("cut", "move", "assign", "takeover")
        return tuple(
            fault
            for fault in self.faults
            if fault.who not in known or (fault.kind in needed and fault.other not in known)
        )

    def check(self) -> None:
        """Raise ValueError if it has a value that no run can have, or names what there cannot be."""
        for what, least, most in (
            ("seed", 0, None),
            ("expected", 1, None),
            ("delay", 1, CEASES),
            ("cap", 0, None),
        ):
            _whole(what, getattr(self, what), least, most)
        for what in ("loss", "repeat"):
            share = getattr(self, what)
            if type(share) not in (int, float) or not 0 <= share <= 1:
                raise ValueError(f"{what} is {share!r}; give a share from 0 to 1")
        for what in ("lanes", "wire", "snapshots", "tight", "addresses"):
            if not isinstance(getattr(self, what), bool):
                raise ValueError(f"{what} is {getattr(self, what)!r}; give true or false")
        sources = [feed.name for feed in self.feeds]
        for what, given in (("query", self.queries), ("feed", sources), ("node", self.nodes)):
            if not given or len(set(given)) < len(given):
                raise ValueError(f"each {what} is there once, and one at least; there are {[*given]}")
        for query in self.queries:
            if query not in QUERIES:
                raise ValueError(f"no such query: {query}")
        self._check_tree()
        for feed in self.feeds:
            feed.check()
        joined = set(self.nodes)
        for place, fault in enumerate(self.faults):
            try:
                self._check_fault(fault)
                if fault.kind == "join":
                    if fault.who in joined:
                        raise ValueError(f"{fault.who} is there already")
                    joined.add(fault.who)
            except ValueError as error:
                raise ValueError(f"faults[{place}], {fault.kind} at {fault.at}: {error}") from None

    def _check_tree(self) -> None:
        """From everybody the way leads up to the root, layer by layer."""
        if len(self.layers) > len(LETTERS):
            raise ValueError(f"it has {len(self.layers)} layers; give at most {len(LETTERS)}")
        if not isinstance(self.parents, dict):
            raise ValueError(f"parents is {self.parents!r}; give the parent of each node and source, by name")
        above: dict[str, Sequence[str]] = {}
        for letter, layer, upper in zip(LETTERS, self.layers, [*self.layers[1:], ("root",)], strict=False):
            for name in layer:
                if _rank(name) != letter:
                    raise ValueError(f"no such node: {name}; its layer has {letter}0, {letter}1 and so on")
                above[name] = upper
        # Sources that were cut away still have their parents.
        for name in [*(feed.name for feed in self.feeds), *(self.parents.keys() - above.keys())]:
            if _rank(name) != SOURCE:
                raise ValueError(f"no such source: {name}; they are {SOURCE}0, {SOURCE}1 and so on")
            above[name] = self.layers[0]
        for name, uppers in above.items():
            parent = self.parents.get(name)
            if parent not in uppers:
                raise ValueError(
                    f"no such parent of {name}: {parent}; give one of {', '.join(uppers) or 'none'}"
                )

    def _check_fault(self, fault: Fault) -> None:
        _whole("at", fault.at, 0, CEASES - 1)
        _whole("span", fault.span, 0, CEASES)
        _whole("number", fault.number, 0, None)
        if fault.kind not in MEANT:
            raise ValueError("no such kind of fault")
        whom, other = MEANT[fault.kind]
        rank = _rank(fault.who)
        if rank not in RANKS[whom] or (rank == SOURCE and fault.who not in self.parents):
            raise ValueError(f"who is {fault.who!r}; give {whom}")
        rank = _rank(fault.other)
        if other == "a failpoint":
            right = fault.other in FAILPOINTS
            other = f"one of {', '.join(FAILPOINTS)}"
        elif other == "one above it":
            height = RANKS["anybody"].index(_rank(fault.who))
            # What is above may have been cut away, and then the root is.
            right = rank == RANKS["anybody"][height + 1] or (rank == ROOT and height >= len(self.layers))
        else:
            right = rank in RANKS[other] and (rank != SOURCE or fault.other in self.parents)
        if not right:
            raise ValueError(f"other is {fault.other!r}; give {other}")


def _whole(what: str, given: object, least: int, most: int | None) -> None:
    if type(given) is not int or given < least or (most is not None and given > most):
        upto = "" if most is None else f" to {most}"
        raise ValueError(f"{what} is {given!r}; give a whole number from {least}{upto}")


def _rank(name: str) -> str:
    """What somebody with such a name is; `?` if nobody can have it."""
    if name in ("", "root"):
        return ROOT if name else NOBODY
    return name[0] if re.fullmatch(f"[{SOURCE}{LETTERS}][0-9]+", name) else "?"


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
    address_faults = _address_faults(Random(f"{seed} addresses"), layers[0])
    # Those who come later are waited for, or not.
    total, early = len(feeds), sum(not feed.begins for feed in feeds)
    return Plan(
        seed,
        queries,
        layers,
        parents,
        feeds,
        (*faults, *address_faults),
        expected=max(rng.choice([total - 1, total, total, early, early, total + 1]), 1),
        loss=rng.choice([0, 0, 0.05, 0.15]),
        repeat=rng.choice([0, 0, 0.1, 0.2]),
        delay=rng.choice([1, 4, 15]),
        lanes=lanes,
        wire=rng.random() < 0.1,
        snapshots=rng.random() < 0.5,
        tight=rng.random() < 0.4,
        cap=rng.choice([0, 0, 0, 0, 0, 0, 0, 1, 2, 2]),
        addresses=bool(address_faults),
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
# Faults of addresses, drawn apart from the others so that what a seed means beside them stays the same.
ADDRESS_KINDS = {
    "takeover": 1,  # the address of a child leads to another one
    "spread": 1,  # the address of a child leads to any of the children, another one at each connection
}
FAILPOINTS = ("append", "appended", "sync", "synced", "emit", "emitted")
# Whom each kind befalls, and what its `other` is.
MEANT = {
    **dict.fromkeys(("crash", "lose", "replace", "leave"), ("a node", "nobody")),
    **dict.fromkeys(("restart", "setback", "shorten", "respool", "refuse", "retire"), ("a source", "nobody")),
    **dict.fromkeys(("full", "add", "remove"), ("root", "nobody")),
    # Of these the other one does not matter.
    **dict.fromkeys(("split", "slow"), ("anybody", "anybody or nobody")),
    "pause": ("anybody", "nobody"),
    "cut": ("anybody", "anybody"),
    "assign": ("a source", "a child"),
    "move": ("a source or a node", "one above it"),
    "join": ("a node", "one above it"),
    "kill": ("root", "a failpoint"),
    "clock_back": ("a child", "nobody"),
    "takeover": ("a child", "a child"),
    "spread": ("a child", "nobody"),
}
# Who those are, by what their names begin with, upwards.
RANKS = {
    "a node": LETTERS,
    "a child": LETTERS[0],
    "a source": SOURCE,
    "a source or a node": SOURCE + LETTERS,
    "anybody": SOURCE + LETTERS + ROOT,
    "anybody or nobody": SOURCE + LETTERS + ROOT + NOBODY,
    "root": ROOT,
    "nobody": NOBODY,
}


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


def _address_faults(rng: Random, children: Sequence[str]) -> tuple[Fault, ...]:
    """In a third of the runs addresses do not lead where they did."""
    if rng.random() >= 0.35:
        return ()
    faults = []
    for _ in range(rng.randint(1, 3)):
        kind = rng.choices(list(ADDRESS_KINDS), list(ADDRESS_KINDS.values()))[0]
        who, other = rng.choice(children), rng.choice(children) if kind == "takeover" else ""
        faults.append(Fault(rng.randint(5, CEASES - 20), kind, who, other, rng.randint(5, 80)))
    return tuple(faults)
