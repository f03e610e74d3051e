"""The root: whoever is counted, up to where, and what is decided, all of it by one log.

Every change of state is a record, applied by the same function live and at a replay; nothing that follows
from it leaves the root before it is durable. So a root that comes back from its log is the root that it was.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from headwater.errors import OtherQueries, PermanentError, StaleVersion
from headwater.machines.lanes import Apart, Lanes, shared
from headwater.machines.listeners import Listeners
from headwater.machines.members import Members
from headwater.machines.messages import (
    NOTHING_HEARD,
    Ack,
    Ask,
    Barrier,
    Challenge,
    Commit,
    Delivery,
    Echo,
    Fenced,
    Hello,
    Leave,
    Message,
    Outbox,
    Probe,
    Register,
    Registered,
    Resync,
    Send,
    Silent,
    Stale,
    Standing,
    Standings,
    Stream,
    Tell,
    Welcome,
)
from headwater.machines.nonces import Nonces
from headwater.machines.openings import Openings
from headwater.machines.records import (
    Admitted,
    Assigned,
    Began,
    Body,
    Changed,
    Idled,
    Joined,
    Journal,
    Left,
    Merged,
    Opened,
    Record,
    Resumed,
    Retired,
    Skipped,
    Started,
)
from headwater.node import Change, Source
from headwater.partials import Partial
from headwater.prefix import Prefix
from headwater.queries import Query, signature
from headwater.results import Results
from headwater.root import Root
from headwater.sources import SourceId


class LogDiffers(PermanentError):
    """The log says that something else held than its replay comes to: another program wrote it."""


class BehindTheTree(PermanentError):
    """The tree knows more than this root has in its log: the log was lost or is an older copy (rule 17)."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Times in microseconds of the caller's clock."""

    expected: int = 1
    start_timeout: int = 30_000_000
    pending: int = 64
    apart: Apart = shared


@dataclass(frozen=True, slots=True)
class _Later:
    """A decision of lane 0 at a number that another lane has not come to (rule 14)."""

    number: int
    body: Opened | Idled | Resumed | Skipped
    floor: int | None


class _Lane:
    """The windows of one lane, and what it takes later."""

    def __init__(self, engine: Root) -> None:
        self.engine = engine
        self.later: dict[str, list[_Later]] = {}
        # Where batches that wait to be made durable leave their sources.
        self.ahead: dict[str, Prefix] = {}

    def take(self, source: str, decided: _Later) -> None:
        self.later.setdefault(source, []).append(decided)
        self.settle(source)

    def settle(self, source: str) -> None:
        """Take what was decided at the number where the source stands."""
        waiting = self.later.get(source, [])
        while waiting and waiting[0].number == self.engine.sources[source].position:
            decided = waiting.pop(0)
            if isinstance(decided.body, Opened):
                self.engine.reopen(source, decided.body.opening)
            elif isinstance(decided.body, Idled):
                self.engine.idle(source)
            elif isinstance(decided.body, Resumed):
                self.engine.resume(source, floor=decided.floor)
            else:
                self.engine.skip(source, decided.body.seq)
        if not waiting:
            self.later.pop(source, None)


