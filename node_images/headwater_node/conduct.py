"""What a machine's answer says of whoever it is given to: that what they have sent does not fit."""

from __future__ import annotations

from collections.abc import Sequence

from headwater.machines.messages import Columns, Delivery, Message, Resync, Send, Stale
from headwater.sources import SourceId
from headwater_wire.offences import Offence


def offence_of(sender: str, message: Message, sends: Sequence[Send]) -> tuple[Offence, str, str] | None:
    """The offence of a message, its sender and what is wrong; None if all is well."""
    if not isinstance(message, Columns | Delivery):
        return None
    for each in sends:
        if each.to != sender:
            continue
        if isinstance(each.message, Stale):
            problem = f"speaks as generation {message.stream.generation}, and a later one is there"
            return Offence.STALE, sender, problem
        if isinstance(each.message, Resync):
            return Offence.SEQUENCE, sender, _unfit(message, each.message)
    return None


def _unfit(message: Columns | Delivery, answer: Resync) -> str:
    name, standing = next(iter(answer.standings.items()), ("", None))
    source = SourceId.of(name).label
    if standing is None:
        return f"speaks of {source}, which is gone"
    wanted = f"{source} stands at record {standing.prefix.position}"
    if isinstance(message, Columns):
        return f"sends records from {message.batch.first} on, but {wanted}"
    span = message.partial.vector.get(name)
    return f"sends records behind {0 if span is None else span.low.position}, but {wanted}"
