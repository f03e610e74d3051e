"""All manifests of a tree."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from headwater.topology.tree import Topology
from headwater_operator.layout import TreeNode
from headwater_operator.rendering import (
    bootstrap,
    executors,
    identities,
    issuing,
    monitoring,
    policies,
    root,
    services,
)
from headwater_operator.rendering import nodes as tree_nodes
from headwater_operator.rendering.identities import Material
from headwater_operator.rendering.objects import Manifest, Owner
from headwater_operator.rendering.pods import Images


def render(
    owner: Owner,
    topology: Topology,
    document: Mapping[str, Any],
    nodes: Sequence[TreeNode],
    images: Images,
    material: Material,
    *,
    replicas: int = 1,
    restart: str | None = None,
    advertised: Mapping[str, str] | None = None,
    monitored: bool = False,
) -> list[Manifest]:
    """What a cluster has to hold for `nodes` and the root, which has `replicas` pods: none while suspended.

    `document` is the manifest that `topology` was read from. Every one of the `parties` has a certificate in
    `material`, or has asked for one. `restart` is what a user has asked for by the annotation of that name.
    `advertised` has the addresses at which devices reach children from outside, where they are known.
    `monitored`: the cluster has the kinds of the Prometheus operator.
    """
    told = advertised or {}
    everybody = identities.parties(owner, topology, nodes, told)
    claim = root.claim(owner, topology)
    return [
        *identities.certificates(owner, everybody, nodes, material),
        *_issued(owner, topology, nodes, material),
        bootstrap.bootstrap(owner, topology, document, root.executor(owner, topology, images)),
        *([] if claim is None else [claim]),
        *executors.rights(owner, topology),
        *services.services(owner, topology, nodes),
        *policies.policies(owner, topology, nodes),
        root.stateful_set(
            owner, topology, images, replicas=replicas, restart=restart, mounted=material.mounted
        ),
        *tree_nodes.deployments(
            owner, topology, nodes, images, restart=restart, advertised=told, mounted=material.mounted
        ),
        *(monitoring.monitors(owner, topology, nodes, running=replicas > 0) if monitored else ()),
    ]


def _issued(
    owner: Owner, topology: Topology, nodes: Sequence[TreeNode], material: Material
) -> Iterator[Manifest]:
    """What there is of cert-manager's certificates."""
    labels = identities.labels(nodes)
    if topology.issuer is not None:
        places = identities.places(nodes)
        yield from issuing.certificates(owner, topology.issuer, material.requested, labels, places)
    yield from issuing.adopted(owner, material.filled, labels)
    yield from issuing.trust(owner, material)
