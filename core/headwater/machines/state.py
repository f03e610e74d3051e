"""What the records of the root's log come to: all that a root needs which does not replay them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from headwater.changes import Change
from headwater.machines.lanes import Apart, Lanes
from headwater.machines.members import Members
from headwater.machines.openings import Openings
from headwater.machines.quarantine import Quarantine
from headwater.machines.records import (
    Admitted,
    Began,
    Body,
    Changed,
    Idled,
    Merged,
    Opened,
    Quarantined,
    Released,
    Resumed,
    Retired,
    Skipped,
    Specified,
    Started,
)
from headwater.machines.rootlane import Later, RootLane
from headwater.machines.terms import BehindTheTree, Terms
from headwater.prefix import Prefix
from headwater.queries import Query
from headwater.results import Results
from headwater.root import Root
from headwater.sources import SourceId


class State:
    """Changed by records of the log alone, live and at a replay.

    It keeps each source that ever was, retired or not: who it was, how far it was counted and its account,
    in about 1.5 KB of memory and 0.4 KB of a snapshot. Time goes into those that are there alone.
    """

    def __init__(
        self, queries: Iterable[Query], expected: int, apart: Apart, engine: type[Root] = Root
    ) -> None:
        """`queries` are those of the beginning; `expected` sources are waited for. `engine` makes windows of
        all that there is, or of a part of it."""
        self.queries = tuple(queries)
        self._engine = engine
        self.position = 0
        self.members = Members()
        self.openings = Openings()
        self.quarantine = Quarantine()
        self.terms = Terms()
        self._expected = expected
        self._numbering = Lanes(self.queries, apart)
        self.lanes = {number: RootLane(self._made(number, expected)) for number in self._numbering.numbers}
        self._keep_behind()

    def _made(self, number: int, expected: int) -> Root:
        engine = self._engine.beside() if number else self._engine
        return engine(self.queries, expected=expected, serves=self._numbering.serves(number))

    @property
    def engine(self) -> Root:
        """Lane 0: the roster, the watermark and the ledger."""
        return self.lanes[0].engine

    @property
    def expected(self) -> int:
        """How many sources are expected."""
        return self._expected

    @property
    def engines(self) -> Mapping[int, Root]:
        return {number: lane.engine for number, lane in self.lanes.items()}

    def changes(self, version: int) -> tuple[Change, ...]:
        """Those that somebody with this version does not know."""
        return tuple(self.engine.changes[version:])

    def counted(self, name: str) -> int | None:
        """Up to where a source is counted for good, in all lanes."""
        if name not in self.engine.sources:
            return None
        return min(lane.engine.sources[name].position for lane in self.lanes.values())

    def behind(self, told: str) -> BehindTheTree:
        return BehindTheTree(
            f"{told}, but the log here ends at record {self.position} of term {self.terms.number} with "
            f"version {self.engine.version}; give the root the newest copy of its log"
        )

    def apply(self, position: int, body: Body) -> Results:
        """The one place where state changes; gives the results that this makes final."""
        if isinstance(body, Merged):
            self._merged(body)
        elif isinstance(body, Admitted):
            self._admitted(body)
        elif isinstance(body, Opened | Idled | Resumed | Skipped):
            self._prefix_changed(body)
        elif isinstance(body, Retired):
            self._retired(body)
        elif isinstance(body, Quarantined):
            self.quarantine.apply(body)
            self._retired(Retired(body.source))
        elif isinstance(body, Released):
            self.quarantine.apply(body)
        elif isinstance(body, Started):
            for lane in self.lanes.values():
                lane.engine.start()
        elif isinstance(body, Changed):
            self._changed(body.change)
        elif isinstance(body, Began):
            self.terms.began(body, position)
            self._expect(body.expected)
        else:
            if isinstance(body, Specified):
                self._expect(body.expected)
            self.members.apply(body)
        self.position = position
        self._keep_behind()
        blocks = [block for lane in self.lanes.values() for block in lane.engine.take().blocks]
        self._end_lanes()
        return Results(blocks)

    def _keep_behind(self) -> None:
        """Lane 0 decides what a source that returns may still say: no lane goes beyond its watermark."""
        for number, lane in self.lanes.items():
            if number:
                lane.engine.stay_behind(self.engine.watermark)

    def _expect(self, expected: int) -> None:
        if expected not in (0, self._expected):
            self._expected = expected
            # Where lane 0 has a watermark that is over, also for a lane that has none yet.
            if self.engine.watermark is None:
                for lane in self.lanes.values():
                    lane.engine.expect(expected)

    def _merged(self, body: Merged) -> None:
        lane = self.lanes[body.lane]
        lane.engine.merge(body.partial)
        for name in body.partial.vector if lane.later else ():
            lane.settle(name)

    def _admitted(self, body: Admitted) -> None:
        self.openings.admitted(body)
        prefix = Prefix(opening=body.opening)
        for lane in self.lanes.values():
            lane.engine.admit(body.source, lateness=body.lateness, site=body.site, prefix=prefix)
            # Where it begins is decided by lane 0, whose watermark is the highest.
            prefix = Prefix(largest=self.engine.sources[body.source].largest, opening=body.opening)
        source = SourceId.of(body.source)
        before = str(SourceId(source.name, source.incarnation - 1))
        if self.finishes(before):
            self._give_up(before)

    def _retired(self, body: Retired) -> None:
        """Who is present goes like everybody who changes, at a number: what lane 0 has counted is still sent
        for the others. Behind another incarnation nobody sends it, and who is retired twice is given up."""
        source = SourceId.of(body.source)
        held = self.openings.held(source.name)
        present = held is not None and held.incarnation == source.incarnation
        if present and not self.engine.sources[body.source].retired:
            self._prefix_changed(body)
        else:
            self._give_up(body.source)
        # Another incarnation is read where this one was.
        if present:
            self.members.release(source.name)

    def _give_up(self, name: str) -> None:
        for lane in self.lanes.values():
            lane.give_up(name)

    def finishes(self, name: str) -> bool:
        """Whether a source is retired, and a lane has not come to the number where it was."""
        source = self.engine.sources.get(name)
        return (
            source is not None
            and source.retired
            and not all(lane.is_gone(name) for lane in self.lanes.values())
        )

    def _prefix_changed(self, body: Opened | Idled | Resumed | Skipped | Retired) -> None:
        """What changes a prefix does so at the number where lane 0 stands, in every lane (rule 14)."""
        if isinstance(body, Opened):
            self.openings.opened(body)
        source = self.engine.sources[body.source]
        number = source.position
        floor = None if self.engine.watermark is None else self.engine.watermark + source.lateness
        for lane in self.lanes.values():
            lane.take(body.source, Later(number, body, floor))

    def _changed(self, change: Change) -> None:
        before = list(self.engine.changes)
        number = self._numbering.apply(change)
        for lane in self.lanes.values():
            lane.engine.apply(change)
        if number is not None and change.kind == "add":
            self.lanes[number] = self._new_lane(number, [*before, change])

    def _new_lane(self, number: int, changes: Iterable[Change]) -> RootLane:
        """A lane that begins where lane 0 stands."""
        main = self.engine
        # All of them at first: the watermark is that of all from the beginning.
        expected = max(len(main.sources), 1) if main.started else self._expected
        engine = self._made(number, expected)
        engine.stay_behind(main.watermark)
        engine.stand_beside(main)
        for change in changes:
            engine.apply(change)
        return RootLane(engine)

    def _end_lanes(self) -> None:
        """Drop lanes whose query was removed and has given its last window."""
        live = self._numbering.numbers
        over = [n for n, lane in self.lanes.items() if n not in live and not lane.engine.groups()]
        for number in over:
            del self.lanes[number]
