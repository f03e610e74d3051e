"""What the root is to be told: queries, nodes and how much each child reads, with one word for all of it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from hashlib import sha256

from headwater.topology import Topology
from headwater_operator import names
from headwater_operator.layout import TreeNode
from headwater_wire.v1 import control_pb2 as pb
from headwater_wire.v1 import log_pb2

# So many bytes of entries a part has at most: a little less than the root takes.
PART_BYTES = 60_000


@dataclass(frozen=True, slots=True)
class Specification:
    """`queries` are documents as in a manifest, or of a kind of their own, as JSON."""

    owner: str
    generation: int
    expected: int
    queries: tuple[str, ...]
    # Node, parent, and items a second that a child is to read; 0: none.
    nodes: tuple[tuple[str, str, float], ...]
    # Site, lateness in microseconds, items a second of each source.
    rates: tuple[tuple[str, int, float], ...]

    @property
    def digest(self) -> str:
        """The same for the same specification, whoever asks."""
        told = [self.owner, self.generation, self.expected, self.queries, self.nodes, self.rates]
        return sha256(json.dumps(told).encode()).hexdigest()[:32]

    def parts(self) -> Iterator[pb.SpecPart]:
        part = pb.SpecPart(
            generation=self.generation, digest=self.digest, expected=self.expected, owner=self.owner
        )
        size = 0
        for entry in self._entries():
            if size and size + entry.ByteSize() > PART_BYTES:
                yield part
                part, size = pb.SpecPart(), 0
            size += entry.ByteSize() + 8
            part.MergeFrom(entry)
        yield part

    def _entries(self) -> Iterator[pb.SpecPart]:
        for document in self.queries:
            yield pb.SpecPart(queries=[document])
        for node, parent, capacity in self.nodes:
            planned = log_pb2.PlannedNode(node=node, parent=parent, capacity=capacity)
            yield pb.SpecPart(nodes=[planned])
        for site, lateness, rate in self.rates:
            yield pb.SpecPart(rates=[log_pb2.PlannedRate(site=site, lateness=lateness, rate=rate)])


def specification(
    topology: Topology,
    owner: str,
    generation: int,
    nodes: Iterable[TreeNode],
    queries: Iterable[str],
    absent: frozenset[str] = frozenset(),
    factor: float = 1.0,
) -> Specification:
    """Of a topology, by its uid, with the nodes that were planned for it. Children that are `absent` read no
    sources, and nobody sends to an absent node. Sources send `factor` times as much as the manifest says."""
    nodes = _around(list(nodes), absent)
    return Specification(
        owner,
        generation,
        topology.expected,
        tuple(queries),
        tuple(
            (each.id, each.parent, each.capacity if each.role == "child" and each.id not in absent else 0.0)
            for each in nodes
        ),
        tuple(sorted({(each.site, each.lateness, each.rate * factor) for each in topology.sources})),
    )


def _around(nodes: list[TreeNode], absent: frozenset[str]) -> list[TreeNode]:
    """Whoever would send to an absent node sends to the one of its layer that the fewest send to, or to the
    root where there is none."""
    by_id = {node.id: node for node in nodes}
    below = Counter(node.parent for node in nodes)
    found = []
    for node in nodes:
        parent = by_id.get(node.parent)
        if parent is not None and parent.id in absent:
            others = [each.id for each in nodes if each.layer == parent.layer and each.id not in absent]
            chosen = min(others, key=lambda id: (below[id], id), default=names.ROOT)
            below[chosen] += 1
            node = replace(node, parent=chosen)
        found.append(node)
    return found
