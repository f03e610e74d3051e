"""How many distinct keys each source has brought to a child, and who brings too many (protocol, rule 15)."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass, field

import numpy as np

from headwater.events import Batch
from headwater.machines.recent import Recent
from headwater.sources import SourceId

# A record without a key has this one.
_NONE = hash("")


@dataclass(slots=True)
class _Brought:
    """The keys of one name by their hashes, so that long ones take no more than short ones, and the last
    dictionary of which nothing is new: most messages have that of the one before."""

    keys: set[int] = field(default_factory=lambda: {_NONE})
    last: tuple[str, ...] | None = None

    @property
    def count(self) -> int:
        return len(self.keys) - 1


class Keys:
    """Counted since this child reads a source, under its name: another spool is no other device.

    What is beyond the cap is not read, and nothing more is decided here: that is the root's.
    """

    def __init__(self, memory: int) -> None:
        """A name of which nothing comes for `memory` microseconds is forgotten."""
        # The root tells it to all of them; 0: there is none.
        self.cap = 0
        # How often columns were not read, or not to their end.
        self.refused = 0
        # Sources that are not read on, with how many keys they have brought.
        self.over: dict[str, int] = {}
        self._brought: Recent[str, _Brought] = Recent(memory)
        self._news: list[tuple[str, int]] = []

    def trimmed(self, batch: Batch) -> Batch:
        """A batch without names that no row has: whoever reads it remembers all of them."""
        if not self.cap or batch.key is None:
            return batch
        held = self._brought.get(SourceId.of(batch.source).name)
        if held is not None and (held.last is batch.keys or held.keys.issuperset(map(hash, batch.keys))):
            return batch
        return batch.lean()

    def fitting(self, batch: Batch, begin: int) -> int:
        """How many rows of a batch may be read: those before the first key that is one too many.

        The rows before `begin` always may. They were counted by lane 0; another lane has to follow.
        """
        if not self.cap or batch.key is None:
            return len(batch)
        held = self._brought.get(SourceId.of(batch.source).name) or _Brought()
        if held.last is batch.keys:
            return len(batch)
        if held.keys.issuperset(map(hash, batch.keys)):
            held.last = batch.keys
            return self._all_of(batch)
        named = list(map(hash, batch.keys))
        fresh = set(named) - held.keys
        if held.count + len(fresh) <= self.cap:
            return self._all_of(batch)
        # Not every name of a dictionary is that of a row.
        names = np.array(named, np.int64)[batch.key[begin:]]
        rows = np.flatnonzero(np.isin(names, np.fromiter(fresh, np.int64, len(fresh))))
        found, first = np.unique(names[rows], return_index=True)
        room = max(self.cap - held.count, 0)
        if len(found) <= room:
            return self._all_of(batch)
        self._refuse(batch.source, held.count + len(found))
        return begin + int(np.sort(rows[first])[room])

    def _all_of(self, batch: Batch) -> int:
        self.over.pop(batch.source, None)
        return len(batch)

    def _refuse(self, source: str, count: int) -> None:
        self.refused += 1
        if source not in self.over:
            self._news.append((source, count))
        self.over[source] = count

    def read(self, batch: Batch, begin: int, end: int, now: int) -> None:
        """These rows of a batch were read."""
        if not self.cap or batch.key is None:
            return
        name = SourceId.of(batch.source).name
        held = self._brought.get(name) or _Brought()
        self._brought.put(name, held, now)
        if held.last is batch.keys:
            return
        fresh = set(map(hash, batch.keys)) - held.keys
        if end == len(batch) and held.count + len(fresh) <= self.cap:
            held.keys |= fresh
            held.last = batch.keys
        else:
            used = np.unique(batch.key[begin:end]).tolist()
            held.keys.update(hash(batch.keys[code]) for code in used)

    def decided(self, name: str) -> None:
        """The root has this name in quarantine: once it is released it is counted anew."""
        self._brought.pop(name)

    def forget(self, known: Container[str]) -> None:
        """Nothing is told of sources that are not known here any more."""
        self.over = {name: count for name, count in self.over.items() if name in known}

    def news(self) -> list[tuple[str, int]]:
        """Sources that are not read on, and were not told of yet."""
        news, self._news = self._news, []
        return news
