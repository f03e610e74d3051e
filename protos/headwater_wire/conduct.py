"""What a machine's answers say of those who get them: that what they have sent does not fit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from headwater.machines.messages import Message, Probe, Resync, Send, Stale
from headwater.sources import SourceId
from headwater_wire.offences import Offence


def offences_in(message: Message, sends: Sequence[Send]) -> Iterator[tuple[Offence, str, str]]:
    """The offences that a step has found: kind, offender and what is wrong."""
    for each in sends:
        if isinstance(each.message, Stale):
            generation = each.message.stream.generation
            yield Offence.STALE, each.to, f"is of generation {generation}, and a later one is there"
        # Whoever asks where they stand may be told so.
        elif isinstance(each.message, Resync) and not isinstance(message, Probe):
            yield Offence.SEQUENCE, each.to, _stands(each.message)


def _stands(answer: Resync) -> str:
    name, standing = next(iter(answer.standings.items()), ("", None))
    source = SourceId.of(name).label
    if standing is None:
        return f"sends records of {source}, which is gone"
    return f"sends records of {source} that do not follow number {standing.prefix.position}"
