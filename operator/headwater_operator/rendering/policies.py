"""What an eviction leaves standing, and who may connect to whom."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from headwater.topology.tree import Topology
from headwater_operator import names
from headwater_operator.layout import TreeNode
from headwater_operator.rendering import executors
from headwater_operator.rendering.objects import Manifest, Owner, manifest, of_topology


def policies(owner: Owner, topology: Topology, nodes: Sequence[TreeNode]) -> Iterator[Manifest]:
    layers = {node.layer: node.role for node in nodes}
    for layer in sorted(layers):
        if topology.policies.disruption_budgets:
            yield _budget(owner, layer)
        if topology.policies.network_policies:
            yield _layer(owner, layer, devices=layers[layer] == "child")
    if topology.policies.network_policies:
        yield from _of_the_root(owner, topology)


def _budget(owner: Owner, layer: int) -> Manifest:
    """None for the root: with one pod a budget would keep its machine from ever being emptied."""
    number = str(layer)
    return manifest(
        owner,
        "policy/v1",
        "PodDisruptionBudget",
        names.layer_service(owner.name, layer),
        {names.LAYER: number},
        spec={
            "maxUnavailable": 1,
            "selector": {"matchLabels": of_topology(owner, layer=number)},
            # One that is not ready holds nothing up.
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
        },
    )


def _layer(owner: Owner, layer: int, *, devices: bool) -> Manifest:
    """Children are for devices, wherever they are; above them only the tree itself speaks."""
    number = str(layer)
    name = names.layer_service(owner.name, layer)
    tree = _to(names.TREE_PORT) if devices else _to(names.TREE_PORT, *_inside(owner))
    rules = [tree, _to(names.METRICS_PORT)]
    return _policy(owner, name, {names.LAYER: number}, of_topology(owner, layer=number), rules)


def _of_the_root(owner: Owner, topology: Topology) -> Iterator[Manifest]:
    root = of_topology(owner, role=names.ROOT)
    rules = [_to(names.TREE_PORT, *_inside(owner)), _to(names.METRICS_PORT)]
    if executors.wanted(topology):
        executor = of_topology(owner, role=names.EXECUTOR)
        ports = (names.INBOX_PORT, names.DRIVER_PORT, names.BLOCKS_PORT)
        rules += [_to(port, _pods(executor)) for port in ports]
        blocks = _to(names.BLOCKS_PORT, _pods(root), _pods(executor))
        yield _policy(owner, names.executors(owner.name), {names.ROLE: names.EXECUTOR}, executor, [blocks])
    yield _policy(owner, names.root(owner.name), {names.ROLE: names.ROOT}, root, rules)


def _policy(
    owner: Owner, name: str, labels: dict[str, str], selector: dict[str, str], rules: list[dict[str, Any]]
) -> Manifest:
    return manifest(
        owner,
        "networking.k8s.io/v1",
        "NetworkPolicy",
        name,
        labels,
        spec={"podSelector": {"matchLabels": selector}, "policyTypes": ["Ingress"], "ingress": rules},
    )


def _to(port: int, *peers: dict[str, Any]) -> dict[str, Any]:
    """Without peers: from anywhere."""
    rule: dict[str, Any] = {"ports": [{"protocol": "TCP", "port": port}]}
    return {**rule, "from": list(peers)} if peers else rule


def _inside(owner: Owner) -> list[dict[str, Any]]:
    """The pods of the tree, and the operator, in whatever namespace it is."""
    operator = {"namespaceSelector": {}, **_pods(names.OPERATOR_LABELS)}
    return [_pods(of_topology(owner)), operator]


def _pods(labels: dict[str, str]) -> dict[str, Any]:
    return {"podSelector": {"matchLabels": dict(labels)}}
