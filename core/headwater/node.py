"""A node in memory: it reads batches, merges partials, and gives away what it has gathered.

`Node` is a child or an intermediate; `Root` also knows the watermark and closes windows. Either reads
batches, so a root alone is a whole engine in one process. Nothing here does I/O or reads a clock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import Literal

import numpy as np

from headwater.aggregates import Aggregate
from headwater.durations import Duration, integer, microseconds
from headwater.errors import (
    DoesNotFit,
    FunctionFailed,
    Invalid,
    InvalidPartial,
    InvalidSource,
    NotFlushed,
    OtherQueries,
    OutOfSequence,
    Problem,
    StaleVersion,
)
from headwater.events import Batch, name_problem, require_batch
from headwater.groups.counted import CountedGroup
from headwater.groups.marked import MarkedGroup, MarkedPart
from headwater.groups.members import Active
from headwater.groups.sliced import SlicedGroup, SlicedPart
from headwater.groups.soundness import Extent, check_ints
from headwater.ledger import Account, added
from headwater.merging.ordered import OrderedEvents
from headwater.names import Names
from headwater.partials import Partial, Span
from headwater.prefix import NO_SKIPS, SAMPLE_LIMIT, KeyedMarks, Prefix, Refused, clean, judge
from headwater.queries import Query, Sharing, Where, signature, validate
from headwater.rows import TS_MAX, TS_MIN, Array, Ints, Rows, SourceOrder
from headwater.windows import NEVER, TS_LIMIT

Group = SlicedGroup | CountedGroup | MarkedGroup


@dataclass(slots=True)
class Source:
    """Where one source stands at this node."""

    name: str
    code: int
    site: str
    lateness: int
    position: int = 0
    largest: int = TS_MIN
    marks: dict[str, KeyedMarks] = field(default_factory=dict)
    # Numbers above the position that are never to be read.
    skips: frozenset[int] = NO_SKIPS
    opening: str = ""
    account: Account = field(default_factory=Account)
    # What has been read since the last flush.
    since: Prefix = field(default_factory=Prefix)
    refused: Mapping[str, int] = field(default_factory=dict)
    sample: tuple[Refused, ...] = ()
    heartbeats: int = 0
    idle: bool = False
    retired: bool = False

    @property
    def prefix(self) -> Prefix:
        return Prefix(self.position, self.largest, dict(self.marks), self.skips, self.opening)


@dataclass(frozen=True, slots=True)
class Change:
    """A query that is added or removed at a time: events at or behind `edge` see the new set."""

    kind: Literal["add", "remove"]
    query: Query
    edge: int
    version: int
    at_once: bool = False


# Whether a query is computed at a node, by what it is and the how-manieth of its id.
Serves = Callable[[Query, int], bool]


def every(query: Query, incarnation: int) -> bool:
    """A node by itself computes all that is asked."""
    return True


class Node:
    """Groups of queries over the prefixes of some sources."""

    _root = False

    def __init__(self, queries: Iterable[Query], *, serves: Serves = every) -> None:
        """`serves` says which queries are computed here; versions count the others too."""
        self.order = SourceOrder()
        self._serves = serves
        # Queries that are there and are computed in another lane.
        self._elsewhere: dict[str, Query] = {}
        self.queries: list[Query] = []
        # By the number of a query: the how-manieth of its id it is, counted in `_times`.
        self._incarnations: list[int] = []
        self._times: dict[str, int] = {}
        # Lists of functions by number, and the number of each query's: what is lowered together.
        self._kinds: Names[tuple[str, ...]] = Names()
        self._kind: Ints = np.empty(0, np.int64)
        self._aggregates: list[tuple[Aggregate, ...]] = []
        self.sources: dict[str, Source] = {}
        self._by_code: list[Source] = []
        self._actives: dict[str, Active] = {}
        self._groups: dict[int, Group] = {}
        self._sharing: dict[int, Sharing] = {}
        self._next_group = 0
        # By group: the predicates of the queries that are there, and whose they are.
        self._wheres: dict[int, dict[Where, set[str]]] = {}
        # The same groups by what they read; kept flat for the hot path.
        self._sliced: list[SlicedGroup] = []
        self._marked: list[MarkedGroup] = []
        self._central: list[tuple[SlicedGroup | CountedGroup, Sharing]] = []
        self._keys: Names[str] = Names()
        self._keys.code("")
        # The dictionary of keys that was translated last: batches of one source usually share theirs.
        self._translated: tuple[tuple[str, ...], Array] = ((), np.empty(0, np.int64))
        self._sites: Names[str] = Names()
        self._ordered = OrderedEvents(self.order)
        self.changes: list[Change] = []
        # Why this node cannot go on, if a user's function raised in the midst of something.
        self._failed: FunctionFailed | None = None
        # The largest ts of an event or mark that counts here so far; heartbeats and late ones aside.
        self.largest = TS_MIN
        self._limit = TS_MAX
        # What distinguishes this set of queries from others, for each version there was.
        self._signatures: list[str] = []
        first = validate(queries)
        self._join([(query, TS_MIN) for query in first])
        self._signatures.append(_digest("", *map(signature, first)))

    # Queries

    @property
    def version(self) -> int:
        return len(self.changes)

    @property
    def active(self) -> tuple[str, ...]:
        """The ids of the queries that are there, here and in other lanes."""
        return (*self._actives, *self._elsewhere)

    def groups(self) -> Mapping[int, Group]:
        return dict(self._groups)

    def _join(self, added: Sequence[tuple[Query, int]]) -> None:
        """Give each query a number and a group: the first that it fits into, else a new one."""
        fresh: dict[int, list[Active]] = {}
        for query, begin in added:
            self._times[query.id] = self._times.get(query.id, 0) + 1
            if not self._serves(query, self._times[query.id]):
                self._elsewhere[query.id] = query
                continue
            active = Active(len(self.queries), query, begin)
            self.queries.append(query)
            self._incarnations.append(self._times[query.id])
            kind = self._kinds.code(tuple(function.name for function in query.aggregates))
            self._kind = np.append(self._kind, kind)
            if len(self._aggregates) < len(self._kinds):
                self._aggregates.append(query.aggregates)
            self._actives[query.id] = active
            fresh.setdefault(self._place(active, fresh), []).append(active)
        for group_id, members in fresh.items():
            self._make(group_id, members)
        self._arrange()

    def _place(self, active: Active, fresh: dict[int, list[Active]]) -> int:
        sharing = Sharing.of(active.query)
        where = active.query.where
        for group_id, other in self._sharing.items():
            if other != sharing or sharing.kind == "marked":
                continue
            if sharing.kind == "counted" and group_id not in fresh:
                # Ranks count from the group's beginning; a later query has another one.
                continue
            # By the queries that are there, not by what a group still holds of others: every node must
            # come to the same answer, and only the root knows when the windows of a removed one end.
            held = self._wheres.setdefault(group_id, {})
            if where in held or all(where.disjoint(other) for other in held):
                break
        else:
            group_id = self._next_group
            self._next_group += 1
            self._sharing[group_id] = sharing
        self._wheres.setdefault(group_id, {}).setdefault(where, set()).add(active.query.id)
        return group_id

    def _make(self, group_id: int, members: list[Active]) -> None:
        sharing = self._sharing[group_id]
        keyed, by_site = sharing.keyed, sharing.scope == "local"
        if sharing.kind == "marked":
            (member,) = members
            self._groups[group_id] = MarkedGroup(self.order, member)
        elif sharing.kind == "counted":
            self._groups[group_id] = CountedGroup(self.order, members, keyed=keyed, by_site=by_site)
        else:
            group = self._groups.get(group_id)
            if not isinstance(group, SlicedGroup):
                root = self._root or sharing.kind == "ordered"
                group = SlicedGroup(self.order, keyed=keyed, by_site=by_site, root=root)
                self._groups[group_id] = group
            group.join([*group.members, *members])

    def _arrange(self) -> None:
        self._sliced, self._marked, self._central = [], [], []
        for group_id, group in self._groups.items():
            sharing = self._sharing[group_id]
            if isinstance(group, MarkedGroup):
                self._marked.append(group)
            elif sharing.kind == "sliced" and isinstance(group, SlicedGroup):
                self._sliced.append(group)
            elif not isinstance(group, MarkedGroup):
                self._central.append((group, sharing))
        # The group that finds out by its sums whether values are finite, if it reads them alone.
        alone = len(self._sliced) == 1 and not self._central and not self._marked
        self._prover = self._sliced[0] if alone and self._sliced[0].proves else None
        # From when on nobody asks for events in their order.
        ends = [member.end for group, _ in self._central for member in group.members]
        self._central_until = max(ends, default=TS_MIN)
        # Copies of an event leave together; sites are looked up only for whoever tells them apart.
        self._copies = any(sharing.deduplicate for _, sharing in self._central)
        self._sites_matter = any(sharing.scope == "local" for _, sharing in self._central)
        self._needs_keys = any(
            sharing.keyed or sharing.deduplicate or any(m.query.where.keys is not None for m in group.members)
            for group, sharing in self._central
        )

    def apply(self, change: Change) -> None:
        """Take a change of the queries that the root has decided. Flush first: no partial mixes two sets."""
        if change.version != self.version + 1:
            raise StaleVersion(change.version, self.version + 1)
        if not (self._root or self._is_flushed()):
            raise NotFlushed
        if change.kind == "add":
            self._join([(change.query, change.edge)])
        else:
            self._remove(change)
        self.changes.append(change)
        told = f"{self._signatures[-1]}|{change.kind}|{change.edge}|{change.at_once}"
        self._signatures.append(_digest(told, signature(change.query)))

    def _is_flushed(self) -> bool:
        return all(source.position <= source.since.position for source in self.sources.values())

    def _remove(self, change: Change) -> None:
        if self._elsewhere.pop(change.query.id, None) is not None:
            return
        active = self._actives.pop(change.query.id)
        for held in self._wheres.values():
            holders = held.get(active.query.where, set())
            holders.discard(active.query.id)
            if not holders:
                held.pop(active.query.where, None)
        ended = Active(active.index, active.query, active.begin, change.edge)
        for group_id, group in list(self._groups.items()):
            if not any(member.index == active.index for member in group.members):
                continue
            if isinstance(group, CountedGroup):
                if change.at_once:
                    group.leave(active.index)
                else:
                    group.shorten(ended)
            elif isinstance(group, MarkedGroup):
                if change.at_once:
                    self._drop(group_id)
                else:
                    group.shorten(ended)
            else:
                kept = [m for m in group.members if m.index != active.index]
                group.join(kept if change.at_once else [*kept, ended], gone_at=change.edge)
        self._drop_empty()
        self._arrange()

    def _drop_empty(self) -> None:
        """Groups of nobody that read events in their order: nobody need forward them."""
        for group_id in [group_id for group_id, group in self._groups.items() if not group.members]:
            if self._sharing[group_id].kind in ("counted", "ordered"):
                del self._groups[group_id]

    def _drop(self, group_id: int) -> None:
        """Forget a mark query, and where the sources stand with it."""
        group = self._groups.pop(group_id)
        if isinstance(group, MarkedGroup):
            for source in self.sources.values():
                source.marks.pop(group.name, None)
                # Nothing was sent in between: the change comes behind a flush.
                kept = {name: marks for name, marks in source.since.marks.items() if name != group.name}
                source.since = replace(source.since, marks=kept)

    # Sources

    def admit(self, name: str, *, lateness: Duration, site: str = "", prefix: Prefix | None = None) -> None:
        """Know a source, from a prefix that somebody above has applied.

        No window is final before every source has gone `lateness` beyond its end.
        """
        problems = []
        if not isinstance(name, str) or not name:
            problems.append(Problem("source", f"is {name!r}", "give the name of the source"))
        elif name in self.sources:
            problems.append(Problem("source", f"{name!r} is there already", "admit each source once"))
        for what, given in (("source", name), ("site", site)):
            if isinstance(given, str) and (wrong := name_problem(given)):
                problems.append(Problem(what, *wrong))
        if not isinstance(site, str):
            problems.append(Problem("site", f"is {site!r}", "give the name of the site"))
        try:
            late = microseconds(lateness)
            if not 0 <= late <= NEVER:
                problems.append(Problem("lateness", f"is {lateness!r}", "give a duration from 0s on"))
        except ValueError as error:
            problems.append(Problem("lateness", str(error), "give a duration such as 2s"))
        if problems:
            raise InvalidSource("the source cannot be admitted", problems)
        start = prefix or Prefix()
        source = Source(
            name,
            self.order.code(name),
            site,
            late,
            start.position,
            start.largest,
            dict(start.marks),
            start.skips,
            start.opening,
        )
        source.since = source.prefix
        self.sources[name] = source
        if source.code < len(self._by_code):
            self._by_code[source.code] = source
        else:
            self._by_code.append(source)
        self._sites.code(site)
        self._admitted(source)

    def _admitted(self, source: Source) -> None:
        """The root counts it in."""

    def place(self, name: str, prefix: Prefix) -> None:
        """Stand at another prefix of a source: what comes next begins there. Only behind a flush."""
        source = self._known(name)
        if source.position != source.since.position:
            raise NotFlushed
        source.position, source.largest, source.marks = prefix.position, prefix.largest, dict(prefix.marks)
        source.skips, source.opening = prefix.skips, prefix.opening
        source.since, source.refused, source.sample = source.prefix, {}, ()

    def release(self, name: str) -> None:
        """Know a source no longer. Only behind a flush."""
        source = self.sources.get(name)
        if source is not None:
            if source.position != source.since.position:
                raise NotFlushed
            del self.sources[name]

    def skip(self, name: str, seq: int) -> None:
        """Never read a record that waits because its ts is too far ahead: the root has decided so.

        It is told before the record is read. What was sent without the decision no longer fits at the
        root; a node that has read the record already starts again from the root's prefix.
        """
        number = self.check_skip(name, seq)
        source = self.sources[name]
        source.skips |= {number}
        # The decision holds from where the receiver stands, and changes nothing of what was read since.
        source.since = replace(source.since, skips=source.since.skips | {number})

    def check_skip(self, name: str, seq: int) -> int:
        """The number of a record that can be skipped; raises if it cannot."""
        source = self._known(name)
        number = integer(seq)
        if number is None or number < 1:
            problem = Problem("seq", f"is {seq!r}", "give the number of a record, from 1 on")
        elif number <= source.position:
            problem = Problem(
                "seq",
                f"record {number} of {name!r} was read already",
                f"give a number above {source.position}",
            )
        else:
            return number
        raise InvalidSource("the record cannot be skipped", [problem])

    def check_known(self, name: str) -> None:
        """Raise if there is no such source."""
        self._known(name)

    def _known(self, name: str) -> Source:
        source = self.sources.get(name) if isinstance(name, str) else None
        if source is None:
            problem = Problem("source", f"{name!r} is not known", "admit it first")
            raise InvalidSource("there is no such source", [problem])
        return source

    # Events

    def read_until(self, limit: int) -> None:
        """Read nothing with a later ts, so that a wrong clock cannot run away with the watermark.

        Whoever runs the node knows the limit: the watermark from above and a horizon, or a clock.
        """
        moment = integer(limit)
        if moment is None:
            problem = Problem("limit", f"is {limit!r}", "give microseconds since the epoch")
            raise Invalid("the node cannot read until then", [problem])
        self._limit = min(moment, TS_MAX)

    def push(self, batch: Batch) -> int:
        """Read a batch; gives how many records were read. The rest is too far ahead: send it again later."""
        require_batch(batch)
        source = self.sources.get(batch.source) or self._known(batch.source)
        if batch.first != source.position + 1:
            raise OutOfSequence(batch.source, source.position + 1, batch.first)
        if self._failed is not None:
            raise self._failed
        try:
            return self._push(source, batch) if not source.skips else self._push_judged(source, batch)
        except FunctionFailed as error:
            self._failed = error
            raise

    def _push(self, source: Source, batch: Batch) -> int:
        prover = self._prover
        found = clean(batch, source.code, source.largest, source.lateness, self._limit, prover is not None)
        if found is None or self._marked:
            return self._push_judged(source, batch)
        rows, low, high = found
        if rows.total is None and prover is not None:
            if not prover.read_proving(rows, low, high):
                return self._push_judged(source, batch)
        else:
            for sliced in self._sliced:
                sliced.read(rows, low, high, batch.keys, source.site)
        if self._central and low < self._central_until:
            self._ordered.add(self._with_keys(rows, batch.keys))
        if high > self.largest:
            self.largest = high
        if high > source.largest:
            source.largest = high
        read = len(rows.value)
        source.position += read
        return read

    def _push_judged(self, source: Source, batch: Batch) -> int:
        """Read a batch record by record: some are late, rejected, marks, heartbeats or too far ahead."""
        judged = judge(batch, source.code, source.largest, source.lateness, self._limit, source.skips)
        rows = judged.rows
        if len(rows.value):
            for sliced in self._sliced:
                sliced.read(rows, judged.low, judged.high, batch.keys, source.site)
            if judged.high > self.largest:
                self.largest = judged.high
            if self._central and judged.low < self._central_until:
                self._ordered.add(self._with_keys(rows, batch.keys))
        for mark in judged.marks:
            self.largest = max(self.largest, mark.ts)
        for marked in self._marked:
            states = source.marks.get(marked.name, {})
            source.marks[marked.name] = marked.read(rows, judged.marks, states, batch.keys, source.code)
        source.position += judged.read
        if source.skips:
            source.skips = frozenset(seq for seq in source.skips if seq > source.position)
        if judged.largest > source.largest:
            source.largest = judged.largest
        source.heartbeats += judged.heartbeats
        if judged.refused:
            source.refused = added(source.refused, judged.refused)
            source.sample = (source.sample + judged.sample)[:SAMPLE_LIMIT]
        return judged.read

    def _with_keys(self, rows: Rows, keys: tuple[str, ...]) -> Rows:
        """Rows whose codes are this node's keys, where somebody needs them."""
        if not self._needs_keys and rows.codes is None:
            return rows
        codes: Array | None = None
        if self._needs_keys:
            if keys is not self._translated[0]:
                self._translated = (keys, self._keys.codes(keys))
            table = self._translated[1]
            codes = table[rows.codes] if rows.codes is not None else np.full(len(rows), self._keys.code(""))
        return Rows(rows.ts, rows.value, rows.seq, rows.source, rows.in_order, rows.total, codes)

    # Partials

    def flush(self) -> Partial:
        """Everything gathered since the last flush, as one partial."""
        partial = Partial(version=self.version, largest=self.largest)
        partial.signature = self._signatures[-1]
        for source in self.sources.values():
            now = source.prefix
            if now != source.since:
                partial.vector[source.name] = Span(
                    source.since, now, source.refused, source.sample, source.heartbeats
                )
                partial.sources[source.code] = source.name
                source.account = self._settled(source)
                source.since, source.refused, source.sample, source.heartbeats = now, {}, (), 0
        for group_id, group in self._groups.items():
            if isinstance(group, CountedGroup) or self._sharing[group_id].kind == "ordered":
                continue
            part = group.drain()
            if part is not None:
                partial.parts[group_id] = part
        partial.events = self._ordered.drain()
        partial.keys = list(self._keys.listed)
        self.largest = TS_MIN
        return partial

    def _settled(self, source: Source) -> Account:
        read = source.position - source.since.position
        return source.account.plus(read, source.refused, source.sample, source.heartbeats)

    def merge(self, partial: Partial) -> None:
        """Take another node's partial, whole or not at all."""
        unfit = [name for name, span in partial.vector.items() if not self._fits(name, span.low)]
        if unfit:
            raise DoesNotFit(unfit)
        self._check_merged(partial)
        if self._failed is not None:
            raise self._failed
        try:
            self._merge(partial)
        except FunctionFailed as error:
            self._failed = error
            raise
        self.largest = max(self.largest, partial.largest)
        for name, span in partial.vector.items():
            mine = self.sources[name]
            mine.position, mine.largest = span.high.position, span.high.largest
            mine.marks, mine.skips = dict(span.high.marks), span.high.skips
            mine.opening = span.high.opening
            mine.refused = added(mine.refused, span.refused)
            mine.sample = (mine.sample + span.sample)[:SAMPLE_LIMIT]
            mine.heartbeats += span.heartbeats

    def _fits(self, name: str, low: Prefix) -> bool:
        """Whether what begins at a prefix of a source follows here (rule 6)."""
        return name in self.sources and self.sources[name].prefix == low

    def check(self, partial: Partial) -> None:
        """Raise if a partial whose positions fit cannot be merged all the same."""
        self._check_queries(partial)
        extent = self._extent(partial)
        for group_id, part in partial.parts.items():
            group = self._groups.get(group_id)
            kind = self._sharing[group_id].kind if group_id in self._sharing else "no"
            if kind != ("sliced" if isinstance(part, SlicedPart) else "marked"):
                raise InvalidPartial("parts", f"have one of {kind} group", "send those of the queries")
            # One whose queries have ended is not there any more, and nobody reads its part.
            if isinstance(group, SlicedGroup) and isinstance(part, SlicedPart):
                group.check(part, extent)
            if isinstance(group, MarkedGroup) and isinstance(part, MarkedPart):
                group.check(part, extent)
        for rows in partial.events:
            self._check_rows(rows, partial)

    def _check_merged(self, partial: Partial) -> None:
        self.check(partial)

    def _extent(self, partial: Partial) -> Extent:
        """What a partial is of; raises if it is of something that cannot be."""
        vector = partial.vector
        if len(partial.sources) != len(vector) or set(partial.sources.values()) != vector.keys():
            said = f"are {len(partial.sources)} for a vector of {len(vector)}"
            raise InvalidPartial("sources", said, "send each source of the vector once")
        for name, span in vector.items():
            if (problem := span.problem()) is not None:
                raise InvalidPartial("vector", f"{problem}, of {name!r}", "send what was read")
        high = max((span.high.largest for span in vector.values()), default=TS_MIN)
        if partial.largest > high or (TS_MIN < partial.largest < -TS_LIMIT):
            said = f"is {partial.largest}, but the sources have come to {high}"
            raise InvalidPartial("largest", said, "send the largest time of an event")
        return Extent(
            np.array(list(partial.sources), np.int64),
            sum(span.records for span in vector.values()),
            min((self._since(name, span) for name, span in vector.items()), default=-TS_LIMIT),
            partial.largest,
        )

    def _since(self, name: str, span: Span) -> int:
        """Before this time no event of a span lies: it would have been late."""
        return min(max(span.low.largest - self.sources[name].lateness, -TS_LIMIT), TS_LIMIT)

    def _check_rows(self, rows: Rows, partial: Partial) -> None:
        name = partial.sources.get(rows.source) if isinstance(rows.source, int) else None
        if name is None:
            raise InvalidPartial("events.source", "is not in the partial", "name each source of the partial")
        span, size = partial.vector[name], len(rows.ts)
        check_ints("events.ts", rows.ts, size, self._since(name, span), partial.largest)
        if rows.value.dtype != np.float64 or rows.value.shape != (size,) or not np.isfinite(rows.value).all():
            raise InvalidPartial("events.value", "is no finite number for each", f"send {size} numbers")
        if rows.in_order and (rows.ts[1:] < rows.ts[:-1]).any():
            raise InvalidPartial("events.ts", "falls in events that are in order", "say that they are not")
        first, last = span.low.position + 1, span.high.position
        if not isinstance(rows.seq, int):
            check_ints("events.seq", rows.seq, size, first, last)
        elif not first <= rows.seq <= last - size + 1:
            said = f"is {rows.seq} for {size} events"
            raise InvalidPartial("events.seq", said, f"send numbers from {first} to {last}")
        if rows.codes is not None:
            check_ints("events.key", rows.codes, size, 0, len(partial.keys) - 1)

    def _check_queries(self, partial: Partial) -> None:
        """Raise if it was made with other queries than hold here for its events."""
        if partial.version < 0:
            raise InvalidPartial("version", f"is {partial.version}", "send how many changes there were")
        if partial.version > self.version:
            raise StaleVersion(partial.version, self.version)
        if partial.signature != self._signatures[partial.version]:
            raise OtherQueries
        behind = [c for c in self.changes[partial.version :] if c.edge <= partial.largest]
        if behind:
            raise StaleVersion(partial.version, self.version)

    def _merge(self, partial: Partial) -> None:
        codes = np.zeros(max(partial.sources, default=0) + 1, np.int32)
        for code, name in partial.sources.items():
            codes[code] = self.order.code(name)
        for group_id, part in partial.parts.items():
            group = self._groups.get(group_id)
            if isinstance(group, SlicedGroup) and isinstance(part, SlicedPart):
                group.merge(part, codes)
            if isinstance(group, MarkedGroup) and isinstance(part, MarkedPart):
                group.merge(part, codes)
        if self._central and partial.events:
            table = self._keys.codes(partial.keys)
            for rows in partial.events:
                source = int(codes[rows.source]) if isinstance(rows.source, int) else codes[rows.source]
                keys = None if rows.codes is None else table[rows.codes]
                self._ordered.add(Rows(rows.ts, rows.value, rows.seq, source, rows.in_order, None, keys))

    def account(self, name: str) -> Account:
        """What became of a source's records so far."""
        return self._settled(self._known(name))

    @property
    def executions(self) -> dict[str, int]:
        """How often each operator was executed on an event, over all groups."""
        done: dict[str, int] = {}
        for group in self._groups.values():
            for operator in group.operators:
                for name in operator.executed:
                    done[name] = done.get(name, 0) + group.lifted
        return done

    @property
    def waiting(self) -> int:
        """How many events wait to be forwarded one by one."""
        return len(self._ordered)

    @property
    def patient(self) -> bool:
        """Whether nothing but the edges of windows says when somebody waits for what is gathered here."""
        return not self._marked and not self._central and all(group.patient for group in self._sliced)

    def edge_after(self, ts: int) -> int:
        """The first edge of a window behind a time."""
        return min((group.edge_after(ts) for group in self._sliced), default=TS_MAX)

    def forget(self, watermark: int) -> None:
        """The root's watermark has come so far: what removed queries have left behind is of no more use.

        Only behind a flush.
        """
        for group in self._sliced:
            group.forget(watermark)

    @property
    def held(self) -> int:
        """How many cells and waiting events are in memory."""
        return sum(map(len, self._groups.values())) + len(self._ordered)


def _digest(*words: str) -> str:
    return blake2b("|".join(words).encode(), digest_size=16).hexdigest()
