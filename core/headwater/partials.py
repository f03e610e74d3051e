"""A partial: the aggregate of exactly the records between two prefixes of each source in it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from headwater.groups.marked import MarkedPart
from headwater.groups.sliced import SlicedPart
from headwater.prefix import Prefix, Refused
from headwater.rows import TS_MIN, Rows


@dataclass(frozen=True, slots=True)
class Span:
    """What a partial holds of one source: the records behind `low` up to and with `high`."""

    low: Prefix
    high: Prefix
    refused: Mapping[str, int] = field(default_factory=dict)
    sample: tuple[Refused, ...] = ()
    heartbeats: int = 0


@dataclass(slots=True)
class Partial:
    """What a node sends to its parent (protocol, rule 5). Codes of keys are indexes into `keys`."""

    vector: dict[str, Span] = field(default_factory=dict)
    version: int = 0
    signature: str = ""
    largest: int = TS_MIN
    # The sources of the vector by code, as the sender numbers them; no other one has a share in it.
    sources: dict[int, str] = field(default_factory=dict)
    parts: dict[int, SlicedPart | MarkedPart] = field(default_factory=dict)
    keys: list[str] = field(default_factory=list)
    events: list[Rows] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.vector)
