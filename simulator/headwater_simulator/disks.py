"""Disks of which only what was synced survives the process, and often some of the rest."""

from __future__ import annotations

import errno
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from headwater.events import Batch
from headwater.events import Record as Event
from headwater.machines.records import Record
from headwater_wire import records as stored
from headwater_wire.messages import Codec

_CODEC = Codec()


class Killed(BaseException):
    """A process dies at a failpoint; nothing of it may catch this."""


class Disk:
    """The root's log and its last snapshot."""

    def __init__(self, rng: Random, *, wire: bool, watch: Callable[[Record], None]) -> None:
        """`wire`: records are bytes; `watch` is shown each that is durable, once."""
        self.records: list[Record] = []
        self.durable = self.term = 0
        self.snapshot: tuple[int, bytes] = (0, b"")
        self.full = False
        self._rng, self._wire, self._watch = rng, wire, watch
        # The failpoint at which the root dies next, and how often it is passed before.
        self._armed: tuple[str, int] | None = None

    def arm(self, failpoint: str, passes: int) -> None:
        self._armed = (failpoint, passes)

    def disarm(self) -> None:
        self._armed = None

    def reach(self, failpoint: str) -> None:
        """Die here, if so planned."""
        if self._armed is not None and self._armed[0] == failpoint:
            passes = self._armed[1]
            self._armed = (failpoint, passes - 1) if passes else None
            if not passes:
                raise Killed(failpoint)

    def append(self, record: Record) -> int:
        self.reach("append")
        if self.full:
            raise OSError(errno.ENOSPC, "no space left on the simulated disk")
        # What is written is bytes, and what is read back is made of them.
        self.records.append(stored.decode(stored.encode(record), _CODEC) if self._wire else record)
        self.reach("appended")
        return len(self.records)

    def sync(self) -> None:
        self.reach("sync")
        for record in self.records[self.durable :]:
            self._watch(record)
        self.durable = len(self.records)
        self.reach("synced")

    def open(self) -> list[Record]:
        """What another process finds: of what was not synced, a beginning or nothing."""
        self._armed = None
        kept = self._rng.randint(self.durable, len(self.records))
        for record in self.records[self.durable : kept]:
            self._watch(record)
        del self.records[kept:]
        self.durable = kept
        self.term += 1
        return list(self.records)


@dataclass(frozen=True, slots=True)
class _Copy:
    time: int
    head: int
    base: int
    opened_at: int
    confirmed: bool
    opening: str
    earlier: tuple[tuple[str, int], ...]


class Spool:
    """The records of a source; what was trimmed is still there for who looks back, as in a copy."""

    def __init__(self, id: str, counted: Callable[[str], int]) -> None:
        """`counted` says up to which record of the spool the root has counted for good."""
        self.id, self.opening, self.opened_at, self.base = id, "", 0, 0
        self.records: list[Event] = []
        self.unsynced: list[Event] = []
        self.full = self._confirmed = False
        self.earlier: tuple[tuple[str, int], ...] = ()
        self._counted = counted
        self._copies: list[_Copy] = []

    @property
    def head(self) -> int:
        return len(self.records)

    def append(self, record: Event) -> None:
        """A full one refuses it."""
        if not self.full:
            self.unsynced.append(record)

    def sync(self, now: int) -> None:
        """What was appended is accepted from here on."""
        self.records += self.unsynced
        self.unsynced.clear()
        self._copies.append(
            _Copy(now, self.head, self.base, self.opened_at, self._confirmed, self.opening, self.earlier)
        )

    def open(self, opening: str) -> None:
        self.unsynced.clear()
        if self._confirmed or not self.opening:
            self.opened_at, self.earlier = self.head, ()
        else:
            self.earlier = (*self.earlier, (self.opening, self.head))
        self.opening, self._confirmed = opening, False

    def set_back(self, time: int) -> None:
        """Become what this spool was at a time."""
        self._become([copy for copy in self._copies if copy.time <= time])

    def shorten(self, lost: int) -> None:
        """Become what this spool was before its last records came."""
        self._become([copy for copy in self._copies if copy.head <= self.head - lost])

    def _become(self, found: list[_Copy]) -> None:
        if found:
            copy = found[-1]
            self.records = self.records[: copy.head]
            self.base, self.opened_at, self._confirmed = copy.base, copy.opened_at, copy.confirmed
            self.opening, self.earlier = copy.opening, copy.earlier
            self._copies = found

    def confirm(self, opening: str) -> None:
        self._confirmed |= opening == self.opening

    def trim(self, upto: int) -> None:
        if upto > self._counted(self.opening):
            raise AssertionError(f"I4: {self.id} is trimmed to {upto} before that is counted for good")
        self.base = max(self.base, upto)

    def read(self, after: int, limit: int) -> Batch | None:
        if after < self.base:
            raise AssertionError(
                f"{self.id} was trimmed to {self.base} and is asked for what follows {after}"
            )
        records = self.records[after : after + limit]
        return Batch.from_records("spool", after + 1, records) if records else None
