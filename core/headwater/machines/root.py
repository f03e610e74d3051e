"""The root: whoever is counted, up to where, and what is decided, all of it by one log.

Every change of state is a record that is durable first and applied then, by the same function live and
at a replay. So a root that comes back from its log is the root that it was.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from headwater.errors import PermanentError, StaleVersion
from headwater.machines.messages import (
    Ack,
    Ask,
    Challenge,
    Commit,
    Delivery,
    Fenced,
    Hello,
    Message,
    Outbox,
    Probe,
    Resync,
    Send,
    Silent,
    Standing,
    Standings,
    Stream,
    Tell,
    Welcome,
)
from headwater.machines.records import (
    Admitted,
    Body,
    Changed,
    Idled,
    Journal,
    Merged,
    Opened,
    Record,
    Resumed,
    Retired,
    Skipped,
    Started,
)
from headwater.node import Change
from headwater.partials import Partial
from headwater.prefix import Prefix
from headwater.queries import Query
from headwater.results import Results
from headwater.root import Root
from headwater.sources import SourceId


class LogDiffers(PermanentError):
    """The log says that something else held than its replay comes to: another program wrote it."""


class BehindTheTree(PermanentError):
    """A node knows more than this root has in its log: the log was lost or is an older copy (rule 17)."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Times in microseconds of the caller's clock."""

    expected: int = 1
    start_timeout: int = 30_000_000
    pending: int = 64


@dataclass(frozen=True, slots=True)
class _Name:
    """Who goes by a name at present: the incarnation, its spool and opening, and where it begins."""

    incarnation: int
    spool: str
    opening: str
    offset: int