@dataclass(frozen=True, slots=True)
class State:
    """What the records up to a position come to: all that a root needs which does not replay them."""

    position: int
    queries: tuple[Query, ...]
    members: Members
    openings: Openings
    numbering: Lanes
    lanes: dict[int, _Lane]
    terms: dict[str, tuple[int, int]]


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
        self.queries = tuple(queries)
        self.position = 0
        self.members = Members()
        self.openings = Openings()
        self.refused = 0
        self._listeners = Listeners()
        self._numbering = Lanes(self.queries, settings.apart)
        self._lanes = {
            number: _Lane(
                Root(self.queries, expected=settings.expected, serves=self._numbering.serves(number))
            )
            for number in self._numbering.numbers
        }
        self._journal, self._draw, self._emit = journal, nonce, emit
        self._nonces = Nonces(nonce)
        # Batches that fit and wait to be made durable.
        self._pending: list[tuple[str, Stream, str, int, Partial]] = []
        # Results of records that are not durable yet.
        self._made: list[tuple[int, Results]] = []
        self._began: int | None = None
        self._failed: Exception | None = None
        # The terms there were, by name: which, and the position behind which each began.
        self._terms: dict[str, tuple[int, int]] = {}
        self._term = NOTHING_HEARD

    # The caller's side

    @property
    def engine(self) -> Root:
        """Lane 0: the roster, the watermark and the ledger."""
        return self._lanes[0].engine

    @property
    def engines(self) -> Mapping[int, Root]:
        return {number: lane.engine for number, lane in self._lanes.items()}

    def step(self, sender: str, message: Message, now: int) -> list[Send]:
        self._refuse_if_failed()
        out = Outbox()
        if isinstance(message, Delivery | Probe | Ask) and not self._is_member(sender, message.stream, out):
            pass
        elif isinstance(message, Delivery):
            self._delivery(sender, message, out)
        elif isinstance(message, Probe):
            self._probed(sender, message, out)
        elif isinstance(message, Ask):
            self._asked(sender, message, out)
        elif isinstance(message, Register):
            self._register(sender, message, out)
        elif isinstance(message, Leave):
            if sender == message.node and 0 < message.generation == self.members.generation(sender):
                self._decide_behind(out, Left(message.node))
        elif isinstance(message, Hello):
            self._hello(sender, message, out)
        elif isinstance(message, Silent) and sender == message.child:
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

    def begin(self) -> None:
        """The log was replayed: begin a term. Nothing is taken before."""
        self._decide(Began(self._journal.term, self._draw()))

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
        self._publish()

    @property
    def state(self) -> State:
        """The state at `position`, until the next step; only while it is settled."""
        self._refuse_if_failed()
        assert self.settled
        return State(
            self.position,
            self.queries,
            self.members,
            self.openings,
            self._numbering,
            self._lanes,
            self._terms,
        )

    def restore(self, state: State) -> None:
        """Go on from a state that another root was in, which is this one's from now on; before any replay."""
        if [signature(query) for query in state.queries] != [signature(query) for query in self.queries]:
            raise LogDiffers(
                f"the log was written with other queries to begin with ({_listed(state.queries)}) than were "
                f"given ({_listed(self.queries)}); give those, and add and remove queries while the root runs"
            )
        self.position, self.members, self.openings = state.position, state.members, state.openings
        self._numbering, self._lanes, self._terms = state.numbering, state.lanes, state.terms

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
        # Before it is logged: what cannot be applied would stop every replay.
        self._decide(Skipped(source, self.engine.check_skip(source, seq)))

    def retire(self, source: str) -> None:
        self._commit(Outbox())
        self.engine.check_known(source)
        self._decide(Retired(source))

    def assign(self, assignment: Mapping[str, str]) -> list[Send]:
        """By whom sources (by name) are to be read: only that child's report of their silence counts.

        They are told through the child that reads them until now.
        """
        out, before = Outbox(), {name: self.members.assigned(name) for name in assignment}
        moved = [
            Assigned(name, child, fixed=True)
            for name, child in assignment.items()
            if self.members.assigned(name) != child
        ]
        self._decide_behind(out, *moved)
        for body in moved:
            held, child = self.openings.held(body.source), before[body.source]
            if held is not None and child is not None:
                source = str(SourceId(body.source, held.incarnation))
                address = self.members.address(body.child)
                out.add(child, Welcome(held.opening, source, held.offset, body.child, address))
        return out.sends

    @property
    def waits(self) -> bool:
        """Whether there are batches to be committed."""
        return bool(self._pending)

    @property
    def settled(self) -> bool:
        """Whether nothing waits to be committed or put out."""
        return not self._pending and not self._made

    @property
    def committed(self) -> dict[str, int]:
        """Up to where each source is counted for good, in all lanes."""
        return {name: self._counted(name) for name in self.engine.sources}

    # Log

    def _refuse_if_failed(self) -> None:
        """What is applied may be more than what is durable: nothing of it may be told."""
        if self._failed is not None:
            raise self._failed

    def _decide_behind(self, out: Outbox, *bodies: Body) -> None:
        """Decide behind the batches that wait."""
        self._commit(out)
        self._decide(*bodies)

    def _decide(self, *bodies: Body) -> None:
        for body in bodies:
            self._write(body)
        self._sync()

    def _write(self, body: Body) -> None:
        # The watermark that a record names is that of the records before it.
        record = Record(body, self.engine.watermark, self.engine.version)
        try:
            self._apply(self._journal.append(record), body)
        except Exception as error:
            # Whatever it is: what was appended must not become durable, and nothing may follow.
            self._failed = error
            raise

    def _sync(self) -> None:
        try:
            self._journal.sync()
            self._publish()
        except Exception as error:
            self._failed = error
            raise

    def _publish(self) -> None:
        # What cannot be put out stays for the next time.
        while self._made:
            self._emit(*self._made[0])
            del self._made[0]

    def _commit(self, out: Outbox) -> None:
        self._refuse_if_failed()
        pending, self._pending = self._pending, []
        if not pending:
            return
        for lane in self._lanes.values():
            lane.ahead.clear()
        for _, _, _, number, partial in pending:
            self._write(Merged(partial, number))
        self._sync()
        for sender, stream, id, _, _ in pending:
            out.add(sender, Ack(stream, id))

    def _apply(self, position: int, body: Body) -> None:
        """The one place where state changes."""
        if isinstance(body, Merged):
            self._apply_merged(body)
        elif isinstance(body, Admitted):
            self._apply_admitted(body)
        elif isinstance(body, Opened | Idled | Resumed | Skipped):
            self._apply_to_prefix(body)
        elif isinstance(body, Retired):
            for lane in self._lanes.values():
                # At its own number: what another lane has not heard of by then, it never will.
                lane.later.pop(body.source, None)
                lane.engine.retire(body.source)
        elif isinstance(body, Started):
            for lane in self._lanes.values():
                lane.engine.start()
        elif isinstance(body, Changed):
            self._apply_changed(body.change)
        elif isinstance(body, Began):
            self._terms[body.name] = (body.term, position)
            self._term = Echo(body.term, body.name, position)
        else:
            self.members.apply(body)
        self.position = position
        blocks = [block for lane in self._lanes.values() for block in lane.engine.take().blocks]
        if blocks:
            self._made.append((position, Results(blocks)))
        self._end_lanes()

    def _apply_merged(self, body: Merged) -> None:
        lane = self._lanes[body.lane]
        lane.engine.merge(body.partial)
        for name in body.partial.vector if lane.later else ():
            lane.settle(name)

    def _apply_admitted(self, body: Admitted) -> None:
        self.openings.admitted(body)
        prefix = Prefix(opening=body.opening)
        for lane in self._lanes.values():
            lane.engine.admit(body.source, lateness=body.lateness, site=body.site, prefix=prefix)
            # Where it begins is decided by lane 0, whose watermark is the highest.
            prefix = Prefix(largest=self.engine.sources[body.source].largest, opening=body.opening)

    def _apply_to_prefix(self, body: Opened | Idled | Resumed | Skipped) -> None:
        """What changes a prefix does so at the number where lane 0 stands, in every lane (rule 14)."""
        if isinstance(body, Opened):
            self.openings.opened(body)
        source = self.engine.sources[body.source]
        number = source.position
        floor = None if self.engine.watermark is None else self.engine.watermark + source.lateness
        for lane in self._lanes.values():
            lane.take(body.source, _Later(number, body, floor))

    def _apply_changed(self, change: Change) -> None:
        before = list(self.engine.changes)
        number = self._numbering.apply(change)
        for lane in self._lanes.values():
            lane.engine.apply(change)
        if number is not None and change.kind == "add":
            self._lanes[number] = self._new_lane(number, [*before, change])

    def _new_lane(self, number: int, changes: Iterable[Change]) -> _Lane:
        """A lane that begins where lane 0 stands."""
        main = self.engine
        # All of them at first: the watermark is that of all from the beginning.
        expected = max(len(main.sources), 1) if main.started else self.settings.expected
        engine = Root(self.queries, expected=expected, serves=self._numbering.serves(number))
        for name, source in main.sources.items():
            prefix = Prefix(source.position, source.largest, {}, source.skips, source.opening)
            engine.admit(name, lateness=source.lateness, site=source.site, prefix=prefix)
        for name, source in main.sources.items():
            if source.retired:
                engine.retire(name)
            elif source.idle:
                engine.idle(name)
        for change in changes:
            engine.apply(change)
        return _Lane(engine)

    def _end_lanes(self) -> None:
        """Drop lanes whose query was removed and has given its last window."""
        live = self._numbering.numbers
        over = [n for n, lane in self._lanes.items() if n not in live and not lane.engine.groups()]
        for number in over:
            del self._lanes[number]

    # Positions

    def _is_known(self, name: str) -> bool:
        return name in self.engine.sources

    def _counted(self, name: str) -> int:
        return min(lane.engine.sources[name].position for lane in self._lanes.values())

    def _prefix(self, lane: _Lane, name: str) -> Prefix:
        """Where the root stands with a source, with what waits to be made durable."""
        return lane.ahead.get(name) or lane.engine.sources[name].prefix

    def _standing(self, lane: _Lane, name: str) -> Standing | None:
        source = lane.engine.sources[name]
        if source.retired:
            return None
        return Standing(self._prefix(lane, name), source.lateness, source.site, self._barrier(lane, name))

    def _barrier(self, lane: _Lane, name: str) -> Barrier | None:
        later = lane.later.get(name)
        return Barrier(later[0].number, self.engine.sources[name].opening) if later else None

    def _changes(self, version: int) -> tuple[Change, ...]:
        return tuple(self.engine.changes[version:])

    def _resync(self, message: Delivery | Probe, lane: _Lane, names: Iterable[str], version: int) -> Resync:
        standings: Standings = {
            name: self._standing(lane, name) if self._is_known(name) else None for name in names
        }
        self.refused += 1
        return Resync(message.stream, message.id, message.lane, standings, self._changes(version))

    def _delivery(self, sender: str, message: Delivery, out: Outbox) -> None:
        partial, vector = message.partial, message.partial.vector
        self._check_echoes(sender, message.echoes)
        if partial.version > self.engine.version:
            raise self._behind(f"{sender} has version {partial.version} of the queries")
        lane = self._lanes.get(message.lane)
        if lane is None:
            # The lane has ended: nobody waits for it.
            out.add(sender, Ack(message.stream, message.id))
            return
        if message.lane and lane.ahead:
            # What is decided for later holds from where it leaves them.
            self._commit(out)
        sources = lane.engine.sources
        gone = [name for name in vector if name not in sources or sources[name].retired]
        if gone:
            out.add(sender, self._resync(message, lane, gone, partial.version))
            return
        if all(span.high.position <= self._prefix(lane, n).position for n, span in vector.items()):
            # What waits is not counted yet: it is acknowledged when it is durable.
            if all(span.high.position <= sources[n].position for n, span in vector.items()):
                out.add(sender, Ack(message.stream, message.id))
            return
        if message.lane == 0:
            idle = [
                n
                for n, span in vector.items()
                if sources[n].idle and span.high.position > sources[n].position
            ]
            if idle:
                self._decide_behind(out, *(Resumed(n) for n in idle))
        elif any(span.high.position > self._prefix(self._lanes[0], n).position for n, span in vector.items()):
            # No lane goes beyond lane 0: it is said again when that has come.
            return
        if not self._fits(lane, partial):
            out.add(sender, self._resync(message, lane, list(vector), partial.version))
        elif len(self._pending) < self.settings.pending:
            self._pending.append((sender, message.stream, message.id, message.lane, partial))
            lane.ahead.update({n: span.high for n, span in vector.items()})

    def _fits(self, lane: _Lane, partial: Partial) -> bool:
        for name, span in partial.vector.items():
            if self._prefix(lane, name) != span.low:
                return False
            later = lane.later.get(name)
            if later and span.low.position < later[0].number < span.high.position:
                return False
        try:
            lane.engine.check(partial)
        except (StaleVersion, OtherQueries):
            return False
        return True

    def _probed(self, sender: str, message: Probe, out: Outbox) -> None:
        self._check_echoes(sender, message.echoes)
        lane = self._lanes.get(message.lane)
        if lane is not None:
            sources = lane.engine.sources
            wrong = [
                name
                for name, head in message.heads.items()
                if name not in sources
                or sources[name].retired
                or self._prefix(lane, name) != head
                or self._barrier(lane, name) != message.barriers.get(name)
            ]
            if wrong:
                out.add(sender, self._resync(message, lane, wrong, message.version))
        committed = self._listeners.news(
            sender, message, lambda name: self._counted(name) if self._is_known(name) else None
        )
        out.add(
            sender,
            Commit(
                message.stream,
                committed,
                self.engine.watermark,
                self._changes(message.version),
                self._term._replace(position=self.position),
                tuple(self._lanes),
            ),
        )

    def _asked(self, sender: str, message: Ask, out: Outbox) -> None:
        lane = self._lanes.get(message.lane)
        if lane is not None:
            known = {name: self._standing(lane, name) for name in message.sources if self._is_known(name)}
            out.add(sender, Tell(message.stream, message.lane, known, self._changes(message.version)))

    def _check_echoes(self, sender: str, echoes: Iterable[Echo]) -> None:
        for echo in echoes:
            self._check_echo(sender, echo)

    def _check_echo(self, sender: str, echo: Echo) -> None:
        if echo == NOTHING_HEARD:
            return
        begun = self._terms.get(echo.name)
        # A term reaches up to where the next one begins.
        later = (begin for term, begin in self._terms.values() if begun and term > begun[0])
        end = min(later, default=self.position)
        if begun is None or echo.position > end:
            raise self._behind(f"{sender} has heard of record {echo.position} of term {echo.term}")

    def _behind(self, told: str) -> BehindTheTree:
        return BehindTheTree(
            f"{told}, but the log here ends at record {self.position} of term {self._journal.term} with "
            f"version {self.engine.version}; give the root the newest copy of its log"
        )

    # Nodes

    def _is_member(self, sender: str, stream: Stream, out: Outbox) -> bool:
        """Whether a node speaks that is registered, and no later process has its name."""
        known = self.members.generation(sender)
        if stream.opener != sender or not known:
            return False
        if stream.generation > known:
            raise self._behind(f"{sender} is of generation {stream.generation}")
        if stream.generation < known:
            out.add(sender, Stale(stream))
        return stream.generation == known

    def _register(self, sender: str, message: Register, out: Outbox) -> None:
        if sender != message.node:
            return
        if not self.members.holds(message):
            if message.generation:
                # It was registered, and another process has its name since.
                out.add(sender, Stale(Stream(message.node, message.generation, 0)))
                return
            nonce = self._nonces.of(message.node, message.token)
            if message.echo != nonce:
                out.add(sender, Registered(message.node, message.token, 0, nonce=nonce))
                return
            self._nonces.forget(message.node, message.token)
            generation = self.members.generation(message.node) + 1
            joined = Joined(message.node, message.token, generation, message.child, message.address)
            self._decide_behind(out, joined)
        assigned = tuple(
            source.name
            for source in self._present(self.members.sources_of(message.node))
            if not (source.idle or source.retired)
        )
        fresh = not message.generation
        out.add(
            sender,
            Registered(
                message.node,
                message.token,
                self.members.generation(message.node),
                self.queries if fresh else (),
                tuple(self.engine.changes) if fresh else (),
                assigned,
            ),
        )

    def _present(self, names: Iterable[str]) -> Iterable[Source]:
        """The sources that go by these names at present."""
        held = ((name, self.openings.held(name)) for name in names)
        return (
            self.engine.sources[str(SourceId(name, opening.incarnation))] for name, opening in held if opening
        )

    # Sources

    def _silent(self, message: Silent, out: Outbox) -> None:
        source = self.engine.sources.get(message.source)
        if message.generation != self.members.generation(message.child):
            return
        if source is None or source.idle or source.retired or self.engine.watermark is None:
            return
        name = SourceId.of(message.source).name
        if self.members.assigned(name) != message.child:
            return
        self._commit(out)
        # The report counts only if it is of all that the root knows (rule 14).
        if source.prefix == message.prefix:
            self._decide(Idled(message.source))

    def _hello(self, sender: str, message: Hello, out: Outbox) -> None:
        self._commit(out)
        if not self.openings.is_known(message):
            nonce = self._nonces.of(message.name, message.opening)
            if message.echo != nonce:
                # Logged only once a living process has echoed it: a hello may be old.
                out.add(sender, Challenge(message.name, message.opening, nonce))
                return
        placed = self.openings.place(message, self.engine.sources)
        if isinstance(placed, str):
            out.add(sender, Fenced(message.name, message.opening, placed))
            return
        self._decide(*placed)
        self._nonces.forget(message.name, message.opening)
        held = self.openings.held(message.name)
        assert held is not None
        source = self.engine.sources[str(SourceId(message.name, held.incarnation))]
        if source.idle and not source.retired and message.head - held.offset > source.position:
            self._decide(Resumed(source.name))
        child = self._child_of(message)
        address = self.members.address(child)
        out.add(sender, Welcome(message.opening, source.name, held.offset, child, address))

    def _child_of(self, message: Hello) -> str:
        """By whom a source is to be read: as assigned, if that child is there, else by who passed it on."""
        child = self.members.assigned(message.name)
        if child is not None and self.members.is_live(child) and child != message.avoid:
            return child
        fixed = self.members.is_fixed(message.name)
        if message.via and child != message.via and not fixed and self.members.is_live(message.via):
            self._decide(Assigned(message.name, message.via))
        return message.via


def _listed(queries: Iterable[Query]) -> str:
    return ", ".join(query.id for query in queries) or "none"
