"""What must hold: the invariants of the protocol after every step, and the oracle's answer at the end."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence

from headwater import oracle
from headwater.events import Record as Event
from headwater.machines.messages import Crowded, Silent
from headwater.machines.records import (
    Admitted,
    Assigned,
    Began,
    Idled,
    Joined,
    Merged,
    Opened,
    Quarantined,
    Record,
    Resumed,
    Retired,
    Started,
)
from headwater.machines.root import RootMachine
from headwater.queries import Query
from headwater.results import Result
from headwater.root import Root
from headwater.sources import SourceId
from headwater.verification import decisions_of, differences, row_of
from headwater_root.lives import Lives
from headwater_simulator.plans import FAR


class Broken(AssertionError):
    """Something that must always hold does not."""


class Judge:
    """Looks at the log and at the root; it has no part in the run."""

    def __init__(self, queries: Iterable[Query], lanes: Iterable[int]) -> None:
        self.lives = Lives(queries)
        self._offsets: dict[str, int] = {}
        # The last opening of each source, by which its records are found.
        self._openings: dict[str, str] = {}
        self._begun = set(lanes)
        self._applied: defaultdict[int, dict[str, int]] = defaultdict(dict)
        self._watermark: int | None = None
        self._counted: dict[str, int] = {}
        self._retired: set[str] = set()
        # How many sources are waited for, as the log says and by now, and how many have come.
        self._told = self._expected = self._admitted = 0
        # By which child a source is to be read, the generations of nodes, and silences that were reported.
        self._assigned: dict[str, str] = {}
        self._generations: dict[str, int] = {}
        self._reports: set[tuple[str, int, str, int]] = set()
        self._crowded: set[tuple[str, int, str, int]] = set()
        # The records of each opening's spool.
        self.histories: dict[str, list[Event]] = {}
        # Of each source: its spool, its lateness, and what the log lets it say when it comes (back).
        self._spools: dict[str, str] = {}
        self._lateness: dict[str, int] = {}
        self._floors: dict[str, list[int | None]] = {}
        # The sources that an operator has retired.
        self.given_up: set[str] = set()
        # The sources, by name, whose spools may lack what was sent of them.
        self.bereft: set[str] = set()
        # What was logged, by kind.
        self.logged: Counter[str] = Counter()

    # The log

    def durable(self, record: Record) -> None:
        """A record that will never go away."""
        body = record.body
        self.logged[type(body).__name__.lower()] += 1
        self.lives.take(record)
        if self._watermark is not None and (record.watermark is None or record.watermark < self._watermark):
            raise Broken(f"I5: the watermark fell from {self._watermark} to {record.watermark}")
        if self._watermark is None and record.watermark is not None and self._admitted < self._expected:
            raise Broken(f"rule 13: {self._admitted} of {self._expected} sources set the watermark")
        self._watermark = record.watermark
        if isinstance(body, Admitted):
            self._admitted += 1
            self._offsets[body.source], self._openings[body.source] = body.offset, body.opening
            self._spools[body.source], self._lateness[body.source] = body.spool, body.lateness
            self._floor(body.source, record.watermark)
        elif isinstance(body, Opened):
            self._openings[body.source] = body.opening
        elif isinstance(body, Resumed):
            self._floor(body.source, record.watermark)
        elif isinstance(body, Retired):
            self._had_to_go(body.source)
            self._retired.add(body.source)
        elif isinstance(body, Quarantined):
            self._was_crowded(body.source)
            self._retired.add(body.source)
        elif isinstance(body, Merged):
            self._tiles(body)
        elif isinstance(body, Idled):
            self._was_silent(body.source)
        elif isinstance(body, Began) and body.expected != self._told:
            self._told = self._expected = body.expected
        elif isinstance(body, Started):
            self._expected = 0
        elif isinstance(body, Assigned):
            self._assigned[body.source] = body.child
        elif isinstance(body, Joined):
            self._generations[body.node] = body.generation

    def _floor(self, name: str, watermark: int | None) -> None:
        """Rules 13 and 14: who comes, or comes back, may say nothing behind the watermark of the log."""
        floor = None if watermark is None else watermark + self._lateness[name]
        self._floors.setdefault(name, []).append(floor)

    def _had_to_go(self, name: str) -> None:
        id = SourceId.of(name)
        if name not in self.given_up and str(SourceId(id.name, id.incarnation + 1)) not in self._offsets:
            raise Broken(f"rule 14: {name} is retired, and nobody has said so")

    def reported(self, message: Silent) -> None:
        """A child says that it hears nothing of a source."""
        position = message.prefix.position
        self._reports.add((message.child, message.generation, message.source, position))

    def _was_silent(self, name: str) -> None:
        """Rule 14: who reads a source has reported its silence behind all that is counted."""
        child = self._assigned[SourceId.of(name).name]
        position = self._applied[0].get(name, 0)
        if (child, self._generations[child], name, position) not in self._reports:
            raise Broken(f"rule 14: {name} is given up at {position}, and {child} has not said so")

    def crowds(self, message: Crowded) -> None:
        """A child says that a source brings too many keys."""
        self._crowded.add((message.child, message.generation, message.source, message.prefix.position))

    def _was_crowded(self, name: str) -> None:
        """Rule 15: who reads a source has reported its keys behind all that is counted."""
        child = self._assigned[SourceId.of(name).name]
        position = self._applied[0].get(name, 0)
        if (child, self._generations[child], name, position) not in self._crowded:
            raise Broken(f"rule 15: {name} is in quarantine at {position}, and {child} has not said so")

    def _tiles(self, body: Merged) -> None:
        """I2: what is applied tiles without gap or overlap, in each lane."""
        applied = self._applied[body.lane]
        for name, span in body.partial.vector.items():
            # A lane that is added begins where lane 0 stands.
            low = applied.get(name, 0 if body.lane in self._begun else span.low.position)
            if span.low.position != low or span.high.position < low:
                raise Broken(
                    f"I2: lane {body.lane} is at {low} of {name} and applies "
                    f"({span.low.position}, {span.high.position}]"
                )
            if body.lane == 0 and name in self._retired:
                raise Broken(f"I2: {name} is retired, and something of it is applied")
            applied[name] = span.high.position

    # The root

    def counted(self, opening: str) -> int:
        """Up to which record of a spool, by its opening, the root has counted for good."""
        found = [source for source, last in self._openings.items() if last == opening]
        return max((self._offsets[name] + self._counted.get(name, 0) for name in found), default=0)

    def stepped(self, root: RootMachine) -> None:
        """The root has made something durable."""
        engine = root.engine
        for name, counted in root.committed.items():
            if counted < self._counted.get(name, 0):
                raise Broken(f"I5: what is counted of {name} fell from {self._counted[name]} to {counted}")
            self._counted[name] = counted
            account, position = engine.account(name), engine.sources[name].position
            judged = account.counted + account.late + account.rejected
            if not account.accepted == position == judged:
                raise Broken(f"I6: {name} is at {position}, its account says {account}")

    # The end

    def final(
        self,
        root: RootMachine,
        found: Mapping[int, list[Result]],
        spools: Mapping[str, Sequence[Event]],
        until: int,
    ) -> None:
        """Every record is counted once, every window is out, and is what the oracle says, in every lane.

        `spools` has the records of each source, by its name; all of them have gone beyond `until`.
        """
        for name, records in spools.items():
            if name not in self.bereft:
                self._tiled(name, len(records))
            self._counted_once(name, records)
        self._skipped_rightly(root.engine)
        for name, floors in self._floors.items():
            returns = (d for d in root.engine.decisions if d.source == name and d.kind in ("admit", "resume"))
            if [decision.floor for decision in returns] != floors:
                raise Broken(f"rule 14: what {name} may say when it comes is not what the log says")
        for number, engine in root.engines.items():
            if engine.watermark is None or engine.watermark < until:
                raise Broken(f"I8: the watermark of lane {number} stands at {engine.watermark}")
        for number, engine in root.engines.items():
            for name, known in engine.sources.items():
                reached = root.engine.sources[name].position
                # What a spool no longer has, a lane that has not heard of it never will.
                lost = known.retired and SourceId.of(name).name in self.bereft
                if known.position != reached and not lost:
                    raise Broken(f"I8: lane {number} is at {known.position} of {name}, lane 0 at {reached}")
                largest = root.engine.sources[name].largest
                if known.largest != largest and not lost:
                    raise Broken(
                        f"rule 14: M of {name} is {known.largest} in lane {number}, {largest} in lane 0"
                    )
                # The account of a lane that was added begins there.
                if number in self._begun:
                    # What lane 0 decides holds at the same numbers in the others.
                    self._account(number, engine, name, decisions_of(engine if lost else root.engine))
        self.windows(root, found)

    def _incarnations(self, name: str) -> list[str]:
        mine = (SourceId.of(each) for each in self._spools)
        return [str(each) for each in sorted(each for each in mine if each.name == name)]

    def _tiled(self, name: str, head: int) -> None:
        """I2 and I8 over the incarnations of a source: they tile what its spool has accepted."""
        end = 0
        for each in self._incarnations(name):
            if self._offsets[each] != end:
                raise Broken(f"I2: {each} begins behind record {self._offsets[each]}, counted is {end}")
            end += self._applied[0].get(each, 0)
        if end != head:
            raise Broken(f"I8: {end} records of {name} are counted, {head} were accepted")

    def _counted_once(self, name: str, records: Sequence[Event]) -> None:
        """I2 and I8 by the records themselves, also where a spool has lost some: none is counted by two
        incarnations, and what the spool has is counted."""
        # Copies of a spool hold the same objects, and all that ever were are in the histories.
        by: dict[int, str] = {}
        for each in self._incarnations(name):
            begin = self._offsets[each]
            end = begin + self._applied[0].get(each, 0)
            for record in self.histories[self._openings[each]][begin:end]:
                if by.setdefault(id(record), each) != each:
                    raise Broken(f"I2: {record} is counted by {by[id(record)]} and by {each}")
        missing = [record for record in records if id(record) not in by]
        if missing:
            raise Broken(f"I8: {missing[0]} of {name} is counted by nobody")

    def _skipped_rightly(self, engine: Root) -> None:
        """What was never read lay too far ahead: it is the record that an operator has meant."""
        skipped: dict[tuple[str, int], None] = {}
        for decision in engine.decisions:
            if decision.skip is not None and decision.kind == "skip":
                skipped[decision.source, decision.skip] = None
            elif decision.skip is not None:
                skipped.pop((decision.source, decision.skip), None)
        for name, number in skipped:
            if number <= engine.sources[name].position:
                record = self.histories[self._openings[name]][self._offsets[name] + number - 1]
                if record[0] != FAR:
                    raise Broken(f"rule 15: {record} of {name} was skipped")

    def _account(self, number: int, engine: Root, name: str, decisions: Iterable[oracle.Decision]) -> None:
        """I6: what is late and what is rejected is the same for the oracle, and in every lane."""
        events, known = self._events(engine, name), engine.sources[name]
        sides = oracle.judge(events, oracle.Source(name, known.lateness), decisions)
        expected, account = tuple(map(len, sides)), engine.account(name)
        found = (account.counted, account.late, account.rejected)
        if found != expected:
            raise Broken(
                f"I6: of {name} lane {number} has counted, found late and rejected {found}, "
                f"the oracle {expected}"
            )

    def _events(self, engine: Root, name: str) -> list[oracle.Event]:
        """What was counted of a source, as it was accepted."""
        begin, position = self._offsets[name], engine.sources[name].position
        records = self.histories[self._openings[name]][begin : begin + position]
        if len(records) != position:
            raise Broken(f"I6: {position} records of {name} are counted, {len(records)} were accepted")
        return [
            oracle.Event(name, seq, ts, key, value, mark)
            for seq, (ts, key, value, mark) in enumerate(records, start=1)
        ]

    def windows(self, root: RootMachine, found: Mapping[int, list[Result]]) -> None:
        """I3: what was put out so far is what the oracle says of what was counted so far."""
        wrong = [line for engine in root.engines.values() for line in self._wrong(engine, found)]
        if wrong:
            raise Broken("\n".join(["I3: windows differ from the oracle's", *wrong[:8]]))

    def _wrong(self, engine: Root, found: Mapping[int, list[Result]]) -> list[str]:
        known = engine.sources.values()
        sources = [oracle.Source(each.name, each.lateness, each.site) for each in known]
        events = [event for each in known for event in self._events(engine, each.name)]
        mine = {query.id for query in engine.queries}
        specs = [spec for spec in self.lives.specs() if spec.id in mine]
        expected = oracle.windows(
            events, sources, specs, decisions=decisions_of(engine), watermark=engine.watermark
        )
        rows = [row_of(r) for position in sorted(found) for r in found[position] if r.query in mine]
        return differences(expected, rows)
