"""The root in memory: the roster, the watermark, and the windows that it makes final."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from headwater.catalog import Serves, every
from headwater.central import PORTION
from headwater.changes import Change, first_edge
from headwater.decisions import Decision, Kind, told
from headwater.degraded import Degraded, crowd
from headwater.durations import Duration, integer
from headwater.errors import FunctionFailed, Invalid, InvalidSource, NoPartials, Problem
from headwater.events import Batch, require_batch
from headwater.finals import Finals
from headwater.grouping import Group
from headwater.groups.marked import MarkedGroup
from headwater.horizon import parsed, refuse_beyond
from headwater.merging.closings import FOREVER
from headwater.merging.marks import Member
from headwater.node import Node
from headwater.partials import Partial
from headwater.prefix import Prefix, judge
from headwater.progress import Source
from headwater.queries import Query
from headwater.results import Results
from headwater.roster import Roster
from headwater.rows import TS_MAX, TS_MIN


class Root(Node):
    """A node that closes windows: push batches or merge partials, then take results."""

    _root = True

    @classmethod
    def beside(cls) -> type[Root]:
        """What makes the windows of other lanes, where this one makes those of lane 0."""
        return cls

    def __init__(
        self,
        queries: Iterable[Query],
        *,
        expected: int = 1,
        horizon: Duration | None = None,
        serves: Serves = every,
    ) -> None:
        """`expected` sources must be admitted before anything is final; nothing is read that lies more
        than `horizon` ahead of the watermark."""
        self._horizon, problems = parsed(horizon)
        if (integer(expected) or 0) < 1:
            wrong = Problem("expected", f"is {expected!r}", "give the number of sources, at least 1")
            problems.insert(0, wrong)
        if problems:
            raise Invalid("the root cannot be made", problems)
        self.watermark: int | None = None
        self.decisions: list[Decision] = []
        self._expected = expected
        self._finished = False
        self._ending = False
        # The roster's slowest times; the watermark moves only when its source does.
        self._lowest = TS_MIN
        self._due = TS_MIN
        # The watermark does not go beyond, nor anywhere while several decisions are taken as one.
        self._ceiling, self._still = TS_MAX, False
        self._alone = False
        super().__init__(queries, serves=serves)
        self._roster = Roster(self._by_code)
        self._finals = Finals(self._catalog)

    # Sources

    def _admitted(self, source: Source) -> None:
        if self.watermark is not None:
            # Another lane may have raised it further.
            floor = source.largest = max(source.largest, self.watermark + source.lateness)
            self._roster.raise_ordinals(source, self._grouping.marked)
            self._decide("admit", source, floor=floor, ordinals=True)
        else:
            # A lane that comes to its watermark later still begins where another one has raised it.
            self._decide("admit", source, floor=source.largest if source.largest > TS_MIN else None)
        self._lowest = TS_MAX
        self._roster.present.append(source)
        self._alone = len(self._by_code) == 1
        # What the root has raised is where the source begins, for whoever sends its records.
        source.since = source.prefix

    def stand_beside(self, main: Root) -> None:
        """Begin where the root of another lane stands: with its sources, those among them that it has given
        up, and its watermark. Only before anything else.

        They were given up one after the other, at watermarks that were lower: that of now follows from the
        order in which it happened, and not from who is left.
        """
        for name, source in main.sources.items():
            prefix = Prefix(source.position, source.largest, {}, source.skips, source.opening)
            self.admit(name, lateness=source.lateness, site=source.site, prefix=prefix)
            mine = self.sources[name]
            if source.idle or source.retired:
                mine.idle, mine.retired = source.idle, source.retired
                self._decide("retire" if mine.retired else "idle", mine, closes=True)
        # What was not read by then is not part of any prefix here either.
        self.decisions += [each for each in main.decisions if each.kind in ("skip", "unskip")]
        self._roster.drop_retired()
        self.watermark = main.watermark

    def _decide(
        self,
        kind: Kind,
        source: Source,
        *,
        floor: int | None = None,
        closes: bool = False,
        ordinals: bool = False,
        skip: int | None = None,
    ) -> None:
        standings = [
            (self._catalog.label(group.member.index), source.marks.get(group.name, {}))
            for group in (self._grouping.marked if ordinals else ())
        ]
        raised, by_key = told(standings)
        self.decisions.append(
            Decision(kind, source.name, source.position, floor, closes, raised, by_key, skip)
        )

    def start(self) -> None:
        """Wait for no more sources than there are: the watermark is theirs from now on.

        Whoever owns a clock calls it when the topology's startTimeout has passed (protocol, rule 13).
        Before the first source it means: do not wait for a second one. Where nothing is waited for any more
        there is nothing to decide: then it does nothing.
        """
        if self.started:
            return
        self._expected = max(len(self.sources), 1)
        self.decisions.append(Decision("start", "", 0))
        self._advance()

    def expect(self, count: int) -> None:
        """Wait for so many sources from now on; where the watermark is set, that is over."""
        if self.watermark is None and not self._finished:
            self._expected = count
            self._advance()

    @property
    def present(self) -> Sequence[Source]:
        """The sources that are not retired, idle or not."""
        return self._roster.present

    def source_of(self, code: int) -> Source:
        return self._by_code[code]

    @property
    def started(self) -> bool:
        """Whether all sources that are waited for are there."""
        return self._finished or len(self.sources) >= self._expected

    def idle(self, name: str) -> None:
        """Give a source up for now: the watermark and the order of marks no longer wait for it."""
        source = self._known(name)
        if not (source.idle or source.retired):
            self._give_up(source, "idle")

    def _give_up(self, source: Source, kind: Kind) -> None:
        self._roster.end_marks_of(source, self._grouping.marked)
        source.idle = True
        self._decide(kind, source, closes=True)
        before = self.watermark
        self._advance()
        if self.watermark is not None and self.watermark == before and not self._still:
            # Windows by order may have waited for this source alone.
            self._close(self.watermark)

    def resume(self, name: str, *, floor: int | None = None) -> None:
        """A source that was idle speaks again; nothing that it says can reach behind the watermark, nor
        behind `floor` where one was decided elsewhere."""
        source = self._known(name)
        if not source.idle or source.retired:
            return
        source.idle = False
        self._lowest = TS_MAX
        if self.watermark is not None:
            floor = max(self.watermark + source.lateness, TS_MIN if floor is None else floor)
        if floor is not None:
            source.largest = max(source.largest, floor)
        self._roster.raise_ordinals(source, self._grouping.marked)
        self._decide("resume", source, floor=floor, ordinals=True)

    def reopen(self, name: str, opening: str, upto: int | None) -> None:
        """The source's spool was opened again, with records up to a number if that is known: what was sent
        from before no longer fits, and a record behind it is not the one that was to be skipped."""
        source = self._known(name)
        source.opening = opening
        for number in sorted(source.skips):
            if upto is not None and number > upto:
                source.skips -= {number}
                self._decide("unskip", source, skip=number)

    def retire(self, name: str) -> None:
        """Give a source up for good."""
        source = self._known(name)
        if source.retired:
            return
        source.retired = True
        self._roster.drop_retired()
        if source.idle:
            self._decide("retire", source)
        else:
            self._give_up(source, "retire")

    def skip(self, name: str, seq: int) -> None:
        """Decide that a record is never read: it counts as rejected, and its source waits no longer.

        Every node below that reads the source is told so too (`Node.skip`).
        """
        source = self._known(name)
        before = source.skips
        super().skip(name, seq)
        for number in source.skips - before:
            self._decide("skip", source, skip=number)

    def check_skip(self, name: str, seq: int) -> int:
        self._refuse_late_comers(self._known(name), "the record cannot be skipped")
        return super().check_skip(name, seq)

    # Events

    def push(self, batch: Batch) -> int:
        require_batch(batch)
        source = self.sources.get(batch.source) or self._known(batch.source)
        if source.idle or self._finished:
            self._refuse_late_comers(source)
            if self._failed is None and batch.first == source.position + 1 and self._readable(source, batch):
                self.resume(source.name)
        before = source.largest - source.lateness
        read = super().push(batch)
        # The watermark is the slowest source's: only when that one moves it may move.
        if before <= self._lowest:
            lowest = source.largest - source.lateness
            if (
                self._alone
                and self._central.events.fresh < PORTION
                and self.watermark is not None
                and before == self.watermark < lowest < self._due
            ):
                self.watermark = self._lowest = lowest
            else:
                self._advance()
        return read

    def _readable(self, source: Source, batch: Batch) -> bool:
        """Whether anything of a batch can be read: what has to wait is no sign of life."""
        limit = self._limit
        return judge(batch, source.code, source.largest, source.lateness, limit, source.skips).read > 0

    def merge(self, partial: Partial) -> None:
        idle = []
        for name, span in partial.vector.items():
            source = self.sources.get(name)
            if source is not None:
                self._refuse_late_comers(source)
                if source.idle and span.low.position == source.position < span.high.position:
                    idle.append(name)
        self._refuse_far_ahead(partial)
        for name in idle:
            # A sign of life: its prefix state changes, so the partial is made again behind it.
            self.resume(name)
        super().merge(partial)
        self._advance()

    def check(self, partial: Partial) -> None:
        self._refuse_far_ahead(partial)
        super().check(partial)

    def _check_merged(self, partial: Partial) -> None:
        # Whoever logs what is merged has checked it before.
        self._versions.check(partial)

    def flush(self) -> Partial:
        """A root gives results, not partials: what it holds is nobody else's."""
        raise NoPartials

    def _refuse_late_comers(self, source: Source, what: str = "the batch cannot be taken") -> None:
        if source.retired or self._finished:
            problem = Problem("source", f"{source.name!r} is retired", "admit it under a new name")
            if not source.retired:
                problem = Problem("source", f"{source.name!r} comes after the end", "make a new root")
            raise InvalidSource(what, [problem])

    def _refuse_far_ahead(self, partial: Partial) -> None:
        if self._horizon is not None and self.watermark is not None:
            refuse_beyond(self.watermark + self._horizon, partial)

    # Watermark

    def stay_behind(self, watermark: int | None) -> None:
        """As one lane of several: never go beyond the watermark of lane 0, which decides for all of them what
        a source that returns may still say. Where nobody is waited for, go up to it."""
        ceiling = TS_MIN if watermark is None else watermark
        if ceiling != self._ceiling:
            self._ceiling = ceiling
            self._advance()

    @contextmanager
    def deciding(self) -> Iterator[None]:
        """Take several decisions as one: who was given up and has returned since is not given up."""
        self._still, before = True, self.watermark
        try:
            yield
        finally:
            self._still = False
        self._advance()
        if self.watermark is not None and self.watermark == before:
            # Windows by order may have waited for one who was given up.
            self._close(self.watermark)

    def _advance(self) -> None:
        """Raise the watermark to the slowest source of the roster, and close what that makes final."""
        if len(self.sources) < self._expected or self._still:
            return
        lowest = self._ceiling
        for source in self._roster.present:
            if source.largest - source.lateness < lowest and not source.idle:
                lowest = source.largest - source.lateness
        if lowest == TS_MAX:
            return
        self._lowest = lowest
        if lowest >= -FOREVER and (self.watermark is None or lowest > self.watermark):
            self._close(lowest)

    def finish(self) -> None:
        """No more events will come: everything that can be final is."""
        self._finished = True
        self._close(FOREVER)

    def _close(self, watermark: int) -> None:
        self.watermark = watermark
        if self._horizon is not None:
            self.read_until(watermark + self._horizon)
        try:
            self._close_groups(watermark)
        except FunctionFailed as error:
            # Windows that were being folded are lost with it: nothing may follow as if they were out.
            self._failed = error
            raise

    def _close_groups(self, watermark: int) -> None:
        central, grouping = self._central, self._grouping
        if central.readers and central.events.fresh >= PORTION:
            if not self._ending and central.can_wait(watermark):
                central.events.fresh = 0
            else:
                central.close(watermark)
        for sliced in grouping.sliced:
            # Whoever takes results looks once more: until then some windows may wait for others.
            if watermark >= sliced.latest or (self._ending and watermark >= sliced.next):
                sliced.close(watermark)
        for marked in grouping.marked:
            self._close_marked(marked, watermark, self._roster.members(marked))
        if self._ending:
            self._forget_ended(watermark)
        # Up to when a rising watermark makes nothing final, if it takes no more than a look to know.
        patient = not (grouping.marked or self._ending) and self._horizon is None
        self._due = min((sliced.latest for sliced in grouping.sliced), default=TS_MAX) if patient else TS_MIN

    def _close_marked(self, group: MarkedGroup, watermark: int, members: list[Member]) -> None:
        roster = self._roster
        group.close(watermark, members, roster.marks(group), roster.name, roster.site)

    @property
    def degraded(self) -> tuple[Degraded, ...]:
        """The punctuation queries of which more windows wait to be final than `max_open`.

        Counted when asked for: windows of each source and key, open ones with events among them. Nothing
        is dropped; it is for whoever runs the root to see to it.
        """
        if self._finished:
            return ()
        missing = max(self._expected - len(self.sources), 0)
        crowded = [group for group in self._grouping.marked if group.crowded]
        found = [crowd(group, self._roster, self.watermark, missing) for group in crowded]
        return tuple(each for each in found if each is not None)

    # Queries

    def add(self, query: Query) -> Change:
        """Add a query: it sees the events from the first edge above everything applied so far."""
        change = self.proposed(query)
        self.apply(change)
        return change

    def remove(self, query_id: str, *, at_once: bool = False) -> Change:
        """Remove a query, after the windows that it has begun or at once (which drops them)."""
        change = self.proposed_removal(query_id, at_once=at_once)
        self.apply(change)
        return change

    def proposed(self, query: Query) -> Change:
        """The change that adds a query, for whoever logs it before it is applied."""
        self._catalog.check_addition(query)
        return Change("add", query, self._edge(query), self.version + 1)

    def proposed_removal(self, query_id: str, *, at_once: bool = False) -> Change:
        """The change that removes a query."""
        query = self._catalog.find(query_id)
        edge = self._edge(query)
        # Where nothing was applied there is no window to wait for.
        return Change("remove", query, edge, self.version + 1, at_once or edge == TS_MIN)

    def _edge(self, query: Query) -> int:
        """The first edge of a query above everything applied so far; nothing applied: the beginning."""
        if self.largest == TS_MIN:
            return TS_MIN
        above = max(self.largest + 1, self.watermark if self.watermark is not None else TS_MIN)
        return first_edge(query, above)

    def apply(self, change: Change) -> None:
        # What is final by now is final, and is lowered with the operators that it was computed with.
        if self.watermark is not None:
            self._close(self.watermark)
        self._collect()
        super().apply(change)
        self._due = TS_MIN
        self._ending |= change.kind == "remove"

    def _forget_ended(self, watermark: int) -> None:
        """Drop members whose last window has been closed."""
        self._collect()
        ended = self._grouping.let_go(watermark)
        self._ending = self._grouping.is_ending
        for group in ended:
            self._roster.end_group(group)
            self._close_marked(group, watermark, [])
            self._lower([group])

    # Results

    def take(self) -> Results:
        """The windows that became final since the last time."""
        self._collect()
        return self._finals.take()

    def _collect(self) -> None:
        if self.watermark is not None and self._failed is None:
            try:
                for sliced in self._grouping.sliced:
                    if self.watermark >= sliced.next:
                        sliced.close(self.watermark)
                central = self._central
                if central.readers and (self._ending or not central.can_wait(self.watermark)):
                    central.close(self.watermark)
            except FunctionFailed as error:
                self._failed = error
                raise
        self._lower(self._grouping.by_id.values())

    def _lower(self, groups: Iterable[Group]) -> None:
        error = self._finals.collect(groups)
        if error is not None:
            self._failed = error
