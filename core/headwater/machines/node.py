"""Child and intermediate: they keep the parts of each batch that is not acknowledged, and make batches
again from them (protocol, rules 6 to 9, 18, 19). Nothing of what they hold has to survive them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from headwater.errors import DoesNotFit, StaleVersion
from headwater.events import Batch
from headwater.machines.link import Link
from headwater.machines.messages import (
    Ack,
    Ask,
    Columns,
    Commit,
    Delivery,
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
)
from headwater.node import Change, Node
from headwater.partials import Partial
from headwater.prefix import Prefix
from headwater.queries import Query


@dataclass(frozen=True, slots=True)
class Settings:
    """Bounds of a node. Times in microseconds of the caller's clock; `horizon` is of event time."""

    root: str
    under_way: int = 4
    rows: int = 1_000_000
    horizon: int = 3_600_000_000
    patience: int = 3_000_000
    silence: int = 60_000_000


@dataclass(frozen=True, slots=True)
class Read:
    """Columns of one source that a child has read: they can be judged again."""

    batch: Batch
    opening: str

    @property
    def source(self) -> str:
        return self.batch.source

    @property
    def low(self) -> int:
        return self.batch.first - 1

    @property
    def high(self) -> int:
        return self.batch.first - 1 + len(self.batch)


Part = Read | Partial


@dataclass(slots=True)
class Sent:
    """A batch that is under way, and what it was made from."""

    id: str
    partial: Partial
    parts: list[Part]


