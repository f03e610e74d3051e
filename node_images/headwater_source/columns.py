"""Events as columns, of any number of sources, in the order in which they were read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from headwater.rows import Array, Floats, Ints

# What a row takes in a spool at most, without its names.
ROW_BYTES = 25


@dataclass(frozen=True, slots=True)
class Coded:
    """Names by codes, a code a row; -1 is no name."""

    codes: Array
    names: tuple[str, ...]

    @classmethod
    def of(cls, given: Iterable[str | None]) -> Coded:
        places: dict[str | None, int] = {None: -1}
        codes = [places.setdefault(name, len(places) - 1) for name in given]
        return cls(np.array(codes, np.int32), tuple(name for name in places if name is not None))

    def part(self, rows: slice | Array) -> Coded:
        """Some of the rows, with no more names than they need."""
        codes = self.codes[rows]
        if len(self.names) <= len(codes):
            return Coded(codes, self.names)
        used, places = np.unique(codes, return_inverse=True)
        absent = int(len(used) > 0 and used[0] < 0)
        names = tuple(self.names[code] for code in used[absent:].tolist())
        return Coded((places - absent).astype(np.int32), names)

    def at(self, row: int) -> str | None:
        code = int(self.codes[row])
        return None if code < 0 else self.names[code]

    @property
    def bytes(self) -> int:
        return sum(4 + len(name.encode()) for name in self.names)


@dataclass(frozen=True, slots=True)
class Events:
    """`value` is NaN and `bare` true where there is none. A key is always a name, "" for none."""

    ts: Ints
    value: Floats
    bare: Array | None = None
    key: Coded | None = None
    mark: Coded | None = None
    source: Coded | None = None
    site: Coded | None = None

    def __len__(self) -> int:
        return len(self.ts)

    def part(self, rows: slice | Array) -> Events:
        def coded(column: Coded | None) -> Coded | None:
            return None if column is None else column.part(rows)

        return Events(
            self.ts[rows],
            self.value[rows],
            None if self.bare is None else self.bare[rows],
            coded(self.key),
            coded(self.mark),
            coded(self.source),
            coded(self.site),
        )

    def by_source(self, unnamed: str) -> Iterator[tuple[str, Events]]:
        """The rows of each source, in their order; `unnamed` is whose the rows without a source are."""
        if not len(self):
            return
        if self.source is None:
            yield unnamed, self
            return
        order = np.argsort(self.source.codes, kind="stable")
        codes = self.source.codes[order]
        for rows in np.split(order, np.flatnonzero(np.diff(codes)) + 1):
            # Of one source alone they are the rows as they stand.
            whole = self if len(rows) == len(self) else self.part(rows)
            yield self.source.at(int(rows[0])) or unnamed, whole

    def pieces(self, limit: int, rows: int) -> Iterator[Events]:
        """The same in parts of at most so many bytes in a spool and so many rows."""
        for low in range(0, len(self), rows):
            yield from self.part(slice(low, low + rows))._within(limit)

    def _within(self, limit: int) -> Iterator[Events]:
        names = sum(column.bytes for column in (self.key, self.mark) if column is not None)
        if len(self) > 1 and ROW_BYTES * len(self) + names > limit:
            half = len(self) // 2
            yield from self.part(slice(0, half))._within(limit)
            yield from self.part(slice(half, None))._within(limit)
        else:
            yield self
