"""A node in memory: it reads batches, merges partials, and gives away what it has gathered.

`Node` is a child or an intermediate; `Root` also knows the watermark and closes windows. Either reads
batches, so a root alone is a whole engine in one process. Nothing here does I/O or reads a clock.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

import numpy as np

from headwater.catalog import Catalog, Serves, every
from headwater.central import Central
from headwater.changes import Change, Versions
from headwater.durations import Duration, integer, microseconds
from headwater.errors import (
    DoesNotFit,
    FunctionFailed,
    Invalid,
    InvalidSource,
    NotFlushed,
    OutOfSequence,
    Problem,
    StaleVersion,
)
from headwater.events import Batch, name_problem, require_batch
from headwater.extents import check_rows, extent
from headwater.grouping import Group, Grouping
from headwater.groups.marked import MarkedGroup, MarkedPart
from headwater.groups.sliced import SlicedGroup, SlicedPart
from headwater.ledger import Account, added
from headwater.partials import Partial, Span
from headwater.prefix import SAMPLE_LIMIT, Prefix, clean, judge
from headwater.progress import Source
from headwater.queries import KINDS, Kind, Query, validate
from headwater.rows import TS_MAX, TS_MIN, SourceOrder
from headwater.windows import NEVER


class Node:
    """Groups of queries over the prefixes of some sources."""

    _root = False
    # The kinds of groups of which windows are made here.
    _kinds: Collection[Kind] = KINDS

    def __init__(self, queries: Iterable[Query], *, serves: Serves = every) -> None:
        """`serves` says which queries are computed here; versions count the others too."""
        self.order = SourceOrder()
        self.sources: dict[str, Source] = {}
        self._by_code: list[Source] = []
        self._catalog = Catalog(serves)
        self._central = Central(self.order, self._by_code)
        self._grouping = Grouping(self.order, self._central, root=self._root, kinds=self._kinds)
        # Why this node cannot go on, if a user's function raised in the midst of something.
        self._failed: FunctionFailed | None = None
        # The largest ts of an event or mark that counts here so far; heartbeats and late ones aside.
        self.largest = TS_MIN
        self._limit = TS_MAX
        first = validate(queries)
        self._join([(query, TS_MIN) for query in first])
        self._versions = Versions(first)

    # Queries

    @property
    def queries(self) -> list[Query]:
        """All that were ever computed here, by number."""
        return self._catalog.queries

    @property
    def changes(self) -> list[Change]:
        return self._versions.changes

    @property
    def version(self) -> int:
        return self._versions.current

    @property
    def active(self) -> tuple[str, ...]:
        """The ids of the queries that are there, here and in other lanes."""
        return self._catalog.ids

    @property
    def key_by(self) -> str:
        """The column by which queries that are there compute, here and in other lanes; empty if none does."""
        return self._catalog.key_by

    def groups(self) -> Mapping[int, Group]:
        return dict(self._grouping.by_id)

    def _join(self, queries: Sequence[tuple[Query, int]]) -> None:
        numbered = [self._catalog.add(query, begin) for query, begin in queries]
        self._grouping.join([active for active in numbered if active is not None])

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
        self._versions.add(change)

    def _is_flushed(self) -> bool:
        return all(source.position <= source.since.position for source in self.sources.values())

    def _remove(self, change: Change) -> None:
        active = self._catalog.remove(change.query.id)
        if active is None:
            return
        for name in self._grouping.remove(active, change.edge, at_once=change.at_once):
            for source in self.sources.values():
                source.forget_marks(name)

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
        self._central.sites.code(site)
        self._admitted(source)

    def _admitted(self, source: Source) -> None:
        """The root counts it in."""

    def place(self, name: str, prefix: Prefix) -> None:
        """Stand at another prefix of a source: what comes next begins there. Only behind a flush."""
        source = self._known(name)
        if source.position != source.since.position:
            raise NotFlushed
        source.stand_at(prefix)

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
        self.sources[name].skip(number)

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
        grouping, central = self._grouping, self._central
        prover = grouping.prover
        found = clean(batch, source.code, source.largest, source.lateness, self._limit, prover is not None)
        if found is None or grouping.marked:
            return self._push_judged(source, batch)
        rows, low, high = found
        if rows.total is None and prover is not None:
            if not prover.read_proving(rows, low, high):
                return self._push_judged(source, batch)
        else:
            for sliced in grouping.sliced:
                sliced.read(rows, low, high, batch.keys, source.site)
        if central.readers and low < central.until:
            central.add(rows, batch.keys)
        if high > self.largest:
            self.largest = high
        if high > source.largest:
            source.largest = high
        read = len(rows.value)
        source.position += read
        return read

    def _push_judged(self, source: Source, batch: Batch) -> int:
        """Read a batch record by record: some are late, rejected, marks, heartbeats or too far ahead."""
        grouping, central = self._grouping, self._central
        judged = judge(batch, source.code, source.largest, source.lateness, self._limit, source.skips)
        rows = judged.rows
        if len(rows.value):
            for sliced in grouping.sliced:
                sliced.read(rows, judged.low, judged.high, batch.keys, source.site)
            if judged.high > self.largest:
                self.largest = judged.high
            if central.readers and judged.low < central.until:
                central.add(rows, batch.keys)
        for mark in judged.marks:
            self.largest = max(self.largest, mark.ts)
        for marked in grouping.marked:
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

    # Partials

    def flush(self) -> Partial:
        """Everything gathered since the last flush, as one partial."""
        versions, central = self._versions, self._central
        partial = Partial(version=versions.current, largest=self.largest)
        partial.signature = versions.signatures[-1]
        for source in self.sources.values():
            now = source.prefix
            if now != source.since:
                partial.vector[source.name] = Span(
                    source.since, now, source.refused, source.sample, source.heartbeats
                )
                partial.sources[source.code] = source.name
                source.account = source.settled()
                source.since, source.refused, source.sample, source.heartbeats = now, {}, (), 0
        for group_id, group in self._grouping.sent:
            part = group.drain()
            if part is not None:
                partial.parts[group_id] = part
        partial.events = central.events.drain()
        partial.keys = list(central.keys.listed)
        self.largest = TS_MIN
        return partial

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
            mine, high = self.sources[name], span.high
            mine.position, mine.largest = high.position, high.largest
            mine.marks, mine.skips = dict(high.marks), high.skips
            mine.opening = high.opening
            if span.refused:
                mine.refused = added(mine.refused, span.refused)
                mine.sample = (mine.sample + span.sample)[:SAMPLE_LIMIT]
            mine.heartbeats += span.heartbeats

    def _fits(self, name: str, low: Prefix) -> bool:
        """Whether what begins at a prefix of a source follows here (rule 6)."""
        return name in self.sources and self.sources[name].stands_at(low)

    def check(self, partial: Partial) -> None:
        """Raise if a partial whose positions fit cannot be merged all the same."""
        self._versions.check(partial)
        self._grouping.check(partial.parts, extent(partial, self.sources))
        for rows in partial.events:
            check_rows(rows, partial, self.sources)

    def _check_merged(self, partial: Partial) -> None:
        self.check(partial)

    def _merge(self, partial: Partial) -> None:
        codes = np.zeros(max(partial.sources, default=0) + 1, np.int32)
        for code, name in partial.sources.items():
            codes[code] = self.order.code(name)
        groups, central = self._grouping.by_id, self._central
        for group_id, part in partial.parts.items():
            group = groups.get(group_id)
            if isinstance(group, SlicedGroup) and isinstance(part, SlicedPart):
                group.merge(part, codes)
            if isinstance(group, MarkedGroup) and isinstance(part, MarkedPart):
                group.merge(part, codes)
        if central.readers and partial.events:
            central.merge(partial.events, partial.keys, codes)

    def account(self, name: str) -> Account:
        """What became of a source's records so far."""
        return self._known(name).settled()

    @property
    def executions(self) -> dict[str, int]:
        """How often each operator was executed on an event, over all groups."""
        return self._grouping.executions

    @property
    def waiting(self) -> int:
        """How many events wait to be forwarded one by one."""
        return len(self._central.events)

    @property
    def patient(self) -> bool:
        """Whether nothing but the edges of windows says when somebody waits for what is gathered here."""
        grouping = self._grouping
        return (
            not grouping.marked
            and not self._central.readers
            and all(group.patient for group in grouping.sliced)
        )

    def edge_after(self, ts: int) -> int:
        """The first edge of a window behind a time."""
        return min((group.edge_after(ts) for group in self._grouping.sliced), default=TS_MAX)

    def forget(self, watermark: int) -> None:
        """The root's watermark has come so far: what removed queries have left behind is of no more use.

        Only behind a flush.
        """
        for group in self._grouping.sliced:
            group.forget(watermark)

    @property
    def held(self) -> int:
        """How many cells and waiting events are in memory."""
        return sum(map(len, self._grouping.by_id.values())) + len(self._central.events)
