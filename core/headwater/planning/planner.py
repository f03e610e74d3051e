"""What keeps a plan true while a tree runs: the tree that there should be by now, and what to do for it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from headwater.errors import InvalidPlan, Problem
from headwater.planning.amounts import at_least
from headwater.planning.asked import reductions_of, within_of
from headwater.planning.hysteresis import Hysteresis
from headwater.planning.inventory import Inventory, Kind, Stock, alike, inventory_of
from headwater.planning.plan import Demand, Within, plan
from headwater.planning.trees import Step, Tree, next_tree
from headwater.topology import NodeSpec, Topology

# What Theorem 1 says that a child sends for each item.
BOUND = 0.5


class Planner:
    """Plans of one tree whose nodes are alike, but for the root."""

    def __init__(self, topology: Topology, node: NodeSpec) -> None:
        self.margin = node.margin
        plain = alike(node.ingest_limit, node.margin)
        found = _root(topology, node)
        root = (Kind("root", found.limit, 1, found.field),)
        self._inventory = Inventory(plain.child, plain.intermediate, root, node.margin)
        asked = within_of(topology)
        self._within = Within(asked.min_width, asked.max_nodes)
        self._hysteresis = Hysteresis(topology.limits.scale_down_after)
        self.tree = Tree()
        self.beyond: InvalidPlan | None = None
        self._known = reductions_of(topology)
        self._reductions = dict(self._known)
        self._sends: dict[str, float] = {}
        # What is given to a node at most.
        self._capacity = self._inventory.capacity(self._inventory.child[0])

    def replan(
        self,
        now: int,
        rates: Mapping[str, float],
        sends: Mapping[str, float] | None = None,
        reductions: Mapping[int, float] | None = None,
    ) -> Step:
        """From the tree that there is to the one that these sources need, `now` in microseconds.

        `rates` are items a second of each source, `sends` of nodes and `reductions` of layers, as measured;
        what was measured of a layer holds until it is measured anew.
        Where no tree takes what was measured, it is planned by the bound, and `beyond` says why. Raises
        `InvalidPlan` if there is none either; then the tree stays as it is.
        """
        for layer, ratio in (reductions or {}).items():
            self._measured(layer, ratio)
        self._sends |= sends or {}
        demands = _demands(rates)
        before, self.beyond = self.beyond, None
        # It is said once why there is none, and no sooner than it has to be.
        remedied = before is None or self._reductions == self._known
        try:
            found = plan(demands, self._inventory, self._within, self._reductions, remedied=remedied)
        except InvalidPlan as error:
            if self._reductions == self._known:
                raise
            self.beyond = before or error
            found = plan(demands, self._inventory, self._within, self._known)
        child = self._inventory.child[0]
        limit = child.limit if found.low is None else min(child.limit, found.low)
        self._capacity = self._inventory.capacity(replace(child, limit=limit))
        current = self.tree.widths if self.tree.layers else found.widths
        widths = self._hysteresis.widths(now, found.widths, current)
        step = self._step(widths, rates, stable=True)
        if step.tree.size > self._within.max_nodes:
            # As few moves as can be would be too many nodes: then everybody may move.
            step = self._step(found.widths, rates, stable=False)
        if step.tree.size > self._within.max_nodes:
            said = f"is {self._within.max_nodes}, but the tree needs {step.tree.size} nodes"
            remedy = f"raise it to {step.tree.size}"
            raise InvalidPlan([Problem("spec.limits.maxNodes", said, remedy)])
        there = set(step.tree.nodes)
        self._sends = {name: rate for name, rate in self._sends.items() if name in there}
        self.tree = step.tree
        return step

    def _step(self, widths: Sequence[int], rates: Mapping[str, float], *, stable: bool) -> Step:
        return next_tree(
            self.tree,
            widths,
            {name: at_least(rate) for name, rate in rates.items()},
            {name: at_least(rate) for name, rate in self._sends.items()},
            self._capacity,
            self._reductions if self.beyond is None else self._known,
            stable=stable,
        )

    def _measured(self, layer: int, ratio: float) -> None:
        """More than Theorem 1 says is a reason to plan anew at the children alone, and beyond the margin:
        nodes above them that do not merge more are not helped by others above them."""
        if ratio <= BOUND or (layer == 1 and ratio > BOUND * (1 + self.margin)):
            self._reductions[layer] = ratio
        elif layer in self._known:
            self._reductions[layer] = self._known[layer]
        else:
            self._reductions.pop(layer, None)


def limits_of(topology: Topology, node: NodeSpec) -> tuple[float, float]:
    """What a node takes, and what the root does."""
    return node.ingest_limit, _root(topology, node).limit


def _root(topology: Topology, node: NodeSpec) -> Kind:
    (root,) = Stock(inventory_of(node, topology.placement)).shelf("root", 1).first(1)
    return root


def _demands(rates: Mapping[str, float]) -> list[Demand]:
    """Sources that send as much are one class."""
    counts = Counter(rates.values())
    return [Demand(f"{rate:g} items/s", count, rate) for rate, count in counts.items()]
