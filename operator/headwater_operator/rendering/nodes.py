"""Children and intermediates: a Deployment each, of one pod.

Not a StatefulSet for a layer: its pods on a machine that is lost are never replaced, and the pods of a layer
could only leave from the end.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from headwater.durations import SECOND
from headwater.topology.tree import LayerPlacement, Resources, Topology
from headwater_operator import names
from headwater_operator.layout import TreeNode
from headwater_operator.rendering import bootstrap, issuing, pods, scheduling
from headwater_operator.rendering.objects import Manifest, Owner, manifest, of_topology
from headwater_operator.rendering.pods import Container, Images, Variable, Volume, variable

# A node drains for 10 seconds, and finishes a file of its archive for as long.
GRACE_SECONDS = 45
# As long as a node takes at most.
_FLUSH_SECONDS = 60.0
_RESOURCES = Resources(
    requests=(("cpu", "100m"), ("memory", "128Mi")), limits=(("cpu", "2"), ("memory", "512Mi"))
)


def deployments(
    owner: Owner,
    topology: Topology,
    nodes: Sequence[TreeNode],
    images: Images,
    *,
    restart: str | None,
    advertised: Mapping[str, str],
    mounted: bool,
) -> Iterator[Manifest]:
    """`mounted`: whom nodes trust they read from where all do."""
    for node in nodes:
        held = issuing.volume(owner.name, names.certificate(node.id), node.role == "child", mounted)
        yield _deployment(owner, topology, node, images, restart, advertised.get(node.id), held)


def labels(node: TreeNode) -> dict[str, str]:
    return {names.NODE: node.id, names.LAYER: str(node.layer), names.ROLE: node.role}


def _deployment(
    owner: Owner,
    topology: Topology,
    node: TreeNode,
    images: Images,
    restart: str | None,
    advertised: str | None,
    certificates: Mapping[str, Any],
) -> Manifest:
    found = manifest(
        owner,
        "apps/v1",
        "Deployment",
        node.id,
        labels(node),
        spec={
            "replicas": 1,
            "revisionHistoryLimit": 2,
            "selector": {"matchLabels": of_topology(owner, node=node.id)},
            # The one before is told to go first: of two with one name the later one ends the earlier one.
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}},
            "template": _template(owner, topology, node, images, restart, advertised, certificates),
        },
    )
    found["metadata"]["annotations"] = {names.PLACE: node.place}
    return found


def _template(
    owner: Owner,
    topology: Topology,
    node: TreeNode,
    images: Images,
    restart: str | None,
    advertised: str | None,
    certificates: Mapping[str, Any],
) -> dict[str, Any]:
    placement = _placement(topology, node)
    annotations = {} if restart is None else {names.RESTART: restart}
    arguments, volumes = [], []
    if node.role == "child" and topology.archive is not None:
        arguments = ["--config", f"{bootstrap.PATH}/{bootstrap.CHILD_FILE}"]
        path = bootstrap.archive_path(topology.archive)
        volumes = [bootstrap.volume(owner), Volume("archive", path, {"emptyDir": {}}, writable=True)]
        annotations[names.CONFIGURATION] = bootstrap.of_children(topology) or ""
    container = Container(
        "node",
        images.node,
        _environment(owner, topology, node, advertised),
        _RESOURCES,
        arguments=arguments,
        host_port=names.TREE_PORT if _on_host(topology, node) else None,
    )
    layer = of_topology(owner, layer=str(node.layer))
    return pods.template(
        owner,
        placement,
        images,
        container,
        certificates,
        volumes,
        labels=labels(node),
        annotations=annotations,
        grace=GRACE_SECONDS,
        spec={
            "hostname": node.id,
            "subdomain": names.layer_service(owner.name, node.layer),
            "affinity": scheduling.affinity(placement, node.selector, node.host),
            "tolerations": scheduling.tolerations(placement, lost=True),
            "topologySpreadConstraints": scheduling.spread(layer),
        },
    )


def _placement(topology: Topology, node: TreeNode) -> LayerPlacement:
    return topology.placement.child if node.role == "child" else topology.placement.intermediate


def _on_host(topology: Topology, node: TreeNode) -> bool:
    return node.role == "child" and topology.ingest.expose == "hostPort"


def _environment(owner: Owner, topology: Topology, node: TreeNode, advertised: str | None) -> list[Variable]:
    inside = names.node_address(owner.name, node.layer, node.number, owner.namespace)
    found: list[Variable] = []
    if _on_host(topology, node):
        inside = f"$({names.HOST_IP}):{names.TREE_PORT}"
    if names.HOST_IP in (advertised or inside):
        found.append(pods.from_field(names.HOST_IP, "status.hostIP"))
    seconds = min(topology.flush_interval / SECOND, _FLUSH_SECONDS)
    given = {
        "HEADWATER_NAME": node.id,
        "HEADWATER_ROLE": node.role,
        "HEADWATER_LISTEN": f"0.0.0.0:{names.TREE_PORT}",
        "HEADWATER_METRICS": f"0.0.0.0:{names.METRICS_PORT}",
        # Who its parent is it asks the root: that changes with the plan.
        "HEADWATER_ROOT_ADDRESS": names.root_address(owner.name, owner.namespace),
        "HEADWATER_ADVERTISE": advertised or inside,
        "HEADWATER_FLUSH_INTERVAL": f"{seconds:.9g}",
        "HEADWATER_IDLE_AFTER": f"{topology.idle_after / SECOND:.15g}",
        "HEADWATER_HORIZON": f"{topology.horizon / SECOND:.15g}",
        "HEADWATER_TLS_CERTIFICATE": pods.CERTIFICATE,
        "HEADWATER_TLS_KEY": pods.KEY,
        "HEADWATER_TLS_CA": pods.AUTHORITIES,
    }
    if node.role == "child" and topology.ingest.ca_secret is None:
        # Devices without certificates speak plain text; the tree above speaks TLS all the same.
        given["HEADWATER_INGEST_TLS"] = "off"
    return [*found, *(variable(name, value) for name, value in given.items())]
