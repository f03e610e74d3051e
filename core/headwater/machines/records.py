"""What the root's log holds: everything that shapes a result, in one numbering (protocol, rule 16)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from headwater.changes import Change
from headwater.partials import Partial


@dataclass(frozen=True, slots=True)
class Merged:
    """A batch of the tree, of one lane."""

    partial: Partial
    lane: int = 0


@dataclass(frozen=True, slots=True)
class Admitted:
    """A source joins the roster; its record 1 is the spool's `offset + 1`."""

    source: str
    site: str
    lateness: int
    spool: str
    opening: str
    offset: int
    # Openings before it that nobody had confirmed: copies of the spool from then are of this source too.
    earlier: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Opened:
    """The spool of a source was opened again, with records up to `upto`: what was under way from before no
    longer fits, and what comes behind are others than had these numbers before. Older logs do not say it."""

    source: str
    opening: str
    upto: int | None = None
    earlier: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Idled:
    source: str


@dataclass(frozen=True, slots=True)
class Resumed:
    source: str


@dataclass(frozen=True, slots=True)
class Retired:
    source: str


@dataclass(frozen=True, slots=True)
class Quarantined:
    """A source is retired where it stands, and nothing of its name is taken until that is released."""

    source: str
    reason: str


@dataclass(frozen=True, slots=True)
class Released:
    """A name is out of quarantine: its source comes back as another incarnation."""

    name: str


@dataclass(frozen=True, slots=True)
class Skipped:
    source: str
    seq: int


@dataclass(frozen=True, slots=True)
class Started:
    """Sources that have not come are waited for no longer."""


@dataclass(frozen=True, slots=True)
class Changed:
    """A query was added or removed."""

    change: Change


@dataclass(frozen=True, slots=True)
class Began:
    """The root has begun a term, and has drawn a name for it; from here on it expects so many sources."""

    term: int
    name: str
    # 0: as many as before.
    expected: int = 0


@dataclass(frozen=True, slots=True)
class Joined:
    """A node has a generation from here on."""

    node: str
    token: str
    generation: int
    child: bool
    address: str


@dataclass(frozen=True, slots=True)
class Left:
    """A node has ended."""

    node: str


@dataclass(frozen=True, slots=True)
class Assigned:
    """A source, by its name, is to be read by a child."""

    source: str
    child: str


@dataclass(frozen=True, slots=True)
class Planned:
    """A node that is to take part, and to whom it is to send; a child is to read sources of so many items a
    second together, 0: of none."""

    node: str
    parent: str
    capacity: float = 0.0


@dataclass(frozen=True, slots=True)
class Rate:
    """Items a second that a source of a site and a lateness sends, as planned."""

    site: str
    lateness: int
    rate: float


@dataclass(frozen=True, slots=True)
class Specified:
    """A plan was applied: `generation` never falls for one `owner`, `digest` is the planner's word for all
    that was in it."""

    generation: int
    digest: str
    nodes: tuple[Planned, ...]
    rates: tuple[Rate, ...] = ()
    # How many sources are expected from here on; 0: as many as before.
    expected: int = 0
    # Of what it was asked for: another one counts its generations anew.
    owner: str = ""


Body = (
    Merged
    | Admitted
    | Opened
    | Idled
    | Resumed
    | Retired
    | Quarantined
    | Released
    | Skipped
    | Started
    | Changed
    | Began
    | Joined
    | Left
    | Assigned
    | Specified
)


@dataclass(frozen=True, slots=True)
class Record:
    """A body, and what held when it was written: a replay that comes to something else is wrong."""

    body: Body
    watermark: int | None
    version: int


class Journal(Protocol):
    """The log as the root sees it."""

    @property
    def term(self) -> int:
        """The how-manieth opening of the log this is."""

    def append(self, record: Record) -> int:
        """Write a record behind the others; gives its position. It counts once `sync` has returned."""

    def sync(self) -> None:
        """Make durable all that was appended."""
