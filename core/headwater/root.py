"""The root in memory: the roster, the watermark, and the windows that it makes final."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from headwater.durations import Duration, integer, microseconds
from headwater.errors import (
    FunctionFailed,
    Invalid,
    InvalidQuery,
    InvalidSource,
    NoPartials,
    Problem,
    TooFarAhead,
)
from headwater.events import Batch, require_batch
from headwater.groups.counted import CountedGroup
from headwater.groups.marked import MarkedGroup
from headwater.groups.members import Active
from headwater.groups.sliced import SlicedGroup
from headwater.merging.closed import Closed, joined
from headwater.merging.closings import FOREVER
from headwater.merging.marks import Member
from headwater.node import Change, Group, Node, Serves, Source, every
from headwater.partials import Partial
from headwater.prefix import KeyedMarks, MarkState, Prefix, judge
from headwater.queries import Query, same_functions, validate
from headwater.results import Block, Results, lowered
from headwater.rows import TS_MAX, TS_MIN, Array, Rows
from headwater.slicing.marks import close_all
from headwater.windows import is_count

# Events that must be put in order are handed on in portions of this size, or when results are taken.
PORTION = 16_384
# They wait for longer, up to this many, where they can complete no window.
HELD_BACK = 262_144
# As many sources a query that is degraded names.
NAMED = 10

Kind = Literal["admit", "idle", "resume", "retire", "start", "skip"]


@dataclass(frozen=True, slots=True)
class Decision:
    """What the root has decided about a source once its prefix had reached `after` (protocol, rule 14).

    `floor` raises its largest ts, `closes` ends its open mark windows and takes it out of their order,
    `ordinals` (by query) raise its next ordinals, `key_ordinals` (by query and key) those of keys that
    have some of their own; the record `skip` is never read. A start is about no source: its name is empty.
    """

    kind: Kind
    source: str
    after: int
    floor: int | None = None
    closes: bool = False
    ordinals: Mapping[str, int] = field(default_factory=dict)
    key_ordinals: Mapping[tuple[str, str], int] = field(default_factory=dict)
    skip: int | None = None


@dataclass(frozen=True, slots=True)
class Degraded:
    """A punctuation query of which more windows wait than its `max_open`, and for which sources.

    Those that most windows wait for come first, ten at most; `reason` says it in a sentence.
    """

    query: str
    reason: str
    waiting: int
    sources: tuple[str, ...]


class Root(Node):
    """A node that closes windows: push batches or merge partials, then take results."""

    _root = True

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
        self.watermark: int | None = None
        self.decisions: list[Decision] = []
        self._expected = expected
        self._horizon = _horizon(horizon, expected)
        self._finished = False
        self._ending = False
        self._blocks: list[Block] = []
        self._unlowered: FunctionFailed | None = None
        # The roster's slowest times; the watermark moves only when its source does.
        self._lowest = TS_MIN
        self._due = TS_MIN
        # The watermark does not go beyond, nor anywhere while several decisions are taken as one.
        self._ceiling, self._still = TS_MAX, False
        self._alone = False
        self._site_of = np.empty(0, np.int64)
        # Who is not retired: there may be many more who are.
        self._present: list[Source] = []
        super().__init__(queries, serves=serves)

    # Sources

    def _admitted(self, source: Source) -> None:
        if self.watermark is not None:
            # Another lane may have raised it further.
            floor = source.largest = max(source.largest, self.watermark + source.lateness)
            self._raise_ordinals(source)
            self._decide("admit", source, floor=floor, ordinals=True)
        else:
            # A lane that comes to its watermark later still begins where another one has raised it.
            self._decide("admit", source, floor=source.largest if source.largest > TS_MIN else None)
        self._lowest = TS_MAX
        self._present.append(source)
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
            for seq in sorted(mine.skips):
                self._decide("skip", mine, skip=seq)
            if source.idle or source.retired:
                mine.idle, mine.retired = source.idle, source.retired
                self._decide("retire" if mine.retired else "idle", mine, closes=True)
        self._present = [source for source in self._by_code if not source.retired]
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
        raised: dict[str, int] = {}
        by_key: dict[tuple[str, str], int] = {}
        for group in self._marked if ordinals else ():
            for key, state in source.marks.get(group.name, {}).items():
                if key is None:
                    raised[self._told_as(group)] = state.ordinal
                else:
                    by_key[self._told_as(group), key] = state.ordinal
        self.decisions.append(
            Decision(kind, source.name, source.position, floor, closes, raised, by_key, skip)
        )

    def _told_as(self, group: MarkedGroup) -> str:
        """A query in a decision: one that was added again is another one."""
        incarnation = self._incarnations[group.member.index]
        return group.member.query.id + (f"#{incarnation}" if incarnation > 1 else "")

    def _roster(self) -> Iterator[Source]:
        return (source for source in self._present if not source.idle)

    def _raise_ordinals(self, source: Source) -> None:
        """A source that comes (back) starts at the next ordinal that is not decided.

        That is the lowest of the roster; where nobody is left, the highest there ever was, since nobody
        was waited for.
        """
        for group in self._marked:
            near = [
                s for s in self._by_code if s is not source and (not group.by_site or s.site == source.site)
            ]
            roster = [s for s in near if not (s.idle or s.retired)]
            others = [s.marks.get(group.name, {}) for s in roster or near]
            states = dict(source.marks.get(group.name, {})) or {None: MarkState()}
            for own in sorted({key for other in others for key in other if key is not None} - set(states)):
                default = states[None]
                states[own] = MarkState(default.ordinal, default.opened, default.ordinal)
            for key, state in states.items():
                reached = [_state(other, key).ordinal for other in others]
                undecided = (min if roster else max)(reached, default=0)
                if undecided > state.ordinal:
                    states[key] = MarkState(undecided, state.opened, state.since)
            source.marks[group.name] = states

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
    def started(self) -> bool:
        """Whether all sources that are waited for are there."""
        return self._finished or len(self.sources) >= self._expected

    def idle(self, name: str) -> None:
        """Give a source up for now: the watermark and the order of marks no longer wait for it."""
        source = self._known(name)
        if not (source.idle or source.retired):
            self._give_up(source, "idle")

    def _give_up(self, source: Source, kind: Kind) -> None:
        for group in self._marked:
            at = min(source.largest, FOREVER, group.member.end)
            ended, states = close_all(source.marks.get(group.name, {}), at)
            # No state and an empty one are the same to who judges, but not to who compares prefixes.
            if states:
                source.marks[group.name] = states
            if not group.over:
                group.end(source.code, ended)
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
        self._raise_ordinals(source)
        self._decide("resume", source, floor=floor, ordinals=True)

    def reopen(self, name: str, opening: str) -> None:
        """The source's spool was opened again: what was sent from before no longer fits."""
        self._known(name).opening = opening

    def retire(self, name: str) -> None:
        """Give a source up for good."""
        source = self._known(name)
        if source.retired:
            return
        source.retired = True
        self._present = [each for each in self._present if each is not source]
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
                and self._ordered.fresh < PORTION
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
        self._check_queries(partial)

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
            limit = self.watermark + self._horizon
            # A heartbeat shows in its source's prefix alone; what the root itself has raised stays allowed.
            spans = partial.vector.values()
            moved = (s.high.largest for s in spans if s.high.largest > s.low.largest)
            furthest = max(partial.largest, max(moved, default=TS_MIN))
            if furthest > limit:
                raise TooFarAhead(furthest, limit)

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
        for source in self._present:
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
        if self._central and self._ordered.fresh >= PORTION:
            if self._central_can_wait():
                self._ordered.fresh = 0
            else:
                self._close_central(watermark)
        for sliced in self._sliced:
            # Whoever takes results looks once more: until then some windows may wait for others.
            if watermark >= sliced.latest or (self._ending and watermark >= sliced.next):
                sliced.close(watermark)
        if self._marked:
            self._close_marked(watermark)
        if self._ending:
            self._forget_ended(watermark)
        # Up to when a rising watermark makes nothing final, if it takes no more than a look to know.
        patient = not (self._marked or self._ending) and self._horizon is None
        self._due = min((sliced.latest for sliced in self._sliced), default=TS_MAX) if patient else TS_MIN

    def _central_can_wait(self) -> bool:
        """Whether what waits to be put in order cannot complete a window, and is little enough to wait."""
        if self.watermark is None:
            return True
        if self._ending or self._ordered.added >= HELD_BACK:
            return False
        # All that is held is the quick bound; what the watermark has passed, the close one.
        return self._all_patient(len(self._ordered)) or self._all_patient(self._ordered.ready(self.watermark))

    def _all_patient(self, waiting: int) -> bool:
        return all(isinstance(group, CountedGroup) and group.patient(waiting) for group, _ in self._central)

    def _close_central(self, watermark: int) -> None:
        """Hand on in their order the events that are below the watermark, and close what they complete."""
        anyhow = min(
            group.indifferent if isinstance(group, CountedGroup) else 0 for group, _ in self._central
        )
        for rows in self._ordered.release(
            watermark, together=self._copies, anyhow=0 if self._copies else anyhow
        ):
            self._read_central(rows)
        for group, _ in self._central:
            if isinstance(group, SlicedGroup):
                group.close(watermark)

    def _close_marked(self, watermark: int) -> None:
        for group in self._marked:
            self._close_one_marked(group, watermark, self._members(group))

    def _close_one_marked(self, group: MarkedGroup, watermark: int, roster: list[Member]) -> None:
        group.close(
            watermark,
            roster,
            self._marks_of(group),
            lambda code: self.order.names[code],
            lambda code: self._by_code[code].site,
        )

    def _end_marks(self, group: MarkedGroup, watermark: int) -> None:
        """The query was removed, and the watermark is past its end: what is open ends there.

        Where sources stand with its marks is part of their prefixes and stays.
        """
        group.over = True
        for source in self._by_code:
            ended, _ = close_all(source.marks.get(group.name, {}), group.member.end)
            group.end(source.code, ended)
        self._close_one_marked(group, watermark, [])
        self._collect_marked(group)

    def _members(self, group: MarkedGroup) -> list[Member]:
        return [Member(s.code, s.site, s.marks.get(group.name, {})) for s in self._roster()]

    def _marks_of(self, group: MarkedGroup) -> dict[int, KeyedMarks]:
        return {s.code: s.marks.get(group.name, {}) for s in self._by_code}

    @property
    def degraded(self) -> tuple[Degraded, ...]:
        """The punctuation queries of which more windows wait to be final than `max_open`.

        Counted when asked for: windows of each source and key, open ones with events among them. Nothing
        is dropped; it is for whoever runs the root to see to it.
        """
        if self._finished:
            return ()
        found = (self._crowd(group) for group in self._marked if group.crowded)
        return tuple(each for each in found if each is not None)

    def _crowd(self, group: MarkedGroup) -> Degraded | None:
        roster = self._members(group)
        unfinished = group.unfinished(
            self.watermark, roster, self._marks_of(group), lambda code: self._by_code[code].site
        )
        waiting, limit = len(unfinished), group.window.max_open
        if waiting <= limit:
            return None
        lows = {source.code: source.largest - source.lateness for source in self._roster()}
        held_back = group.held_back(unfinished, roster, lows) if self.started else {}
        # Every window waits a while for everybody: named are those who alone let too many wait, if any do.
        alone = {code: number for code, number in held_back.items() if number > limit}
        held_back = alone or held_back
        names = {code: self.order.names[code] for code in held_back}
        sources = tuple(names[code] for code in sorted(names, key=lambda c: (-held_back[c], names[c])))
        if not self.started:
            missing = self._expected - len(self.sources)
            what, remedy = f"sources that are expected ({missing} more)", "admit them or start without them"
        elif sources:
            more = f" and {len(sources) - NAMED} more" if len(sources) > NAMED else ""
            what, remedy = ", ".join(map(repr, sources[:NAMED])) + more, "idle or retire them"
        else:
            what, remedy = "a source to speak, since all are idle or retired", "let one resume"
        reason = f"{waiting} windows wait to be final, for {what}; {remedy}, or raise max_open ({limit})"
        return Degraded(group.member.query.id, reason, waiting, sources[:NAMED])

    def _read_central(self, rows: Rows) -> None:
        sites: Array | None = None
        if self._sites_matter:
            if len(self._site_of) < len(self._by_code):
                self._site_of = np.array([self._sites.code(s.site) for s in self._by_code], np.int64)
            sites = self._site_of[rows.sources()]
        for group, sharing in self._central:
            mine, mine_sites = rows, sites if sharing.scope == "local" else None
            if sharing.deduplicate:
                kept = _first_copies(rows, mine_sites)
                mine = rows.take(kept, in_order=True)
                mine_sites = None if mine_sites is None else mine_sites[kept]
            group.read_ordered(mine, self._keys.listed, mine_sites, self._sites.listed)

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
        here = [active.query for active in self._actives.values()]
        validate([query], beside=[*here, *self._elsewhere.values()])
        same_functions([*self.queries, *self._elsewhere.values()], query)
        return Change("add", query, self._edge(query), self.version + 1)

    def proposed_removal(self, query_id: str, *, at_once: bool = False) -> Change:
        """The change that removes a query."""
        held = {id: active.query for id, active in self._actives.items()} | self._elsewhere
        query = held.get(query_id) if isinstance(query_id, str) else None
        if query is None:
            raise InvalidQuery(
                "the query cannot be removed",
                [
                    Problem(
                        "id",
                        f"{query_id!r} is not there",
                        f"give one of {', '.join(held) or 'none'}",
                    )
                ],
            )
        edge = self._edge(query)
        # Where nothing was applied there is no window to wait for.
        return Change("remove", query, edge, self.version + 1, at_once or edge == TS_MIN)

    def _edge(self, query: Query) -> int:
        """The first edge of a query above everything applied so far; nothing applied: the beginning."""
        if self.largest == TS_MIN:
            return TS_MIN
        above = max(self.largest + 1, self.watermark if self.watermark is not None else TS_MIN)
        periodic = None if is_count(query.window) else Active(0, query).periodic
        return above if periodic is None else above + (periodic.offset - above) % periodic.slide

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
        self._ending = False
        for group_id, group in list(self._groups.items()):
            over = {m.index for m in group.members if m.end < TS_MAX and m.last_end < watermark}
            self._ending |= any(m.end < TS_MAX and m.index not in over for m in group.members)
            if over and isinstance(group, SlicedGroup):
                group.join([m for m in group.members if m.index not in over])
            elif over and isinstance(group, CountedGroup):
                for index in over:
                    group.leave(index)
            elif over and isinstance(group, MarkedGroup):
                self._end_marks(group, watermark)
                # The nodes below go on with the states of its marks: they are part of every prefix.
                del self._groups[group_id]
        self._drop_empty()
        self._arrange()

    # Results

    def take(self) -> Results:
        """The windows that became final since the last time."""
        self._collect()
        if self._unlowered is not None:
            # Once: the windows of everybody else can be taken afterwards.
            error, self._unlowered = self._unlowered, None
            raise error
        blocks, self._blocks = self._blocks, []
        return Results(blocks)

    def _collect(self) -> None:
        if self.watermark is not None and self._failed is None:
            try:
                for sliced in self._sliced:
                    if self.watermark >= sliced.next:
                        sliced.close(self.watermark)
                if self._central and not self._central_can_wait():
                    self._close_central(self.watermark)
            except FunctionFailed as error:
                self._failed = error
                raise
        for group in self._groups.values():
            if isinstance(group, MarkedGroup):
                self._collect_marked(group)
            elif chunks := group.take():
                self._blocks += self._lowered(
                    group, joined(group.operators, chunks), group.space.names.listed
                )

    def _collect_marked(self, group: MarkedGroup) -> None:
        for closed, sites, ordinals in group.take():
            names = [
                (site, group.space.names.listed[code][1])
                for site, code in zip(sites, closed.code.tolist(), strict=True)
            ]
            closed.code = np.arange(len(names))
            merge = group.window.merge
            for block in self._lowered(group, closed, names):
                if merge in ("local", "order"):
                    block.ordinal = np.array(ordinals, np.int64)
                block.by_bounds = merge == "bounds"
                self._blocks.append(block)

    def _lowered(self, group: Group, closed: Closed, names: list[tuple[str, str | None]]) -> Iterator[Block]:
        """One block for each list of functions that queries of the group ask for."""
        kinds = self._kind[closed.query]
        least, most = int(kinds.min()), int(kinds.max())
        for kind in [least] if least == most else np.unique(kinds).tolist():
            part = closed
            if least < most:
                mine = kinds == kind
                part = Closed(
                    closed.query[mine],
                    closed.code[mine],
                    closed.start[mine],
                    closed.end[mine],
                    [tuple(column[mine] for column in columns) for columns in closed.states],
                )
            try:
                yield lowered(
                    self.queries,
                    self._incarnations,
                    group.operators,
                    self._aggregates[kind],
                    part.query,
                    part.code,
                    part.start,
                    part.end,
                    part.states,
                    names,
                )
            except FunctionFailed as error:
                self._unlowered = self._failed = error


