"""A plan laid out over a cluster: which nodes there are to be, which of them run, and who sends to whom.

Numbers of nodes are never given twice. As few nodes as can be begin, end or turn to another parent.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from headwater.errors import InvalidPlan, Problem
from headwater.planning.amounts import UNIT
from headwater.planning.asked import demands_of, reductions_of, within_of
from headwater.planning.assignment import NoRoom, assigned
from headwater.planning.inventory import ANY, Inventory, Kind, inventory_of, labels
from headwater.planning.plan import Plan, plan
from headwater.topology import Topology
from headwater.topology.tree import NodeClass, NodeSpec, Selector, Toleration
from headwater_operator import names

Role = Literal["child", "intermediate"]
HOSTNAME = "kubernetes.io/hostname"


def role_of(layer: int) -> Role:
    return "child" if layer == 1 else "intermediate"


@dataclass(frozen=True, slots=True)
class TreeNode:
    """A child or an intermediate: `parent` is the id of another node, or that of the root."""

    id: str
    layer: int
    number: int
    role: Role
    parent: str
    # Items a second that are planned onto it at most.
    capacity: float
    # Labels of its class, beside those that its layer asks for.
    selector: Selector = ()
    # The one node of the cluster that it is for, by its label kubernetes.io/hostname; None: any that fits.
    host: str | None = None

    @property
    def place(self) -> str:
        """Which machines it is for, as its objects say it: by that it is known again, whatever the manifest
        says by then."""
        return json.dumps({"selector": dict(self.selector), "host": self.host}, separators=(",", ":"))


@dataclass(frozen=True, slots=True)
class Host:
    """A machine of the cluster; `free` unless it was cordoned."""

    name: str
    labels: Mapping[str, str]
    ready: bool = True
    free: bool = True
    # Key, value and effect of each taint that keeps pods off.
    taints: tuple[tuple[str, str, str], ...] = ()

    def usable(self, tolerations: Iterable[Toleration] = ()) -> bool:
        """Whether it may be given pods that tolerate so much."""
        borne = list(tolerations)
        return (
            self.ready
            and self.free
            and all(any(_bears(each, taint) for each in borne) for taint in self.taints)
        )

    def has(self, selector: Selector) -> bool:
        return all(self.labels.get(label) == value for label, value in selector)

    @property
    def hostname(self) -> str:
        return self.labels.get(HOSTNAME, self.name)


@dataclass(frozen=True, slots=True)
class Layout:
    """The nodes that there are to be, and those that are to end; without a plan where there is none and all
    stay as they are."""

    plan: Plan | None
    nodes: tuple[TreeNode, ...]
    leaving: tuple[TreeNode, ...]


def laid_out(
    topology: Topology,
    hosts: Sequence[Host] | None,
    running: Iterable[TreeNode],
    parents: Mapping[str, str],
    named: Mapping[int, int],
    factor: float = 1.0,
) -> Layout:
    """The tree for a topology; raises `InvalidPlan` if there is none.

    `hosts` are the machines, None where they may not be seen; `running` the nodes that there are, `parents`
    to whom they send, and `named` the largest number that was given in each layer. Sources send `factor`
    times as much as the manifest says.
    """
    found = _planned(topology, hosts, factor)
    places = _Places(topology, found, hosts, list(running), dict(named))
    # A plan of one layer is run as one child under the root.
    layers = found.layers[:-1] or found.layers
    ids = [places.layer(number, len(layer.kinds)) for number, layer in enumerate(layers, start=1)]
    above = _parents(found, ids, parents)
    nodes = tuple(replace(node, parent=above[node.id]) for layer in ids for node in layer)
    kept = {node.id for node in nodes}
    leaving = tuple(node for node in places.running if node.id not in kept)
    return Layout(found, nodes, leaving)


def held(
    topology: Topology, hosts: Sequence[Host] | None, running: Iterable[TreeNode], parents: Mapping[str, str]
) -> Layout:
    """The nodes that there are, as they are: nobody is begun or ended for want of a plan."""
    nodes = [replace(node, capacity=capacity_of(topology, hosts, node)) for node in running]
    by_id, top = {node.id: node for node in nodes}, max((node.layer for node in nodes), default=0)
    below = Counter(parents.values())
    found = []
    for node in nodes:
        parent = by_id.get(parents.get(node.id, ""))
        above = [each.id for each in nodes if each.layer == node.layer + 1]
        if node.layer == top or not above:
            found.append(replace(node, parent=names.ROOT))
        elif parent is not None and parent.layer == node.layer + 1:
            found.append(replace(node, parent=parent.id))
        else:
            # Its parent was away, or it had none yet.
            chosen = min(above, key=lambda id: (below[id], id))
            below[chosen] += 1
            found.append(replace(node, parent=chosen))
    return Layout(None, tuple(found), ())


def capacity_of(topology: Topology, hosts: Sequence[Host] | None, node: TreeNode) -> float:
    """What of a node's limit may be planned onto it, by the class of its machine."""
    given = topology.node
    if given is None:
        return 0.0
    limit = next((each.ingest_limit for each in given.classes if each.selector == node.selector), None)
    if limit is None or not node.selector:
        machine = next((host for host in hosts or () if node.host == host.hostname), None)
        limit = given.ingest_limit if machine is None else _kind_of(given, machine).limit
    return inventory_of(given, topology.placement).capacity(Kind(ANY, limit)) / UNIT


