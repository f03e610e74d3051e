"""A partial: the aggregate of exactly the records between two prefixes of each source in it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from headwater.groups.marked import MarkedPart
from headwater.groups.sliced import SlicedPart
from headwater.prefix import Prefix, Refused
from headwater.rows import TS_MIN, Rows
from headwater.windows import TS_LIMIT


@dataclass(frozen=True, slots=True)
class Span:
    """What a partial holds of one source: the records behind `low` up to and with `high`."""

    low: Prefix
    high: Prefix
    refused: Mapping[str, int] = field(default_factory=dict)
    sample: tuple[Refused, ...] = ()
    heartbeats: int = 0

    @property
    def records(self) -> int:
        return self.high.position - self.low.position

    def problem(self) -> str | None:
        """What is wrong with it, if no reading of records leads from one prefix to the other."""
        low, high = self.low, self.high
        if not 0 <= low.position <= high.position <= TS_LIMIT:
            return f"leads from record {low.position} to {high.position}"
        if high.largest != low.largest and not max(low.largest, -TS_LIMIT - 1) < high.largest <= TS_LIMIT:
            return f"leads from time {low.largest} to {high.largest}"
        if high.opening != low.opening:
            return "leads from one opening to another"
        if high.skips != {seq for seq in low.skips if seq > high.position}:
            return "leads to other records to be skipped"
        if min((self.heartbeats, *self.refused.values())) < 0 or (
            self.heartbeats + sum(self.refused.values()) > self.records
        ):
            return f"refuses more than its {self.records} records"
        return next((problem for query in high.marks if (problem := self._marks_problem(query))), None)

    def _marks_problem(self, query: str) -> str | None:
        before, after = self.low.marks.get(query, {}), self.high.marks[query]
        most = max((state.ordinal for state in before.values()), default=0) + self.records
        if after and None not in after:
            return f"has marks of {query!r} for some keys alone"
        for state in after.values():
            if not 0 <= state.since <= state.ordinal <= most:
                return f"leads to window {state.ordinal} of {query!r}"
            if state.opened is not None and abs(state.opened) > TS_LIMIT:
                return f"has a window of {query!r} open since {state.opened}"
        return None


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
