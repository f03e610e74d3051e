"""What the root's log holds: everything that shapes a result, in one numbering (protocol, rule 16)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from headwater.node import Change
from headwater.partials import Partial


@dataclass(frozen=True, slots=True)
class Merged:
    """A batch of the tree."""

    partial: Partial


@dataclass(frozen=True, slots=True)
class Admitted:
    """A source joins the roster; its record 1 is the spool's `offset + 1`."""

    source: str
    site: str
    lateness: int
    spool: str
    opening: str
    offset: int


@dataclass(frozen=True, slots=True)
class Opened:
    """The spool of a source was opened again: what was under way from before no longer fits."""

    source: str
    opening: str


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


Body = Merged | Admitted | Opened | Idled | Resumed | Retired | Skipped | Started | Changed


@dataclass(frozen=True, slots=True)
class Record:
    """A body, and what held when it was written: a replay that comes to something else is wrong."""

    body: Body
    watermark: int | None
    version: int


class Journal(Protocol):
    """The log as the root sees it."""

    def write(self, records: Sequence[Record]) -> int:
        """Append records and make them durable; gives the position of the last one."""
