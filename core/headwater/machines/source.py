"""A source: it numbers what it has, and sends it until the root has counted it for good (rules 1 to 3)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol
from zlib import crc32

from headwater.events import Batch
from headwater.machines.link import Link
from headwater.machines.messages import (
    Ack,
    Challenge,
    Columns,
    Commit,
    Fenced,
    Hello,
    Message,
    Outbox,
    Probe,
    Resync,
    Send,
    Welcome,
)
from headwater.prefix import Prefix


class Spool(Protocol):
    """What is accepted, on disk; only what is durable can be read."""

    @property
    def id(self) -> str: ...

    @property
    def opening(self) -> str: ...

    @property
    def opened_at(self) -> int: ...

    @property
    def earlier(self) -> tuple[tuple[str, int], ...]: ...

    @property
    def base(self) -> int: ...

    @property
    def head(self) -> int: ...

    def read(self, after: int, limit: int) -> Batch | None:
        """Records behind a number, at most `limit`; None if there are none."""

    def trim(self, upto: int) -> object:
        """Records up to this number are counted for good."""

    def confirm(self, opening: str) -> None:
        """The root knows of this opening."""


@dataclass(frozen=True, slots=True)
class Settings:
    """`rows` and `under_way` bound what is sent ahead; times in microseconds of the caller's clock."""

    site: str = ""
    lateness: int = 0
    rows: int = 10_000
    under_way: int = 4
    patience: int = 3_000_000
    # How often it says hello, and asks what was counted if nobody tells it.
    repeat: int = 60_000_000
    # How soon it says hello again at first if nobody answers; from then on twice as long each time, up to
    # how often it asks.
    greeting: int = 200_000
    inquiry: int = 5_000_000
    # How long an answer is waited for before records are sent again.
    retry: int = 1_000_000
    # How long a child with records may say nothing before it is asked whether it is there.
    nudge: int = 1_000_000
    # How long a child may leave records, questions and hellos unanswered before the connection is taken for
    # dead: at first, and longer each time that another connection was as silent.
    silence: int = 4_000_000


# How many times the silence that is borne may double.
SILENCE_DOUBLINGS = 4


@dataclass(slots=True)
class _Sent:
    """Records that are under way, and when they were first and last sent."""

    columns: Columns
    began: int
    said: int
    repeated: int = 0

    @property
    def last(self) -> int:
        batch = self.columns.batch
        return batch.first - 1 + len(batch)


