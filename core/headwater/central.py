"""Events that are read in the total order at one place, the root; nodes forward them one by one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from headwater.groups.counted import CountedGroup
from headwater.groups.sliced import SlicedGroup
from headwater.merging.ordered import OrderedEvents
from headwater.names import Names
from headwater.progress import Source
from headwater.queries import Sharing
from headwater.rows import TS_MIN, Array, Rows, SourceOrder

# Events that must be put in order are handed on in portions of this size, or when results are taken.
PORTION = 16_384
# They wait for longer, up to this many, where they can complete no window.
HELD_BACK = 262_144

Reader = tuple[SlicedGroup | CountedGroup, Sharing]


class Central:
    """Events that wait to be put in order or to be forwarded, and the groups that read them."""

    def __init__(self, order: SourceOrder, sources: list[Source]) -> None:
        """`sources` are those of the node, by code."""
        self.events = OrderedEvents(order)
        self._sources = sources
        self.keys: Names[str] = Names()
        self.keys.code("")
        # The dictionary of keys that was translated last: batches of one source usually share theirs.
        self._translated: tuple[tuple[str, ...], Array] = ((), np.empty(0, np.int64))
        self.sites: Names[str] = Names()
        self._site_of = np.empty(0, np.int64)
        self.arrange([])

    def arrange(self, readers: list[Reader]) -> None:
        """These groups read from now on."""
        self.readers = readers
        # From when on nobody asks for events in their order.
        ends = [member.end for group, _ in readers for member in group.members]
        self.until = max(ends, default=TS_MIN)
        # Copies of an event leave together; sites are looked up only for whoever tells them apart.
        self._copies = any(sharing.deduplicate for _, sharing in readers)
        self._sites_matter = any(sharing.scope == "local" for _, sharing in readers)
        self._needs_keys = any(
            sharing.keyed or sharing.deduplicate or any(m.query.where.keys is not None for m in group.members)
            for group, sharing in readers
        )

    def add(self, rows: Rows, keys: tuple[str, ...]) -> None:
        """Rows of one source; their codes become this node's keys, where somebody needs them."""
        if self._needs_keys or rows.codes is not None:
            codes: Array | None = None
            if self._needs_keys:
                if keys is not self._translated[0]:
                    self._translated = (keys, self.keys.codes(keys))
                table = self._translated[1]
                codes = (
                    table[rows.codes] if rows.codes is not None else np.full(len(rows), self.keys.code(""))
                )
            rows = Rows(rows.ts, rows.value, rows.seq, rows.source, rows.in_order, rows.total, codes)
        self.events.add(rows)

    def merge(self, events: Sequence[Rows], keys: Sequence[str], sources: Array) -> None:
        """Rows that another node has forwarded, with its codes of keys and `sources` (ours by its)."""
        table = self.keys.codes(keys)
        for rows in events:
            source = int(sources[rows.source]) if isinstance(rows.source, int) else sources[rows.source]
            codes = None if rows.codes is None else table[rows.codes]
            self.events.add(Rows(rows.ts, rows.value, rows.seq, source, rows.in_order, None, codes))

    def can_wait(self, watermark: int) -> bool:
        """Whether what waits to be put in order cannot complete a window, and is little enough to wait."""
        if self.events.added >= HELD_BACK:
            return False
        # All that is held is the quick bound; what the watermark has passed, the close one.
        return self._all_patient(len(self.events)) or self._all_patient(self.events.ready(watermark))

    def _all_patient(self, waiting: int) -> bool:
        return all(isinstance(group, CountedGroup) and group.patient(waiting) for group, _ in self.readers)

    def close(self, watermark: int) -> None:
        """Hand on in their order the events that are below the watermark, and close what they complete."""
        anyhow = min(group.indifferent if isinstance(group, CountedGroup) else 0 for group, _ in self.readers)
        for rows in self.events.release(
            watermark, together=self._copies, anyhow=0 if self._copies else anyhow
        ):
            self._read(rows)
        for group, _ in self.readers:
            if isinstance(group, SlicedGroup):
                group.close(watermark)

    def _read(self, rows: Rows) -> None:
        sites: Array | None = None
        if self._sites_matter:
            if len(self._site_of) < len(self._sources):
                self._site_of = np.array([self.sites.code(s.site) for s in self._sources], np.int64)
            sites = self._site_of[rows.sources()]
        for group, sharing in self.readers:
            mine, mine_sites = rows, sites if sharing.scope == "local" else None
            if sharing.deduplicate:
                kept = _first_copies(rows, mine_sites)
                mine = rows.take(kept, in_order=True)
                mine_sites = None if mine_sites is None else mine_sites[kept]
            group.read_ordered(mine, self.keys.listed, mine_sites, self.sites.listed)


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
