"""What a manifest asks for, as a plan takes it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from headwater.errors import InvalidPlan, Problem
from headwater.planning.inventory import inventory_of
from headwater.planning.plan import MAX_LAYERS, Demand, Plan, Within, plan
from headwater.topology.tree import Topology


def demands_of(topology: Topology) -> list[Demand]:
    return [
        Demand(f"{each.name} at {each.site}", each.expected, each.rate, f"spec.sources[{place}]")
        for place, each in enumerate(topology.sources)
    ]


def within_of(topology: Topology) -> Within:
    return Within(
        topology.limits.min_width, topology.limits.max_nodes, topology.placement.child.mode == "perNode"
    )


def reductions_of(topology: Topology) -> dict[int, float]:
    """What is known of what layers send before anything is measured: for queries that are computed at the
    root every event is forwarded, and no layer makes them fewer."""
    central = any(each.central for each in topology.queries)
    return dict.fromkeys(range(1, MAX_LAYERS + 1), 1.0) if central else {}


def plan_of(topology: Topology) -> Plan:
    """The tree that a manifest asks for."""
    if topology.node is None:
        remedy = "give how many items a second a node takes; headwater bench node measures it"
        raise InvalidPlan([Problem("spec.node.ingestLimit", "is missing", remedy)])
    inventory = inventory_of(topology.node, topology.placement)
    return plan(demands_of(topology), inventory, within_of(topology), reductions_of(topology))


def scaled(demands: Sequence[Demand], total: int) -> list[Demand]:
    """The same classes with so many sources in all, each by its share; classes without any are left out."""
    before = sum(each.count for each in demands)
    if total < 1 or before < 1:
        return [replace(demands[0], count=total)]
    found, given, due = [], 0, 0
    for each in demands:
        due += each.count
        count = (total * due + before // 2) // before - given
        given += count
        found.append(replace(each, count=count))
    return [each for each in found if each.count] or [replace(demands[0], count=total)]
