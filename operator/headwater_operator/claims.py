"""The root's claim: what of one that is there can be changed, and what cannot.

A claim can grow, where its class allows that; nothing else of it ever changes, and it is never replaced: it
holds all that the root knows.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from headwater.topology.tree import RootSpec
from headwater_operator.rendering import Manifest

Document = Mapping[str, Any]
_QUANTITY = re.compile(
    r"(?P<number>[0-9]+(\.[0-9]*)?|\.[0-9]+)(?P<unit>[numkMGTPE]|[KMGTPE]i|[eE][-+]?[0-9]{1,3})?"
)
_POWERS = {"n": -3, "u": -2, "m": -1, "k": 1, "M": 2, "G": 3, "T": 4, "P": 5, "E": 6}


@dataclass(frozen=True, slots=True)
class Claim:
    """A claim as it is there."""

    name: str
    size: str
    storage_class: str | None
    modes: tuple[str, ...]


def claim_of(document: Document) -> Claim:
    spec = document.get("spec") or {}
    requests = (spec.get("resources") or {}).get("requests") or {}
    return Claim(
        document["metadata"]["name"],
        str(requests.get("storage", "0")),
        spec.get("storageClassName"),
        tuple(spec.get("accessModes") or ()),
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


def amount(quantity: str) -> Fraction:
    """Of a quantity as Kubernetes writes it; 0 if it is none."""
    given = _QUANTITY.fullmatch(quantity)
    if given is None:
        return Fraction(0)
    number, unit = Fraction(given["number"]), given["unit"] or ""
    if unit.endswith("i"):
        return number * Fraction(1024) ** (1 if unit == "Ki" else _POWERS[unit[0]])
    if len(unit) > 1:
        return number * Fraction(10) ** int(unit[1:])
    return number * Fraction(1000) ** _POWERS.get(unit, 0)