def _bears(toleration: Toleration, taint: tuple[str, str, str]) -> bool:
    """As Kubernetes has it."""
    key, value, effect = taint
    if toleration.effect not in (None, effect) or toleration.key not in (None, key):
        return False
    return toleration.operator == "Exists" or (toleration.value or "") == value


def _planned(topology: Topology, hosts: Sequence[Host] | None, factor: float) -> Plan:
    if topology.node is None:
        remedy = "give how many items a second a node takes; headwater bench node measures it"
        raise InvalidPlan([Problem("spec.node.ingestLimit", "is missing", remedy)])
    inventory = _inventory(topology, topology.node, hosts)
    demands = [replace(each, rate=each.rate * factor) for each in demands_of(topology)]
    return plan(demands, inventory, within_of(topology), reductions_of(topology))


def _inventory(topology: Topology, node: NodeSpec, hosts: Sequence[Host] | None) -> Inventory:
    """What a manifest says about nodes, as far as the machines are there."""
    if hosts is not None:
        node = replace(node, classes=tuple(_there(each, hosts) for each in node.classes))
    found = inventory_of(node, topology.placement)
    if topology.placement.child.mode != "perNode":
        return found
    counts: dict[Kind, int] = defaultdict(int)
    for host in _per_node(topology, hosts):
        counts[_kind_of(node, host)] += 1
    return replace(found, child=tuple(replace(kind, count=count) for kind, count in counts.items()))


def _there(each: NodeClass, hosts: Sequence[Host]) -> NodeClass:
    if each.count is None:
        return each
    return replace(
        each,
        count=min(each.count, sum(host.ready and host.free and host.has(each.selector) for host in hosts)),
    )


def _per_node(topology: Topology, hosts: Sequence[Host] | None) -> list[Host]:
    """The machines that have a child each."""
    if hosts is None:
        remedy = "let the operator see the nodes of the cluster (nodes.rbac in the chart), or make it pool"
        said = "is perNode, but which nodes there are is not known"
        raise InvalidPlan([Problem("spec.placement.child.mode", said, remedy)])
    layer = topology.placement.child
    selector = layer.node_selector
    found = sorted(
        (host for host in hosts if host.usable(layer.tolerations) and host.has(selector)),
        key=lambda host: host.name,
    )
    if not found:
        said = f"no node that is ready has {labels(selector)}" if selector else "no node is ready"
        remedy = "label a node so, or change the selector"
        raise InvalidPlan([Problem("spec.placement.child.nodeSelector", said, remedy)])
    return found