def _horizon(horizon: Duration | None, expected: int) -> int | None:
    """The horizon in microseconds, once both settings make sense."""
    problems = []
    if (integer(expected) or 0) < 1:
        problems.append(Problem("expected", f"is {expected!r}", "give the number of sources, at least 1"))
    found = None
    try:
        found = None if horizon is None else microseconds(horizon)
        if found is not None and found < 0:
            problems.append(Problem("horizon", f"is {horizon!r}", "give a duration from 0s on"))
    except ValueError as error:
        problems.append(Problem("horizon", str(error), "give a duration such as 1h"))
    if problems:
        raise Invalid("the root cannot be made", problems)
    return found


def _state(states: KeyedMarks, key: str | None) -> MarkState:
    return states.get(key) or states.get(None) or MarkState()


def _first_copies(rows: Rows, sites: Array | None) -> Array:
    """Of rows with equal key, ts and value (and site, if given) the first one, in their order."""
    codes = rows.codes if rows.codes is not None else np.zeros(len(rows), np.int64)
    value = rows.value + 0.0
    site = sites if sites is not None else np.zeros(len(rows), np.int64)
    order = np.lexsort((np.arange(len(rows)), value, codes, site, rows.ts))
    fresh = np.ones(len(rows), bool)
    fresh[1:] = False
    for column in (value, codes, site, rows.ts):
        fresh[1:] |= column[order][1:] != column[order][:-1]
    return np.sort(order[fresh])
