"""What has to outlive the process that works on a topology: the spec that was last rolled out, the one that
was given up, the numbers that were given to nodes, and how much sources send. It is a ConfigMap."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from headwater.topology import API_VERSION, TOPOLOGY_KIND
from headwater_operator import names
from headwater_operator.observation import Observed
from headwater_operator.rendering import Manifest, Owner
from headwater_operator.rendering.objects import manifest

# A spec that is longer is not kept.
SPEC_BYTES = 900_000


@dataclass(frozen=True, slots=True)
class Kept:
    """`generation` is that of the spec, 0 if there is none; `failed` that of one that was given up."""

    generation: int = 0
    spec: Mapping[str, Any] | None = None
    failed: int = 0
    why: str = ""
    # The largest number that was given in each layer.
    numbers: Mapping[int, int] = field(default_factory=dict)
    factor: float = 1.0
    # The generation that was rolled out last, as far as it got.
    begun: int = 0

    def document(self, owner: Owner) -> dict[str, Any] | None:
        """The spec as a manifest."""
        if not self.generation or self.spec is None:
            return None
        metadata = {"name": owner.name, "namespace": owner.namespace, "uid": owner.uid}
        return {"apiVersion": API_VERSION, "kind": TOPOLOGY_KIND, "metadata": metadata, "spec": self.spec}


def kept_of(owner: Owner, observed: Observed) -> Kept:
    """What is kept of a topology; nothing of one before it with its name."""
    for each in observed.of_kind("ConfigMap"):
        metadata = each["metadata"]
        owners = {reference.get("uid") for reference in metadata.get("ownerReferences") or ()}
        if metadata["name"] == names.kept(owner.name) and owner.uid in owners:
            try:
                return _read(each.get("data") or {})
            except (AttributeError, LookupError, TypeError, ValueError):
                # Somebody has changed it: it is written anew.
                return Kept()
    return Kept()


def _read(data: Mapping[str, str]) -> Kept:
    spec = json.loads(data["spec"]) if data.get("spec") else None
    generation = int(data.get("generation", 0)) if spec is not None else 0
    return Kept(
        generation,
        spec,
        int(data.get("failed", 0)),
        data.get("why", ""),
        {int(layer): int(number) for layer, number in json.loads(data.get("numbers", "{}")).items()},
        max(float(data.get("factor", 1.0)), 1.0),
        int(data.get("begun", generation)),
    )


def manifest_of(owner: Owner, kept: Kept) -> Manifest:
    data = {
        "numbers": json.dumps({str(layer): number for layer, number in sorted(kept.numbers.items())}),
        "factor": f"{kept.factor:g}",
        "begun": str(kept.begun),
    }
    if kept.failed:
        data |= {"failed": str(kept.failed), "why": kept.why}
    spec = json.dumps(kept.spec, sort_keys=True) if kept.spec is not None else ""
    if kept.generation and spec and len(spec) <= SPEC_BYTES:
        data |= {"generation": str(kept.generation), "spec": spec}
    return manifest(owner, "v1", "ConfigMap", names.kept(owner.name), data=data)
