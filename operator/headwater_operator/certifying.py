"""The certificates that a tree has to have by now, from those that it has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from headwater_operator import names
from headwater_operator.certificates import advanced, authority, unusable
from headwater_operator.rendering import Identity, Material, authority_of, pair_of, provide

# The files of Secrets, by their names.
Secrets = Mapping[str, Mapping[str, bytes]]


def certified(
    topology: str, parties: Sequence[Identity], held: Secrets, devices: bytes | None, now: datetime
) -> tuple[Material, Mapping[str, str]]:
    """What is good stays; what is missing, wrong or about to end is made anew, and why, by Secret. `devices`
    is the authority of the devices."""
    known = authority_of(held.get(names.authority(topology), {}))
    if known is None or unusable(known) is not None:
        signer = authority(topology, now)
    else:
        signer = advanced(known, topology, now)
    pairs = {name: pair for name, files in held.items() if (pair := pair_of(files)) is not None}
    issued, reasons = provide(parties, pairs, signer, now)
    return Material(signer, issued, devices), reasons
