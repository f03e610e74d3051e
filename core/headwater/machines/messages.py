"""What the parties say to each other (protocol, rules 2 and 5 to 9)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from headwater.changes import Change
from headwater.events import Batch
from headwater.machines.stalls import Stall
from headwater.partials import Partial
from headwater.prefix import Prefix
from headwater.queries import Query


class Stream(NamedTuple):
    """One ordered stream between two parties: who opened it, in which generation, the how-manieth."""

    opener: str
    generation: int
    number: int


@dataclass(frozen=True, slots=True)
class Barrier:
    """A number behind which the prefix of a source changes by what the root has logged (rule 14).

    A lane that is not there yet reads up to it and no further. What it reads may come from the spool's
    present opening, of which the prefix does not tell yet.
    """

    number: int
    opening: str


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a receiver stands with a source in a lane, and what the root has logged of it."""

    prefix: Prefix
    lateness: int
    site: str
    barrier: Barrier | None = None


# By source; None: it is gone, nothing of it fits any more.
Standings = Mapping[str, Standing | None]


@dataclass(frozen=True, slots=True)
class Register:
    """A node asks the root for a generation; `token` is drawn by each process anew (rule 10).

    `address` is where others reach it. It says so again from time to time, with what it was given. A process
    that has no generation yet echoes the root's nonce: what an earlier one has said may come late.
    """

    node: str
    token: str
    child: bool
    address: str = ""
    generation: int = 0
    echo: str = ""
    # To whom it sends.
    parent: str = ""
    # How many items it has taken, and the sources that keep windows waiting here, worst first.
    items: int = 0
    stalls: tuple[Stall, ...] = ()


@dataclass(frozen=True, slots=True)
class Registered:
    """The node's generation, the sources that it is to read, and, for who has none yet, the queries: those of
    the beginning and all changes. Without a generation: a nonce to be echoed.

    `parent` is to whom it is to send, and `address` where that is; without a name to whom it does, without an
    address to the root.
    """

    node: str
    token: str
    generation: int
    queries: tuple[Query, ...] = ()
    changes: tuple[Change, ...] = ()
    assigned: tuple[str, ...] = ()
    nonce: str = ""
    # How many distinct keys a child reads of one source; 0: there is no bound.
    keys_per_source: int = 0
    parent: str = ""
    address: str = ""
    # How long a source that has not come to this child yet may be silent at the least, in microseconds.
    return_timeout: int = 0


@dataclass(frozen=True, slots=True)
class Leave:
    """A node ends: its sources are to be read by others."""

    node: str
    generation: int


@dataclass(frozen=True, slots=True)
class Stale:
    """A later process goes by the name of whoever opened this stream: it must end."""

    stream: Stream


@dataclass(frozen=True, slots=True)
class Hello:
    """A source introduces itself; `echo` is the nonce of a challenge (rule 2).

    The child that it is said to passes it on to the root, with its own name in `via`. `avoid` is a child
    that the source was sent to and cannot reach. `earlier` are openings of the spool of which it does not
    know whether the root has confirmed them, each with the last record that was written while it lasted.
    """

    name: str
    spool: str
    opening: str
    opened_at: int
    base: int
    head: int
    site: str = ""
    lateness: int = 0
    echo: str = ""
    via: str = ""
    avoid: str = ""
    earlier: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Challenge:
    name: str
    opening: str
    nonce: str


@dataclass(frozen=True, slots=True)
class Welcome:
    """The opening is confirmed: the source is `source`, whose record 1 is the spool's `offset + 1`.

    It is to be read by `child`, who is at `address`. `key_by` is the column by which queries compute; empty:
    none does; None: the root does not say, or a child of a release before has dropped it.
    """

    opening: str
    source: str
    offset: int
    child: str
    address: str = ""
    key_by: str | None = None


@dataclass(frozen=True, slots=True)
class Fenced:
    """The root does not take what this opening has, and why; nor any other of a name in quarantine."""

    name: str
    opening: str
    reason: str
    quarantined: bool = False


class Echo(NamedTuple):
    """A term of the root, the name that it has drawn for it, and a position that it has committed.

    A copy of a log that is opened again begins a term of the same number, but of another name.
    """

    term: int
    name: str
    position: int


NOTHING_HEARD = Echo(0, "", 0)


@dataclass(frozen=True, slots=True)
class Columns:
    """Records of one source; `opening` is that of the spool they were read from."""

    stream: Stream
    id: str
    batch: Batch
    opening: str


@dataclass(frozen=True, slots=True)
class Delivery:
    """A node's batch for its parent, of one lane; `echoes` as in a probe."""

    stream: Stream
    id: str
    lane: int
    partial: Partial
    echoes: tuple[Echo, ...] = ()


@dataclass(frozen=True, slots=True)
class Probe:
    """Where the sender stands with sources of which nothing is under way; `interest` is all that it wants
    to hear of, `version` that of its queries, `echoes` the furthest commit of each term that it has heard of
    (rule 17).

    A `brief` one says nothing of sources: as before.
    """

    stream: Stream
    id: str
    lane: int
    heads: Mapping[str, Prefix]
    interest: tuple[str, ...] = ()
    version: int = 0
    echoes: tuple[Echo, ...] = ()
    # What the sender knows of numbers where the prefixes of those sources change.
    barriers: Mapping[str, Barrier] = field(default_factory=dict)
    brief: bool = False


@dataclass(frozen=True, slots=True)
class Ask:
    """Where does the receiver stand with these sources?"""

    stream: Stream
    lane: int
    sources: tuple[str, ...]
    version: int


@dataclass(frozen=True, slots=True)
class Tell:
    stream: Stream
    lane: int
    standings: Standings
    changes: tuple[Change, ...] = ()


@dataclass(frozen=True, slots=True)
class Ack:
    stream: Stream
    id: str


@dataclass(frozen=True, slots=True)
class Resync:
    """The batch or probe does not fit: this is where the receiver stands, and the changes of the queries
    behind the sender's version."""

    stream: Stream
    id: str
    lane: int
    standings: Standings
    changes: tuple[Change, ...] = ()


@dataclass(frozen=True, slots=True)
class Commit:
    """What the root has counted for good, per source in all lanes, and its watermark; `echo` says by which
    record of its log, `lanes` which ones there are, with the changes up to `version`."""

    stream: Stream
    committed: Mapping[str, int]
    watermark: int | None
    changes: tuple[Change, ...] = ()
    echo: Echo = NOTHING_HEARD
    lanes: tuple[int, ...] = (0,)
    version: int = 0


@dataclass(frozen=True, slots=True)
class Silent:
    """A child has heard nothing of a source that is assigned to it (rule 14)."""

    child: str
    generation: int
    source: str
    prefix: Prefix


@dataclass(frozen=True, slots=True)
class Crowded:
    """A child does not read a source on that is assigned to it: it has brought so many distinct keys, which
    is too many (rule 15)."""

    child: str
    generation: int
    source: str
    prefix: Prefix
    keys: int


Message = (
    Register
    | Registered
    | Leave
    | Stale
    | Hello
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
    | Crowded
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
