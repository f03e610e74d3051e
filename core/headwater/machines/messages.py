"""What the parties say to each other (protocol, rules 2 and 5 to 9)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from headwater.events import Batch
from headwater.node import Change
from headwater.partials import Partial
from headwater.prefix import Prefix

# One ordered stream between two parties: who opened it, and how often they have.
Stream = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a receiver stands with a source, and what the root has logged of it."""

    prefix: Prefix
    lateness: int
    site: str


# By source; None: it is gone, nothing of it fits any more.
Standings = Mapping[str, Standing | None]


@dataclass(frozen=True, slots=True)
class Hello:
    """A source introduces itself to the root; `echo` is the nonce of a challenge (rule 2)."""

    name: str
    spool: str
    opening: str
    opened_at: int
    head: int
    site: str = ""
    lateness: int = 0
    echo: str = ""


@dataclass(frozen=True, slots=True)
class Challenge:
    opening: str
    nonce: str


@dataclass(frozen=True, slots=True)
class Welcome:
    """The opening is confirmed: the source is `source`, whose record 1 is the spool's `offset + 1`."""

    opening: str
    source: str
    offset: int


@dataclass(frozen=True, slots=True)
class Fenced:
    """Another spool or opening has taken the name over."""

    opening: str


@dataclass(frozen=True, slots=True)
class Columns:
    """Records of one source; `opening` is that of the spool they were read from."""

    stream: Stream
    id: str
    batch: Batch
    opening: str


@dataclass(frozen=True, slots=True)
class Delivery:
    """A node's batch for its parent."""

    stream: Stream
    id: str
    partial: Partial


@dataclass(frozen=True, slots=True)
class Probe:
    """Where the sender stands with sources of which nothing is under way; `interest` is all that it wants
    to hear of."""

    stream: Stream
    id: str
    heads: Mapping[str, Prefix]
    interest: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Ask:
    """Where does the receiver stand with these sources?"""

    stream: Stream
    sources: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Tell:
    stream: Stream
    standings: Standings
    changes: tuple[Change, ...] = ()


@dataclass(frozen=True, slots=True)
class Ack:
    stream: Stream
    id: str


@dataclass(frozen=True, slots=True)
class Resync:
    """The batch or probe does not fit: this is where the receiver stands, and all changes of the queries."""

    stream: Stream
    id: str
    standings: Standings
    changes: tuple[Change, ...] = ()


@dataclass(frozen=True, slots=True)
class Commit:
    """What the root has counted for good, per source, and its watermark."""

    stream: Stream
    committed: Mapping[str, int]
    watermark: int | None
    changes: tuple[Change, ...] = ()


@dataclass(frozen=True, slots=True)
class Silent:
    """A child has heard nothing of a source that is assigned to it (rule 14)."""

    child: str
    source: str
    prefix: Prefix


Message = (
    Hello
    | Challenge
    | Welcome
    | Fenced
    | Columns
    | Delivery
    | Probe
    | Ask
    | Tell
    | Ack
    | Resync
    | Commit
    | Silent
)


@dataclass(frozen=True, slots=True)
class Send:
    """A message and who is to get it."""

    to: str
    message: Message


@dataclass(slots=True)
class Outbox:
    """What a step gives: messages, in their order."""

    sends: list[Send] = field(default_factory=list)

    def add(self, to: str, message: Message) -> None:
        self.sends.append(Send(to, message))
