"""A plan: the layers of a tree, who sends to whom, and what that comes to for each node."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from headwater.errors import InvalidPlan, Problem
from headwater.planning import csa, packing, remedies
from headwater.planning.amounts import MOST, UNIT, at_least
from headwater.planning.inventory import ANY, ROLES, Inventory, Kind, Stock
from headwater.planning.packing import Group, Whole
from headwater.planning.shortage import LayersDoNotEnd, TooFew, TooLarge

Role = Literal["child", "intermediate", "root"]
MAX_LAYERS = 64


@dataclass(frozen=True, slots=True)
class Demand:
    """So many sources of one class; `rate` is items a second of each. `field` is where that was given."""

    name: str
    count: int
    rate: float
    field: str = "spec.sources[0]"


@dataclass(frozen=True, slots=True)
class Within:
    """What a plan stays within: how wide a layer is at least, and how many nodes there are at most, the root
    among them; `per_node`: every node that children may have is one."""

    min_width: int = 1
    max_nodes: int = 200
    per_node: bool = False


AS_USUAL = Within()


@dataclass(frozen=True, slots=True)
class Layer:
    """The nodes of one layer, in their order; rates are millionths of an item a second."""

    role: Role
    kinds: tuple[Kind, ...]
    rates: Whole
    # What reaches a node by Theorem 1, where those below spread evenly.
    bound: Fraction
    # The place of each one's parent in the layer above, and what it sends there; none of the root.
    parents: Whole | None = None
    sends: Whole | None = None

    @property
    def width(self) -> int:
        return len(self.kinds)

    @property
    def limits(self) -> NDArray[np.float64]:
        return np.array([kind.limit for kind in self.kinds])

    @property
    def headroom(self) -> NDArray[np.float64]:
        """Which share of its limit each node has left."""
        found: NDArray[np.float64] = 1 - self.rates / UNIT / self.limits
        return found


@dataclass(frozen=True, slots=True)
class Less:
    """What becomes of the root if one layer is left out: the layers then, what reaches it, what it takes."""

    layers: tuple[int, ...]
    rate: Fraction
    limit: float

    @property
    def lost(self) -> float:
        """The share of what reaches it that it cannot take."""
        return max(0.0, 1 - float(csa.exact(self.limit) / self.rate))


@dataclass(frozen=True, slots=True)
class Plan:
    """Layers from the children up; the last one, of width 1, is the root. A plan of one layer is run as one
    child under the root.

    `sources` says for each class how many of it each child reads; `notes` say why widths are not CSA's.
    """

    demands: tuple[Demand, ...]
    layers: tuple[Layer, ...]
    sources: Whole
    inventory: Inventory
    less: Less | None
    notes: tuple[str, ...] = ()
    # No node is given more items a second, whatever it takes; None: up to its limit.
    low: float | None = None

    @property
    def widths(self) -> list[int]:
        return [layer.width for layer in self.layers]

    @property
    def nodes(self) -> int:
        return sum(self.widths)

    @property
    def load(self) -> Fraction:
        return load_of(self.demands)


def load_of(demands: Sequence[Demand]) -> Fraction:
    return sum((each.count * csa.exact(each.rate) for each in demands), Fraction(0))


def plan(
    demands: Sequence[Demand],
    inventory: Inventory,
    within: Within = AS_USUAL,
    reductions: Mapping[int, float] | None = None,
    *,
    remedied: bool = True,
) -> Plan:
    """The fewest nodes by CSA of which none is overrun; raises `InvalidPlan` if there are not enough, which
    says what would help, unless it need not be `remedied`: that takes many plans to find out.

    `reductions` are measured: what the nodes of a layer send for each item that they take, by its number
    from 1; where nothing was measured, it is what Theorem 1 says.
    """
    problems = list(_problems(demands, inventory, within))
    if problems:
        raise InvalidPlan(problems)
    demands = tuple(demands)

    def tried(other: Inventory, most: int) -> list[int] | None:
        try:
            return _best(demands, other, replace(within, max_nodes=most), reductions or {}).widths
        except InvalidPlan:
            return None

    try:
        return _best(demands, inventory, within, reductions or {})
    except TooFew as short:
        if not remedied:
            raise
        raise InvalidPlan([remedies.problem(short, inventory, load_of(demands), tried)]) from None


def _best(
    demands: tuple[Demand, ...], inventory: Inventory, within: Within, reductions: Mapping[int, float]
) -> Plan:
    """The fewest nodes of several ways to go about it: with any kind of node as the root, and with children
    on those that take the most, or the least. Raises what is wrong with the first way."""
    found: Plan | None = None
    wrong: InvalidPlan | None = None
    for way in inventory.ways():
        try:
            other = _Planning(demands, way, within, reductions).run()
        except InvalidPlan as error:
            wrong = wrong or error
        else:
            found = other if found is None or other.nodes < found.nodes else found
    if found is None:
        assert wrong is not None
        found = _lowered(demands, inventory, within, reductions)
        if found is None:
            raise wrong
    roles = {layer.role for layer in found.layers}
    chance = [note for role, note in _lower_by_chance(inventory) if role in roles]
    return replace(found, inventory=inventory, notes=(*chance, *found.notes))


def _lowered(
    demands: tuple[Demand, ...], inventory: Inventory, within: Within, reductions: Mapping[int, float]
) -> Plan | None:
    """A plan in which strong nodes are given no more than weaker ones, where there is no other."""
    for other in inventory.lowered():
        known = dict(zip(other.every, inventory.every, strict=True))
        low = max(kind.limit for kind in other.kinds)
        for way in other.ways():
            try:
                found = _Planning(demands, way, within, reductions).run()
            except InvalidPlan:
                continue
            layers = tuple(
                replace(layer, kinds=tuple(known[kind] for kind in layer.kinds)) for layer in found.layers
            )
            less = found.less and replace(found.less, limit=layers[-1].kinds[0].limit)
            note = (
                f"no node is given more than {low:g} items/s: otherwise nothing fits above the stronger ones"
            )
            return replace(found, layers=layers, less=less, notes=(*found.notes, note), low=low)
    return None


def _problems(demands: Sequence[Demand], inventory: Inventory, within: Within) -> Iterator[Problem]:
    remedy = f"give items a second, above 0 and at most {MOST:g}"
    if not demands:
        yield Problem("spec.sources", "is empty", "say how many sources there are and how fast they send")
    if not 0 <= inventory.margin < 1:
        yield Problem(
            "spec.node.margin", f"is {inventory.margin:g}", "give a share from 0 to below 1, such as 0.1"
        )
    for kind in inventory.kinds:
        if not 0 < kind.limit <= MOST:
            yield Problem(kind.field, f"is {kind.limit:g}", remedy)
        elif 0 <= inventory.margin < 1 and not inventory.capacity(kind):
            yield Problem(kind.field, f"is {kind.limit:g}, less than a millionth with its margin", remedy)
    for each in demands:
        if each.count < 1:
            yield Problem(f"{each.field}.expected", f"is {each.count}", "expect 1 source or more")
        if not 0 < each.rate <= MOST:
            yield Problem(f"{each.field}.rate", f"is {each.rate:g}", remedy)
    if within.min_width > within.max_nodes:
        yield Problem(
            "spec.limits.minWidth",
            f"{within.min_width} is more than maxNodes, which is {within.max_nodes}",
            "lower minWidth or raise maxNodes",
        )


@dataclass(slots=True)
class _Planning:
    """One tree, layer by layer from the children up."""

    demands: tuple[Demand, ...]
    inventory: Inventory
    within: Within
    reductions: Mapping[int, float]
    layers: list[Layer] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def run(self) -> Plan:
        stock = Stock(self.inventory)
        shelf = stock.shelf("root", 1)
        if not len(shelf.capacities):
            raise TooFew("root", self.widths, 0, shelf.capacities, self.within.max_nodes)
        (root,), capacity = shelf.first(1), int(shelf.capacities[0])
        reach = [load_of(self.demands)]
        forwarded = all(self.reductions.get(number, 0) >= 1 for number in range(1, MAX_LAYERS + 1))
        if forwarded and reach[0] * UNIT > capacity:
            raise LayersDoNotEnd(root, self.inventory.margin, reach[0], forwarded=True)
        if self._fits_one(capacity):
            # What one child takes, the root takes as well: they are counted as one.
            groups = self._groups()
            found = np.array([[group.count] for group in groups], np.int64)
            child = max(self.inventory.child, key=lambda kind: kind.limit)
            kind = min(child, root, key=lambda kind: kind.limit)
            self.layers.append(Layer("root", (kind,), packing.loads(groups, found), reach[0]))
            return Plan(self.demands, tuple(self.layers), found, self.inventory, None, tuple(self.notes))
        stock.take([root])
        sources = self._children(stock)
        while self.layers[-1].role != "root":
            reach.append(reach[-1] * self._share())
            sends = self._sends()
            if max(reach[-1] * UNIT, Fraction(int(sends.sum()))) <= capacity:
                self._add("root", (root,), np.zeros(len(sends), np.int64), sends, reach[-1])
            elif len(self.layers) == MAX_LAYERS:
                most = max(reach[-1], Fraction(int(sends.sum()), UNIT))
                raise LayersDoNotEnd(root, self.inventory.margin, most, forwarded=False)
            else:
                self._intermediate(stock, sends, reach[-1])
        return Plan(
            self.demands,
            tuple(self.layers),
            sources,
            self.inventory,
            None if len(reach) == 1 else self._less(reach[-2]),
            tuple(self.notes),
        )

    def _less(self, reaching: Fraction) -> Less:
        left_out = self.layers[-2]
        rate = max(reaching, Fraction(int(left_out.rates.sum()), UNIT))
        limit = self.layers[-1].kinds[0].limit
        if len(self.layers) == 2:
            # Without children it is one child that takes it all.
            limit = min(limit, max(kind.limit for kind in self.inventory.child))
        return Less((*self.widths[:-2], 1), rate, limit)

    @property
    def widths(self) -> list[int]:
        return [layer.width for layer in self.layers]

    def _groups(self) -> list[Group]:
        return [Group(at_least(each.rate), each.count) for each in self.demands]

    def _fits_one(self, capacity: int) -> bool:
        """Whether one child, and the root, take it all."""
        total = sum(group.rate * group.count for group in self._groups())
        child = max((self.inventory.capacity(kind) for kind in self.inventory.child), default=0)
        return total <= min(capacity, child) and self.within.min_width == 1 and not self.within.per_node

    def _children(self, stock: Stock) -> Whole:
        """Sources onto children, so that none has more than it takes."""
        largest = max(self.inventory.child, key=lambda kind: kind.limit)
        large = [each for each in self.demands if at_least(each.rate) > self.inventory.capacity(largest)]
        if large:
            told = [(each.field, each.name, each.rate) for each in large]
            raise TooLarge(largest, self.inventory.margin, told)
        shelf = stock.shelf("child", self.within.max_nodes - 1)
        groups = self._groups()
        total = sum(group.rate * group.count for group in groups)
        least = shelf.fewest(total)
        everyone = self.within.per_node and all(kind.count is not None for kind in self.inventory.child)
        low = len(shelf.capacities) if everyone else max(least or 0, self.within.min_width, 1)
        width = None if least is None else packing.fewest(groups, shelf.capacities, low)
        if width is None:
            raise TooFew("child", self.widths, total, shelf.capacities, self.within.max_nodes)
        if low > (least or 0):
            why = "there are so many nodes for them" if everyone else "limits.minWidth asks for them"
            self.notes.append(f"{low} children instead of {least}: {why}")
        if width > low:
            self.notes.append(
                f"{width} children instead of {low}: each source has one, and {low} cannot be filled evenly"
            )
        found = packing.packed(groups, shelf.capacities[:width])
        assert found is not None
        kinds = shelf.first(width)
        stock.take(kinds)
        self.layers.append(Layer("child", kinds, packing.loads(groups, found), load_of(self.demands) / width))
        return found

    def _share(self) -> Fraction:
        """What a layer sends for each item that it takes."""
        measured = self.reductions.get(len(self.layers))
        if measured is not None:
            return csa.exact(measured)
        return csa.reaching(Fraction(1), self.widths) / csa.reaching(Fraction(1), self.widths[:-1])

    def _sends(self) -> Whole:
        """What each node of the last layer sends.

        By Theorem 1, a child sends half of what it takes. Nodes above it merge rows of the same window, so
        each sends as much as the one below it that sends the most, if nothing was measured.
        """
        last = self.layers[-1]
        if last.role == "child" or len(self.layers) in self.reductions:
            share = self._share()
            return np.array([math.floor(int(rate) * share) for rate in last.rates], np.int64)
        below = self.layers[-2]
        assert below.parents is not None
        assert below.sends is not None
        found = np.zeros(last.width, np.int64)
        np.maximum.at(found, below.parents, below.sends)
        return found

    def _intermediate(self, stock: Stock, sends: Whole, reaching: Fraction) -> None:
        """As many as CSA asks for; more if the nodes below cannot be spread over them."""
        shelf = stock.shelf("intermediate", max(self.within.max_nodes - 1 - sum(self.widths), 0))
        groups, places = packing.groups_of(sends.tolist())
        groups = [Group(max(group.rate, 1), group.count) for group in groups]
        total = max(math.floor(reaching * UNIT), int(sends.sum()))
        least = shelf.fewest(math.floor(reaching * UNIT))
        # A tree has to come down to one: no layer is wider than half of the one below it but for need.
        low = max(least or 0, min(self.within.min_width, -(-len(sends) // 2)), 1)
        width = None if least is None else packing.fewest(groups, shelf.capacities, low)
        if width is None:
            raise TooFew("intermediate", self.widths, total, shelf.capacities, self.within.max_nodes)
        if width > low:
            self.notes.append(
                f"{width} nodes in layer {len(self.layers) + 1} instead of {low}: each of the {len(sends)} "
                f"below has one parent, and {low} cannot be filled evenly"
            )
        found = packing.packed(groups, shelf.capacities[:width])
        assert found is not None
        kinds = shelf.first(width)
        stock.take(kinds)
        self._add("intermediate", kinds, _given_out(places, found), sends, reaching)

    def _add(
        self, role: Role, kinds: tuple[Kind, ...], parents: Whole, sends: Whole, reaching: Fraction
    ) -> None:
        rates = np.zeros(len(kinds), np.int64)
        np.add.at(rates, parents, sends)
        self.layers[-1] = replace(self.layers[-1], parents=parents, sends=sends)
        self.layers.append(Layer(role, kinds, rates, reaching / len(kinds)))


def _lower_by_chance(inventory: Inventory) -> Iterator[tuple[str, str]]:
    """Which layers take less because of nodes that they may meet, and a word on it."""
    for role in ROLES:
        for kind in inventory.of(role):
            if kind.name == ANY and ".classes[" in kind.field:
                place = kind.field.removesuffix(".ingestLimit")
                said = f"as it may be a node of {place}, which has no count, it takes {kind.limit:g}/s"
                yield role, f"{role}: {said}"


def _given_out(places: Whole, found: Whole) -> Whole:
    """The node of each item, of which `places` says the group."""
    parents = np.empty(len(places), np.int64)
    for group in range(len(found)):
        members = np.flatnonzero(places == group)
        parents[members] = np.repeat(np.arange(found.shape[1]), found[group])
    return parents
