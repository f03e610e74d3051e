"""How many records the sources of a run have accepted, and what the root has read of them."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class Tally:
    """By source, how many `records` were accepted. Of those that have `ended`, the last one is the heartbeat
    with which they do; it is no event. `read` has the sources of which the root takes nothing more, and how
    many of their records it has read; of all others it reads everything."""

    records: dict[str, int] = field(default_factory=dict)
    ended: set[str] = field(default_factory=set)
    read: dict[str, int] = field(default_factory=dict)

    @property
    def accepted(self) -> int:
        """Records, with the heartbeats behind them."""
        return sum(self.records.values())

    @property
    def sent(self) -> int:
        """Events."""
        return self.accepted - len(self.ended)

    @property
    def unread(self) -> int:
        """Of these, how many the root has not read."""
        return sum(self._behind(name) for name in self.read) - (len(self.ended) - self.beats)

    @property
    def beats(self) -> int:
        """How many of the heartbeats with which sources end the root reads."""
        return sum(not self._behind(name) for name in self.ended)

    def _behind(self, name: str) -> int:
        records = self.records[name]
        return max(records - self.read.get(name, records), 0)
