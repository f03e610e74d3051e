"""The certificates that a tree has to have by now, from those that it has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from headwater_operator import names
from headwater_operator.certificates import Authority, advanced, authority, unusable
from headwater_operator.rendering import Identity, Material, authority_of, pair_of, provide

# The files of Secrets, by their names.
Secrets = Mapping[str, Mapping[str, bytes]]


def certified(
    topology: str, parties: Sequence[Identity], held: Secrets, devices: bytes | None, now: datetime
) -> tuple[Material, Mapping[str, str]]:
    """What is good stays; what is missing, wrong or about to end is made anew, and why, by Secret. `devices`
    is the authority of the devices."""
    known = held_authority(topology, held)
    signer = authority(topology, now) if known is None else advanced(known, topology, now)
    pairs = {name: pair for name, files in held.items() if (pair := pair_of(files)) is not None}
    issued, reasons = provide(parties, pairs, signer, now)
    return Material(signer, issued, devices), reasons


def held_authority(topology: str, held: Secrets) -> Authority | None:
    """The authority that a tree has, if it can sign."""
    found = authority_of(held.get(names.authority(topology), {}))
    return None if found is None or unusable(found) is not None else found
