"""What a node holds of one lane: the parts of each batch that is not acknowledged, from which it makes
batches again (protocol, rules 6 to 8 and 14). Nothing of it has to survive the node.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from headwater.catalog import Serves
from headwater.changes import Change
from headwater.errors import DoesNotFit, InvalidPartial, OtherQueries, StaleVersion
from headwater.events import Batch
from headwater.machines import sizes
from headwater.machines.kept import Kept
from headwater.machines.messages import Barrier, Standing, Standings
from headwater.node import Node
from headwater.partials import Partial
from headwater.prefix import Prefix
from headwater.progress import Source
from headwater.queries import Query
from headwater.rows import TS_MAX, TS_MIN
from headwater.windows import TS_LIMIT

# As many sources that have left are numbered at most, besides as many as are there.
LEFT = 1_024


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
    # When it was last said, by the caller's clock, and how often again.
    said: int = 0
    repeated: int = 0


@dataclass(slots=True)
class Probed:
    """What was asked last, and under which id."""

    id: str
    heads: dict[str, Prefix]
    barriers: dict[str, Barrier]


class Lane:
    """One lane of a node. `issue` gives ids for batches."""

    def __init__(
        self,
        number: int,
        queries: Iterable[Query],
        serves: Serves,
        issue: Callable[[], str],
        bound: int,
    ) -> None:
        """`bound` is how many bytes a batch gathers at most, but for one part that is larger."""
        self.number = number
        self._bound = bound
        self._queries, self._serves, self._until = tuple(queries), serves, TS_MAX
        self.engine = self._engine(())
        self.gone: set[str] = set()
        self.barriers: dict[str, Barrier] = {}
        self.sent: list[Sent] = []
        self.gathered: list[Part] = []
        self.probe: Probed | None = None
        self.remade = 0
        # The columns that are kept, and those among them that no batch was made of.
        self._held, self._unsent = Kept(), Kept()
        # What was gathered: bytes of batches, and how many records.
        self._taken = self._records = 0
        # What a record weighs, by the version of the queries.
        self._weighed: tuple[int, tuple[int, int]] | None = None
        # The time that all sources have gone beyond, if known, and what it was when a batch was made last.
        self._lowest: int | None = None
        self._made_at: int | None = None
        # The watermark at which queries were last let go.
        self._let_go_at: int | None = None
        # When a batch was last sent, by the caller's clock.
        self.made_last = 0
        self._issue = issue

    def _engine(self, changes: Iterable[Change]) -> Node:
        engine = Node(self._queries, serves=self._serves)
        for change in changes:
            engine.apply(change)
        engine.read_until(self._until)
        return engine

    def _renew(self) -> None:
        """An engine numbers the sources that it knows, once and for all: when most have left, another one
        takes its place. Only behind a flush."""
        old, self.engine, self._let_go_at = self.engine, self._engine(self.engine.changes), None
        for name, source in old.sources.items():
            self.engine.admit(name, lateness=source.lateness, site=source.site, prefix=source.prefix)
            self.engine.sources[name].account = source.account

    def read_until(self, limit: int) -> None:
        """Read nothing with a later ts."""
        self._until = limit
        self.engine.read_until(limit)

    # What is known

    def knows(self, name: str) -> bool:
        return name in self.engine.sources or name in self.gone

    def source(self, name: str) -> Source | None:
        return self.engine.sources.get(name)

    def standings(self, names: Iterable[str]) -> Standings:
        standings: dict[str, Standing | None] = {}
        for name in names:
            held = self.engine.sources.get(name)
            standings[name] = (
                None
                if held is None
                else Standing(held.prefix, held.lateness, held.site, self.barriers.get(name))
            )
        return standings

    def moved(self) -> set[str]:
        """Sources of which something was read since the last batch was made."""
        return {
            name for name, source in self.engine.sources.items() if source.position > source.since.position
        }

    def pending(self) -> set[str]:
        """Sources of which something is under way or gathered."""
        return {name for sent in self.sent for name in sent.partial.vector} | self.moved()

    @property
    def drained(self) -> bool:
        return not self.sent and not self.moved()

    @property
    def held_bytes(self) -> int:
        return self._held.bytes

    @property
    def unsent_bytes(self) -> int:
        return self._unsent.bytes

    # Taking

    def may_read(self, columns: Read) -> bool:
        """Whether columns are of the opening that holds: it comes from above, and others wait until then."""
        source, barrier = self.engine.sources[columns.source], self.barriers.get(columns.source)
        return columns.opening == source.opening or (
            barrier is not None and columns.opening == barrier.opening
        )

    def read(self, columns: Read) -> None:
        """Read columns as far as they fit and may be read."""
        source = self.engine.sources[columns.source]
        barrier = self.barriers.get(source.name)
        if not self.may_read(columns):
            return
        high = columns.high if barrier is None else min(columns.high, barrier.number)
        if not columns.low <= source.position < high:
            return
        batch = cut(columns.batch, source.position - columns.low, high - columns.low)
        self._moves(source)
        read = self.engine.push(batch)
        if read:
            part = Read(cut(batch, 0, read), columns.opening)
            self.gathered.append(part)
            self._held.add(part.batch)
            self._unsent.add(part.batch)
            self._records += read

    def merge(self, partial: Partial, taken: int) -> None:
        """Take a batch, of so many bytes, whole; raises if it does not fit."""
        beyond = [
            name
            for name, barrier in self.barriers.items()
            if name in partial.vector and partial.vector[name].high.position > barrier.number
        ]
        if beyond:
            raise DoesNotFit(beyond)
        for name in partial.vector:
            if name in self.engine.sources:
                self._moves(self.engine.sources[name])
        self.engine.merge(partial)
        self.gathered.append(partial)
        self._taken += taken

    @property
    def gathered_bytes(self) -> int:
        """About what a batch of all that was gathered takes, at most."""
        return self._taken + (sizes.of_gathered(self.engine, self._records) if self._records else 0)

    def has_room(self, wanted: int) -> bool:
        """Whether a batch may have as many bytes more than were gathered; an empty one takes any part."""
        if not (self._taken or self._records) or self._most + wanted <= self._bound:
            return True
        return self.gathered_bytes + wanted <= self._bound

    @property
    def is_large(self) -> bool:
        return self._most >= self._bound <= self.gathered_bytes

    @property
    def _most(self) -> int:
        """What was gathered cannot take more; it costs nothing to know."""
        return self._taken + self._records * self._weights()[1]

    @property
    def record_bytes(self) -> int:
        """By how much a record that is read makes a batch grow, about."""
        return self._weights()[0]

    @property
    def portion(self) -> int:
        """How many records a batch may gather at least."""
        return max(self._bound // self.record_bytes, 1)

    def _weights(self) -> tuple[int, int]:
        # Groups change with the version, and some end: those weigh nothing any more.
        if self._weighed is None or self._weighed[0] != self.engine.version:
            self._weighed = (self.engine.version, sizes.of_record(self.engine))
        return self._weighed[1]

    # Time

    def _moves(self, source: Source) -> None:
        if self._lowest is not None and source.largest - source.lateness <= self._lowest:
            self._lowest = None

    def is_due(self, watermark: int | None) -> bool:
        """Whether all sources have gone beyond an edge since the last batch: windows wait for it.

        Those that are behind the root's watermark were given up.
        """
        lowest = self._low(watermark)
        if lowest <= -TS_LIMIT:
            return False
        return self._made_at is None or lowest >= self.engine.edge_after(self._made_at)

    def _low(self, watermark: int | None) -> int:
        # One that the watermark has passed was given up since.
        if self._lowest is None or (watermark is not None and self._lowest < watermark):
            lows = (source.largest - source.lateness for source in self.engine.sources.values())
            self._lowest = min((low for low in lows if watermark is None or low >= watermark), default=TS_MIN)
        return self._lowest

    def let_go(self, watermark: int | None) -> None:
        """Forget queries that were removed and have no window open behind the watermark, also where nothing
        comes to be sent: those below may have forgotten them, and send no states for them any more."""
        if watermark is not None and watermark != self._let_go_at and not self.moved():
            self._let_go_at = watermark
            self.engine.forget(watermark)

    def drop_columns(self, enough: Callable[[], bool]) -> None:
        """Columns are a cache of the spools: forget some, whose sources rewind if their batch is refused.

        Those that wait to be sent go first, the latest in time before the others; then those of batches
        that are under way.
        """
        waiting = [part for part in self.gathered if isinstance(part, Read)]
        for part in sorted(waiting, key=lambda part: int(part.batch.ts.max()), reverse=True):
            if enough():
                return
            self.gathered.remove(part)
            self._held.drop([part.batch])
            self._unsent.drop([part.batch])
        for sent in reversed(self.sent):
            if enough():
                return
            self._held.drop(_columns(sent.parts))
            sent.parts = [part for part in sent.parts if not isinstance(part, Read)]

    # Giving

    def make(self, watermark: int | None = None) -> Sent | None:
        """What was gathered becomes a batch."""
        partial = self.engine.flush()
        parts, self.gathered = self.gathered, []
        self._taken = self._records = 0
        self._unsent.clear()
        lowest = self._low(watermark)
        self._made_at = lowest if lowest > -TS_LIMIT else None
        if len(self.engine.order.names) > 2 * len(self.engine.sources) + LEFT:
            self._renew()
        if not partial:
            return None
        sent = Sent(self._issue(), partial, parts)
        self.sent.append(sent)
        return sent

    def acknowledged(self, id: str) -> None:
        for sent in self.sent:
            if sent.id == id:
                self._held.drop(_columns(sent.parts))
        self.sent = [sent for sent in self.sent if sent.id != id]

    def take_changes(self, changes: Sequence[Change]) -> Sent | None:
        """A new version is taken behind a flush: no batch mixes two (rule 5)."""
        fresh = [change for change in changes if change.version > self.engine.version]
        if not fresh:
            return None
        sent = self.make()
        for change in fresh:
            self.engine.apply(change)
        return sent

    def told(self, standings: Standings) -> list[Sent]:
        gone = [name for name, standing in standings.items() if standing is None]
        held = [name for name in gone if name in self.engine.sources]
        made = self.rebuild(dict.fromkeys(held), ()) if held else []
        self.gone.update(gone)
        for name, standing in standings.items():
            if standing is not None and not self.knows(name):
                self._admit(name, standing)
        return made

    def concerns(self, id: str) -> bool:
        """Whether an answer is to something that is not answered yet."""
        return (self.probe is not None and id == self.probe.id) or any(sent.id == id for sent in self.sent)

    def rebuild(self, standings: Standings, changes: Sequence[Change]) -> list[Sent]:
        """Make everything again that is not acknowledged, without what no longer fits (rule 8)."""
        self.remade += 1
        under_way = [part for each in self.sent for part in each.parts]
        gathered, before = self.gathered, self._lows()
        self.sent, self.gathered, self.probe = [], [], None
        self._lowest = self._made_at = None
        self._taken = self._records = 0
        self._held.clear()
        self._unsent.clear()
        self.engine.flush()
        for change in changes:
            if change.version > self.engine.version:
                self.engine.apply(change)
        # In an order that does not depend on the process: a run can be replayed.
        for name in {**before, **standings}:
            standing = standings.get(name)
            if name in standings and standing is None:
                self.forget(name)
                self.gone.add(name)
            elif name not in self.engine.sources:
                if standing is not None:
                    self._admit(name, standing)
            elif standing is None:
                self.engine.place(name, before[name])
            else:
                self.engine.place(name, standing.prefix)
                self._bar(name, standing.barrier)
        made = list(self._take_again(under_way))
        if self.gathered:
            made.append(self.make())
        made += self._take_again(gathered)
        return [sent for sent in made if sent is not None]

    def forget(self, name: str) -> None:
        """Know a source no longer, of which nothing is pending: where it stands is asked for again."""
        self.engine.release(name)
        self.gone.discard(name)
        self.barriers.pop(name, None)
        self._lowest = None

    def _admit(self, name: str, standing: Standing) -> None:
        self.engine.admit(name, lateness=standing.lateness, site=standing.site, prefix=standing.prefix)
        self._lowest = None
        self._bar(name, standing.barrier)

    def _bar(self, name: str, barrier: Barrier | None) -> None:
        if barrier is None:
            self.barriers.pop(name, None)
        else:
            self.barriers[name] = barrier

    def _lows(self) -> dict[str, Prefix]:
        """Where each source stands above everything that is under way or gathered."""
        lows: dict[str, Prefix] = {}
        for sent in self.sent:
            for name, span in sent.partial.vector.items():
                lows.setdefault(name, span.low)
        moved = self.moved()
        for name in self.engine.sources:
            if name in moved:
                lows.setdefault(name, self.engine.sources[name].since)
        return lows

    def _take_again(self, parts: Sequence[Part]) -> Iterator[Sent | None]:
        """Take parts that fit; gives the batches that this fills."""
        for part in parts:
            if isinstance(part, Read):
                if part.source in self.engine.sources:
                    if not self.has_room(len(part.batch) * self.record_bytes):
                        yield self.make()
                    self.read(part)
            elif all(name in self.engine.sources for name in part.vector):
                taken = sizes.of_partial(part)
                if not self.has_room(taken):
                    yield self.make()
                try:
                    self.merge(part, taken)
                except (DoesNotFit, InvalidPartial, OtherQueries, StaleVersion):
                    continue


def _columns(parts: Iterable[Part]) -> list[Batch]:
    return [part.batch for part in parts if isinstance(part, Read)]


def cut(batch: Batch, begin: int, end: int) -> Batch:
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
