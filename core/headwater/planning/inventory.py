"""Which nodes a layer may have: kinds of them, what each takes, and how many there are."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from headwater.errors import InvalidPlan, Problem
from headwater.planning.amounts import at_most
from headwater.planning.csa import exact
from headwater.topology.tree import LayerPlacement, NodeClass, NodeSpec, Placement, Selector

ANY = "any"
ROLES = ("child", "intermediate", "root")


@dataclass(frozen=True, slots=True)
class Kind:
    """Nodes that take as much each; `count` of them, or as many as are asked for."""

    name: str
    limit: float
    count: int | None = None
    # Where its limit was given.
    field: str = "spec.node.ingestLimit"


@dataclass(frozen=True, slots=True)
class Inventory:
    """The kinds that each layer may have, and the share of every limit that is kept free. Layers that have
    a kind in common share its nodes."""

    child: tuple[Kind, ...]
    intermediate: tuple[Kind, ...]
    root: tuple[Kind, ...]
    margin: float
    # Whether children are planned onto those that take the least before others.
    smallest_first: bool = False

    def of(self, role: str) -> tuple[Kind, ...]:
        return {"child": self.child, "intermediate": self.intermediate, "root": self.root}[role]

    @property
    def kinds(self) -> list[Kind]:
        """Each of them once."""
        return list(dict.fromkeys([*self.child, *self.intermediate, *self.root]))

    @property
    def every(self) -> list[Kind]:
        """The kinds of each role, one after the other."""
        return [kind for role in ROLES for kind in self.of(role)]

    def capacity(self, kind: Kind) -> int:
        """What is planned onto a node at most."""
        return at_most(exact(kind.limit) * (1 - exact(self.margin)))

    def ways(self) -> Iterator[Inventory]:
        """The ways to use these nodes: children on those that take the most or the least first, and each kind
        that the root may have."""
        counted = any(kind.count is not None for kind in self.kinds)
        for root in sorted(self.root, key=lambda kind: -kind.limit):
            yield replace(self, root=(root,))
            if counted and len(self.child) > 1:
                yield replace(self, root=(root,), smallest_first=True)

    def lowered(self) -> Iterator[Inventory]:
        """The same nodes, if none took more than some do: a layer of strong nodes may be so narrow that what
        it sends is too much for whoever is above it. Such a plan holds for these nodes all the more."""
        largest = max(kind.limit for kind in self.kinds)
        lows = {kind.limit for kind in self.root}
        lows |= {min(kind.limit for kind in self.of(role)) for role in ROLES if self.of(role)}
        for low in sorted(lows - {largest}, reverse=True):
            yield self._at_most(low)

    def _at_most(self, low: float) -> Inventory:
        return self._with(lambda kind: replace(kind, limit=min(kind.limit, low)))

    def with_more(self, kind: Kind, count: int) -> Inventory:
        """The same nodes, and so many more of a kind."""
        more = replace(kind, count=None if kind.count is None else kind.count + count)
        return self._with(lambda each: more if each == kind else each)

    def scaled(self, factor: Fraction, only: Sequence[Kind] | None = None) -> Inventory:
        """The same nodes, if each took so many times as much, or each of some kinds."""
        return self._with(
            lambda kind: (
                replace(kind, limit=float(exact(kind.limit) * factor))
                if only is None or kind in only
                else kind
            )
        )

    def _with(self, other: Callable[[Kind], Kind]) -> Inventory:
        child, intermediate, root = (tuple(map(other, self.of(role))) for role in ROLES)
        return Inventory(child, intermediate, root, self.margin)


@dataclass(slots=True)
class Stock:
    """What is left of an inventory while a tree is planned, layer by layer."""

    inventory: Inventory
    _used: dict[str, int] = field(default_factory=dict)

    def shelf(self, role: str, most: int) -> Shelf:
        """The nodes that a layer may have, those that take the most first: the fewest are needed then."""
        runs: list[tuple[Kind, int]] = []
        sign = 1 if role == "child" and self.inventory.smallest_first else -1
        for kind in sorted(self.inventory.of(role), key=lambda kind: sign * kind.limit):
            count = min(self._left(kind, most), most)
            most -= count
            if count:
                runs.append((kind, count))
        capacities = [self.inventory.capacity(kind) for kind, _ in runs]
        return Shelf(runs, np.repeat(np.array(capacities, np.int64), [count for _, count in runs]))

    def _left(self, kind: Kind, most: int) -> int:
        return most if kind.count is None else max(kind.count - self._used.get(kind.name, 0), 0)

    def take(self, kinds: Iterable[Kind]) -> None:
        for kind in kinds:
            self._used[kind.name] = self._used.get(kind.name, 0) + 1


@dataclass(frozen=True, slots=True)
class Shelf:
    """Nodes in the order in which they are taken: so many of each kind, and what each one takes."""

    runs: Sequence[tuple[Kind, int]]
    capacities: NDArray[np.int64]

    def first(self, width: int) -> tuple[Kind, ...]:
        found: list[Kind] = []
        for kind, count in self.runs:
            found += [kind] * min(count, width - len(found))
        return tuple(found)

    def fewest(self, total: int) -> int | None:
        """How many take so much together; None if all are too few."""
        taken = 0
        found = 0
        for place, (_, count) in enumerate(self.runs):
            each = int(self.capacities[sum(count for _, count in self.runs[:place])])
            if taken + each * count >= total:
                return found + max(-(-(total - taken) // each), 0)
            taken += each * count
            found += count
        return None if taken < total else found


def alike(limit: float, margin: float, kind_field: str = "spec.node.ingestLimit") -> Inventory:
    """As many nodes as are needed, all alike."""
    any_ = (Kind(ANY, limit, None, kind_field),)
    return Inventory(any_, any_, any_, margin)


def inventory_of(node: NodeSpec, placement: Placement) -> Inventory:
    """What a manifest says about nodes.

    A layer whose selector asks for all labels of a class has that class alone. A class that it may meet by
    chance, and of which nobody says how many there are, lowers the limit of all nodes of the layer.
    """
    child, intermediate, root = (
        tuple(_kinds(node, layer, f"spec.placement.{role}"))
        for role, layer in zip(ROLES, (placement.child, placement.intermediate, placement.root), strict=True)
    )
    return Inventory(child, intermediate, root, node.margin)


def _kinds(node: NodeSpec, layer: LayerPlacement, where: str) -> Iterator[Kind]:
    asked = dict(layer.node_selector)
    fitting = [
        (place, each)
        for place, each in enumerate(node.classes)
        if all(asked.get(label, value) == value for label, value in each.selector)
    ]
    certain = [each for each in fitting if all(label in asked for label, _ in each[1].selector)]
    if certain:
        place, found = _most_said(certain, where)
        kind = _kind(place, found)
        # Among its nodes may be some that another class says more about.
        for place, each in fitting:
            narrower = (place, each) not in certain and {*each.selector} > {*found.selector}
            if narrower and each.ingest_limit < kind.limit:
                field = f"spec.node.classes[{place}].ingestLimit"
                kind = replace(kind, limit=each.ingest_limit, field=field)
        yield kind
        return
    yield from (_kind(place, each) for place, each in fitting if each.count is not None)
    lowest = Kind(ANY, node.ingest_limit)
    for place, each in fitting:
        if each.count is None and each.ingest_limit < lowest.limit:
            lowest = Kind(ANY, each.ingest_limit, None, f"spec.node.classes[{place}].ingestLimit")
    yield lowest


def _most_said(classes: Sequence[tuple[int, NodeClass]], where: str) -> tuple[int, NodeClass]:
    """The class that says the most about its nodes; there must not be two that say another thing."""
    most = max(len(each.selector) for _, each in classes)
    (first, found), *others = [(place, each) for place, each in classes if len(each.selector) == most]
    for place, each in others:
        if each.ingest_limit != found.ingest_limit:
            both = labels(tuple(sorted({*found.selector, *each.selector})))
            raise InvalidPlan(
                [
                    Problem(
                        f"spec.node.classes[{place}].ingestLimit",
                        f"is {each.ingest_limit:g} for {labels(each.selector)}, but classes[{first}] says "
                        f"{found.ingest_limit:g} for {labels(found.selector)}, and {where} asks for nodes "
                        "that are both",
                        f"give a class for {both}",
                    )
                ]
            )
    return first, found


def _kind(place: int, each: NodeClass) -> Kind:
    return Kind(
        labels(each.selector), each.ingest_limit, each.count, f"spec.node.classes[{place}].ingestLimit"
    )


def labels(selector: Selector) -> str:
    return ",".join(f"{label}={value}" for label, value in selector)
