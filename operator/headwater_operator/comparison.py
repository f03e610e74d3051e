"""What has to be done so that a cluster holds what it should: applied, deleted, or told to somebody.

The digest of what was applied last is looked at, not each field: the API server adds fields of its own, and
so nothing is written where nothing has changed. What people change by hand is looked at beside it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from headwater_operator import names
from headwater_operator.rendering.objects import Manifest, Owner, digest

# What pods need before they start; workloads behind it, and last what watches them.
ORDER = (
    "ServiceAccount",
    "Secret",
    "Certificate",
    "ConfigMap",
    "PersistentVolumeClaim",
    "Role",
    "RoleBinding",
    "Service",
    "NetworkPolicy",
    "PodDisruptionBudget",
    "StatefulSet",
    "Deployment",
    "PodMonitor",
    "PrometheusRule",
)
_RANK = {kind: rank for rank, kind in enumerate(ORDER)}


@dataclass(frozen=True, slots=True, order=True)
class Key:
    """An object of a namespace. Its kind is known without the version: that may change."""

    group: str
    kind: str
    name: str

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Key:
        group, slash, _ = document["apiVersion"].partition("/")
        return cls(group if slash else "", document["kind"], document["metadata"]["name"])

    @property
    def rank(self) -> int:
        return _RANK.get(self.kind, len(ORDER))

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


@dataclass(frozen=True, slots=True)
class Conflict:
    """An object that has to be there, by whose name somebody else has one."""

    key: Key
    reason: str

    def __str__(self) -> str:
        return f"{self.key} {self.reason}"


@dataclass(frozen=True, slots=True)
class Actions:
    """In the order in which they are done: what is applied, each with its digest, then what is deleted."""

    apply: tuple[Manifest, ...] = ()
    delete: tuple[Key, ...] = ()
    conflicts: tuple[Conflict, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.apply or self.delete or self.conflicts)


def compare(owner: Owner, desired: Iterable[Manifest], observed: Iterable[Mapping[str, Any]]) -> Actions:
    """`observed` are the objects with the labels of the topology, and those that have the name of one that is
    desired. An object without the reference to its topology is only ever ours if it has to be without it,
    such as a volume that is kept. No volume is deleted here, whatever is desired: what the root knows is in
    it, and it goes with the topology or not at all."""
    wanted = {Key.of(each): stamped(each) for each in desired}
    found = {Key.of(each): each for each in observed}
    apply, conflicts = [], []
    for key in sorted(wanted, key=lambda key: (key.rank, key)):
        manifest, there = wanted[key], found.get(key)
        reason = None if there is None else others(owner, manifest, there)
        if reason is not None:
            conflicts.append(Conflict(key, reason))
        elif there is None or _digest(there) != _digest(manifest) or _drifted(manifest, there):
            apply.append(manifest)
    delete = [
        key
        for key, there in found.items()
        if key not in wanted
        and key.kind != "PersistentVolumeClaim"
        and _is_owned(owner, there)
        and not _is_going(there)
    ]
    delete.sort(key=lambda key: (-key.rank, key))
    return Actions(tuple(apply), tuple(delete), tuple(conflicts))


def _drifted(manifest: Manifest, there: Mapping[str, Any]) -> bool:
    """Whether somebody has changed what people do change by hand, and what the API server leaves as it is."""
    if manifest["kind"] in ("Secret", "ConfigMap"):
        if "data" not in manifest:
            # What is in it is somebody else's.
            return False
        return bool(manifest.get("data") != there.get("data"))
    if manifest["kind"] in ("Deployment", "StatefulSet"):
        return bool(manifest["spec"].get("replicas") != (there.get("spec") or {}).get("replicas"))
    return False


def stamped(manifest: Manifest) -> Manifest:
    """A manifest with its digest, by which it is known again; one that has it already stays as it is."""
    metadata = manifest["metadata"]
    annotations = {**metadata.get("annotations", {})}
    annotations.pop(names.APPLIED, None)
    bare = {**metadata, "annotations": annotations}
    annotations[names.APPLIED] = digest({**manifest, "metadata": bare})
    return {**manifest, "metadata": bare}


def others(owner: Owner, manifest: Manifest, there: Mapping[str, Any]) -> str | None:
    """Why an object is not ours; None if it is."""
    references = _references(there)
    if _is_owned(owner, there):
        return None
    labels = there["metadata"].get("labels") or {}
    ours = names.labels(owner.name).items() <= labels.items()
    # What cert-manager has filled for it, and what goes with a Certificate of its name.
    issued = names.ISSUED in (there["metadata"].get("annotations") or {})
    if ours and issued and all(_is_certificate(each, there) for each in references):
        return None
    for reference in references:
        if reference.get("controller"):
            return f"belongs to the {reference.get('kind')} {reference.get('name')}"
    # A volume that was kept, of this topology or of one before it with its name: its data are wanted.
    if ours and not references and manifest["kind"] == "PersistentVolumeClaim":
        return None
    return "was not made by this topology"


def _is_certificate(reference: Mapping[str, Any], there: Mapping[str, Any]) -> bool:
    named = reference.get("kind"), reference.get("name")
    return named == ("Certificate", there["metadata"]["name"])


def _is_owned(owner: Owner, there: Mapping[str, Any]) -> bool:
    return any(reference.get("uid") == owner.uid for reference in _references(there))


def _is_going(there: Mapping[str, Any]) -> bool:
    return there["metadata"].get("deletionTimestamp") is not None


def _references(there: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return list(there["metadata"].get("ownerReferences") or ())


def _digest(document: Mapping[str, Any]) -> str | None:
    annotations = document["metadata"].get("annotations") or {}
    found: str | None = annotations.get(names.APPLIED)
    return found
