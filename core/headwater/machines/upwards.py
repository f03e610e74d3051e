"""What a node says to its parent: batches, questions, and where it stands (protocol, rules 9 and 17)."""

from __future__ import annotations

from collections.abc import Iterable

from headwater.machines.bounds import Settings
from headwater.machines.holding import Holding
from headwater.machines.lane import Lane, Probed, Sent
from headwater.machines.link import Link
from headwater.machines.messages import NOTHING_HEARD, Ask, Delivery, Echo, Outbox, Probe
from headwater.prefix import Prefix

# Of how many terms of the root is remembered how far they came.
ECHOES = 8


class Upwards:
    """The way up, and what was last said there."""

    def __init__(self, name: str, parent: str, settings: Settings, holding: Holding) -> None:
        self.link = Link(name, parent, settings.patience)
        self._settings, self._holding = settings, holding
        # The furthest commit that was heard of, of each term by its name.
        self._echoes: dict[str, Echo] = {}
        self._interest: set[str] = set()
        self._thorough = 0
        # Whether the stream was opened since everything was last said on it.
        self._fresh = False

    def open(self, parent: str, now: int) -> None:
        """Open another stream if the one there is does not serve any more."""
        if self.link.open(parent, now):
            self._fresh = True
            for lane in self._holding.lanes.values():
                lane.probe = None

    def ask(self, lane: Lane, names: Iterable[str], out: Outbox) -> None:
        ask = Ask(self.link.stream, lane.number, tuple(names), self._holding.version)
        out.add(self.link.parent, ask)

    def deliver(self, lane: Lane, sent: Sent | None, now: int, out: Outbox) -> None:
        """Say a batch, if there is one."""
        if sent is not None:
            if not sent.repeated:
                lane.made_last = now
            sent.said = now
            delivery = Delivery(self.link.stream, sent.id, lane.number, sent.partial, self._told_of)
            out.add(self.link.parent, delivery)

    def make(self, lane: Lane, now: int, out: Outbox) -> None:
        """What was gathered becomes a batch."""
        self.deliver(lane, lane.make(self._holding.watermark), now, out)

    def repeat(self, now: int, out: Outbox) -> None:
        """Say again what was not answered, and ask how things stand above; all of it on a fresh stream."""
        fresh, self._fresh = self._fresh, False
        thorough = fresh or now - self._thorough >= self._settings.thorough
        if thorough:
            self._thorough = now
        for lane in self._holding.lanes.values():
            for sent in lane.sent:
                if fresh or now - sent.said >= self._settings.retry << min(sent.repeated, 4):
                    sent.repeated += 1
                    self.deliver(lane, sent, now, out)
            self._look_up(lane, fresh, thorough, out)

    def look_up(self, out: Outbox) -> None:
        """Ask what is new."""
        self._look_up(self._holding.lanes[0], False, False, out)

    def _look_up(self, lane: Lane, fresh: bool, thorough: bool, out: Outbox) -> None:
        """Ask what is new; if thorough, whether the parent stands where this lane does with all sources of
        which nothing is under way."""
        stream, version = self.link.stream, self._holding.version
        known = lane.number != 0 or self._interest == lane.engine.sources.keys()
        if not thorough and lane.probe is not None and known:
            if lane.number == 0:
                probe = Probe(stream, lane.probe.id, 0, {}, (), version, self._told_of, brief=True)
                out.add(self.link.parent, probe)
            return
        pending = lane.pending()
        heads: dict[str, Prefix] = {
            name: source.prefix for name, source in lane.engine.sources.items() if name not in pending
        }
        barriers = {name: barrier for name, barrier in lane.barriers.items() if name in heads}
        if fresh or lane.probe is None or (lane.probe.heads, lane.probe.barriers) != (heads, barriers):
            lane.probe = Probed(self.link.next_id(), heads, barriers)
        # Once is enough to hear of a source.
        interest = tuple(lane.engine.sources) if lane.number == 0 else ()
        if lane.number == 0:
            self._interest = set(interest)
        out.add(
            self.link.parent,
            Probe(stream, lane.probe.id, lane.number, heads, interest, version, self._told_of, barriers),
        )

    def hear(self, echoes: Iterable[Echo]) -> None:
        """Remember how far each term of the root has come: which of two is right, it knows itself."""
        for echo in echoes:
            if echo != NOTHING_HEARD and echo.position >= self._echoes.get(echo.name, echo).position:
                self._echoes[echo.name] = echo
        while len(self._echoes) > ECHOES:
            del self._echoes[min(self._echoes, key=lambda name: self._echoes[name].term)]

    @property
    def latest(self) -> Echo:
        """How far the latest term has come, as far as is known here."""
        return max(self._echoes.values(), default=NOTHING_HEARD)

    @property
    def _told_of(self) -> tuple[Echo, ...]:
        return tuple(self._echoes.values())
