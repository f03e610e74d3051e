"""What all manifests have: a name, labels, and the topology that they go with."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from headwater.topology import API_VERSION, TOPOLOGY_KIND
from headwater_operator import names

Manifest = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Owner:
    """The topology that objects belong to, as the API server knows it."""

    namespace: str
    name: str
    uid: str

    @property
    def reference(self) -> dict[str, Any]:
        """What has the API server delete an object with its topology."""
        return {
            "apiVersion": API_VERSION,
            "kind": TOPOLOGY_KIND,
            "name": self.name,
            "uid": self.uid,
            "controller": True,
            # Deleting a topology waits for nothing, also not for pods on a node that is lost.
            "blockOwnerDeletion": False,
        }


def manifest(
    owner: Owner,
    api_version: str,
    kind: str,
    name: str,
    labels: Mapping[str, str] | None = None,
    *,
    owned: bool = True,
    **parts: Any,
) -> Manifest:
    """An object; one that is not `owned` outlives the topology."""
    metadata: dict[str, Any] = {
        "name": name,
        "namespace": owner.namespace,
        "labels": {**names.labels(owner.name), **(labels or {})},
    }
    if owned:
        metadata["ownerReferences"] = [owner.reference]
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **parts}


def of_topology(owner: Owner, **labels: str) -> dict[str, str]:
    """Labels that find pods of a topology, such as those of a `role`."""
    known = {"node": names.NODE, "layer": names.LAYER, "role": names.ROLE}
    return {names.TOPOLOGY: owner.name, **{known[label]: value for label, value in labels.items()}}


def digest(value: Any) -> str:
    """The same for what is the same as JSON."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()
