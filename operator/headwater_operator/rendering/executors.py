"""Executors of a Spark root: its driver makes their pods by a template, and needs the rights to do so."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from typing import Any

from headwater.topology.tree import Topology
from headwater_operator import names
from headwater_operator.rendering import pods, scheduling
from headwater_operator.rendering.objects import Manifest, Owner, manifest, of_topology
from headwater_operator.rendering.pods import Images, Variable, Volume

_RBAC = "rbac.authorization.k8s.io"
_VERBS = ["create", "delete", "deletecollection", "get", "list", "patch", "watch"]
# What the driver may do in its namespace. Whoever grants it has to have it, so the operator has it too.
RULES: list[dict[str, Any]] = [{"apiGroups": [""], "resources": ["pods"], "verbs": _VERBS}]


def wanted(topology: Topology) -> bool:
    return topology.root.engine == "spark" and topology.root.executors > 0


def rights(owner: Owner, topology: Topology) -> Iterator[Manifest]:
    if not wanted(topology):
        return
    name = names.root(owner.name)
    yield manifest(owner, "v1", "ServiceAccount", name, automountServiceAccountToken=False)
    yield manifest(owner, f"{_RBAC}/v1", "Role", name, rules=deepcopy(RULES))
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


def arguments(topology: Topology, images: Images, template: str) -> list[str]:
    if not wanted(topology):
        return []
    count = str(topology.root.executors)
    found = ["--executors", count, "--executor-image", images.root, "--executor-template", template]
    # Each asks for as much as the driver.
    cores = dict(topology.placement.root.resources.requests).get("cpu")
    return [*found, "--executor-cores", cores] if cores else found


def environment(topology: Topology) -> list[Variable]:
    if not wanted(topology):
        return []
    return [
        pods.from_field("POD_IP", "status.podIP"),
        pods.from_field("POD_NAME", "metadata.name"),
        pods.from_field("POD_NAMESPACE", "metadata.namespace"),
    ]


def template(owner: Owner, topology: Topology, images: Images, data: Volume) -> Manifest:
    """Of the pods of executors; Spark adds its own. They see the checkpoint where the driver sees it, on the
    volume of the root."""
    placement = topology.placement.root
    volumes = [pods.TMP, data]
    affinity = scheduling.affinity(placement) or {}
    if topology.root.storage.claim is None and topology.root.access_mode != "ReadWriteMany":
        # It can be mounted on one machine alone.
        affinity = scheduling.beside(affinity, of_topology(owner, role=names.ROOT))
    optional = {
        "affinity": affinity,
        "tolerations": scheduling.tolerations(placement, lost=True),
        "priorityClassName": placement.priority_class,
        "imagePullSecrets": pods.pull_secrets(images, placement),
    }
    container = {
        "name": names.EXECUTOR,
        "image": images.root,
        "env": [pods.variable(name, value) for name, value in placement.env],
        "securityContext": pods.container_security(),
        "volumeMounts": [pods.mount(each) for each in volumes],
    }
    labels = {**names.labels(owner.name), names.ROLE: names.EXECUTOR}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"labels": labels, "annotations": dict(placement.annotations)},
        "spec": {
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "securityContext": pods.pod_security(),
            "containers": [container],
            "volumes": [pods.volume(each) for each in volumes],
            **{field: value for field, value in optional.items() if value},
        },
    }
