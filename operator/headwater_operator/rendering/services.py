"""By which names pods are found, and how devices come in."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from headwater.topology.tree import Expose, Topology
from headwater_operator import names
from headwater_operator.layout import TreeNode
from headwater_operator.rendering import nodes as tree_nodes
from headwater_operator.rendering.objects import Manifest, Owner, manifest, of_topology

_TREE: dict[str, Any] = {
    "name": "tree",
    "port": names.TREE_PORT,
    "targetPort": "tree",
    "protocol": "TCP",
}
_METRICS: dict[str, Any] = {
    "name": "metrics",
    "port": names.METRICS_PORT,
    "targetPort": "metrics",
    "protocol": "TCP",
}
_TYPES: Mapping[Expose, str] = {
    "clusterIP": "ClusterIP",
    # The port of the machine is the pod's own; for the first word there is a name within the cluster.
    "hostPort": "ClusterIP",
    "nodePort": "NodePort",
    "loadBalancer": "LoadBalancer",
}


def services(owner: Owner, topology: Topology, nodes: Sequence[TreeNode]) -> Iterator[Manifest]:
    yield _headless(owner, names.root(owner.name), {names.ROLE: names.ROOT}, role=names.ROOT)
    for layer in sorted({node.layer for node in nodes}):
        number = str(layer)
        yield _headless(owner, names.layer_service(owner.name, layer), {names.LAYER: number}, layer=number)
    kind = _TYPES[topology.ingest.expose]
    # Ready children alone: whoever comes is read, or sent on to who reads it.
    child = of_topology(owner, role="child")
    yield _service(owner, names.ingest_service(owner.name), {names.ROLE: "child"}, kind, child)
    if kind != "ClusterIP":
        for node in nodes:
            if node.role == "child":
                one = of_topology(owner, node=node.id)
                found = _service(owner, node.id, tree_nodes.labels(node), kind, one)
                # It is there before the node is, whose place is known by it until then.
                found["metadata"]["annotations"] = {names.PLACE: node.place}
                yield found


def _service(
    owner: Owner, name: str, labels: Mapping[str, str], kind: str, selector: Mapping[str, str]
) -> Manifest:
    spec = {"type": kind, "selector": dict(selector), "ports": [_TREE]}
    return manifest(owner, "v1", "Service", name, labels, spec=spec)


def _headless(owner: Owner, name: str, labels: Mapping[str, str], **selected: str) -> Manifest:
    spec = {
        "clusterIP": "None",
        # A node must be found to become ready, and the root while it replays.
        "publishNotReadyAddresses": True,
        "selector": of_topology(owner, **selected),
        "ports": [_TREE, _METRICS],
    }
    return manifest(owner, "v1", "Service", name, labels, spec=spec)
