"""The root: whoever is counted, up to where, and what is decided, all of it by one log.

Every change of state is a record, applied by the same function live and at a replay; nothing that follows
from it leaves the root before it is durable. So a root that comes back from its log is the root that it was.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from headwater.changes import Change
from headwater.errors import PermanentError
from headwater.machines.commits import Commits
from headwater.machines.dealing import Dealing
from headwater.machines.hellos import RefusedHellos
from headwater.machines.holds import Awaited, Hold, find_holds
from headwater.machines.lanes import Apart, shared
from headwater.machines.members import Members
from headwater.machines.messages import (
    Ask,
    Challenge,
    Crowded,
    Delivery,
    Fenced,
    Hello,
    Leave,
    Message,
    Outbox,
    Probe,
    Register,
    Registered,
    Send,
    Silent,
    Stale,
    Stream,
    Welcome,
)
from headwater.machines.movement import Movement
from headwater.machines.nonces import Nonces
from headwater.machines.openings import Openings
from headwater.machines.positions import Positions
from headwater.machines.reachability import Reachability
from headwater.machines.recent import Recent
from headwater.machines.records import (
    Admitted,
    Assigned,
    Began,
    Changed,
    Idled,
    Joined,
    Journal,
    Left,
    Quarantined,
    Record,
    Released,
    Resumed,
    Retired,
    Skipped,
    Specified,
    Started,
)
from headwater.machines.refusals import Refusals
from headwater.machines.state import State
from headwater.machines.vitals import Rate, Vitals
from headwater.progress import Source
from headwater.queries import Query, signature
from headwater.results import Results
from headwater.root import Root
from headwater.sources import SourceId


class LogDiffers(PermanentError):
    """The log says that something else held than its replay comes to: another program wrote it."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Times in microseconds of the caller's clock."""

    expected: int = 1
    start_timeout: int = 30_000_000
    # How long sources that the tree itself has cut off have to find their way again before one is given up.
    return_timeout: int = 30_000_000
    # A source whose position has moved that recently is not silent, whatever the child says to which it is
    # assigned: another one reads it.
    sending: int = 2_000_000
    pending: int = 64
    # For how long is remembered who has asked what was counted.
    memory: int = 600_000_000
    # How long a name has to wait for its next incarnation.
    admission: int = 1_000_000
    # How many distinct keys a child reads of one source; 0: there is no bound.
    keys_per_source: int = 0
    # Whether it waits for a plan before it admits anybody: queries and nodes come with that.
    managed: bool = False
    apart: Apart = shared


