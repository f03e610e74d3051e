"""What there is to be, as a planner says it: gathered from its parts, checked, and applied by the machine."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from headwater.errors import Invalid, Problem
from headwater.machines.records import Planned, Rate, Specified
from headwater.machines.root import RootMachine
from headwater.queries import Query, signature
from headwater.sources import NAME_LIMIT
from headwater_root.problems import cut, plain, problems_message
from headwater_wire.v1 import control_pb2 as pb

NODES_LIMIT, RATES_LIMIT, QUERIES_LIMIT, DIGEST_BYTES = 10_000, 256, 4_096, 64
ROOT = "root"
WHAT = "the plan cannot be applied"


class Overtaken(Invalid):
    """A plan that is older than the one that was applied."""


class Queries(Protocol):
    """The queries of a root, as far as they matter here."""

    def present(self) -> Mapping[str, Query]:
        """Those that run, by their ids."""

    def read(self, document: str) -> Query: ...

    def check_room(self, query: Query) -> None:
        """Raises if there is no room for one more."""


@dataclass(slots=True)
class Gathered:
    """The parts of one request that have come so far."""

    generation: int = 0
    digest: str = ""
    owner: str = ""
    expected: int = 0
    queries: list[str] = field(default_factory=list)
    nodes: list[Planned] = field(default_factory=list)
    rates: list[Rate] = field(default_factory=list)

    def add(self, part: pb.SpecPart) -> None:
        self.generation = part.generation or self.generation
        self.digest, self.expected = part.digest or self.digest, part.expected or self.expected
        self.owner = part.owner or self.owner
        self.queries += part.queries
        self.nodes += [Planned(each.node, each.parent, each.capacity) for each in part.nodes]
        self.rates += [Rate(each.site, each.lateness, each.rate) for each in part.rates]
        # At once: what is too much is not kept until it ends.
        for name, held, limit in (
            ("queries", self.queries, QUERIES_LIMIT),
            ("nodes", self.nodes, NODES_LIMIT),
            ("rates", self.rates, RATES_LIMIT),
        ):
            if len(held) > limit:
                raise Invalid(WHAT, [Problem(name, f"has {len(held)} entries", f"send at most {limit}")])

    def spec(self) -> Specified:
        """As the log has it, or one error with everything that is wrong with it."""
        problems = [*self._word_problems(), *self._node_problems(), *self._rate_problems()]
        if problems:
            raise Invalid(WHAT, problems)
        nodes, rates = tuple(self.nodes), tuple(self.rates)
        return Specified(self.generation, self.digest, nodes, rates, self.expected, self.owner)

    def _word_problems(self) -> Iterable[Problem]:
        if not self.generation:
            yield Problem("generation", "is missing", "give that of what was asked for, from 1 on")
        if not 1 <= len(self.digest.encode()) <= DIGEST_BYTES:
            yield Problem("digest", f"has {len(self.digest.encode())} bytes", f"give 1 to {DIGEST_BYTES}")
        if len(self.owner.encode()) > DIGEST_BYTES:
            yield Problem("owner", "is too long", f"give at most {DIGEST_BYTES} bytes")

    def _node_problems(self) -> Iterable[Problem]:
        parents = {each.node: each.parent for each in self.nodes}
        if len(parents) != len(self.nodes):
            yield Problem("nodes", "has a node twice", "give each node once")
        for place, each in enumerate(self.nodes):
            if not 1 <= len(each.node.encode()) <= NAME_LIMIT or each.node == ROOT:
                yield Problem(f"nodes[{place}].node", f"is {each.node!r}", "give the name of a node")
            if each.parent != ROOT and each.parent not in parents:
                remedy = "give a node of the plan, or the root"
                yield Problem(f"nodes[{place}].parent", f"is {each.parent!r}", remedy)
            if not 0 <= each.capacity < math.inf:
                remedy = "give items a second, 0 for a node that reads no sources"
                yield Problem(f"nodes[{place}].capacity", f"is {each.capacity}", remedy)
            if _turns_round(each.node, parents):
                remedy = "let the root be above every node"
                yield Problem(f"nodes[{place}].parent", "leads back to the node itself", remedy)

    def _rate_problems(self) -> Iterable[Problem]:
        for place, each in enumerate(self.rates):
            if not 0 < each.rate < math.inf:
                yield Problem(f"rates[{place}].rate", f"is {each.rate}", "give items a second, above 0")
            if len(each.site.encode()) > NAME_LIMIT:
                yield Problem(f"rates[{place}].site", "is too long", f"give at most {NAME_LIMIT} bytes")


def _turns_round(node: str, parents: Mapping[str, str]) -> bool:
    above, steps = parents.get(node, ROOT), 0
    while above != ROOT and above in parents and steps <= len(parents):
        if above == node:
            return True
        above, steps = parents[above], steps + 1
    return False


def apply(gathered: Gathered, machine: RootMachine, queries: Queries) -> pb.ApplySpecReply:
    """Have the machine apply it. Queries come first: a plan that was applied has all of them."""
    spec = gathered.spec()
    held = machine.members.spec
    # A volume may outlive what it was made for: the generations of another one say nothing.
    if held is not None and held.owner == spec.owner and spec.generation < held.generation:
        said = f"is {spec.generation}, but {held.generation} was applied already"
        raise Overtaken(WHAT, [Problem("generation", said, "plan what is asked for now")])
    told = _changed(gathered.queries, machine, queries)
    if spec != held:
        machine.specify(spec)
    return pb.ApplySpecReply(version=machine.engine.version, queries=told)


def _changed(documents: Iterable[str], machine: RootMachine, queries: Queries) -> list[pb.AppliedQuery]:
    """Add and remove queries until there are those that were asked for; one that cannot be taken leaves what
    there is of its id."""
    told: list[pb.AppliedQuery] = []
    asked: dict[str, Query] = {}
    kept: set[str] = set()
    for document in documents:
        try:
            query = queries.read(document)
            if query.id in asked:
                raise Invalid(WHAT, [Problem("id", f"{query.id!r} is there twice", "give each id once")])
            asked[query.id] = query
            told.append(pb.AppliedQuery(id=query.id))
        except Invalid as error:
            told.append(pb.AppliedQuery(id=_id_of(document), problems=problems_message(error.problems)))
            kept.add(told[-1].id)
    present = queries.present()
    same = {id for id, query in asked.items() if id in present and signature(present[id]) == signature(query)}
    for each in told:
        if not each.HasField("problems") and each.id not in same:
            try:
                # Before the one that it takes the place of is gone.
                queries.check_room(asked[each.id])
            except Invalid as error:
                each.problems.CopyFrom(problems_message(map(plain, error.problems)))
                kept.add(each.id)
    for id in present:
        if id not in same and id not in kept:
            machine.remove(id)
    for each in told:
        if not each.HasField("problems") and each.id not in same:
            try:
                machine.add(asked[each.id])
            except Invalid as error:
                each.problems.CopyFrom(problems_message(map(plain, error.problems)))
    return told


def _id_of(document: str) -> str:
    """What somebody calls a query that cannot be read."""
    try:
        given = json.loads(document)
        found = given.get("id") or given.get("metadata", {}).get("name") or ""
    except (ValueError, AttributeError, RecursionError):
        found = ""
    return cut(found) if isinstance(found, str) else ""
