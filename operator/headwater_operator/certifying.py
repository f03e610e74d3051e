"""The certificates that a tree has to have by now, from those that it has."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime

from headwater_operator import names
from headwater_operator.certificates import (
    Authority,
    Pair,
    advanced,
    authority,
    issue,
    needs_renewal,
    unusable,
)
from headwater_operator.rendering import Identity, Material, authority_of

Secrets = Mapping[str, Mapping[str, bytes]]


def certified(
    topology: str, parties: Iterable[Identity], held: Secrets, devices: bytes | None, now: datetime
) -> Material:
    """What is good stays; what is missing, wrong or about to end is made anew. `held` are the files of
    Secrets by their names, `devices` the authority of the devices."""
    known = authority_of(held.get(names.authority(topology), {}))
    if known is None or unusable(known) is not None:
        signer = authority(topology, now)
    else:
        signer = advanced(known, topology, now)
    issued = {each.secret: _pair(each, held.get(each.secret, {}), signer, now) for each in parties}
    return Material(signer, issued, devices)


def _pair(party: Identity, files: Mapping[str, bytes], signer: Authority, now: datetime) -> Pair:
    held = Pair(files.get("tls.crt", b""), files.get("tls.key", b""))
    if needs_renewal(held, signer, party.id, party.names, party.role, now) is None:
        return held
    return issue(signer, party.id, party.names, party.role, now)
