"""For a cluster with the Prometheus operator: where figures are, and when somebody is told."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from headwater.topology.tree import Topology
from headwater_operator import names
from headwater_operator.layout import TreeNode
from headwater_operator.rendering.alerts import alerts
from headwater_operator.rendering.objects import Manifest, Owner, manifest, of_topology

API_VERSION = "monitoring.coreos.com/v1"
RUNBOOK = "docs/alerts.md"
# The labels that figures get of a pod's.
_LABELS = {"topology": names.TOPOLOGY, "node": names.NODE, "layer": names.LAYER, "role": names.ROLE}


def monitors(
    owner: Owner, topology: Topology, nodes: Sequence[TreeNode], *, running: bool
) -> Iterator[Manifest]:
    endpoint = {
        "port": "metrics",
        "path": "/metrics",
        # Some figures say themselves whose they are, in the same words.
        "honorLabels": True,
        "relabelings": [
            {"sourceLabels": [f"__meta_kubernetes_pod_label_{_sanitised(label)}"], "targetLabel": target}
            for target, label in _LABELS.items()
        ],
    }
    yield manifest(
        owner,
        API_VERSION,
        "PodMonitor",
        owner.name,
        spec={"selector": {"matchLabels": of_topology(owner)}, "podMetricsEndpoints": [endpoint]},
    )
    rules = [
        {
            "alert": alert.name,
            "expr": alert.expression,
            "for": alert.lasting,
            "labels": {"severity": alert.severity, "namespace": owner.namespace, "topology": owner.name},
            "annotations": {
                "summary": alert.summary,
                "runbook": f"{RUNBOOK}#{alert.name.lower()}",
            },
        }
        for alert in alerts(owner, topology, nodes, running=running)
    ]
    group = {"name": f"headwater.{owner.namespace}.{owner.name}", "rules": rules}
    yield manifest(owner, API_VERSION, "PrometheusRule", owner.name, spec={"groups": [group]})


def _sanitised(label: str) -> str:
    """As Prometheus writes the name of a label."""
    return "".join(letter if letter.isalnum() else "_" for letter in label)
