"""Certificates that cert-manager issues in place of the operator, and what everybody trusts then."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from ipaddress import ip_address
from typing import Any

from headwater.topology.tree import Issuer
from headwater_operator import kinds, names
from headwater_operator.certificates import COMMON_NAME_LIMIT, LASTS, RENEWED, bundle
from headwater_operator.rendering.identities import Identity, Material
from headwater_operator.rendering.objects import Manifest, Owner, manifest
from headwater_wire.identity import ROLE

MODE = 0o440


def certificates(
    owner: Owner,
    issuer: Issuer,
    everybody: Iterable[Identity],
    labels: Mapping[str, Mapping[str, str]],
    places: Mapping[str, Mapping[str, str]],
) -> Iterator[Manifest]:
    """What is asked of cert-manager: the same names, uses and keys as by the authority of a tree. `labels`
    are those of Secrets beside the ones that all have; `places` are annotations that say which machines
    a node is for, which is planned before it can be begun."""
    for party in everybody:
        more, place = labels.get(party.secret, {}), dict(places.get(party.secret, {}))
        found = manifest(
            owner,
            kinds.CERTIFICATE.api_version,
            kinds.CERTIFICATE.name,
            party.secret,
            more,
            spec={
                "secretName": party.secret,
                # By which the Secret is found among those of the tree, and the node that it is for.
                "secretTemplate": {
                    "labels": {**names.labels(owner.name), **more},
                    **({"annotations": place} if place else {}),
                },
                "commonName": party.id[:COMMON_NAME_LIMIT],
                **_subjects(party),
                "usages": ["digital signature", "server auth", "client auth"],
                "privateKey": {
                    "algorithm": "ECDSA",
                    "size": 256,
                    "encoding": "PKCS8",
                    "rotationPolicy": "Always",
                },
                "duration": _hours(LASTS),
                "renewBefore": _hours(LASTS - RENEWED),
                # Of each request the latest alone is kept.
                "revisionHistoryLimit": 1,
                "issuerRef": {"name": issuer.name, "kind": issuer.kind, "group": issuer.group},
            },
        )
        if place:
            found["metadata"]["annotations"] = place
        yield found


def adopted(
    owner: Owner, filled: Iterable[tuple[str, str]], labels: Mapping[str, Mapping[str, str]]
) -> Iterator[Manifest]:
    """The Secrets that cert-manager has filled, without what is in them: it would leave them behind, keys and
    all. Each goes with its Certificate, and not before it: it would be filled again."""
    for secret, uid in filled:
        found = manifest(owner, "v1", "Secret", secret, labels.get(secret), owned=False)
        found["metadata"]["ownerReferences"] = [
            {
                "apiVersion": kinds.CERTIFICATE.api_version,
                "kind": kinds.CERTIFICATE.name,
                "name": secret,
                "uid": uid,
                "controller": False,
                "blockOwnerDeletion": False,
            }
        ]
        yield found


def trust(owner: Owner, material: Material) -> Iterator[Manifest]:
    """Whom the tree trusts, where that is not told by each Secret."""
    if material.trust is not None:
        data = {
            names.TREE_FILE: material.trust.decode(),
            names.CHILDREN_FILE: bundle(material.trust, material.devices).decode(),
        }
        yield manifest(owner, "v1", "ConfigMap", names.trust(owner.name), data=data)


def volume(topology: str, secret: str, child: bool, mounted: bool) -> dict[str, Any]:
    """Of a pod: its Secret with all that is in it; or, if whom it trusts is `mounted`, key and certificate
    from there, and that from where all have it."""
    if not mounted:
        return {"secret": {"secretName": secret, "defaultMode": MODE}}
    held = names.CHILDREN_FILE if child else names.TREE_FILE
    pair = {"name": secret, "items": [{"key": file, "path": file} for file in ("tls.crt", "tls.key")]}
    trusted = {"name": names.trust(topology), "items": [{"key": held, "path": "ca.crt"}]}
    return {"projected": {"defaultMode": MODE, "sources": [{"secret": pair}, {"configMap": trusted}]}}


def _subjects(party: Identity) -> dict[str, Sequence[str]]:
    hosts: list[str] = []
    addresses: list[str] = []
    for name in dict.fromkeys((party.id, *party.names)):
        (addresses if _is_address(name) else hosts).append(name)
    found: dict[str, Sequence[str]] = {"dnsNames": hosts, "uris": [f"{ROLE}{party.role}"]}
    return {**found, "ipAddresses": addresses} if addresses else found


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


def _hours(time: timedelta) -> str:
    """As the API server writes it back."""
    return f"{time // timedelta(hours=1)}h0m0s"
