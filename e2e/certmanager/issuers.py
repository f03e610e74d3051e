"""Issuers, as whoever has cert-manager writes them."""

from __future__ import annotations

from typing import Any

from headwater_operator import kinds
from headwater_operator.kinds import Kind

ISSUER = Kind("cert-manager.io", "v1", "Issuer", "issuers")
# Signs what says that it is its own authority.
ITSELF = "itself"


def authority(name: str) -> str:
    """The Secret in which that of an issuer is."""
    return f"{name}-authority"


def manifests(name: str) -> list[tuple[Kind, dict[str, Any]]]:
    """An authority that signs itself, and an issuer of what it signs."""
    asked = {
        "isCA": True,
        "commonName": "the plant",
        "secretName": authority(name),
        "privateKey": {"algorithm": "ECDSA", "size": 256},
        "issuerRef": {"name": ITSELF},
    }
    return [
        (ISSUER, _document(ISSUER, ITSELF, {"selfSigned": {}})),
        (kinds.CERTIFICATE, _document(kinds.CERTIFICATE, authority(name), asked)),
        (ISSUER, _document(ISSUER, name, {"ca": {"secretName": authority(name)}})),
    ]


def _document(kind: Kind, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": kind.api_version, "kind": kind.name, "metadata": {"name": name}, "spec": spec}
