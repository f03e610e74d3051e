"""Child and intermediate: a child takes columns of its sources, an intermediate takes batches of the nodes
below it, and each sends batches up (protocol, rules 6 to 10, 18, 19).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from heapq import nsmallest

from headwater.changes import Change
from headwater.machines.below import Below
from headwater.machines.bounds import Settings
from headwater.machines.holding import Holding
from headwater.machines.keys import Keys
from headwater.machines.lane import Lane
from headwater.machines.messages import (
    Ack,
    Ask,
    Challenge,
    Columns,
    Commit,
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
    Resync,
    Send,
    Silent,
    Stale,
    Tell,
    Welcome,
)
from headwater.machines.refusals import Refusals
from headwater.machines.room import Room
from headwater.machines.silence import Silence
from headwater.machines.stalls import WORST, Reason, Stall
from headwater.machines.upwards import Upwards
from headwater.progress import Source
from headwater.sources import SourceId

# For how many repetitions of what it says a source may be quiet whose records wait here.
HELD_BACK = 10
__all__ = ["NodeMachine", "Settings"]


class NodeMachine:
    """A node of the tree. It takes part once the root has given it a generation and the queries."""

    def __init__(
        self, name: str, parent: str, settings: Settings, *, child: bool, token: str, address: str = ""
    ) -> None:
        """`token` is drawn by each process anew; `address` is where those below reach it."""
        self.name, self.parent, self.settings, self.child = name, parent, settings, child
        self.token, self.address = token, address
        # Whether a later process has taken the name over.
        self.stale = False
        self._holding = Holding()
        self._room = Room(settings, self._holding)
        self._upwards = Upwards(name, parent, settings, self._holding)
        self._silence = Silence(settings.silence, recent=2 * settings.repeat)
        self._below = Below(settings, self._holding, self._room, self._upwards, self._silence, child)
        # When it registered last, and when it looked what is to be forgotten.
        self._said = self._looked = 0
        self._nonce = ""
        # To whom the root has last said that it is to send, and where that is; None: it has not.
        self.told: tuple[str, str] | None = None
        # Whether it asks the root who its parent is, and sends nothing else meanwhile.
        self.asks = False
        # The sources whose next event lies too far beyond the clock, each with the number of that record. The
        # caller has the clock and fills this.
        self.beyond_clock: Mapping[str, int] = {}

    # The caller's side

    @property
    def registered(self) -> bool:
        return bool(self._holding.lanes)

    def step(self, sender: str, message: Message, now: int) -> list[Send]:
        """Take a message; gives what is to be sent."""
        out = Outbox()
        if not self._may_say(sender, message):
            return []
        if isinstance(message, Registered):
            if (message.node, message.token) == (self.name, self.token):
                self._registered(message, now, out)
        elif isinstance(message, Hello):
            # Who a source is, is the root's business; through whom it came, this node knows.
            if self.child and sender == message.name and not self._holding.draining:
                out.add(self.settings.root, replace(message, via=self.name))
        elif isinstance(message, Challenge | Fenced):
            if isinstance(message, Fenced) and message.quarantined:
                self._below.keys.decided(message.name)
            out.add(message.name, message)
        elif isinstance(message, Welcome):
            self._welcome(message, out)
        elif not self.registered or self.stale:
            return []
        elif isinstance(message, Stale):
            mine = self._upwards.link.stream
            self.stale |= message.stream[:2] == (mine.opener, mine.generation)
        elif isinstance(message, Tell | Ack | Resync | Commit):
            if self._upwards.link.mine(message.stream, now):
                self._answered(message, now, out)
        elif isinstance(message, Columns | Delivery | Probe | Ask):
            self._below.take(sender, message, now, out)
        return out.sends

    def _may_say(self, sender: str, message: Message) -> bool:
        """What only those above can know, nobody below may say."""
        root, parent = self.settings.root, self._upwards.link.parent
        if isinstance(message, Registered | Challenge | Fenced | Welcome):
            return sender == root
        if isinstance(message, Tell | Ack | Resync | Commit):
            return sender == parent
        return not isinstance(message, Stale) or sender in (root, parent)

    def flush(self, now: int) -> list[Send]:
        """Send what was gathered, as far as there is room on the way."""
        out = Outbox()
        if self.registered and not self.stale and not self.asks:
            self._upwards.open(self.parent, now)
            watermark = self._holding.watermark
            for lane in self._holding.lanes.values():
                moved = lane.moved()
                urgent = self._holding.draining or not lane.engine.patient or lane.is_due(watermark)
                waits = not urgent and now - lane.made_last < self.settings.linger
                if moved and not waits and self._room.has_way(lane, moved):
                    self._upwards.make(lane, now, out)
                lane.let_go(watermark)
        return out.sends

    def tick(self, now: int) -> list[Send]:
        """Say again what was not answered, and ask how things stand above."""
        out = Outbox()
        if self.stale:
            return []
        if not self.registered or self.asks or not self._said or now - self._said >= self.settings.repeat:
            self._register(now, out)
        if self.registered and not self.asks:
            self._upwards.open(self.parent, now)
            self._upwards.repeat(now, out)
            if self.child:
                self._report_silence(now, out)
                self._report_crowds(out)
            if now - self._looked >= self.settings.thorough:
                self._looked = now
                self._holding.forget(now - self.settings.memory, now, self._silence.assigned)
                self._below.forget(now)
        return out.sends

    def turn(self, parent: str) -> None:
        """Send to another parent from now on; the root hears of it soon."""
        self.parent, self._said = parent, 0

    def on_connected(self, now: int) -> None:
        """There is a new connection to the parent: what was not answered is said there at once."""
        self._upwards.link.reset()
        self._silence.restart(now)

    def leave(self) -> list[Send]:
        """Take nothing more from sources; the root is told, so that they are read by others."""
        self._holding.draining = True
        out = Outbox()
        if self.registered and not self.stale:
            out.add(self.settings.root, Leave(self.name, self._upwards.link.generation))
        return out.sends

    def read_until(self, limit: int) -> None:
        """Read nothing with a later ts."""
        self._holding.read_until(limit)

    @property
    def held_bytes(self) -> int:
        """Bytes of the columns that are kept; lanes share theirs."""
        return self._holding.held_bytes

    @property
    def drained(self) -> bool:
        """Whether everything that was taken has been acknowledged."""
        return all(lane.drained for lane in self._holding.lanes.values())

    @property
    def under_way(self) -> int:
        return sum(len(lane.sent) for lane in self._holding.lanes.values())

    @property
    def remade(self) -> int:
        return sum(lane.remade for lane in self._holding.lanes.values())

    @property
    def read(self) -> int:
        """How many records were read."""
        return self._below.read

    @property
    def items(self) -> int:
        """How many items it has taken: records of a child, rows of a node above."""
        return self._below.read + self._below.merged

    @property
    def refusals(self) -> Refusals:
        """Batches that no sound node makes."""
        return self._below.refusals

    @property
    def keys(self) -> Keys:
        """Who brings too many keys."""
        return self._below.keys

    @property
    def sources(self) -> Mapping[str, Source]:
        """Where lane 0 stands with the sources that are known here."""
        return self._holding.lanes[0].engine.sources if self.registered else {}

    @property
    def committed(self) -> Mapping[str, int]:
        """Up to where the root has counted sources for good, as far as is known here."""
        return self._holding.committed

    @property
    def watermark(self) -> int | None:
        return self._holding.watermark

    # Registration

    def _register(self, now: int, out: Outbox) -> None:
        self._said = now
        generation = self._upwards.link.generation
        register = Register(
            self.name,
            self.token,
            self.child,
            self.address,
            generation,
            self._nonce,
            self.parent,
            self.items,
            self._stalls(now),
        )
        out.add(self.settings.root, register)

    def _stalls(self, now: int) -> tuple[Stall, ...]:
        """The assigned sources that let the watermark come least far, and what keeps each."""
        if not self.child or not self.registered:
            return ()
        lane = self._holding.lanes[0]
        known = [source for name in self._silence.assigned if (source := lane.source(name)) is not None]
        worst = nsmallest(WORST, known, key=lambda source: source.largest - source.lateness)
        pending = lane.pending() if worst else set()
        return tuple(self._stall(source.name, lane, pending, now) for source in worst)

    def _stall(self, name: str, lane: Lane, pending: Collection[str], now: int) -> Stall:
        quiet, left = self._silence.spell(name, now)
        unread = self._below.has_unread(name)
        if name in self._below.keys.over:
            return Stall(name, Reason.QUARANTINE, quiet)
        if name in self.beyond_clock:
            return Stall(name, Reason.FUTURE, quiet, record=self.beyond_clock[name])
        if unread and self._room.is_ahead(lane, name):
            return Stall(name, Reason.HORIZON, quiet)
        if unread or name in pending:
            return Stall(name, Reason.BACKPRESSURE, quiet, node=self.parent)
        return Stall(name, Reason.SILENT, quiet, left)

    def _registered(self, message: Registered, now: int, out: Outbox) -> None:
        if not message.generation:
            if self._nonce != message.nonce:
                self._nonce = message.nonce
                self._register(now, out)
            return
        self._silence.grace = message.return_timeout
        self._silence.assign(message.assigned, now)
        self._below.keys.cap = message.keys_per_source
        self.asks = False
        if message.parent:
            self.told = (message.parent, message.address)
        if self.registered:
            return
        link = self._upwards.link
        link.generation = message.generation
        self._holding.begin(message.queries, self.settings, link.next_id)
        self._take_changes(message.changes, now, Outbox())
        self._upwards.open(self.parent, now)

    # Sources

    def _welcome(self, message: Welcome, out: Outbox) -> None:
        out.add(SourceId.of(message.source).name, message)
        # What it sends next can be read at once if it is known by then where it stands.
        if message.child == self.name and not self.stale:
            for lane in self._holding.lanes.values():
                if not lane.knows(message.source):
                    self._upwards.ask(lane, [message.source], out)

    def _report_silence(self, now: int, out: Outbox) -> None:
        lane = self._holding.lanes[0]
        unknown = [name for name in self._silence.assigned if not lane.knows(name)]
        if unknown:
            self._upwards.ask(lane, unknown, out)
        pending = lane.pending()
        for name in self._silence.quiet(now):
            known = lane.source(name)
            if known is not None and name not in pending and not self._is_held_back(name, now):
                generation = self._upwards.link.generation
                out.add(self.settings.root, Silent(self.name, generation, name, known.prefix))

    def _is_held_back(self, name: str, now: int) -> bool:
        """Whether what has come of a source waits here; one that says nothing for long may be gone all the
        same."""
        quiet, _ = self._silence.spell(name, now)
        return self._below.has_unread(name) and quiet < HELD_BACK * self.settings.repeat

    def _report_crowds(self, out: Outbox) -> None:
        over = self._below.keys.over
        if not over:
            return
        lane = self._holding.lanes[0]
        pending = lane.pending()
        for name, keys in over.items():
            known = lane.source(name)
            # Once all that could be read of it is counted.
            if known is not None and name not in pending:
                generation = self._upwards.link.generation
                out.add(self.settings.root, Crowded(self.name, generation, name, known.prefix, keys))

    # From above

    def _answered(self, message: Tell | Ack | Resync | Commit, now: int, out: Outbox) -> None:
        lanes = self._holding.lanes
        if isinstance(message, Ack):
            for lane in lanes.values():
                lane.acknowledged(message.id)
            self._below.take_waiting(now, out)
        elif isinstance(message, Tell):
            self._take_changes(message.changes, now, out)
            asked = lanes.get(message.lane)
            if asked is not None:
                for sent in asked.told(message.standings):
                    self._upwards.deliver(asked, sent, now, out)
                self._below.told(asked, message.standings, now, out)
        elif isinstance(message, Resync):
            found = lanes.get(message.lane)
            if found is not None and found.concerns(message.id):
                self._take_changes(message.changes, now, out, but=found)
                for sent in found.rebuild(message.standings, message.changes):
                    self._upwards.deliver(found, sent, now, out)
                self._below.take_waiting(now, out)
        else:
            self._committed(message, now, out)

    def _take_changes(
        self, changes: Sequence[Change], now: int, out: Outbox, but: Lane | None = None
    ) -> None:
        for lane, sent in self._holding.take_changes(changes, but):
            self._upwards.deliver(lane, sent, now, out)

    def _committed(self, message: Commit, now: int, out: Outbox) -> None:
        self._upwards.hear((message.echo,))
        self._take_changes(message.changes, now, out)
        self._holding.counted(message)
        self._below.take_waiting(now, out)
        if self.child:
            self._below.tell_sources(message.committed, out)
