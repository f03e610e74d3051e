"""Numbers in messages: of records, streams, generations, versions, and what else is counted from 0 on."""

from __future__ import annotations

from headwater_wire.errors import Malformed

# Behind it no array of records and no file could hold them.
NUMBER_LIMIT = 1 << 63


def number(field: str, given: int) -> int:
    if given >= NUMBER_LIMIT:
        raise Malformed(field, f"is {given}", "send a number below 2^63")
    return given
