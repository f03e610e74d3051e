"""Executors of a Spark root: its driver makes their pods, and needs the rights to do so."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from headwater.topology.tree import Topology
from headwater_operator import names
from headwater_operator.rendering import pods
from headwater_operator.rendering.objects import Manifest, Owner, manifest
from headwater_operator.rendering.pods import Images, Variable

_RBAC = "rbac.authorization.k8s.io"
_RESOURCES = ["configmaps", "persistentvolumeclaims", "pods", "services"]
_VERBS = ["create", "delete", "deletecollection", "get", "list", "patch", "watch"]
# What the driver may do in its namespace. Whoever grants it has to have it, so the operator has it too.
RULES: list[dict[str, Any]] = [{"apiGroups": [""], "resources": _RESOURCES, "verbs": _VERBS}]


def wanted(topology: Topology) -> bool:
    return topology.root.engine == "spark" and topology.root.executors > 0


def rights(owner: Owner, topology: Topology) -> Iterator[Manifest]:
    if not wanted(topology):
        return
    name = names.root(owner.name)
    yield manifest(owner, "v1", "ServiceAccount", name, automountServiceAccountToken=False)
    yield manifest(owner, f"{_RBAC}/v1", "Role", name, rules=RULES)
    yield manifest(
        owner,
        f"{_RBAC}/v1",
        "RoleBinding",
        name,
        roleRef={"apiGroup": _RBAC, "kind": "Role", "name": name},
        subjects=[{"kind": "ServiceAccount", "name": name, "namespace": owner.namespace}],
    )


def account(owner: Owner, topology: Topology) -> dict[str, Any]:
    """What the root's pod has for it."""
    if not wanted(topology):
        return {}
    return {"serviceAccountName": names.root(owner.name), "automountServiceAccountToken": True}


def arguments(topology: Topology, images: Images) -> list[str]:
    if not wanted(topology):
        return []
    return ["--executors", str(topology.root.executors), "--executor-image", images.root]


def environment(topology: Topology) -> list[Variable]:
    if not wanted(topology):
        return []
    return [
        pods.from_field("POD_IP", "status.podIP"),
        pods.from_field("POD_NAME", "metadata.name"),
        pods.from_field("NAMESPACE", "metadata.namespace"),
    ]
