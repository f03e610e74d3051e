"""What a node holds: its lanes, and what it has heard from the root. None of it has to survive the node."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

from headwater.changes import Change
from headwater.machines.bounds import Settings
from headwater.machines.lane import Lane, Sent
from headwater.machines.lanes import Lanes
from headwater.machines.messages import Commit
from headwater.queries import Query


class Holding:
    """The lanes of a node; there are none before the root has told it the queries."""

    def __init__(self) -> None:
        self.lanes: dict[int, Lane] = {}
        # Up to where the root has counted sources for good, and its watermark.
        self.committed: dict[str, int] = {}
        self.watermark: int | None = None
        # Whether nothing more is taken from sources.
        self.draining = False
        self._queries: tuple[Query, ...] = ()
        self._numbering = Lanes(())
        # The version in which the query of a lane was removed.
        self._removed: dict[int, int] = {}
        self._issue: Callable[[], str] | None = None
        self._batch_bytes = 0
        # When somebody below has last spoken of each source.
        self._spoken: dict[str, int] = {}
        # Nothing is read behind this time: what lies too far in the future waits (rule 15).
        self._until: int | None = None

    def begin(self, queries: tuple[Query, ...], settings: Settings, issue: Callable[[], str]) -> None:
        """Know the queries of the beginning; `issue` gives ids for batches."""
        self._queries, self._numbering = queries, Lanes(queries, settings.apart)
        self._issue, self._batch_bytes = issue, settings.batch_bytes
        for number in self._numbering.numbers:
            self._begin(number)

    def _begin(self, number: int, changes: Sequence[Change] = ()) -> None:
        assert self._issue is not None
        serves = self._numbering.serves(number)
        lane = Lane(number, self._queries, serves, self._issue, self._batch_bytes)
        for change in changes:
            lane.engine.apply(change)
        if self._until is not None:
            lane.read_until(self._until)
        self.lanes[number] = lane

    def take_changes(
        self, changes: Sequence[Change], but: Lane | None = None
    ) -> Iterator[tuple[Lane, Sent | None]]:
        """Take changes in all lanes `but` one, which is made anew with them; gives what is to be sent."""
        known, taken = self.version, list(self.lanes[0].engine.changes)
        for change in changes:
            if change.version <= known:
                continue
            lane = self._numbering.apply(change)
            taken.append(change)
            for each in self.lanes.values():
                if each is not but:
                    yield each, each.take_changes([change])
            if lane is not None and change.kind == "add":
                self._begin(lane, taken)
            elif lane is not None:
                self._removed[lane] = change.version

    def read_until(self, limit: int) -> None:
        """Read nothing with a later ts."""
        self._until = limit
        for lane in self.lanes.values():
            lane.read_until(limit)

    @property
    def version(self) -> int:
        return self.lanes[0].engine.version if self.lanes else 0

    def changes(self, version: int) -> tuple[Change, ...]:
        """Those that somebody with this version does not know."""
        return tuple(self.lanes[0].engine.changes[version:])

    @property
    def held_bytes(self) -> int:
        """Bytes of the columns that are kept; lanes share theirs."""
        return max((lane.held_bytes for lane in self.lanes.values()), default=0)

    # Sources

    def knows(self, lane: int, name: str) -> bool:
        """Whether a source is known in a lane, or in all of them (-1)."""
        if lane >= 0:
            return lane not in self.lanes or self.lanes[lane].knows(name)
        return all(each.knows(name) for each in self.lanes.values())

    def is_gone(self, name: str) -> bool:
        """Whether no lane reads a source any more: one that is behind still comes to where it was retired."""
        return all(name in lane.gone for lane in self.lanes.values())

    def reading(self, name: str) -> list[Lane]:
        """The lanes that read a source."""
        return [lane for lane in self.lanes.values() if name in lane.engine.sources]

    def lowest(self, name: str) -> Lane:
        """The lane that is furthest behind with a source."""
        return min(self.reading(name), key=lambda lane: lane.engine.sources[name].position)

    def position(self, name: str) -> int:
        """Up to where all lanes have read a source."""
        return self.lowest(name).engine.sources[name].position

    def counted(self, message: Commit) -> None:
        """Take what the root has counted, and how far its watermark is."""
        if message.watermark is not None and (self.watermark is None or message.watermark > self.watermark):
            self.watermark = message.watermark
        # The end of a lane comes from above: what was begun before a query went is still waited for there.
        # Only who knows that it went can know that nothing is waited for: a message may be an old one.
        for number, version in list(self._removed.items()):
            if number not in message.lanes and version <= message.version:
                del self.lanes[number], self._removed[number]
        pending = self._pending()
        for name, committed in message.committed.items():
            self.committed[name] = max(committed, self.committed.get(name, 0))
            for lane in self.lanes.values():
                source = lane.source(name)
                # A position with nothing pending is a cache; what the root is beyond is no longer of use.
                if source is not None and name not in pending and source.position < self.committed[name]:
                    lane.forget(name)

    def _pending(self) -> set[str]:
        return {name for lane in self.lanes.values() for name in lane.pending()}

    # Memory

    def speak(self, names: Iterable[str], now: int) -> None:
        """Somebody below has spoken of sources."""
        for name in names:
            self._spoken[name] = now

    def forget(self, before: int, now: int, kept: Collection[str]) -> None:
        """Forget the sources, but for those that are `kept`, of which nobody has spoken since `before` and
        of which nothing is pending: where they stand, or that they are gone, is asked for again."""
        known = {name for lane in self.lanes.values() for name in (*lane.engine.sources, *lane.gone)}
        # Whoever was told of from above alone counts from now on.
        self._spoken = {name: self._spoken.get(name, now) for name in known}
        pending = self._pending()
        for name in [name for name, spoken in self._spoken.items() if spoken < before]:
            if name not in pending and name not in kept:
                del self._spoken[name]
                for lane in self.lanes.values():
                    lane.forget(name)
        present = self.lanes[0].engine.sources
        self.committed = {name: counted for name, counted in self.committed.items() if name in present}
