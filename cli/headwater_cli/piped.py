"""An input as the sources of a run, instead of generated ones."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial
from itertools import chain, islice
from pathlib import Path
from time import time_ns
from typing import Any

from headwater.durations import SECOND
from headwater.errors import Invalid, Problem
from headwater.rows import TS_MIN
from headwater.timeunits import WORDS, TimeUnit, from_microseconds, other_unit
from headwater.topology import SourceClass, Topology
from headwater_cli.feeds import Kept
from headwater_cli.heartbeats import AFTER, closing_span
from headwater_cli.sending import key_remedy
from headwater_cli.times import moment
from headwater_node.configuration import FUTURE
from headwater_source.columns import Events
from headwater_source.readers import BadRecord, Reader, columns_of, format_of, open_input
from headwater_source.readers.times import TIME_UNIT_OPTION

# Whose records are that name no source.
UNNAMED = "input"
# So many events the oracle can be asked about in reasonable time and memory.
VERIFIABLE = 1_000_000


class Piped:
    """Events of a file or of the standard input, by source; site and lateness are the topology's."""

    def __init__(
        self,
        path: str,
        format: str | None,
        columns: str,
        topology: Topology,
        *,
        keep: bool,
        skip_bad: bool = False,
        time_unit: TimeUnit | None = None,
    ) -> None:
        """Invalid if there is no event in it, or it cannot be read; BadRecord at one that is no event."""
        self._classes, self._keep = topology.sources, keep
        # How far behind the last event the closing heartbeat lies.
        self.closing_span = closing_span(topology)
        self.feeds: dict[str, Kept] = {}
        self.events = 0
        names: set[str] = set()
        called = columns_of(columns)
        self._topology, self._format = topology, format_of(path, format)
        self._unit = time_unit
        # Whether it is known that the input has keys, or needs none.
        self._keys_judged = False
        self._open = partial(
            open_input, path, format, called, skip_bad=skip_bad, time_unit=time_unit, strict_times=True
        )
        self._reader = self._open()
        # What was read of it already, and what follows; None: it is read again from the beginning.
        self._parts: Iterable[Events] | None = None
        if Path(path).is_file():
            has_keys = False
            # Read once to see who is in it: the root waits for all of them before it decides anything.
            for part in self._reader:
                names.update(name for name, _ in part.by_source(UNNAMED))
                _require_not_ahead(self._reader.name, part, self._unit)
                has_keys = has_keys or _has_key(part)
            if names and not has_keys:
                _require_no_keys(self._reader, topology)
            self._keys_judged = True
        else:
            # Of a pipe nobody knows who will come; those who are in its first lines are waited for.
            parts = (part for part in self._reader if len(part))
            first = list(islice(parts, 1))
            names.update(name for part in first for name, _ in part.by_source(UNNAMED))
            for part in first:
                _require_not_ahead(self._reader.name, part, self._unit)
                self._judge_keys(part)
            self._parts = chain(first, parts)
        if not names:
            said = f"holds no events, but {self.bad:,} bad records" if self.bad else "holds no events"
            remedy = "give one with a record for each event; there is nothing to run or to verify"
            raise Invalid(f"{self._reader.name} cannot be run", [Problem("input", said, remedy)])
        self.expected = len(names)

    def __iter__(self) -> Iterator[Events]:
        if self._parts is None:
            self._reader = self._open()
        for part in self._reader if self._parts is None else self._parts:
            # Of a pipe only the first part was judged before the run began.
            _require_not_ahead(self._reader.name, part, self._unit)
            self._judge_keys(part)
            yield part

    def _judge_keys(self, part: Events) -> None:
        """Refuse a pipe whose first events have no key if a query groups by it; heartbeats need none."""
        if self._keys_judged or not _has_event(part):
            return
        self._keys_judged = True
        # A header says that there are keys, though these have none; JSON lines have no header.
        has_keys = _has_key(part) if self._format == "jsonl" else part.key is not None
        if not has_keys:
            _require_no_keys(self._reader, self._topology)

    @property
    def skipped(self) -> list[BadRecord]:
        """The first of the records that were passed over."""
        return self._reader.skipped

    @property
    def bad(self) -> int:
        """How many were passed over so far."""
        return self._reader.skipped_count

    @property
    def verifiable(self) -> bool:
        return self._keep and self.events <= VERIFIABLE

    def feed(self, name: str, site: str | None) -> Kept:
        """The source of that name, made when it comes first."""
        found = self.feeds.get(name)
        if found is None:
            kind = self._kind(name, site)
            found = self.feeds[name] = Kept(name, site or kind.site, kind.lateness)
        return found

    def sent(self, feed: Kept, events: Events) -> None:
        """Keep what was sent, as long as it is not too much to be compared."""
        self.events += len(events)
        if self.verifiable:
            feed.kept.append(events)
        elif self._keep:
            for each in self.feeds.values():
                each.kept.clear()

    def _kind(self, name: str, site: str | None) -> SourceClass:
        """The class that a source is of: named like it, else at its site, else the first one."""
        named = [kind for kind in self._classes if name == kind.name or name.startswith(f"{kind.name}-")]
        there = [kind for kind in named or self._classes if kind.site == site]
        return (there or named or list(self._classes))[0]


def _has_key(part: Events) -> bool:
    """Whether a record has a key: the reader of JSON lines gives a column in any case."""
    return part.key is not None and any(part.key.names)


def _has_event(part: Events) -> bool:
    """Whether a record is more than a heartbeat."""
    if part.bare is None:
        return len(part) > 0
    return not part.bare.all() or part.mark is not None


def _require_not_ahead(name: str, part: Events, unit: TimeUnit | None) -> None:
    """Refuse events that no child reads by now, or whose closing heartbeat none does: the run would wait."""
    latest = int(part.ts.max(initial=TS_MIN))
    now = time_ns() // 1_000
    if latest > now + FUTURE - AFTER:
        message = f"an event is of {moment(latest)}, which is {_span(latest - now)} ahead of the clock"
        remedy = f"correct its time or take it out: a run takes events at most {_span(FUTURE - AFTER)} ahead"
        other = None if unit is None else other_unit(from_microseconds(latest, unit), unit)
        if other is not None:
            remedy += f"; if its numbers are {WORDS[other]}: {TIME_UNIT_OPTION.format(unit=other)}"
        raise Invalid(f"{name} cannot be run", [Problem("ts", message, remedy)])


def _span(microseconds: int) -> str:
    if microseconds < 2 * FUTURE:
        return f"{microseconds / (3_600 * SECOND):.4g} hours"
    return f"{microseconds // (86_400 * SECOND):,} days"


def _require_no_keys(reader: Reader, topology: Topology) -> None:
    """Refuse an input without keys if a query groups by them: all events would be of one empty key."""
    problems = [
        Problem(
            f"spec.queries[{query.id}].keyBy",
            f"is {query.key_by}, but no record has a key",
            f"{key_remedy(reader.fields)}, or drop keyBy",
        )
        for query in topology.queries
        if query.key_by is not None
    ]
    if problems:
        raise Invalid(f"{reader.name} cannot be run", problems)


def expecting(topology: Topology, document: dict[str, Any], count: int) -> tuple[Topology, dict[str, Any]]:
    """The same topology with so many sources in all."""
    changed = copy.deepcopy(document)
    changed["spec"]["sources"] = [changed["spec"]["sources"][0] | {"expected": count}]
    return replace(topology, sources=(replace(topology.sources[0], expected=count),)), changed
