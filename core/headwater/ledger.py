"""What became of every record of a source: `accepted = counted + late + rejected`, always.

Of those that are counted, `heartbeats` are no events.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from headwater.prefix import LATE, SAMPLE_LIMIT, Refused


@dataclass(frozen=True, slots=True)
class Account:
    """One source's records. Heartbeats and marks count as counted; `refused` says by reason how many of the
    others there were, the sample which came first."""

    accepted: int = 0
    refused: Mapping[str, int] = field(default_factory=dict)
    sample: tuple[Refused, ...] = ()
    heartbeats: int = 0

    @property
    def late(self) -> int:
        return self.refused.get(LATE, 0)

    @property
    def rejected(self) -> int:
        return sum(self.refused.values()) - self.late

    @property
    def counted(self) -> int:
        return self.accepted - sum(self.refused.values())

    @property
    def events(self) -> int:
        """What was counted, without heartbeats."""
        return self.counted - self.heartbeats

    def plus(
        self, read: int, refused: Mapping[str, int], sample: tuple[Refused, ...], heartbeats: int = 0
    ) -> Account:
        """With more records read. The sample keeps the first ones: those that say when it began."""
        return Account(
            self.accepted + read,
            added(self.refused, refused),
            (self.sample + sample)[:SAMPLE_LIMIT],
            self.heartbeats + heartbeats,
        )


def added(one: Mapping[str, int], two: Mapping[str, int]) -> dict[str, int]:
    """Counts by reason, of both."""
    return {reason: one.get(reason, 0) + two.get(reason, 0) for reason in {**one, **two}}