def _kind_of(node: NodeSpec, host: Host) -> Kind:
    """By the class that says the most about a machine. Of a name of its own: whoever else runs on such
    machines takes none of them away from children."""
    fitting = [
        (len(each.selector), -place) for place, each in enumerate(node.classes) if host.has(each.selector)
    ]
    if not fitting:
        return Kind(f"each {ANY}", node.ingest_limit)
    place = -max(fitting)[1]
    found = node.classes[place]
    field = f"spec.node.classes[{place}].ingestLimit"
    return Kind(f"each {labels(found.selector)}", found.ingest_limit, None, field)


class _Places:
    """Gives the places of a plan to nodes that run, and to new ones."""

    def __init__(
        self,
        topology: Topology,
        found: Plan,
        hosts: Sequence[Host] | None,
        running: list[TreeNode],
        named: dict[int, int],
    ) -> None:
        self._topology, self._plan, self._hosts = topology, found, hosts
        self.running, self._named = running, named
        classes = topology.node.classes if topology.node is not None else ()
        self._selectors = {labels(each.selector): each.selector for each in classes}

    def layer(self, number: int, width: int) -> list[TreeNode]:
        """The nodes of a layer, in the order of its places."""
        kinds = self._plan.layers[number - 1].kinds
        if number == 1 and self._topology.placement.child.mode == "perNode":
            return self._per_node(kinds)
        old: dict[Selector, list[TreeNode]] = defaultdict(list)
        for node in sorted(self.running, key=lambda node: -node.number):
            if node.layer == number and node.host is None:
                old[node.selector].append(node)
        found = []
        for kind in kinds:
            selector = self._selectors.get(kind.name, ())
            node = old[selector].pop() if old[selector] else self._new(number, selector)
            found.append(replace(node, role=role_of(number), capacity=self._capacity(kind)))
        return found

    def _per_node(self, kinds: Sequence[Kind]) -> list[TreeNode]:
        """A machine for each place of its kind."""
        assert self._topology.node is not None
        spare: dict[str, list[Host]] = defaultdict(list)
        for host in reversed(_per_node(self._topology, self._hosts)):
            spare[_kind_of(self._topology.node, host).name].append(host)
        old = {node.host: node for node in self.running if node.layer == 1 and node.host is not None}
        found = []
        for kind in kinds:
            host = spare[kind.name].pop()
            node = old.get(host.hostname) or self._new(1, (), host.hostname)
            found.append(replace(node, role="child", capacity=self._capacity(kind)))
        return found

    def _new(self, layer: int, selector: Selector, host: str | None = None) -> TreeNode:
        number = self._named.get(layer, -1) + 1
        self._named[layer] = number
        id = names.node(self._topology.name, layer, number)
        return TreeNode(id, layer, number, role_of(layer), "", 0.0, selector, host)

    def _capacity(self, kind: Kind) -> float:
        low = self._plan.low
        limited = kind if low is None else replace(kind, limit=min(kind.limit, low))
        return self._plan.inventory.capacity(limited) / UNIT


def _parents(found: Plan, ids: Sequence[Sequence[TreeNode]], held: Mapping[str, str]) -> dict[str, str]:
    """To whom each node sends: to whom it does, as far as that can be."""
    above: dict[str, str] = dict.fromkeys((node.id for node in ids[-1]), names.ROOT)
    for layer, below, over in zip(found.layers, ids, ids[1:], strict=False):
        assert layer.sends is not None
        assert layer.parents is not None
        sends = {node.id: max(int(rate), 1) for node, rate in zip(below, layer.sends, strict=True)}
        capacities = {node.id: int(node.capacity * UNIT) for node in over}
        try:
            above |= assigned(sends, capacities, held)
        except NoRoom:
            # Those who stay leave no room for the others: everybody as the plan has it.
            planned = zip(below, layer.parents, strict=True)
            above |= {node.id: over[int(place)].id for node, place in planned}
    return above
