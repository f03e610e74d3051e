"""What a manifest asks for, as a plan takes it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from headwater.errors import InvalidPlan, Problem
from headwater.planning.inventory import inventory_of
from headwater.planning.plan import Demand, Plan, Within, plan
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


def plan_of(topology: Topology) -> Plan:
    """The tree that a manifest asks for."""
    if topology.node is None:
        remedy = "give how many items a second a node takes; headwater bench node measures it"
        raise InvalidPlan([Problem("spec.node.ingestLimit", "is missing", remedy)])
    return plan(demands_of(topology), inventory_of(topology.node, topology.placement), within_of(topology))


def scaled(demands: Sequence[Demand], total: int) -> list[Demand]:
    """The same classes with so many sources in all, each by its share; classes without any are left out."""
    before = max(sum(each.count for each in demands), 1)
    found, given, due = [], 0, 0
    for each in demands:
        due += each.count
        count = (total * due + before // 2) // before - given
        given += count
        found.append(replace(each, count=count))
    return [each for each in found if each.count] or [replace(demands[0], count=total)]
