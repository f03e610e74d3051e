"""Child and intermediate: a child takes columns of its sources, an intermediate takes batches of the nodes
below it, and each sends batches up (protocol, rules 6 to 10, 18, 19).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from headwater.errors import DoesNotFit, OtherQueries, StaleVersion
from headwater.machines.lane import Lane, Probed, Read, Sent, size
from headwater.machines.lanes import Apart, Lanes, shared
from headwater.machines.link import Link
from headwater.machines.listeners import Listeners
from headwater.machines.messages import (
    NOTHING_HEARD,
    Ack,
    Ask,
    Challenge,
    Columns,
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
    Stream,
    Tell,
    Welcome,
)
from headwater.machines.waiting import Waiting
from headwater.node import Change, Source
from headwater.prefix import Prefix
from headwater.queries import Query
from headwater.sources import SourceId


@dataclass(frozen=True, slots=True)
class Settings:
    """Bounds of a node. Times in microseconds of the caller's clock; `horizon` is of event time.

    `held_bytes` bounds the columns that a child keeps; whoever is waited for may have as much again.
    """

    root: str = "root"
    under_way: int = 4
    held_bytes: int = 32 * 2**20
    # Events that a batch gathers at most before it is made, and so the size of what is forwarded raw.
    rows: int = 32_768
    horizon: int = 3_600_000_000
    patience: int = 3_000_000
    # How long an answer is waited for before something is said again, and how long a batch waits for more.
    retry: int = 1_000_000
    least: int = 5_000
    # How long a batch waits where nothing but the edge of a window can make it urgent.
    linger: int = 1_000_000
    # How often the parent is told of every source, in place of nothing new.
    thorough: int = 3_000_000
    silence: int = 60_000_000
    repeat: int = 2_000_000
    apart: Apart = shared


# As many batches are gathered at most where they hold values.
BULKY = 4
# How many sources somebody below is told of later, in all, and of how many terms is remembered.
ASKED, ECHOES = 4_096, 8


class NodeMachine:
    """A node of the tree. It takes part once the root has given it a generation and the queries."""

    def __init__(
        self, name: str, parent: str, settings: Settings, *, child: bool, token: str, address: str = ""
    ) -> None:
        """`token` is drawn by each process anew; `address` is where those below reach it."""
        self.name, self.parent, self.settings, self.child = name, parent, settings, child
        self.token, self.address = token, address
        self.lanes: dict[int, Lane] = {}
        self.committed: dict[str, int] = {}
        self.watermark: int | None = None
        # Whether a later process has taken the name over.
        self.stale = False
        self.draining = False
        self.read = 0
        # The furthest commit that was heard of, of each term by its name.
        self._echoes: dict[str, Echo] = {}
        self._numbering = Lanes(())
        self._queries: tuple[Query, ...] = ()
        self._link = Link(name, parent, settings.patience)
        # When each source was last heard of here, and which of them the log says are read here.
        self._heard: dict[str, int] = {}
        self._assigned: tuple[str, ...] = ()
        self._said = 0
        self._nonce = ""
        self._listeners = Listeners()
        self._interest: set[str] = set()
        # What has come and cannot be taken yet, and who has asked for sources that are not known.
        self._waiting = Waiting(settings.held_bytes)
        self._askers: dict[tuple[int, str], dict[str, Ask]] = {}
        self._thorough = 0
        # The generations of those below.
        self._generations: dict[str, int] = {}
        # Nothing is read behind this time: what lies too far in the future waits (rule 15).
        self._until: int | None = None

    # The caller's side

    @property
    def registered(self) -> bool:
        return bool(self.lanes)

    def step(self, sender: str, message: Message, now: int) -> list[Send]:
        """Take a message; gives what is to be sent."""
        out = Outbox()
        if isinstance(message, Registered):
            if (message.node, message.token) == (self.name, self.token):
                self._registered(message, now, out)
        elif isinstance(message, Hello):
            # Who a source is, is the root's business; through whom it came, this node knows.
            if self.child and sender == message.name and not self.draining:
                out.add(self.settings.root, replace(message, via=self.name))
        elif isinstance(message, Challenge | Fenced):
            out.add(message.name, message)
        elif isinstance(message, Welcome):
            out.add(SourceId.of(message.source).name, message)
            # What it sends next can be read at once if it is known by then where it stands.
            for lane in self.lanes.values() if message.child == self.name and not self.stale else ():
                if not lane.knows(message.source):
                    self._ask(lane, [message.source], out)
        elif not self.registered or self.stale:
            return []
        elif isinstance(message, Stale):
            mine = self._link.stream
            self.stale |= message.stream[:2] == (mine.opener, mine.generation)
        elif isinstance(message, Tell | Ack | Resync | Commit):
            if self._link.mine(message.stream, now):
                self._answered(message, now, out)
        elif isinstance(message, Columns | Delivery | Probe | Ask):
            if message.stream.opener != sender:
                return []
            if self._is_stale(message.stream):
                out.add(sender, Stale(message.stream))
            else:
                self._from_below(sender, message, now, out)
        return out.sends

    def flush(self, now: int) -> list[Send]:
        """Send what was gathered, as far as there is room on the way."""
        out = Outbox()
        if self.registered and not self.stale:
            self._open(now)
            for lane in self.lanes.values():
                moved = lane.moved()
                hungry = any(self._is_hungry(lane, source) for source in moved)
                urgent = self.draining or not lane.engine.patient or lane.is_due(self.watermark)
                waits = not urgent and now - lane.made_last < self.settings.linger
                if moved and not waits and len(lane.sent) < self.settings.under_way + hungry:
                    self._deliver(lane, lane.make(self.watermark), now, out)
                    if self.watermark is not None:
                        lane.engine.forget(self.watermark)
        return out.sends

    def tick(self, now: int) -> list[Send]:
        """Say again what was not answered, and ask how things stand above."""
        out = Outbox()
        if self.stale:
            return []
        if not self.registered or now - self._said >= self.settings.repeat:
            self._register(now, out)
        if not self.registered:
            return out.sends
        fresh = self._open(now)
        thorough = fresh or now - self._thorough >= self.settings.thorough
        if thorough:
            self._thorough = now
        for lane in self.lanes.values():
            for sent in lane.sent:
                if fresh or now - sent.said >= self.settings.retry << min(sent.repeated, 4):
                    sent.repeated += 1
                    self._deliver(lane, sent, now, out)
            self._look_up(lane, fresh, thorough, out)
        if self.child:
            self._report_silence(now, out)
        return out.sends

    def leave(self) -> list[Send]:
        """Take nothing more from sources; the root is told, so that they are read by others."""
        self.draining = True
        out = Outbox()
        if self.registered and not self.stale:
            out.add(self.settings.root, Leave(self.name, self._link.generation))
        return out.sends

    def read_until(self, limit: int) -> None:
        """Read nothing with a later ts."""
        self._until = limit
        for lane in self.lanes.values():
            lane.engine.read_until(limit)

    @property
    def held_bytes(self) -> int:
        """Bytes of the columns that are kept; lanes share theirs."""
        return max((lane.held_bytes for lane in self.lanes.values()), default=0)

    @property
    def drained(self) -> bool:
        """Whether everything that was taken has been acknowledged."""
        return all(lane.drained for lane in self.lanes.values())

    @property
    def under_way(self) -> int:
        return sum(len(lane.sent) for lane in self.lanes.values())

    @property
    def remade(self) -> int:
        return sum(lane.remade for lane in self.lanes.values())

    @property
    def version(self) -> int:
        return self.lanes[0].engine.version if self.lanes else 0

    @property
    def sources(self) -> Mapping[str, Source]:
        """Where lane 0 stands with the sources that are known here."""
        return self.lanes[0].engine.sources if self.lanes else {}

    # Registration

    def _register(self, now: int, out: Outbox) -> None:
        self._said = now
        generation = self._link.generation
        register = Register(self.name, self.token, self.child, self.address, generation, self._nonce)
        out.add(self.settings.root, register)

    def _registered(self, message: Registered, now: int, out: Outbox) -> None:
        if not message.generation:
            if self._nonce != message.nonce:
                self._nonce = message.nonce
                self._register(now, out)
            return
        for name in set(message.assigned).difference(self._assigned):
            # Its silence counts from here on, whenever it was read here before.
            self._heard[name] = now
        self._assigned = message.assigned
        if self.registered:
            return
        self._link.generation = message.generation
        self._queries = message.queries
        self._numbering = Lanes(message.queries, self.settings.apart)
        for number in self._numbering.numbers:
            self._begin(number)
        self._take_changes(message.changes, now, Outbox())
        self._open(now)

    def _begin(self, number: int, changes: Sequence[Change] = ()) -> None:
        lane = Lane(number, self._queries, self._numbering.serves(number), self._link.next_id)
        for change in changes:
            lane.engine.apply(change)
        if self._until is not None:
            lane.engine.read_until(self._until)
        self.lanes[number] = lane

    def _is_stale(self, stream: Stream) -> bool:
        known = self._generations.get(stream.opener, 0)
        if stream.generation > known:
            self._generations[stream.opener] = stream.generation
        return stream.generation < known

    # From below

    def _from_below(
        self, sender: str, message: Columns | Delivery | Probe | Ask, now: int, out: Outbox
    ) -> None:
        if isinstance(message, Columns):
            self._columns(sender, message, now, out)
            return
        lane = self.lanes.get(message.lane)
        if lane is None:
            # It is of a version that has not come here yet, or the lane has ended: from above we will hear.
            self._look_up(self.lanes[0], False, False, out)
        elif isinstance(message, Delivery):
            self._delivery(sender, lane, message, now, out)
        elif isinstance(message, Probe):
            self._probed(sender, lane, message, now, out)
        else:
            self._asked(sender, lane, message, out)

    def _columns(self, sender: str, message: Columns, now: int, out: Outbox, *, again: bool = False) -> None:
        batch, name = message.batch, message.batch.source
        if name in self._heard or self.lanes[0].knows(name):
            self._heard[name] = now
        if not self.child or self.draining:
            return
        if any(name in lane.gone for lane in self.lanes.values()):
            out.add(sender, Resync(message.stream, message.id, 0, {name: None}))
            return
        unknown = [lane for lane in self.lanes.values() if not lane.knows(name)]
        for lane in unknown:
            self._ask(lane, [name], out)
        # Behind what waits: it would be a gap.
        if unknown or (not again and self._waiting.has(name)):
            self._waiting.add(sender, message)
            return
        columns = Read(batch, message.opening)
        before = self._position(name)
        if columns.low > before:
            self._rewind(sender, message, out)
        elif columns.high <= before:
            out.add(sender, Ack(message.stream, message.id))
        elif self._has_room(self._lowest(name), name, size(batch)):
            was = self.lanes[0].engine.sources[name].position
            for lane in self.lanes.values():
                lane.read(columns)
            self.read += self.lanes[0].engine.sources[name].position - was
            if self._position(name) >= columns.high:
                out.add(sender, Ack(message.stream, message.id))
            elif self._position(name) > before:
                self._rewind(sender, message, out)
            self._make_in_time(now, out)
        else:
            self._waiting.add(sender, message)

    def _position(self, name: str) -> int:
        """Up to where all lanes have read a source."""
        return self._lowest(name).engine.sources[name].position

    def _lowest(self, name: str) -> Lane:
        """The lane that is furthest behind with a source."""
        return min(self.lanes.values(), key=lambda lane: lane.engine.sources[name].position)

    def _rewind(self, sender: str, message: Columns, out: Outbox) -> None:
        name = message.batch.source
        out.add(sender, Resync(message.stream, message.id, 0, self._lowest(name).standings([name])))

    def _make_in_time(self, now: int, out: Outbox) -> None:
        """Make a batch when windows wait for it, or when it would be a large one (what is forwarded raw)."""
        for lane in self.lanes.values():
            room = len(lane.sent) < self.settings.under_way
            large = lane.engine.waiting >= self.settings.rows or (
                lane.engine.bulky and lane.held_bytes >= self.settings.held_bytes // 8
            )
            if not room or (now - lane.made_last < self.settings.least and not large):
                continue
            if large or lane.is_due(self.watermark):
                self._deliver(lane, lane.make(self.watermark), now, out)

    def _delivery(self, sender: str, lane: Lane, message: Delivery, now: int, out: Outbox) -> None:
        partial = message.partial
        names = list(partial.vector)
        gone = [name for name in names if name in lane.gone]
        if gone:
            out.add(sender, self._resync(lane, message.stream, message.id, gone, partial.version))
            return
        sources = lane.engine.sources
        unknown = [name for name in names if name not in sources]
        if unknown:
            self._ask(lane, unknown, out)
            self._waiting.add(sender, message)
            return
        if all(span.high.position <= sources[name].position for name, span in partial.vector.items()):
            out.add(sender, Ack(message.stream, message.id))
            return
        most = BULKY if lane.engine.bulky else 4 * self.settings.under_way
        if len(lane.gathered) >= most:
            if len(lane.sent) >= self.settings.under_way + any(self._is_hungry(lane, n) for n in names):
                self._waiting.add(sender, message)
                return
            self._deliver(lane, lane.make(self.watermark), now, out)
        try:
            lane.merge(partial)
        except (DoesNotFit, OtherQueries):
            out.add(sender, self._resync(lane, message.stream, message.id, names, partial.version))
        except StaleVersion as stale:
            if stale.found > stale.current:
                # It knows a change that has not come here yet: from above it will.
                self._ask(lane, names, out)
            else:
                out.add(sender, self._resync(lane, message.stream, message.id, names, partial.version))
        else:
            out.add(sender, Ack(message.stream, message.id))
            self._make_in_time(now, out)

    def _probed(self, sender: str, lane: Lane, message: Probe, now: int, out: Outbox) -> None:
        if self.child:
            self._probed_by_source(sender, message, now, out)
        else:
            unknown = [name for name in message.heads if not lane.knows(name)]
            if unknown:
                self._ask(lane, unknown, out)
            wrong = [
                name
                for name, head in message.heads.items()
                if name in lane.gone
                or (
                    name in lane.engine.sources
                    and (lane.engine.sources[name].prefix, lane.barriers.get(name))
                    != (head, message.barriers.get(name))
                )
            ]
            if wrong:
                out.add(sender, self._resync(lane, message.stream, message.id, wrong, message.version))
        if not self.child:
            # A source is not asked: one that is taken over could stop the root.
            self._hear(message.echoes)
        committed = self._listeners.news(sender, message, self.committed.get)
        changes = self._changes(message.version) if not self.child else ()
        lanes = tuple(self.lanes)
        echo = max(self._echoes.values(), default=NOTHING_HEARD)
        out.add(sender, Commit(message.stream, committed, self.watermark, changes, echo, lanes))

    def _probed_by_source(self, sender: str, message: Probe, now: int, out: Outbox) -> None:
        """A source knows its position alone; it is the same in all lanes, or goes back to the lowest."""
        for name, head in message.heads.items():
            if any(name in lane.gone for lane in self.lanes.values()):
                out.add(sender, Resync(message.stream, message.id, 0, {name: None}))
                continue
            unknown = [lane for lane in self.lanes.values() if not lane.knows(name)]
            for lane in unknown:
                self._ask(lane, [name], out)
            if not unknown and self._position(name) != head.position:
                standings = self._lowest(name).standings([name])
                out.add(sender, Resync(message.stream, message.id, 0, standings))

    def _asked(self, sender: str, lane: Lane, message: Ask, out: Outbox) -> None:
        unknown = [name for name in message.sources if not lane.knows(name)]
        if unknown:
            self._ask(lane, unknown, out)
            for name in unknown[: max(ASKED - len(self._askers), 0)]:
                self._askers.setdefault((lane.number, name), {})[sender] = message
        known = [name for name in message.sources if name not in unknown]
        changes = self._changes(message.version)
        out.add(sender, Tell(message.stream, lane.number, lane.standings(known), changes))

    def _resync(self, lane: Lane, stream: Stream, id: str, names: Iterable[str], version: int) -> Resync:
        return Resync(stream, id, lane.number, lane.standings(names), self._changes(version))

    def _take_waiting(self, now: int, out: Outbox) -> None:
        """Take what has waited: something may have changed above."""
        if not self._waiting:
            return
        for sender, message in self._waiting.take(self._is_known):
            if isinstance(message, Columns):
                self._columns(sender, message, now, out, again=not self._waiting.has(message.batch.source))
            else:
                self._from_below(sender, message, now, out)

    def _is_known(self, lane: int, name: str) -> bool:
        """In a lane, or in all of them (-1)."""
        if lane >= 0:
            return lane not in self.lanes or self.lanes[lane].knows(name)
        return all(each.knows(name) for each in self.lanes.values())

    def _told(self, lane: Lane, names: Iterable[str], now: int, out: Outbox) -> None:
        """Pass on what was asked for, and take what has waited for it."""
        for name in names:
            for sender, ask in self._askers.pop((lane.number, name), {}).items():
                changes = self._changes(ask.version)
                out.add(sender, Tell(ask.stream, lane.number, lane.standings([name]), changes))
        self._take_waiting(now, out)

    def _changes(self, version: int) -> tuple[Change, ...]:
        """Those that somebody with this version does not know."""
        return tuple(self.lanes[0].engine.changes[version:])

    def _hear(self, echoes: Iterable[Echo]) -> None:
        """Remember how far each term of the root has come: which of two is right, it knows itself."""
        for echo in echoes:
            if echo != NOTHING_HEARD and echo.position >= self._echoes.get(echo.name, echo).position:
                self._echoes[echo.name] = echo
        while len(self._echoes) > ECHOES:
            del self._echoes[min(self._echoes, key=lambda name: self._echoes[name].term)]

    @property
    def _told_of(self) -> tuple[Echo, ...]:
        return tuple(self._echoes.values())

    # Room

    def _is_hungry(self, lane: Lane, name: str) -> bool:
        """Whether the watermark waits for this source: it is always read (rule 19)."""
        source = lane.source(name)
        return source is None or self.watermark is None or source.largest - source.lateness <= self.watermark

    def _has_room(self, lane: Lane, name: str, wanted: int) -> bool:
        bound = self.settings.held_bytes
        if not self._is_hungry(lane, name):
            # Flow control by event time: nobody runs further ahead of the others than this.
            source = lane.engine.sources[name]
            ahead = self.watermark is not None and (
                source.largest - source.lateness > self.watermark + self.settings.horizon
            )
            return not ahead and self.held_bytes + wanted <= bound
        if self.held_bytes + wanted > bound:
            for each in self.lanes.values():
                each.drop_columns(lambda: self.held_bytes + wanted <= bound)
        # A reserve for whoever is waited for: else a full node would wait for the window that it holds up.
        return self.held_bytes + wanted <= 2 * bound

    # Upwards

    def _open(self, now: int) -> bool:
        fresh = self._link.open(self.parent, now)
        if fresh:
            for lane in self.lanes.values():
                lane.probe = None
        return fresh

    def _ask(self, lane: Lane, names: Iterable[str], out: Outbox) -> None:
        ask = Ask(self._link.stream, lane.number, tuple(names), self.version)
        out.add(self._link.parent, ask)

    def _deliver(self, lane: Lane, sent: Sent | None, now: int, out: Outbox) -> None:
        if sent is not None:
            if not sent.repeated:
                lane.made_last = now
            sent.said = now
            delivery = Delivery(self._link.stream, sent.id, lane.number, sent.partial, self._told_of)
            out.add(self._link.parent, delivery)

    def _look_up(self, lane: Lane, fresh: bool, thorough: bool, out: Outbox) -> None:
        """Ask what is new; if thorough, whether the parent stands where this lane does with all sources of
        which nothing is under way."""
        known = lane.number != 0 or self._interest == lane.engine.sources.keys()
        if not thorough and lane.probe is not None and known:
            probe = Probe(
                self._link.stream, lane.probe.id, lane.number, {}, (), self.version, self._told_of, brief=True
            )
            if lane.number == 0:
                out.add(self._link.parent, probe)
            return
        pending = lane.pending()
        heads: dict[str, Prefix] = {
            name: source.prefix for name, source in lane.engine.sources.items() if name not in pending
        }
        barriers = {name: barrier for name, barrier in lane.barriers.items() if name in heads}
        if fresh or lane.probe is None or (lane.probe.heads, lane.probe.barriers) != (heads, barriers):
            lane.probe = Probed(self._link.next_id(), heads, barriers)
        # Once is enough to hear of a source.
        interest = tuple(lane.engine.sources) if lane.number == 0 else ()
        if lane.number == 0:
            self._interest = set(interest)
        stream, version = self._link.stream, self.version
        out.add(
            self._link.parent,
            Probe(stream, lane.probe.id, lane.number, heads, interest, version, self._told_of, barriers),
        )

    def _report_silence(self, now: int, out: Outbox) -> None:
        """Say of whom nothing was heard for long, counted from the start here if they never came."""
        lane = self.lanes[0]
        unknown = [name for name in self._assigned if not lane.knows(name)]
        if unknown:
            self._ask(lane, unknown, out)
        pending = lane.pending()
        for source in self._assigned:
            known = lane.source(source)
            quiet = now - self._heard[source] > self.settings.silence
            if known is not None and source not in pending and quiet:
                generation = self._link.generation
                out.add(self.settings.root, Silent(self.name, generation, source, known.prefix))

    # From above

    def _answered(self, message: Tell | Ack | Resync | Commit, now: int, out: Outbox) -> None:
        if isinstance(message, Ack):
            for lane in self.lanes.values():
                lane.acknowledged(message.id)
            self._take_waiting(now, out)
        elif isinstance(message, Tell):
            self._take_changes(message.changes, now, out)
            asked = self.lanes.get(message.lane)
            if asked is not None:
                self._deliver(asked, asked.told(message.standings), now, out)
                self._told(asked, message.standings, now, out)
        elif isinstance(message, Resync):
            found = self.lanes.get(message.lane)
            if found is not None and found.concerns(message.id):
                self._take_changes(message.changes, now, out, but=found)
                self._deliver(found, found.rebuild(message.standings, message.changes), now, out)
                self._take_waiting(now, out)
        else:
            self._committed(message, now, out)

    def _take_changes(
        self, changes: Sequence[Change], now: int, out: Outbox, but: Lane | None = None
    ) -> None:
        """Take changes in all lanes `but` one, which is made anew with them."""
        known, taken = self.version, list(self.lanes[0].engine.changes)
        for change in changes:
            if change.version <= known:
                continue
            lane = self._numbering.apply(change)
            taken.append(change)
            for each in self.lanes.values():
                if each is not but:
                    self._deliver(each, each.take_changes([change]), now, out)
            if lane is not None and change.kind == "add":
                self._begin(lane, taken)

    def _committed(self, message: Commit, now: int, out: Outbox) -> None:
        self._hear((message.echo,))
        self._take_changes(message.changes, now, out)
        if message.watermark is not None and (self.watermark is None or message.watermark > self.watermark):
            self.watermark = message.watermark
        # The end of a lane comes from above: what was begun before a query went is still waited for there.
        begun = set(self._numbering.numbers)
        for number in [n for n in self.lanes if n not in message.lanes and n not in begun]:
            del self.lanes[number]
        self._settle(message)
        self._take_waiting(now, out)
        if self.child:
            self._tell_sources(message, out)

    def _tell_sources(self, message: Commit, out: Outbox) -> None:
        """What the root has counted, sources hear without asking: each is a listener of its own name."""
        names = [SourceId.of(name).name for name in message.committed]
        for name, stream, committed in self._listeners.all_news(names, self.committed.get):
            out.add(name, Commit(stream, committed, self.watermark))

    def _settle(self, message: Commit) -> None:
        pending = {name for lane in self.lanes.values() for name in lane.pending()}
        for name, committed in message.committed.items():
            self.committed[name] = max(committed, self.committed.get(name, 0))
            for lane in self.lanes.values():
                source = lane.source(name)
                # A position with nothing pending is a cache; what the root is beyond is no longer of use.
                if source is not None and name not in pending and source.position < self.committed[name]:
                    lane.forget(name)