class RootMachine:
    """Positions, roster and decisions; the windows are the engine's."""

    def __init__(
        self,
        queries: Iterable[Query],
        settings: Settings,
        journal: Journal,
        nonce: Callable[[], str],
        emit: Callable[[int, Results], None],
        engine: type[Root] = Root,
    ) -> None:
        """`emit` takes the results that a record has made final, with the record's position; there are none
        where `engine` makes no windows."""
        self.settings = settings
        self.queries = tuple(queries)
        self._journal, self._draw, self._emit = journal, nonce, emit
        self._nonces = Nonces(nonce)
        # When a name was admitted last.
        self._admissions: Recent[str, int] = Recent(settings.admission)
        self._refused_hellos = RefusedHellos()
        # To whom nodes send, by what they last said.
        self.senders: dict[str, str] = {}
        # What is known of nodes and sources by this process alone: when they were last heard, and moved.
        self.vitals, self.movement = Vitals(), Movement()
        self._rate = Rate()
        self._began: int | None = None
        # Since when the first sources wait for the others.
        self._waits_since: int | None = None
        # Whether it has come back from its log, and since when: for `return_timeout` no source is given up.
        self._came_back = False
        self._came_back_at: int | None = None
        self._go_on(State(self.queries, settings.expected, settings.apart, engine))

    def _go_on(self, state: State) -> None:
        self._state = state
        self._commits = Commits(state, self._journal, self._emit)
        self._reachability = Reachability(state.members)
        self._dealing = Dealing(state, self._reachability)
        self._positions = Positions(state, self._commits, self.settings.pending, self.settings.memory)

    # The caller's side

    @property
    def engine(self) -> Root:
        """Lane 0: the roster, the watermark and the ledger."""
        return self._state.engine

    @property
    def engines(self) -> Mapping[int, Root]:
        return self._state.engines

    @property
    def position(self) -> int:
        """The last record of the log that is applied."""
        return self._state.position

    @property
    def expected(self) -> int:
        """How many sources are expected, by the plan that was applied last."""
        return self._state.expected

    def holds(self, now: int) -> tuple[list[Hold], int]:
        """What windows wait for, the worst first, and how many such things there are."""
        engine, began = self.engine, now if self._began is None else self._began
        awaited = None
        if not engine.started:
            since = self._waits_since
            until = None if since is None else since + self.settings.start_timeout
            there = len(engine.sources)
            awaited = Awaited(there, self.expected, began if since is None else since, until)
        return find_holds(
            self.movement,
            self.vitals,
            self.members,
            engine.source_of,
            engine.largest,
            began,
            now,
            awaited,
            self._idle_from,
            lambda name: self._refused_hellos.find(name, now),
        )

    @property
    def _idle_from(self) -> int | None:
        """When a source is declared idle at the earliest; None: not before all are there."""
        if not self.engine.started or (self._came_back and self._came_back_at is None):
            return None
        return self._came_back_at + self.settings.return_timeout if self._came_back_at is not None else 0

    @property
    def members(self) -> Members:
        return self._state.members

    @property
    def openings(self) -> Openings:
        return self._state.openings

    @property
    def refused(self) -> int:
        """Batches and probes that did not fit."""
        return self._positions.refused

    @property
    def refusals(self) -> Refusals:
        """Batches that no sound node makes."""
        return self._positions.refusals

    def step(self, sender: str, message: Message, now: int) -> list[Send]:
        self._commits.refuse_if_failed()
        out = Outbox()
        if sender in self.members.nodes:
            self.vitals.hear(sender, now)
        if isinstance(message, Delivery | Probe | Ask) and not self._is_member(sender, message.stream, out):
            pass
        elif isinstance(message, Delivery):
            self._positions.delivered(sender, message, out)
        elif isinstance(message, Probe):
            self._positions.probed(sender, message, now, out)
        elif isinstance(message, Ask):
            self._positions.asked(sender, message, out)
        elif isinstance(message, Register):
            self._register(sender, message, now, out)
        elif isinstance(message, Leave):
            if sender == message.node and 0 < message.generation == self.members.generation(sender):
                self._commits.decide_behind(out, Left(message.node))
        elif isinstance(message, Hello):
            self._hello(sender, message, now, out)
        elif isinstance(message, Silent) and sender == message.child:
            self._silent(message, now, out)
        elif isinstance(message, Crowded) and sender == message.child:
            self._crowded(message, out)
        return out.sends

    def tick(self, now: int) -> list[Send]:
        """Commit what waits; start without those who have not come in time."""
        out = Outbox()
        if self._came_back and self._came_back_at is None:
            self._came_back_at = now
        self._commits.commit(out)
        if self.engine.started or not self.engine.sources:
            self._waits_since = None
        elif self._waits_since is None:
            self._waits_since = now
        elif now - self._waits_since >= self.settings.start_timeout:
            self._commits.decide(Started())
        self._began = now if self._began is None else self._began
        if self.movement.is_due(now):
            engine = self.engine
            self.movement.look(engine.present, engine.watermark, engine.largest, self.expected, now)
            self._rate.measure(self.items, now)
        moves = self._dealing.moves(now)
        return [*out.sends, *self.assign(moves)] if moves else out.sends

    def commit(self) -> list[Send]:
        """Make durable and apply the batches that wait: one group, one fsync."""
        out = Outbox()
        self._commits.commit(out)
        return out.sends

    def begin(self) -> None:
        """The log was replayed: begin a term. Nothing is taken before."""
        self._came_back = self.position > 0
        began = Began(self._journal.term, self._draw(), self.settings.expected)
        self._commits.decide(began, *map(Retired, self._superseded()))

    def _superseded(self) -> list[str]:
        """Sources whose next incarnation was admitted by a root that died before it had retired them."""
        found = []
        for name, source in self.engine.sources.items():
            id = SourceId.of(name)
            held = self.openings.held(id.name)
            if not source.retired and held is not None and held.incarnation > id.incarnation:
                found.append(name)
        return found

    def replay(self, position: int, record: Record) -> None:
        """A record of the log, as it was written."""
        held = (self.engine.watermark, self.engine.version)
        if held != (record.watermark, record.version):
            raise LogDiffers(
                f"record {position} was written at watermark {record.watermark} and version "
                f"{record.version}, but the records before it come to {held[0]} and {held[1]}; use the "
                "program that wrote the log"
            )
        self._commits.replay(position, record.body)

    @property
    def state(self) -> State:
        """The state at `position`, until the next step; only while it is settled."""
        self._commits.refuse_if_failed()
        assert self.settled
        return self._state

    def restore(self, state: State) -> None:
        """Go on from a state that another root was in, which is this one's from now on; before any replay."""
        if [signature(query) for query in state.queries] != [signature(query) for query in self.queries]:
            raise LogDiffers(
                f"the log was written with other queries to begin with ({_listed(state.queries)}) than were "
                f"given ({_listed(self.queries)}); give those, and add and remove queries while the root runs"
            )
        self._go_on(state)

    def add(self, query: Query) -> Change:
        """Add a query above everything applied (rule 18)."""
        self._commits.commit(Outbox())
        change = self.engine.proposed(query)
        self._commits.decide(Changed(change))
        return change

    def remove(self, query_id: str, *, at_once: bool = False) -> Change:
        self._commits.commit(Outbox())
        change = self.engine.proposed_removal(query_id, at_once=at_once)
        self._commits.decide(Changed(change))
        return change

    def skip(self, source: str, seq: int) -> None:
        self._commits.commit(Outbox())
        # Before it is logged: what cannot be applied would stop every replay.
        self._commits.decide(Skipped(source, self.engine.check_skip(source, seq)))

    def finishes(self, source: str) -> bool:
        """Whether a source that was retired is still waited for in some lane; retire it again to give up."""
        return self._state.finishes(source)

    def retire(self, source: str) -> None:
        self._commits.commit(Outbox())
        self.engine.check_known(source)
        self._commits.decide(Retired(source))

    @property
    def quarantined(self) -> Mapping[str, str]:
        """The names of which nothing is taken, and why."""
        return self._state.quarantine.reasons

    def release(self, name: str) -> bool:
        """Let a name out of quarantine; False if it is in none."""
        self._commits.commit(Outbox())
        if name not in self.quarantined:
            return False
        self._commits.decide(Released(name))
        return True

    def assign(self, assignment: Mapping[str, str]) -> list[Send]:
        """By whom sources (by name) are to be read: only that child's report of their silence counts.

        They are told through the child that reads them until now, and are assigned to another one again if
        they cannot reach theirs.
        """
        out, before = Outbox(), {name: self.members.assigned(name) for name in assignment}
        moved = [Assigned(name, child) for name, child in assignment.items() if before[name] != child]
        self._assign(out, *moved)
        for body in moved:
            held, child = self.openings.held(body.source), before[body.source]
            if held is not None and child is not None:
                source = str(SourceId(body.source, held.incarnation))
                out.add(child, self._welcome(held.opening, source, held.offset, body.child))
        return out.sends

    def _assign(self, out: Outbox, *bodies: Assigned) -> None:
        before = [(body.source, self.members.assigned(body.source)) for body in bodies]
        self._commits.decide_behind(out, *bodies)
        self._dealing.noted(before)

    def specify(self, spec: Specified) -> None:
        """Apply a plan: who takes part, who sends to whom, and how much each child reads."""
        self._commits.commit(Outbox())
        self._commits.decide(spec)

    def load(self, child: str) -> float:
        """Items a second of the sources that a child is to read, as planned."""
        return self._dealing.load(child)

    @property
    def items(self) -> int:
        """How many rows it has taken since it began."""
        return self._commits.items

    @property
    def rate(self) -> float | None:
        """Items a second that it takes, as measured; None: not known yet."""
        return self._rate.value

    def heard(self, node: str, now: int) -> int:
        """When a node was last heard, or when this process began: it was not heard before that."""
        heard = self.vitals.heard(node)
        if heard is not None:
            return heard
        return now if self._began is None else self._began

    @property
    def waits(self) -> bool:
        """Whether there are batches to be committed."""
        return bool(self._commits.pending)

    @property
    def settled(self) -> bool:
        """Whether nothing waits to be committed or put out."""
        return self._commits.settled

    @property
    def committed(self) -> dict[str, int]:
        """Up to where each source is counted for good, in all lanes."""
        return {name: self._state.counted(name) or 0 for name in self.engine.sources}

    # Nodes

    def _is_member(self, sender: str, stream: Stream, out: Outbox) -> bool:
        """Whether a node speaks that is registered, and no later process has its name."""
        known = self.members.generation(sender)
        if stream.opener != sender or not known:
            return False
        if stream.generation > known:
            raise self._state.behind(f"{sender} is of generation {stream.generation}")
        if stream.generation < known:
            out.add(sender, Stale(stream))
        return stream.generation == known

    def _register(self, sender: str, message: Register, now: int, out: Outbox) -> None:
        if sender != message.node:
            return
        if not self.members.holds(message):
            if message.generation > self.members.generation(message.node):
                raise self._state.behind(f"{sender} is of generation {message.generation}")
            if message.generation:
                # It was registered, and another process has its name since.
                out.add(sender, Stale(Stream(message.node, message.generation, 0)))
                return
            nonce = self._nonces.of(message.node, message.token)
            if message.echo != nonce:
                out.add(sender, Registered(message.node, message.token, 0, nonce=nonce))
                return
            self._nonces.renew(message.node)
            generation = self.members.generation(message.node) + 1
            joined = Joined(message.node, message.token, generation, message.child, message.address)
            self._commits.decide_behind(out, joined)
        self.senders[message.node] = message.parent
        self.vitals.take(message, now)
        parent, address = self.members.parent(message.node)
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
                keys_per_source=self.settings.keys_per_source,
                parent=parent,
                address=address,
                return_timeout=self.settings.return_timeout,
            ),
        )

    def _present(self, names: Iterable[str]) -> Iterable[Source]:
        """The sources that go by these names at present."""
        held = ((name, self.openings.held(name)) for name in names)
        return (
            self.engine.sources[str(SourceId(name, opening.incarnation))] for name, opening in held if opening
        )

    # Sources

    def _silent(self, message: Silent, now: int, out: Outbox) -> None:
        source = self.engine.sources.get(message.source)
        if self._came_back:
            # Whoever was cut off while the root was away finds its way again first.
            if self._came_back_at is None or now - self._came_back_at < self.settings.return_timeout:
                return
            self._came_back = False
        if message.generation != self.members.generation(message.child):
            return
        # Before all are there nobody is given up (rule 13); then also one who has never said anything.
        if source is None or source.idle or source.retired or not self.engine.started:
            return
        name = SourceId.of(message.source).name
        if self.members.assigned(name) != message.child:
            return
        if self.movement.has_moved(source.code, now - self.settings.sending):
            return
        self._commits.commit(out)
        # The report counts only if it is of all that the root knows (rule 14).
        if source.prefix == message.prefix:
            self._commits.decide(Idled(message.source))

    def _crowded(self, message: Crowded, out: Outbox) -> None:
        source, cap = self.engine.sources.get(message.source), self.settings.keys_per_source
        if message.generation != self.members.generation(message.child) or source is None:
            return
        name = SourceId.of(message.source).name
        if not source.retired and self.members.assigned(name) == message.child and 0 < cap < message.keys:
            self._commits.commit(out)
            # The report counts only if it is of all that the root knows: what fits is counted before.
            if source.prefix == message.prefix:
                reason = f"it has brought {message.keys:,} distinct keys, and limits.keysPerSource is {cap:,}"
                self._commits.decide(Quarantined(source.name, reason))
        refusal = self._state.quarantine.refusal(name)
        if refusal is not None and source.retired and not self._state.finishes(source.name):
            # It need not wait until it says hello.
            out.add(message.child, Fenced(name, source.opening, refusal, quarantined=True))

    def _hello(self, sender: str, message: Hello, now: int, out: Outbox) -> None:
        self._commits.commit(out)
        if self.settings.managed and self.members.spec is None:
            # Queries see what comes behind them: nobody is read before they are there. It says hello again.
            return
        refusal = self._state.quarantine.refusal(message.name)
        if refusal is not None and not self._finishes(message):
            out.add(sender, Fenced(message.name, message.opening, refusal, quarantined=True))
            return
        if self._moves(message) or self.openings.is_news(message, self.engine.sources, self._state.finishes):
            nonce = self._nonces.of(message.name, message.opening)
            if message.echo != nonce:
                # Logged only once a living process has echoed it: a hello may be old.
                out.add(sender, Challenge(message.name, message.opening, nonce))
                return
        placed = self.openings.place(message, self.engine.sources, self._state.finishes)
        if isinstance(placed, str):
            out.add(sender, Fenced(message.name, message.opening, placed))
            if self.openings.held(message.name) is not None:
                self._refused_hellos.on_refused(message, placed, now)
            return
        if any(isinstance(body, Admitted) for body in placed):
            last = self._admissions.get(message.name)
            if last is not None and now - last < self.settings.admission:
                # A device could fill the log with them: it says hello again.
                return
            self._admissions.put(message.name, now, now)
        self._commits.decide(*placed)
        self._reachability.update(message.name, message.avoid, message.via)
        moves = self._moves(message)
        if moves:
            # Whoever it was that chose the other one: only who reads a source can tell of its silence and of
            # its keys, and that is who the log has to name (rules 14 and 15).
            self._assign(out, Assigned(message.name, self._child_of(message)))
        if placed or moves:
            # An echo of another opening that is under way may be of a process that has ended by now.
            self._nonces.renew(message.name)
        else:
            self._nonces.forget(message.name, message.opening)
        held = self.openings.held(message.name)
        assert held is not None
        source = self.engine.sources[str(SourceId(message.name, held.incarnation))]
        if source.idle and not source.retired and message.head - held.offset > source.position:
            self._commits.decide(Resumed(source.name))
        self._refused_hellos.on_welcomed(message, now)
        out.add(sender, self._welcome(message.opening, source.name, held.offset, self._child_of(message)))

    def _welcome(self, opening: str, source: str, offset: int, child: str) -> Welcome:
        address, key_by = self.members.address(child), self.engine.key_by
        return Welcome(opening, source, offset, child, address, key_by)

    def _finishes(self, hello: Hello) -> bool:
        """Whether a source that is retired goes on as who it was, for lanes that are behind."""
        placed = self.openings.place(hello, self.engine.sources, self._state.finishes)
        return not isinstance(placed, str) and not any(isinstance(body, Admitted) for body in placed)

    def _child_of(self, message: Hello) -> str:
        """By whom a source is to be read: as assigned, if that child is there and can be reached; by the
        child that has passed its hello on, if the assigned one cannot; else by the one with the most room."""
        child, members = self.members.assigned(message.name), self.members
        planned = members.spec is None or (child in members.planned and members.planned[child].capacity > 0)
        if child is not None and members.is_live(child) and child != message.avoid and planned:
            return child
        if members.spec is None or (
            child is not None and child == message.avoid and self._takes(message.via)
        ):
            return message.via
        avoided = message.avoid if self.members.assigned(message.name) == message.avoid else ""
        return self._dealing.chosen(message.name, message.site, message.lateness, avoided) or message.via

    def _takes(self, child: str) -> bool:
        """Whether a child is there and is planned to read sources."""
        planned = self.members.planned.get(child)
        return planned is not None and planned.capacity > 0 and self.members.is_live(child)

    def _moves(self, message: Hello) -> bool:
        """Whether another child is to read a source than before, or one where nobody was to."""
        child = self._child_of(message)
        return child != self.members.assigned(message.name) and self.members.is_live(child)


def _listed(queries: Iterable[Query]) -> str:
    return ", ".join(query.id for query in queries) or "none"
