"""What became of every record of a source: `accepted = counted + late + rejected`, always."""

from __future__ import annotations

from dataclasses import dataclass

from headwater.prefix import SAMPLE_LIMIT, Refused


@dataclass(frozen=True, slots=True)
class Account:
    """One source's records. Heartbeats and marks count as counted; the sample is of the others."""

    accepted: int = 0
    counted: int = 0
    late: int = 0
    rejected: int = 0
    sample: tuple[Refused, ...] = ()

    def plus(self, read: int, late: int, rejected: int, sample: tuple[Refused, ...]) -> Account:
        """With more records read. The sample keeps the first ones: those that say when it began."""
        return Account(
            self.accepted + read,
            self.counted + read - late - rejected,
            self.late + late,
            self.rejected + rejected,
            (self.sample + sample)[:SAMPLE_LIMIT],
        )
