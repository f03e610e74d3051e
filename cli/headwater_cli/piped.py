"""An input as the sources of a run, instead of generated ones."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path
from typing import Any

from headwater.topology import SourceClass, Topology
from headwater_cli.feeds import Kept
from headwater_source.columns import Events
from headwater_source.readers import columns_of, open_input

# Whose records are that name no source.
UNNAMED = "input"
# So many events the oracle can be asked about in reasonable time and memory.
VERIFIABLE = 1_000_000


class Piped:
    """Events of a file or of the standard input, by source; site and lateness are the topology's."""

    def __init__(
        self, path: str, format: str | None, columns: str, topology: Topology, *, keep: bool
    ) -> None:
        self._classes, self._keep = topology.sources, keep
        self.feeds: dict[str, Kept] = {}
        self.events = 0
        self._parts: Callable[[], Iterable[Events]]
        names: set[str] = set()
        called = columns_of(columns)
        reader = open_input(path, format, called)
        if Path(path).is_file():
            # Read once to see who is in it: the root waits for all of them before it decides anything.
            for part in reader:
                names.update(name for name, _ in part.by_source(UNNAMED))
            self._parts = lambda: open_input(path, format, called)
        else:
            # Of a pipe nobody knows who will come; those who are in its first lines are waited for.
            parts = iter(reader)
            first = list(islice(parts, 1))
            names.update(name for part in first for name, _ in part.by_source(UNNAMED))
            self._parts = lambda: chain(first, parts)
        self.expected = max(len(names), 1)

    def __iter__(self) -> Iterator[Events]:
        return iter(self._parts())

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


def expecting(topology: Topology, document: dict[str, Any], count: int) -> tuple[Topology, dict[str, Any]]:
    """The same topology with so many sources in all."""
    changed = copy.deepcopy(document)
    changed["spec"]["sources"] = [changed["spec"]["sources"][0] | {"expected": count}]
    return replace(topology, sources=(replace(topology.sources[0], expected=count),)), changed
