"""The root: a StatefulSet of one with its volume.

A StatefulSet, since there must never be two: its pod is replaced only when it is surely gone.
"""

from __future__ import annotations

from typing import Any

from headwater.topology.tree import Resources, Topology
from headwater_operator import names
from headwater_operator.rendering import bootstrap, executors, issuing, pods, scheduling, sinks
from headwater_operator.rendering.objects import Manifest, Owner, manifest, of_topology
from headwater_operator.rendering.pods import Container, Images, Volume

# For the log, an outbox of up to 1 GiB, and of Spark up to 4 GiB that are not merged with its checkpoint.
VOLUME_SIZE = "10Gi"
_DATA = "/data"
# Sinks have 10 seconds; Spark merges what was taken for up to two minutes, and is then ended.
_GRACE = {"embedded": 60, "spark": 240}
_RESOURCES = {
    "embedded": Resources(
        requests=(("cpu", "250m"), ("memory", "256Mi")), limits=(("cpu", "2"), ("memory", "1Gi"))
    ),
    # A heap of 1 GiB, and a Python worker for each core that holds its share of the windows.
    "spark": Resources(
        requests=(("cpu", "500m"), ("memory", "2Gi")), limits=(("cpu", "4"), ("memory", "4Gi"))
    ),
}


def stateful_set(
    owner: Owner, topology: Topology, images: Images, *, replicas: int, restart: str | None, mounted: bool
) -> Manifest:
    return manifest(
        owner,
        "apps/v1",
        "StatefulSet",
        names.root(owner.name),
        _labels(),
        spec={
            "replicas": replicas,
            "revisionHistoryLimit": 2,
            "serviceName": names.root(owner.name),
            "selector": {"matchLabels": of_topology(owner, role=names.ROOT)},
            # With the other policy a pod that never becomes ready is not replaced by one that would.
            "podManagementPolicy": "Parallel",
            "updateStrategy": {"type": "RollingUpdate"},
            "template": _template(owner, topology, images, restart, mounted),
        },
    )


def claim(owner: Owner, topology: Topology) -> Manifest | None:
    """The volume, unless the user has one for it."""
    storage = topology.root.storage
    if storage.claim is not None:
        return None
    return manifest(
        owner,
        "v1",
        "PersistentVolumeClaim",
        names.claim(owner.name),
        _labels(),
        owned=storage.deletion_policy == "Delete",
        spec={
            "accessModes": [topology.root.access_mode],
            "resources": {"requests": {"storage": storage.size or VOLUME_SIZE}},
            **({} if storage.storage_class is None else {"storageClassName": storage.storage_class}),
        },
    )


def executor(owner: Owner, topology: Topology, images: Images) -> Manifest | None:
    """The template of executors; None if there are none."""
    if not executors.wanted(topology):
        return None
    return executors.template(owner, topology, images, _volume(owner, topology))


def _volume(owner: Owner, topology: Topology) -> Volume:
    """Not by volumeClaimTemplates: they know no claim that is there, and can never be changed."""
    held = topology.root.storage.claim or names.claim(owner.name)
    return Volume("data", _DATA, {"persistentVolumeClaim": {"claimName": held}}, writable=True)


def _labels() -> dict[str, str]:
    # Without its layer: the number of that changes with the plan.
    return {names.ROLE: names.ROOT}


def _template(
    owner: Owner, topology: Topology, images: Images, restart: str | None, mounted: bool
) -> dict[str, Any]:
    placement, asked = topology.placement.root, topology.root
    annotations = {names.CONFIGURATION: bootstrap.of_the_root(topology, executor(owner, topology, images))}
    if restart is not None:
        annotations[names.RESTART] = restart
    container = Container(
        "root",
        images.root,
        [*sinks.environment(topology), *executors.environment(topology)],
        _RESOURCES[asked.engine],
        command=["python3", "-m", "headwater_root"] if asked.engine == "embedded" else [],
        arguments=[
            *("--topology", f"{bootstrap.PATH}/{bootstrap.TOPOLOGY_FILE}"),
            *("--directory", f"{_DATA}/state"),
            *("--listen", f"0.0.0.0:{names.TREE_PORT}"),
            *("--metrics", f"0.0.0.0:{names.METRICS_PORT}"),
            *("--tls-certificate", pods.CERTIFICATE),
            *("--tls-key", pods.KEY),
            *("--tls-ca", pods.AUTHORITIES),
            "--managed",
            *executors.arguments(topology, images, f"{bootstrap.PATH}/{bootstrap.EXECUTOR_FILE}"),
        ],
        # A Java that starts on a small machine.
        patience=300,
    )
    return pods.template(
        owner,
        placement,
        images,
        container,
        issuing.volume(owner.name, names.certificate(names.root(owner.name)), False, mounted),
        [bootstrap.volume(owner), _volume(owner, topology)],
        labels=_labels(),
        annotations=annotations,
        grace=_GRACE[asked.engine],
        spec={
            "affinity": scheduling.affinity(placement),
            # No haste with a machine that is lost: nobody else may be the root until it is known to be gone.
            "tolerations": scheduling.tolerations(placement, lost=False),
            **executors.account(owner, topology),
        },
    )
