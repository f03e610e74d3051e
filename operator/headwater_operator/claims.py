"""The root's claim: what of one that is there can be changed, and what cannot.

A claim can grow, where its class allows that; nothing else of it ever changes, and it is never replaced: it
holds all that the root knows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from headwater.topology.quantities import amount
from headwater.topology.tree import RootSpec
from headwater_operator.rendering import Manifest

Document = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Claim:
    """A claim as it is there."""

    name: str
    size: str
    storage_class: str | None
    modes: tuple[str, ...]
    # Whether somebody has deleted it: it goes when no pod has it any more.
    going: bool = False


def claim_of(document: Document) -> Claim:
    spec = document.get("spec") or {}
    requests = (spec.get("resources") or {}).get("requests") or {}
    return Claim(
        document["metadata"]["name"],
        str(requests.get("storage", "0")),
        spec.get("storageClassName"),
        tuple(spec.get("accessModes") or ()),
        "deletionTimestamp" in document["metadata"],
    )


def found(objects: Iterable[Document], name: str) -> Claim | None:
    """The claim of a name, among objects of all kinds."""
    for each in objects:
        if each["kind"] == "PersistentVolumeClaim" and each["metadata"]["name"] == name:
            return claim_of(each)
    return None


def fitted(wanted: Manifest, there: Claim | None) -> Manifest:
    """The manifest of a claim as the API server takes it for the one that is there: not smaller, and of its
    class and mode."""
    if there is None:
        return wanted
    spec = dict(wanted["spec"])
    size = spec["resources"]["requests"]["storage"]
    spec["resources"] = {"requests": {"storage": max(size, there.size, key=amount)}}
    spec["accessModes"] = list(there.modes)
    spec.pop("storageClassName", None)
    if there.storage_class is not None:
        spec["storageClassName"] = there.storage_class
    return {**wanted, "spec": spec}


def differences(asked: RootSpec, there: Claim | None) -> tuple[str, ...]:
    """What is asked for of the claim and cannot be had, each with its remedy."""
    storage = asked.storage
    if there is None or storage.claim is not None:
        return ()
    said = []
    if storage.size is not None and amount(storage.size) < amount(there.size):
        said.append(
            f"spec.root.storage.size is {storage.size}, but the claim {there.name} has {there.size}, and a "
            f"claim cannot shrink; ask for {there.size} or more"
        )
    move = "copy its data, while the topology is suspended, into a claim of your own and name that in claim"
    if storage.storage_class not in (None, there.storage_class):
        said.append(
            f"spec.root.storage.storageClass is {storage.storage_class}, but the claim {there.name} has "
            f"{there.storage_class or 'none'}, and that of a claim cannot change; drop it, or {move}"
        )
    if storage.access_mode is not None and there.modes != (asked.access_mode,):
        said.append(
            f"spec.root.storage.accessMode is {asked.access_mode}, but the claim {there.name} has "
            f"{' and '.join(there.modes)}, and that of a claim cannot change; drop it, or {move}"
        )
    return tuple(said)


def parting(asked: RootSpec, there: Claim | None) -> str:
    """What is to be done about a claim that somebody has deleted while the root has it; empty: nothing."""
    if there is None or not there.going or asked.storage.claim is not None:
        return ""
    return (
        f"the claim {there.name} was deleted, which cannot be taken back: it is there until the root's pod "
        "ends, and the next root knows nothing of what was; copy what is in /data of that pod into a claim "
        "of your own, and name that in spec.root.storage.claim"
    )