class SourceMachine:
    """One source with its spool; `child` is who it sends to, and may be changed at any time.

    Without a child it says nothing. `assigned` is the child that it is to send to and where that is, as the
    root says; whoever owns the connections follows it, and puts a child that it cannot reach into `avoid`.
    """

    def __init__(self, name: str, spool: Spool, settings: Settings, child: str = "") -> None:
        self.name, self.child, self.spool, self.settings = name, child, spool, settings
        # Who the root says it is, and the spool's number before its record 1.
        self.source: str | None = None
        # Why the root does not take what it has, if so.
        self.fenced: str | None = None
        self.assigned: tuple[str, str] | None = None
        # How often the root has said so.
        self.welcomes = 0
        # The column by which queries compute, as the root says; empty: none does; None: it has not said.
        self.key_by: str | None = None
        # Up to which record the tree has counted if the spool begins behind that; None: nothing is lost.
        self.lost_from: int | None = None
        self.avoid = ""
        self._failures = 0
        self._offset = 0
        self._acknowledged = 0
        self._committed = 0
        self._echo = ""
        # Numbered from the opening on: what an earlier process was answered is not for this one.
        number = crc32(spool.opening.encode()) << 16
        self._link = Link(name, child, settings.patience, number=number)
        self._under_way: list[_Sent] = []
        self._probe: tuple[str, int] | None = None
        # When it said hello last, and how long it waits to say so again.
        self._said, self._patience = -settings.repeat, settings.greeting
        self._asked = -settings.inquiry
        # To whom it has said hello last, and when anybody has last said anything.
        self._greeted, self._heard = "", 0
        # How often in a row connections were given up because nothing was heard on them.
        self._silences = 0

    @property
    def done(self) -> bool:
        """Whether everything that was accepted has been counted for good."""
        if self.source is None or self.lost_from is not None:
            return False
        return self._committed == self.spool.head - self._offset

    @property
    def counted(self) -> int:
        """Up to which number of the spool the root has counted, as far as it has said. It falls when the root
        comes back with an older copy of its log."""
        return self._offset + self._committed

    @property
    def busy(self) -> bool:
        """Whether something is to be sent or answered soon."""
        return self.source is None or bool(self._under_way)

    def step(self, sender: str, message: Message, now: int) -> list[Send]:
        out = Outbox()
        self._heard = now
        if isinstance(message, Challenge) and message.opening == self.spool.opening:
            self._echo = message.nonce
            self._patience = self.settings.greeting
            if self.child:
                self._hello(out, now)
        elif isinstance(message, Welcome) and message.opening == self.spool.opening:
            self._welcomed(message)
        elif isinstance(message, Fenced) and message.opening == self.spool.opening:
            self.fenced, self.source = message.reason, None
        elif isinstance(message, Ack) and self._link.mine(message.stream, now):
            self._acked(message.id, now)
        elif isinstance(message, Resync) and self._link.mine(message.stream, now):
            self._resynced(message)
        elif isinstance(message, Commit) and self._link.mine(message.stream, now):
            self._counted(message)
        return out.sends

    def connect(self, child: str, now: int) -> None:
        """A child has answered on a new connection: what was not answered is sent there at once."""
        self.child, self._greeted, self._heard = child, "", now
        self._patience = self.settings.greeting
        self._link.reset()

    def disconnect(self) -> None:
        """There is no connection: nothing is sent, and no answer is missed."""
        self.child = ""

    def on_unreachable(self, child: str, failures: int) -> None:
        """The child that is to read this source cannot be reached, or can be again: the root hears of it, and
        of every further attempt that has failed."""
        if (child, failures) != (self.avoid, self._failures):
            self.avoid, self._failures, self._greeted = child, failures, ""

    def is_silent(self, now: int) -> bool:
        """Whether the child answers neither records nor questions, or the root no hello that it passes on."""
        waits = bool(self._under_way) or (self.source is None and self.fenced is None)
        return bool(self.child) and waits and now - self._heard > self._silence

    def on_silence(self) -> None:
        """The connection was given up because nothing was heard on it. The next one has twice as long: the
        way may be narrow, or the child busy, and what is sent anew takes as long again."""
        self._silences = min(self._silences + 1, SILENCE_DOUBLINGS)

    @property
    def _silence(self) -> int:
        return self.settings.silence << self._silences

    def send(self, now: int) -> list[Send]:
        """Send what is there, as far as there is room on the way."""
        out = Outbox()
        if not self.child or self.source is None or self.fenced is not None:
            return out.sends
        self._open(now)
        while len(self._under_way) < self.settings.under_way:
            last = self._acknowledged
            if self._under_way:
                last = self._under_way[-1].last
            found = self.spool.read(self._offset + last, self.settings.rows)
            if found is None:
                break
            columns = Columns(
                self._link.stream, self._link.next_id(), self._numbered(found), self.spool.opening
            )
            self._under_way.append(_Sent(columns, now, now))
            out.add(self._link.parent, columns)
        return out.sends

    def tick(self, now: int) -> list[Send]:
        """Say again what was not answered."""
        out = Outbox()
        if not self.child:
            return out.sends
        if self.child != self._greeted or now - self._said >= min(self._patience, self.settings.repeat):
            self._greeted = self.child
            self._patience = self._longer if self.source is None else self.settings.repeat
            self._hello(out, now)
        if self.source is None or self.fenced is not None:
            return out.sends
        fresh = self._open(now)
        for sent in self._under_way:
            if now - sent.said >= self.settings.retry << min(sent.repeated, 4):
                sent.said, sent.repeated = now, sent.repeated + 1
                out.add(self._link.parent, sent.columns)
        # A child that has no room for records still answers questions: one that does not is not there.
        waits = bool(self._under_way) and now - self._heard >= self.settings.nudge
        if fresh or now - self._asked >= (self.settings.nudge if waits else self.settings.inquiry):
            self._asked = now
            if self._probe is None or self._probe[1] != self._acknowledged:
                self._probe = (self._link.next_id(), self._acknowledged)
            head = Prefix(self._acknowledged, opening=self.spool.opening)
            heads = {} if self._under_way else {self.source: head}
            out.add(self._link.parent, Probe(self._link.stream, self._probe[0], 0, heads, (self.source,)))
        out.sends += self.send(now)
        return out.sends

    @property
    def _longer(self) -> int:
        """How long to wait for the next hello if this one is not answered either: not so long that a root
        that was away for a minute would wait for its sources as long. One that is fenced was answered."""
        settings = self.settings
        return min(2 * self._patience, settings.inquiry if self.fenced is None else settings.repeat)

    def _open(self, now: int) -> bool:
        fresh = self._link.open(self.child, now)
        if fresh:
            # Another stream: what was sent on the one before is sent again on this; who is there is asked,
            # and told who this is: it may be another root.
            self._greeted = ""
            self._under_way, self._probe, self._asked = [], None, now - self.settings.inquiry
        return fresh

    def _hello(self, out: Outbox, now: int) -> None:
        spool, settings = self.spool, self.settings
        self._said = now
        # What was counted may still be there; a root that does not know of it is to begin behind it.
        base = max(spool.base, self._offset + self._committed)
        hello = Hello(
            self.name,
            spool.id,
            spool.opening,
            spool.opened_at,
            base,
            spool.head,
            settings.site,
            settings.lateness,
            self._echo,
            avoid=self.avoid,
            earlier=spool.earlier,
        )
        out.add(self.child, hello)

    def _numbered(self, batch: Batch) -> Batch:
        """The spool's records as the source's."""
        assert self.source is not None
        # A spool may hand out what it keeps.
        return batch.numbered(self.source, batch.first - self._offset)

    def _welcomed(self, message: Welcome) -> None:
        self.fenced, self._patience = None, self.settings.repeat
        self.assigned, self.key_by = (message.child, message.address), message.key_by
        self.welcomes += 1
        self.spool.confirm(message.opening)
        # The same name behind another number: it is another root, which has lost its log.
        if (message.source, message.offset) != (self.source, self._offset):
            self.source, self._offset = message.source, message.offset
            # What lies before record 1 was counted of those who had the name before: nobody will tell of it
            # any more, and nothing else may ever make room of it.
            self.spool.trim(message.offset)
            self._acknowledged, self._committed = max(self.spool.base - message.offset, 0), 0
            self.lost_from = None
            self._under_way, self._probe = [], None

    def _acked(self, id: str, now: int) -> None:
        ids = [sent.columns.id for sent in self._under_way]
        if id in ids:
            # Where answers take long they may go on to.
            if now - self._under_way[ids.index(id)].began <= self.settings.silence:
                self._silences = 0
            # In order on one stream: what was sent before it has arrived too.
            done = ids.index(id) + 1
            self._acknowledged = self._under_way[done - 1].last
            del self._under_way[:done]

    def _resynced(self, message: Resync) -> None:
        probed = self._probe is not None and message.id == self._probe[0]
        known = probed or any(sent.columns.id == message.id for sent in self._under_way)
        if not known or self.source is None or self.source not in message.standings:
            return
        standing = message.standings[self.source]
        self._under_way, self._probe = [], None
        if standing is None:
            self.source, self._patience = None, self.settings.greeting
            return
        position = standing.prefix.position
        base, head = self.spool.base - self._offset, self.spool.head - self._offset
        # Somebody who does not know yet what is counted will hear of it. If nobody tells, records are lost.
        self.lost_from = position if position < base else None
        if base <= position <= head:
            # Below what was counted, it is a root that came back with an older copy of its log: it counts
            # anew what the spool still has. A child that only has not heard yet gives records twice, and
            # those are not counted again.
            self._committed = min(self._committed, position)
            self._acknowledged = position

    def _counted(self, message: Commit) -> None:
        if self.source is None or self.source not in message.committed:
            return
        committed = message.committed[self.source]
        if self.lost_from is not None and committed > self.lost_from:
            # The child had only not heard yet.
            self.lost_from = None
        if self._committed < committed <= self.spool.head - self._offset:
            self._committed = committed
            self.spool.trim(self._offset + committed)
            if committed > self._acknowledged:
                self._acknowledged, self._under_way, self._probe = committed, [], None