class RootMachine:
    """Positions, roster and decisions; the windows are the engine's."""

    def __init__(
        self,
        queries: Iterable[Query],
        settings: Settings,
        journal: Journal,
        nonce: Callable[[], str],
        emit: Callable[[int, Results], None],
    ) -> None:
        """`emit` takes the results that a record has made final, with the record's position."""
        self.settings = settings
        self.engine = Root(queries, expected=settings.expected)
        self.position = 0
        self._journal, self._draw, self._emit = journal, nonce, emit
        self._names: dict[str, _Name] = {}
        self._spools: dict[str, tuple[str, _Name]] = {}
        self._openings: set[str] = set()
        self._nonces: dict[str, str] = {}
        # Batches that fit and wait to be made durable, and where they leave their sources.
        self._pending: list[tuple[str, Stream, str, Partial]] = []
        self._ahead: dict[str, Prefix] = {}
        self._assigned: dict[str, str] = {}
        # The number in the spool that stands before each source's record 1.
        self.offsets: dict[str, int] = {}
        self._began: int | None = None
        self.refused = 0

    # The caller's side

    def step(self, sender: str, message: Message, now: int) -> list[Send]:
        out = Outbox()
        if isinstance(message, Delivery):
            self._delivery(sender, message, out)
        elif isinstance(message, Probe):
            self._probed(sender, message, out)
        elif isinstance(message, Ask):
            known = {name: self._standing(name) for name in message.sources if self._is_known(name)}
            out.add(sender, Tell(message.stream, known, tuple(self.engine.changes)))
        elif isinstance(message, Hello):
            self._hello(sender, message, out)
        elif isinstance(message, Silent):
            self._silent(message, out)
        return out.sends

    def tick(self, now: int) -> list[Send]:
        """Commit what waits; start without those who have not come in time."""
        out = Outbox()
        self._commit(out)
        if self._began is None:
            self._began = now
        late = now - self._began >= self.settings.start_timeout
        if late and not self.engine.started and self.engine.sources:
            self._decide(Started())
        return out.sends

    def commit(self) -> list[Send]:
        """Make durable and apply the batches that wait: one group, one fsync."""
        out = Outbox()
        self._commit(out)
        return out.sends

    def replay(self, position: int, record: Record) -> None:
        """A record of the log, as it was written."""
        held = (self.engine.watermark, self.engine.version)
        if held != (record.watermark, record.version):
            raise LogDiffers(
                f"record {position} was written at watermark {record.watermark} and version "
                f"{record.version}, but the records before it come to {held[0]} and {held[1]}; use the "
                "program that wrote the log"
            )
        self._apply(position, record.body)

    def add(self, query: Query) -> Change:
        """Add a query above everything applied (rule 18)."""
        self._commit(Outbox())
        change = self.engine.proposed(query)
        self._decide(Changed(change))
        return change

    def remove(self, query_id: str, *, at_once: bool = False) -> Change:
        self._commit(Outbox())
        change = self.engine.proposed_removal(query_id, at_once=at_once)
        self._decide(Changed(change))
        return change

    def skip(self, source: str, seq: int) -> None:
        self._commit(Outbox())
        self._decide(Skipped(source, seq))

    def retire(self, source: str) -> None:
        self._commit(Outbox())
        self._decide(Retired(source))

    def assign(self, assignment: Mapping[str, str]) -> None:
        """Which child each source (by name) is to be read by: whose report of its silence counts."""
        self._assigned = dict(assignment)

    @property
    def committed(self) -> dict[str, int]:
        """Up to where each source is counted for good."""
        return {name: source.position for name, source in self.engine.sources.items()}

    # Log

    def _decide(self, *bodies: Body) -> None:
        for body in bodies:
            record = Record(body, self.engine.watermark, self.engine.version)
            self._apply(self._journal.write([record]), body)

    def _commit(self, out: Outbox) -> None:
        pending, self._pending, self._ahead = self._pending, [], {}
        if not pending:
            return
        # The watermark that a record names is that of the records before it: one at a time they move it.
        for sender, stream, id, partial in pending:
            record = Record(Merged(partial), self.engine.watermark, self.engine.version)
            self._apply(self._journal.write([record]), record.body)
            out.add(sender, Ack(stream, id))

    def _apply(self, position: int, body: Body) -> None:
        """The one place where state changes."""
        engine = self.engine
        if isinstance(body, Merged):
            engine.merge(body.partial)
        elif isinstance(body, Admitted):
            self._apply_admitted(body)
        elif isinstance(body, Opened):
            name = SourceId.of(body.source).name
            held = self._names[name]
            self._name(name, _Name(held.incarnation, held.spool, body.opening, held.offset))
            engine.reopen(body.source, body.opening)
        elif isinstance(body, Idled):
            engine.idle(body.source)
        elif isinstance(body, Resumed):
            engine.resume(body.source)
        elif isinstance(body, Retired):
            engine.retire(body.source)
        elif isinstance(body, Skipped):
            engine.skip(body.source, body.seq)
        elif isinstance(body, Started):
            engine.start()
        else:
            engine.apply(body.change)
        self.position = position
        results = engine.take()
        if len(results):
            self._emit(position, results)

    def _apply_admitted(self, body: Admitted) -> None:
        source = SourceId.of(body.source)
        self._name(source.name, _Name(source.incarnation, body.spool, body.opening, body.offset))
        self.offsets[body.source] = body.offset
        self.engine.admit(
            body.source, lateness=body.lateness, site=body.site, prefix=Prefix(opening=body.opening)
        )

    def _name(self, name: str, held: _Name) -> None:
        self._names[name] = held
        self._spools[held.spool] = (name, held)
        self._openings.add(held.opening)

    # Positions

    def _is_known(self, name: str) -> bool:
        return name in self.engine.sources

    def _prefix(self, name: str) -> Prefix:
        """Where the root stands with a source, with what waits to be made durable."""
        return self._ahead.get(name) or self.engine.sources[name].prefix

    def _standing(self, name: str) -> Standing | None:
        source = self.engine.sources[name]
        return None if source.retired else Standing(self._prefix(name), source.lateness, source.site)

    def _resync(self, stream: Stream, id: str, names: Iterable[str]) -> Resync:
        standings: Standings = {
            name: self._standing(name) if self._is_known(name) else None for name in names
        }
        self.refused += 1
        return Resync(stream, id, standings, tuple(self.engine.changes))

    def _delivery(self, sender: str, message: Delivery, out: Outbox) -> None:
        partial, sources = message.partial, self.engine.sources
        names = list(partial.vector)
        gone = [name for name in names if name not in sources or sources[name].retired]
        if gone:
            out.add(sender, self._resync(message.stream, message.id, gone))
            return
        if partial.version > self.engine.version:
            raise BehindTheTree(
                f"{sender} sends with version {partial.version} of the queries, but the log here ends at "
                f"version {self.engine.version}; give the root the newest copy of its log"
            )
        if all(span.high.position <= self._prefix(n).position for n, span in partial.vector.items()):
            # What waits is not counted yet: it is acknowledged when it is durable.
            if all(span.high.position <= sources[n].position for n, span in partial.vector.items()):
                out.add(sender, Ack(message.stream, message.id))
            return
        idle = [n for n, span in partial.vector.items() if sources[n].idle]
        if idle:
            self._commit(out)
            self._decide(*(Resumed(n) for n in idle))
        if any(self._prefix(n) != span.low for n, span in partial.vector.items()):
            out.add(sender, self._resync(message.stream, message.id, names))
            return
        try:
            self.engine.check(partial)
        except StaleVersion:
            out.add(sender, self._resync(message.stream, message.id, names))
            return
        if len(self._pending) < self.settings.pending:
            self._pending.append((sender, message.stream, message.id, partial))
            self._ahead.update({n: span.high for n, span in partial.vector.items()})

    def _probed(self, sender: str, message: Probe, out: Outbox) -> None:
        wrong = [
            name
            for name, head in message.heads.items()
            if not self._is_known(name) or self.engine.sources[name].retired or self._prefix(name) != head
        ]
        if wrong:
            out.add(sender, self._resync(message.stream, message.id, wrong))
        committed = {
            name: self.engine.sources[name].position for name in message.interest if self._is_known(name)
        }
        changes = tuple(self.engine.changes)
        out.add(sender, Commit(message.stream, committed, self.engine.watermark, changes))

    # Sources

    def _silent(self, message: Silent, out: Outbox) -> None:
        source = self.engine.sources.get(message.source)
        if source is None or source.idle or source.retired or self.engine.watermark is None:
            return
        name = SourceId.of(message.source).name
        if self._assigned.get(name, message.child) != message.child:
            return
        self._commit(out)
        # The report counts only if it is of all that the root knows (rule 14).
        if source.prefix == message.prefix:
            self._decide(Idled(message.source))

    def _hello(self, sender: str, message: Hello, out: Outbox) -> None:
        self._commit(out)
        held = self._names.get(message.name)
        known = held is not None and (message.spool, message.opening) == (held.spool, held.opening)
        if not known and message.opening not in self._openings:
            nonce = self._nonces.setdefault(message.opening, self._draw())
            if message.echo != nonce:
                # Logged only once a living process has echoed it: a hello may be old.
                out.add(sender, Challenge(message.opening, nonce))
                return
        offset = self._place(message, held)
        if offset is None:
            out.add(sender, Fenced(message.opening))
            return
        if offset >= 0:
            self._admit(message, held, offset)
        self._nonces.pop(message.opening, None)
        held = self._names[message.name]
        source = self.engine.sources[str(SourceId(message.name, held.incarnation))]
        if source.idle and not source.retired and message.head - held.offset > source.position:
            self._decide(Resumed(source.name))
        out.add(sender, Welcome(message.opening, source.name, held.offset))

    def _place(self, message: Hello, held: _Name | None) -> int | None:
        """Where a new incarnation begins in the spool; -1: it is the present one; None: it is fenced."""
        if held is None:
            return 0
        present = self.engine.sources[str(SourceId(message.name, held.incarnation))]
        at_rest = present.idle or present.retired
        if message.spool != held.spool:
            if message.spool not in self._spools:
                return 0
            owner, earlier = self._spools[message.spool]
            if owner != message.name or not at_rest:
                return None
            # A spool that was fenced returns behind what was counted of it.
            was = self.engine.sources[str(SourceId(message.name, earlier.incarnation))]
            end = earlier.offset + was.position
            return end if message.opening == earlier.opening else min(end, message.opened_at)
        if message.opening != held.opening and message.opening in self._openings:
            return None
        reached = held.offset + present.position
        if present.retired:
            same = message.opening == held.opening
            return reached if same else min(reached, message.opened_at)
        if message.opening != held.opening:
            if reached > message.opened_at:
                # Records that were counted are no longer in the spool: what follows is another source.
                return message.opened_at
            self._decide(Opened(present.name, message.opening))
        return -1

    def _admit(self, message: Hello, held: _Name | None, offset: int) -> None:
        incarnation = 1 if held is None else held.incarnation + 1
        source = str(SourceId(message.name, incarnation))
        self._decide(Admitted(source, message.site, message.lateness, message.spool, message.opening, offset))
        if held is not None:
            # Admitted first, with the watermark from before: then nothing it says is below it.
            before = str(SourceId(message.name, held.incarnation))
            if not self.engine.sources[before].retired:
                self._decide(Retired(before))
