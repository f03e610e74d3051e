"""How many bytes the columns take that a lane keeps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from headwater.events import Batch
from headwater.machines import sizes


class Kept:
    """Bytes of columns. A message that is read in pieces is kept once: the pieces are views of it, and share
    the names of its keys and marks, which are counted as long as any of them is kept."""

    def __init__(self) -> None:
        self.bytes = 0
        self._sharing: Counter[int] = Counter()

    def add(self, batch: Batch) -> None:
        self.bytes += sizes.of_arrays(batch)
        for names in _dictionaries(batch):
            if not self._sharing[id(names)]:
                self.bytes += sizes.of_names(names)
            self._sharing[id(names)] += 1

    def drop(self, batches: Iterable[Batch]) -> None:
        """Batches that were added."""
        for batch in batches:
            self.bytes -= sizes.of_arrays(batch)
            for names in _dictionaries(batch):
                self._sharing[id(names)] -= 1
                if not self._sharing[id(names)]:
                    self.bytes -= sizes.of_names(names)
                    del self._sharing[id(names)]

    def clear(self) -> None:
        self.bytes = 0
        self._sharing.clear()


def _dictionaries(batch: Batch) -> Iterator[tuple[str, ...]]:
    # By identity: as long as a batch is kept, nothing else has the id of its names.
    if batch.keys:
        yield batch.keys
    if batch.marks:
        yield batch.marks
