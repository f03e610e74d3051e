"""How far a node has come with a source."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from headwater.ledger import Account
from headwater.prefix import NO_SKIPS, KeyedMarks, Prefix, Refused
from headwater.rows import TS_MIN


@dataclass(slots=True)
class Source:
    """Where one source stands at this node."""

    name: str
    code: int
    site: str
    lateness: int
    position: int = 0
    largest: int = TS_MIN
    marks: dict[str, KeyedMarks] = field(default_factory=dict)
    # Numbers above the position that are never to be read.
    skips: frozenset[int] = NO_SKIPS
    opening: str = ""
    account: Account = field(default_factory=Account)
    # What has been read since the last flush.
    since: Prefix = field(default_factory=Prefix)
    refused: Mapping[str, int] = field(default_factory=dict)
    sample: tuple[Refused, ...] = ()
    heartbeats: int = 0
    idle: bool = False
    retired: bool = False

    @property
    def prefix(self) -> Prefix:
        return Prefix(self.position, self.largest, dict(self.marks), self.skips, self.opening)

    def stands_at(self, prefix: Prefix) -> bool:
        return (
            self.position == prefix.position
            and self.largest == prefix.largest
            and self.opening == prefix.opening
            and self.skips == prefix.skips
            and self.marks == prefix.marks
        )

    def settled(self) -> Account:
        """What became of its records, with those since the last flush."""
        read = self.position - self.since.position
        return self.account.plus(read, self.refused, self.sample, self.heartbeats)

    def stand_at(self, prefix: Prefix) -> None:
        """Go on from another prefix; nothing has been read since the last flush."""
        self.position, self.largest, self.marks = prefix.position, prefix.largest, dict(prefix.marks)
        self.skips, self.opening = prefix.skips, prefix.opening
        self.since, self.refused, self.sample = self.prefix, {}, ()

    def skip(self, number: int) -> None:
        """Never read a record that lies ahead."""
        self.skips |= {number}
        # The decision holds from where the receiver stands, and changes nothing of what was read since.
        self.since = replace(self.since, skips=self.since.skips | {number})

    def forget_marks(self, name: str) -> None:
        """Stand nowhere with a mark query that is gone."""
        self.marks.pop(name, None)
        # Nothing was sent in between: the change comes behind a flush.
        kept = {each: marks for each, marks in self.since.marks.items() if each != name}
        self.since = replace(self.since, marks=kept)
