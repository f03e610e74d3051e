"""What an API server and a root say, made up for tests of what follows from it."""

from __future__ import annotations

from typing import Any

from headwater_operator import names
from headwater_operator.layout import TreeNode
from headwater_operator.observation import Observed, pods_of
from headwater_wire.v1 import control_pb2 as pb

TOPOLOGY = "factory"


def deployment(node: TreeNode, **metadata: Any) -> dict[str, Any]:
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": node.id, "annotations": {names.PLACE: node.place}, **metadata},
    }


def pod(
    id: str, *, ready: bool = True, machine: str = "m", role: str = "child", **status: Any
) -> dict[str, Any]:
    """Of a node, or of the root by the name of its StatefulSet."""
    labels = {names.TOPOLOGY: TOPOLOGY, names.ROLE: role}
    if role != "root":
        labels[names.NODE] = id
    condition = {"type": "Ready", "status": "True" if ready else "False"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"{id}-0", "uid": f"uid of {id}", "labels": labels},
        "spec": {"nodeName": machine},
        "status": {"conditions": [condition], "containerStatuses": [{"state": {"running": {}}}], **status},
    }


def member(
    name: str, *, planned: bool = True, parent: str = "root", sources: int = 0, left: bool = False
) -> pb.NodeStatus:
    state = pb.NodeStatus.STATE_LEFT if left else pb.NodeStatus.STATE_MEMBER
    return pb.NodeStatus(
        name=name,
        child=names.parts(name) is not None and "-l1-" in name,
        generation=1,
        state=state,
        sources=sources,
        parent=parent,
        planned=planned,
        planned_parent=parent if planned else "",
    )


def root(*members: pb.NodeStatus, generation: int = 1, digest: str = "", **more: Any) -> pb.StatusReply:
    return pb.StatusReply(
        topology=TOPOLOGY, nodes=members, generation=generation, digest=digest, totals=pb.Totals(), **more
    )


def observed(
    nodes: list[TreeNode], pods: list[dict[str, Any]] | None = None, answer: pb.StatusReply | None = None
) -> Observed:
    shown = [pod(node.id, role=node.role) for node in nodes] if pods is None else pods
    return Observed(tuple(deployment(node) for node in nodes), pods_of(shown), answer)
