"""What comes to a node from below: a child takes columns of its sources, an intermediate takes batches of
other nodes; either answers where it stands (protocol, rules 6, 7, 9, 10).
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

from headwater.errors import DoesNotFit, InvalidPartial, OtherQueries, StaleVersion
from headwater.machines.bounds import Settings
from headwater.machines.holding import Holding
from headwater.machines.keys import Keys
from headwater.machines.lane import Lane, Read, cut
from headwater.machines.listeners import Listeners
from headwater.machines.messages import (
    Ack,
    Ask,
    Columns,
    Commit,
    Delivery,
    Outbox,
    Probe,
    Resync,
    Stale,
    Stream,
    Tell,
)
from headwater.machines.recent import Recent
from headwater.machines.refusals import Refusals
from headwater.machines.room import Room
from headwater.machines.silence import Silence
from headwater.machines.sizes import of_columns, of_partial, rows
from headwater.machines.upwards import Upwards
from headwater.machines.waiting import Waiting
from headwater.sources import SourceId

# How many sources somebody below is told of later, in all.
ASKED = 4_096


class Below:
    """Those below, and what they wait for."""

    def __init__(
        self,
        settings: Settings,
        holding: Holding,
        room: Room,
        upwards: Upwards,
        silence: Silence,
        child: bool,
    ) -> None:
        # Records that were read, and rows that were merged.
        self.read = self.merged = 0
        self.refusals = Refusals()
        self.keys = Keys(settings.memory)
        self._holding, self._room, self._upwards = holding, room, upwards
        self._silence, self._child = silence, child
        self._listeners = Listeners(settings.memory)
        # The generations of those below.
        self._generations: Recent[str, int] = Recent(settings.memory)
        # What has come and cannot be taken yet, and who has asked for sources that are not known.
        self._waiting = Waiting(settings.held_bytes, settings.memory)
        self._askers: dict[tuple[int, str], dict[str, Ask]] = {}

    def take(self, sender: str, message: Columns | Delivery | Probe | Ask, now: int, out: Outbox) -> None:
        """A message on a stream of the sender's."""
        if message.stream.opener != sender:
            return
        if self._is_stale(message.stream, now):
            out.add(sender, Stale(message.stream))
        else:
            self._holding.speak(_named(message), now)
            self._take(sender, message, now, out)

    def _is_stale(self, stream: Stream, now: int) -> bool:
        known = self._generations.get(stream.opener) or 0
        if stream.generation:
            self._generations.put(stream.opener, max(known, stream.generation), now)
        return stream.generation < known

    def _take(self, sender: str, message: Columns | Delivery | Probe | Ask, now: int, out: Outbox) -> None:
        if isinstance(message, Columns):
            self._columns(sender, message, now, out)
            return
        lane = self._holding.lanes.get(message.lane)
        if lane is None:
            # It is of a version that has not come here yet, or the lane has ended: from above we will hear.
            self._upwards.look_up(out)
        elif isinstance(message, Delivery):
            self._delivery(sender, lane, message, now, out)
        elif isinstance(message, Probe):
            self._probed(sender, lane, message, now, out)
        else:
            self._asked(sender, lane, message, out)

    # Columns

    def _columns(self, sender: str, message: Columns, now: int, out: Outbox, *, again: bool = False) -> None:
        batch, name = message.batch, message.batch.source
        holding = self._holding
        if not self._child:
            return
        self._silence.on_heard(name, now)
        if holding.draining:
            return
        if holding.is_gone(name):
            out.add(sender, Resync(message.stream, message.id, 0, {name: None}))
            return
        # Behind what waits: it would be a gap.
        if self._ask_unknown(name, out) or (not again and self._waiting.has(name)):
            self._waiting.add(sender, message, now)
            return
        columns = Read(batch, message.opening)
        before = holding.position(name)
        if columns.low > before:
            self._rewind(sender, message, name, out)
        elif columns.high <= before:
            out.add(sender, Ack(message.stream, message.id))
        elif self._room.has_place(holding.lowest(name), name, of_columns(batch)):
            if not self._read_fitting(columns, now, out):
                # The rest is read from where it stands by then.
                self._waiting.add(sender, message, now)
            elif holding.position(name) >= columns.high:
                out.add(sender, Ack(message.stream, message.id))
            elif holding.position(name) > before:
                self._rewind(sender, message, name, out)
            self._make_in_time(now, out)
        else:
            self._waiting.add(sender, message, now)

    def _read_fitting(self, columns: Read, now: int, out: Outbox) -> bool:
        """Read columns up to the first key that is one too many; False as in `_read`."""
        main, batch = self._holding.lanes[0], self.keys.trimmed(columns.batch)
        columns = Read(batch, columns.opening)
        source = main.source(columns.source)
        if source is None:
            # What is read is for lanes that come to where lane 0 was.
            return self._read(columns, now, out)
        before = source.position
        begin = min(max(before - columns.low, 0), len(batch))
        # No lane goes beyond lane 0.
        fitting = self.keys.fitting(batch, begin) if main.may_read(columns) else begin
        if fitting < len(batch):
            columns = Read(self.keys.trimmed(cut(batch, 0, fitting)), columns.opening)
        has_room = self._read(columns, now, out)
        reached = main.engine.sources[columns.source].position
        if reached > before:
            self.keys.read(batch, begin, reached - columns.low, now)
        return has_room

    def _read(self, columns: Read, now: int, out: Outbox) -> bool:
        """Read columns, in portions that fit into batches; False if there is no room for the rest."""
        name, lanes = columns.source, self._holding.reading(columns.source)
        portion = min(lane.portion for lane in lanes)
        while (begin := self._holding.position(name)) < columns.high:
            end = min(begin + portion, columns.high)
            # Up to the next lane that is ahead: it may have no room before the others come to where it is.
            stands = [lane.engine.sources[name].position for lane in lanes]
            end = min((at for at in (*stands, end) if at > begin), default=end)
            for lane, at in zip(lanes, stands, strict=True):
                wanted = (end - begin) * lane.record_bytes
                if at < end and not self._make_room(lane, [name], wanted, now, out):
                    return False
            was = lanes[0].engine.sources[name].position
            for lane in lanes:
                lane.read(Read(cut(columns.batch, begin - columns.low, end - columns.low), columns.opening))
            self.read += lanes[0].engine.sources[name].position - was
            if self._holding.position(name) < end:
                # What comes next may not be read yet.
                break
        return True

    def _make_room(self, lane: Lane, names: Iterable[str], wanted: int, now: int, out: Outbox) -> bool:
        """Make a batch of what was gathered if so many bytes more are too many; False if it cannot leave."""
        if lane.has_room(wanted):
            return True
        if not self._room.has_way(lane, names):
            return False
        self._upwards.make(lane, now, out)
        return True

    def _ask_unknown(self, name: str, out: Outbox) -> bool:
        """Ask for a source in the lanes that do not know it; False if all do."""
        unknown = [lane for lane in self._holding.lanes.values() if not lane.knows(name)]
        for lane in unknown:
            self._upwards.ask(lane, [name], out)
        return bool(unknown)

    def _rewind(self, sender: str, message: Columns | Probe, name: str, out: Outbox) -> None:
        standings = self._holding.lowest(name).standings([name])
        out.add(sender, Resync(message.stream, message.id, 0, standings))

    def _make_in_time(self, now: int, out: Outbox) -> None:
        for lane in self._holding.lanes.values():
            if self._room.is_time(lane, now):
                self._upwards.make(lane, now, out)

    # Batches

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
            self._upwards.ask(lane, unknown, out)
            self._waiting.add(sender, message, now)
            return
        if all(span.high.position <= sources[name].position for name, span in partial.vector.items()):
            out.add(sender, Ack(message.stream, message.id))
            return
        taken = of_partial(partial)
        if not self._make_room(lane, names, taken, now, out):
            self._waiting.add(sender, message, now)
            return
        try:
            lane.merge(partial, taken)
        except InvalidPartial as error:
            self.refusals.add(sender, error)
        except (DoesNotFit, OtherQueries):
            out.add(sender, self._resync(lane, message.stream, message.id, names, partial.version))
        except StaleVersion as stale:
            if stale.found > stale.current:
                # It knows a change that has not come here yet: from above it will.
                self._upwards.ask(lane, names, out)
            else:
                out.add(sender, self._resync(lane, message.stream, message.id, names, partial.version))
        else:
            self.merged += rows(partial)
            out.add(sender, Ack(message.stream, message.id))
            self._make_in_time(now, out)

    def _resync(self, lane: Lane, stream: Stream, id: str, names: Iterable[str], version: int) -> Resync:
        return Resync(stream, id, lane.number, lane.standings(names), self._holding.changes(version))

    # Questions

    def _probed(self, sender: str, lane: Lane, message: Probe, now: int, out: Outbox) -> None:
        holding = self._holding
        if self._child:
            self._probed_by_source(sender, message, now, out)
        else:
            self._probed_by_node(sender, lane, message, out)
            # A source is not asked: one that is taken over could stop the root.
            self._upwards.hear(message.echoes)
        committed = self._listeners.news(sender, message, holding.committed.get, now)
        changes = holding.changes(message.version) if not self._child else ()
        lanes, version = tuple(holding.lanes), holding.version
        echo = self._upwards.latest
        commit = Commit(message.stream, committed, holding.watermark, changes, echo, lanes, version)
        out.add(sender, commit)

    def _probed_by_node(self, sender: str, lane: Lane, message: Probe, out: Outbox) -> None:
        unknown = [name for name in message.heads if not lane.knows(name)]
        if unknown:
            self._upwards.ask(lane, unknown, out)
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

    def _probed_by_source(self, sender: str, message: Probe, now: int, out: Outbox) -> None:
        """A source knows its position alone; it is the same in all lanes, or goes back to the lowest."""
        holding = self._holding
        if not message.heads:
            # It has records under way, which may wait before this node.
            for name in islice(message.interest, 1):
                if SourceId.of(name).name == sender:
                    self._silence.on_heard(name, now)
        # It asks of itself alone.
        for name, head in islice(message.heads.items(), 1):
            if holding.is_gone(name):
                out.add(sender, Resync(message.stream, message.id, 0, {name: None}))
            elif not self._ask_unknown(name, out) and holding.position(name) != head.position:
                self._rewind(sender, message, name, out)

    def _asked(self, sender: str, lane: Lane, message: Ask, out: Outbox) -> None:
        unknown = [name for name in message.sources if not lane.knows(name)]
        if unknown:
            self._upwards.ask(lane, unknown, out)
            for name in unknown:
                self._askers.setdefault((lane.number, name), {})[sender] = message
            # Of some nobody will ever tell: the oldest go, and whoever still waits asks again.
            while len(self._askers) > ASKED:
                del self._askers[next(iter(self._askers))]
        known = [name for name in message.sources if name not in unknown]
        changes = self._holding.changes(message.version)
        out.add(sender, Tell(message.stream, lane.number, lane.standings(known), changes))

    def has_unread(self, name: str) -> bool:
        """Whether something of a source has come that cannot be read yet."""
        return self._waiting.has(name)

    def forget(self, now: int) -> None:
        """Drop what has waited for too long, and who brings too many keys and is gone."""
        self._waiting.forget(now)
        self.keys.forget(self._holding.lanes[0].engine.sources)

    # What has come from above

    def told(self, lane: Lane, names: Iterable[str], now: int, out: Outbox) -> None:
        """Pass on what was asked for, and take what has waited for it."""
        for name in names:
            for sender, ask in self._askers.pop((lane.number, name), {}).items():
                changes = self._holding.changes(ask.version)
                out.add(sender, Tell(ask.stream, lane.number, lane.standings([name]), changes))
        self.take_waiting(now, out)

    def take_waiting(self, now: int, out: Outbox) -> None:
        """Take what has waited: something may have changed above."""
        if not self._waiting:
            return
        for sender, message in self._waiting.take(self._holding.knows):
            if isinstance(message, Columns):
                self._columns(sender, message, now, out, again=not self._waiting.has(message.batch.source))
            else:
                self._take(sender, message, now, out)

    def tell_sources(self, counted: Iterable[str], out: Outbox) -> None:
        """What the root has counted, sources hear without asking: each is a listener of its own name."""
        names = [SourceId.of(name).name for name in counted]
        for name, stream, committed in self._listeners.all_news(names, self._holding.committed.get):
            out.add(name, Commit(stream, committed, self._holding.watermark))


def _named(message: Columns | Delivery | Probe | Ask) -> Iterable[str]:
    """The sources of which somebody speaks."""
    if isinstance(message, Columns):
        return (message.batch.source,)
    if isinstance(message, Delivery):
        return message.partial.vector
    if isinstance(message, Probe):
        return (*message.heads, *message.interest)
    return message.sources
