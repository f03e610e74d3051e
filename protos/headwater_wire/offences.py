"""What others do that they should not: counted by kind and offender, and told of in one line each.

Whoever offends chooses how often, and without certificates under which names: so there are at most `NAMES`
offenders by name, all further ones are `OTHERS` together, each is told of once in `PAUSE` for each kind, and
there are at most `LINES` lines in a `PAUSE`, whoever they are of.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from types import MappingProxyType

from headwater.durations import SECOND
from headwater_wire.clock import now

log = logging.getLogger(__name__)
# As many offenders have figures of their own, and a name is no longer than that.
NAMES, NAME_LENGTH = 64, 64
OTHERS = "(others)"
# In microseconds: for so long nothing is said of the same offence again.
PAUSE = 60 * SECOND
LINES = 60
# Of so many offences by so many it is remembered when they were last told of.
TOLD = 4_096
# A sentence is cut there: it may hold what the offender has sent.
PROBLEM_LENGTH = 400


class Offence(Enum):
    """The kinds, as they stand in metrics, and what the log says of each."""

    HANDSHAKE = "handshake", "refused a connection"
    CONNECTIONS = "connections", "too many connections"
    STREAMS = "streams", "refused a stream"
    VERSION = "version", "refused a stream"
    IDENTITY = "identity", "refused a stream"
    FORWARDED = "forwarded", "refused a message"
    PERMISSION = "permission", "refused a call"
    UNREADABLE = "unreadable", "refused a message"
    TOO_LARGE = "too_large", "refused a message"
    NO_ROOM = "no_room", "refused a message"
    SLOW = "slow", "a reader is too slow"
    BATCH = "batch", "refused a batch"
    SEQUENCE = "sequence", "what was sent does not fit"
    STALE = "stale", "a later process has this name"
    FENCED = "fenced", "a source is fenced"
    RECORDS = "records", "records are rejected"
    FUTURE = "future", "a source waits: its next event lies too far in the future"

    def __init__(self, kind: str, said: str) -> None:
        self.kind, self.said = kind, said


# What sound parties do too, when somebody was restarted or replaced.
_USUAL = (Offence.SEQUENCE, Offence.STALE)


class Offences:
    """Those that one program has seen. For one thread."""

    def __init__(self, clock: Callable[[], int] = now) -> None:
        self._clock = clock
        self._counts: dict[tuple[Offence, str], int] = {}
        self._names: set[str] = set()
        # When it was last told of, and how often it has happened since.
        self._told: dict[tuple[Offence, str], tuple[int, int]] = {}
        self._begun, self._lines = 0, 0

    def note(
        self,
        offence: Offence,
        offender: str,
        problem: str,
        *,
        times: int = 1,
        more: Mapping[str, object] = MappingProxyType({}),
    ) -> None:
        """Count it, and say so if that is news; `more` stands in the line."""
        offender = offender[:NAME_LENGTH]
        self.count(offence, offender, times)
        unsaid = self._unsaid(offence, offender, times)
        if unsaid is not None:
            level = logging.INFO if offence in _USUAL else logging.WARNING
            extra = {"offence": offence.kind, "sender": offender, "problem": problem[:PROBLEM_LENGTH]}
            log.log(level, offence.said, extra={**extra, "times": unsaid, **more})

    def count(self, offence: Offence, offender: str, times: int = 1) -> None:
        """Count what somebody else tells of."""
        named = self._named(offender[:NAME_LENGTH])
        self._counts[offence, named] = self._counts.get((offence, named), 0) + times

    def counts(self) -> Iterator[tuple[str, str, int]]:
        """Kind, offender and how often."""
        for (offence, offender), count in self._counts.items():
            yield offence.kind, offender, count

    def _named(self, offender: str) -> str:
        if offender not in self._names:
            if len(self._names) >= NAMES:
                return OTHERS
            self._names.add(offender)
        return offender

    def _unsaid(self, offence: Offence, offender: str, times: int) -> int | None:
        """How often it has happened since the last line, if there is to be another."""
        moment = self._clock()
        if moment - self._begun >= PAUSE:
            self._begun, self._lines = moment, 0
        last, before = self._told.pop((offence, offender), (None, 0))
        says = (last is None or moment - last >= PAUSE) and self._lines < LINES
        if len(self._told) >= TOLD:
            del self._told[next(iter(self._told))]
        if says:
            self._lines += 1
            self._told[offence, offender] = moment, 0
            return before + times
        # Whoever had no line because there were too many gets one when there is room again.
        self._told[offence, offender] = (moment - PAUSE if last is None else last), before + times
        return None
