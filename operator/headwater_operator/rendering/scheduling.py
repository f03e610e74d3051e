"""On which machines a pod may run, and when it has to leave one."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

from headwater.topology.tree import LayerPlacement, Selector, Toleration
from headwater_operator.layout import HOSTNAME

# For how long a pod stays on a machine that does not answer: the tree waits for whoever is on it.
LOST_SECONDS = 10
LOST = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def affinity(
    placement: LayerPlacement, selector: Selector = (), host: str | None = None
) -> dict[str, Any] | None:
    """By affinity and never by nodeName: the scheduler then still looks at taints and room."""
    found: dict[str, Any] = deepcopy(dict(placement.affinity or {}))
    labels = {**dict(placement.node_selector), **dict(selector)}
    if host is not None:
        labels[HOSTNAME] = host
    if labels:
        ours = [{"key": name, "operator": "In", "values": [labels[name]]} for name in sorted(labels)]
        for_nodes = found.setdefault("nodeAffinity", {})
        for_nodes[_REQUIRED] = _both(for_nodes.get(_REQUIRED), ours)
    return found or None


def _both(theirs: Mapping[str, Any] | None, ours: list[dict[str, Any]]) -> dict[str, Any]:
    """One of their terms has to hold, and all of ours with it."""
    terms = list((theirs or {}).get("nodeSelectorTerms") or [])
    if not terms:
        return {"nodeSelectorTerms": [{"matchExpressions": ours}]}
    # An empty term matches nothing; with ours in it, it would match.
    return {
        "nodeSelectorTerms": [
            {**term, "matchExpressions": [*term.get("matchExpressions", ()), *ours]} if term else term
            for term in terms
        ]
    }


def beside(affinity: Mapping[str, Any], labels: Mapping[str, str]) -> dict[str, Any]:
    """The same, on the machine of a pod with these labels."""
    found = deepcopy(dict(affinity))
    terms = found.setdefault("podAffinity", {}).setdefault(_REQUIRED, [])
    terms.append({"topologyKey": HOSTNAME, "labelSelector": {"matchLabels": dict(labels)}})
    return found


def tolerations(placement: LayerPlacement, *, lost: bool) -> list[dict[str, Any]]:
    """Those of the user; with `lost`, also how long a machine may be lost, unless the user says it."""
    theirs = [_toleration(each) for each in placement.tolerations]
    told = {each.key for each in placement.tolerations if each.effect in (None, "NoExecute")}
    ours = [
        {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": LOST_SECONDS}
        for key in (LOST if lost else ())
        if key not in told
    ]
    return [*ours, *theirs]


def _toleration(given: Toleration) -> dict[str, Any]:
    found = {
        "key": given.key,
        "operator": given.operator,
        "value": given.value,
        "effect": given.effect,
        "tolerationSeconds": given.seconds,
    }
    return {field: value for field, value in found.items() if value is not None}


def spread(labels: Mapping[str, str]) -> list[dict[str, Any]]:
    """Pods with these labels on as many machines as there are: one that is lost then takes few of them."""
    return [
        {
            "maxSkew": 1,
            "topologyKey": HOSTNAME,
            "whenUnsatisfiable": "ScheduleAnyway",
            "labelSelector": {"matchLabels": dict(labels)},
        }
    ]