class NodeMachine:
    """A node of the tree: a child takes columns, an intermediate takes batches, each from below."""

    def __init__(
        self, name: str, parent: str, queries: Iterable[Query], settings: Settings, *, child: bool
    ) -> None:
        self.name, self.parent, self.settings, self.child = name, parent, settings, child
        self.engine = Node(queries)
        self.gone: set[str] = set()
        self.committed: dict[str, int] = {}
        self.watermark: int | None = None
        self._link = Link(name, parent, settings.patience)
        self._sent: list[Sent] = []
        self._gathered: list[Part] = []
        self._probe: tuple[str, dict[str, Prefix]] | None = None
        # When each source was last heard of here.
        self._heard: dict[str, int] = {}
        self.remade = 0

    # The caller's side

    def step(self, sender: str, message: Message, now: int) -> list[Send]:
        """Take a message; gives what is to be sent."""
        out = Outbox()
        if isinstance(message, Columns):
            self._columns(sender, message, now, out)
        elif isinstance(message, Delivery):
            self._delivery(sender, message, out)
        elif isinstance(message, Probe):
            self._probed(sender, message, now, out)
        elif isinstance(message, Ask):
            self._asked(sender, message, out)
        elif isinstance(message, Tell) and self._link.mine(message.stream, now):
            self._take_changes(message.changes, out)
            self._told(message.standings, out)
        elif isinstance(message, Ack) and self._link.mine(message.stream, now):
            self._sent = [sent for sent in self._sent if sent.id != message.id]
        elif isinstance(message, Resync) and self._link.mine(message.stream, now):
            self._resynced(message, out)
        elif isinstance(message, Commit) and self._link.mine(message.stream, now):
            self._committed(message, out)
        return out.sends

    def flush(self, now: int) -> list[Send]:
        """Send what was gathered, as far as there is room on the way."""
        out = Outbox()
        self._open(now)
        hungry = any(self._is_hungry(source) for source in self._moved())
        if self._gathered and len(self._sent) < self.settings.under_way + hungry:
            self._make(out)
        return out.sends

    def tick(self, now: int) -> list[Send]:
        """Say again what was not answered, and ask how things stand above."""
        out = Outbox()
        fresh = self._open(now)
        for sent in self._sent:
            out.add(self._link.parent, Delivery(self._link.stream, sent.id, sent.partial))
        pending = self._pending()
        heads = {name: s.prefix for name, s in self.engine.sources.items() if name not in pending}
        if self._probe is None or self._probe[1] != heads or fresh:
            self._probe = (self._link.next_id(), heads)
        interest = tuple(self.engine.sources)
        out.add(self._link.parent, Probe(self._link.stream, self._probe[0], heads, interest))
        for source, heard in self._heard.items():
            known = self.engine.sources.get(source)
            if known is not None and source not in pending and now - heard > self.settings.silence:
                out.add(self.settings.root, Silent(self.name, source, known.prefix))
        return out.sends

    @property
    def rows(self) -> int:
        """How many rows of columns are kept."""
        parts = [*self._gathered, *(part for sent in self._sent for part in sent.parts)]
        return sum(len(part.batch) for part in parts if isinstance(part, Read))

    @property
    def drained(self) -> bool:
        """Whether everything that was taken has been acknowledged."""
        return not self._gathered and not self._sent

    def assign(self, sources: Iterable[str], now: int) -> None:
        """Sources that the log assigns to this child: their silence counts from now on."""
        for source in sources:
            self._heard.setdefault(source, now)

    # From below

    def _columns(self, sender: str, message: Columns, now: int, out: Outbox) -> None:
        batch = message.batch
        name = batch.source
        self._heard[name] = now
        if self._unknown(sender, message.stream, message.id, [name], out):
            return
        source = self.engine.sources[name]
        if batch.first - 1 + len(batch) <= source.position:
            out.add(sender, Ack(message.stream, message.id))
            return
        if batch.first != source.position + 1:
            out.add(sender, self._resync(message.stream, message.id, [name]))
            return
        # The opening that holds comes from above; until it does, columns of another wait.
        if message.opening != source.opening or not self._has_room(name, len(batch)):
            return
        read = self.engine.push(batch)
        if read:
            self._gathered.append(Read(_cut(batch, 0, read), message.opening))
        if read == len(batch):
            out.add(sender, Ack(message.stream, message.id))
        elif read:
            out.add(sender, self._resync(message.stream, message.id, [name]))

    def _delivery(self, sender: str, message: Delivery, out: Outbox) -> None:
        partial = message.partial
        names = list(partial.vector)
        if self._unknown(sender, message.stream, message.id, names, out):
            return
        sources = self.engine.sources
        if all(span.high.position <= sources[name].position for name, span in partial.vector.items()):
            out.add(sender, Ack(message.stream, message.id))
            return
        hungry = any(self._is_hungry(name) for name in names)
        if len(self._gathered) >= 4 * self.settings.under_way + 2 * hungry:
            return
        try:
            self.engine.merge(partial)
        except DoesNotFit:
            out.add(sender, self._resync(message.stream, message.id, names))
        except StaleVersion as stale:
            if stale.found > stale.current:
                # It knows a change that has not come here yet: from above it will.
                self._ask(names, out)
            else:
                out.add(sender, self._resync(message.stream, message.id, names))
        else:
            self._gathered.append(partial)
            out.add(sender, Ack(message.stream, message.id))

    def _probed(self, sender: str, message: Probe, now: int, out: Outbox) -> None:
        unknown = [name for name in message.heads if not self._is_known(name)]
        if unknown:
            self._ask(unknown, out)
        for name in message.interest if self.child else ():
            self._heard.setdefault(name, now)
        wrong = [
            name
            for name, head in message.heads.items()
            if name in self.gone or (name not in unknown and not self._agrees(name, head))
        ]
        if wrong:
            out.add(sender, self._resync(message.stream, message.id, wrong))
        committed = {name: self.committed[name] for name in message.interest if name in self.committed}
        out.add(sender, Commit(message.stream, committed, self.watermark, tuple(self.engine.changes)))

    def _agrees(self, name: str, head: Prefix) -> bool:
        """Whether the sender stands where this node does; a source knows its position alone."""
        mine = self.engine.sources[name].prefix
        return mine.position == head.position if self.child else mine == head

    def _asked(self, sender: str, message: Ask, out: Outbox) -> None:
        unknown = [name for name in message.sources if not self._is_known(name)]
        if unknown:
            self._ask(unknown, out)
        known = [name for name in message.sources if name not in unknown]
        out.add(sender, Tell(message.stream, self._standings(known), tuple(self.engine.changes)))

    def _unknown(self, sender: str, stream: Stream, id: str, names: Sequence[str], out: Outbox) -> bool:
        """Whether a batch has to wait, or to go back, for who is in it."""
        gone = [name for name in names if name in self.gone]
        if gone:
            out.add(sender, self._resync(stream, id, gone))
            return True
        unknown = [name for name in names if name not in self.engine.sources]
        if unknown:
            self._ask(unknown, out)
        return bool(unknown)

    def _is_known(self, name: str) -> bool:
        return name in self.engine.sources or name in self.gone

    def _standings(self, names: Iterable[str]) -> Standings:
        standings: dict[str, Standing | None] = {}
        for name in names:
            held = self.engine.sources.get(name)
            standings[name] = None if held is None else Standing(held.prefix, held.lateness, held.site)
        return standings

    def _resync(self, stream: Stream, id: str, names: Iterable[str]) -> Resync:
        return Resync(stream, id, self._standings(names), tuple(self.engine.changes))

    # Room

    def _is_hungry(self, name: str) -> bool:
        """Whether the watermark waits for this source: it is always read (rule 19)."""
        source = self.engine.sources.get(name)
        return source is None or self.watermark is None or source.largest - source.lateness <= self.watermark

    def _has_room(self, name: str, rows: int) -> bool:
        bound, source = self.settings.rows, self.engine.sources[name]
        if not self._is_hungry(name):
            # Flow control by event time: nobody runs further ahead of the others than this.
            ahead = self.watermark is not None and (
                source.largest - source.lateness > self.watermark + self.settings.horizon
            )
            return not ahead and self.rows + rows <= bound
        if self.rows + rows > bound:
            self._drop_ahead()
        # A reserve for whoever is waited for: else a full node would wait for the window that it holds up.
        return self.rows + rows <= 2 * bound

    def _drop_ahead(self) -> None:
        """Columns are a cache of the spools: drop those of sent batches, whose sources rewind if refused."""
        for sent in self._sent:
            sent.parts = [part for part in sent.parts if not isinstance(part, Read)]

    # Upwards

    def _open(self, now: int) -> bool:
        fresh = self._link.open(self.parent, now)
        if fresh:
            self._probe = None
        return fresh

    def _ask(self, names: Iterable[str], out: Outbox) -> None:
        out.add(self._link.parent, Ask(self._link.stream, tuple(names)))

    def _moved(self) -> set[str]:
        return {name for part in self._gathered for name in _names(part)}

    def _pending(self) -> set[str]:
        """Sources of which something is under way or gathered."""
        pending = {name for sent in self._sent for name in sent.partial.vector}
        return pending | self._moved()

    def _make(self, out: Outbox) -> None:
        """What was gathered becomes a batch."""
        partial = self.engine.flush()
        parts, self._gathered = self._gathered, []
        if partial:
            sent = Sent(self._link.next_id(), partial, parts)
            self._sent.append(sent)
            out.add(self._link.parent, Delivery(self._link.stream, sent.id, partial))

    def _take_changes(self, changes: Sequence[Change], out: Outbox) -> None:
        """A new version is taken behind a flush: no batch mixes two (rule 5)."""
        if len(changes) > self.engine.version:
            self._make(out)
            for change in changes[self.engine.version :]:
                self.engine.apply(change)

    def _told(self, standings: Standings, out: Outbox) -> None:
        gone = {name: None for name, standing in standings.items() if standing is None}
        if gone.keys() - self.gone:
            self._rebuild(gone, (), out)
        for name, standing in standings.items():
            if standing is not None and not self._is_known(name):
                self.engine.admit(
                    name, lateness=standing.lateness, site=standing.site, prefix=standing.prefix
                )

    def _resynced(self, message: Resync, out: Outbox) -> None:
        probed = self._probe is not None and message.id == self._probe[0]
        if probed or any(sent.id == message.id for sent in self._sent):
            self._rebuild(message.standings, message.changes, out)
            self._probe = None

    def _rebuild(self, standings: Standings, changes: Sequence[Change], out: Outbox) -> None:
        """Make everything again that is not acknowledged, without what no longer fits (rule 8)."""
        self.remade += 1
        sent = [part for each in self._sent for part in each.parts]
        gathered, before = self._gathered, self._lows()
        self._sent, self._gathered = [], []
        self.engine.flush()
        for change in changes[self.engine.version :]:
            self.engine.apply(change)
        for name in before.keys() | standings.keys():
            standing = standings.get(name)
            if name in standings and standing is None:
                self.gone.add(name)
                self.engine.release(name)
            elif name not in self.engine.sources:
                if standing is not None:
                    self.engine.admit(
                        name, lateness=standing.lateness, site=standing.site, prefix=standing.prefix
                    )
            else:
                self.engine.place(name, before[name] if standing is None else standing.prefix)
        self._read_again(sent)
        if self._gathered:
            self._make(out)
        self._read_again(gathered)

    def _lows(self) -> dict[str, Prefix]:
        """Where each source stands above everything that is under way or gathered."""
        lows: dict[str, Prefix] = {}
        for sent in self._sent:
            for name, span in sent.partial.vector.items():
                lows.setdefault(name, span.low)
        for name in self._moved():
            source = self.engine.sources.get(name)
            if source is not None:
                lows.setdefault(name, source.since)
        return lows

    def _read_again(self, parts: Sequence[Part]) -> None:
        for part in parts:
            again = self._judged_again(part) if isinstance(part, Read) else self._merged_again(part)
            if again is not None:
                self._gathered.append(again)

    def _judged_again(self, part: Read) -> Part | None:
        source = self.engine.sources.get(part.source)
        # Never across an opening: the spool may have come back with other records.
        if source is None or part.opening != source.opening:
            return None
        if not part.low <= source.position < part.high:
            return None
        batch = _cut(part.batch, source.position - part.low, len(part.batch))
        read = self.engine.push(batch)
        return Read(_cut(batch, 0, read), part.opening) if read else None

    def _merged_again(self, partial: Partial) -> Part | None:
        if any(name not in self.engine.sources for name in partial.vector):
            return None
        try:
            self.engine.merge(partial)
        except (DoesNotFit, StaleVersion):
            return None
        return partial

    def _committed(self, message: Commit, out: Outbox) -> None:
        self._take_changes(message.changes, out)
        if message.watermark is not None and (self.watermark is None or message.watermark > self.watermark):
            self.watermark = message.watermark
        pending = self._pending()
        for name, committed in message.committed.items():
            self.committed[name] = max(committed, self.committed.get(name, 0))
            source = self.engine.sources.get(name)
            # A position with nothing pending is a cache; what the root is beyond is no longer of use.
            if source is not None and name not in pending and source.position < self.committed[name]:
                self.engine.release(name)


def _names(part: Part) -> Iterable[str]:
    return (part.source,) if isinstance(part, Read) else part.vector


def _cut(batch: Batch, begin: int, end: int) -> Batch:
    """Records of a batch, as views."""
    if begin == 0 and end == len(batch):
        return batch
    here = slice(begin, end)
    return Batch(
        batch.source,
        batch.first + begin,
        batch.ts[here],
        batch.value[here],
        key=None if batch.key is None else batch.key[here],
        keys=batch.keys,
        mark=None if batch.mark is None else batch.mark[here],
        marks=batch.marks,
        bare=None if batch.bare is None else batch.bare[here],
    )
