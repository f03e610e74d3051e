"""Events as the operators read them: columns of rows that count."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

TS_MIN = -(1 << 63)
TS_MAX = (1 << 63) - 1


class SourceOrder:
    """Sources by a small code, and the rank of each code in the order of names."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self._codes: dict[str, int] = {}
        self._ranks: Ints = np.empty(0, np.int64)

    def code(self, name: str) -> int:
        found = self._codes.get(name)
        if found is None:
            found = self._codes[name] = len(self.names)
            self.names.append(name)
        return found

    @property
    def ranks(self) -> Ints:
        if len(self._ranks) < len(self.names):
            self._ranks = np.empty(len(self.names), np.int64)
            # The order of names is that of their UTF-8 bytes, never of codes (semantics, "Events").
            by_name = sorted(range(len(self.names)), key=lambda code: self.names[code].encode())
            self._ranks[by_name] = np.arange(len(self.names))
        return self._ranks


class Rows:
    """Events that count, as the operators read them.

    `in_order` says that the rows follow the total order within every cell that they are cut into.
    `total` is the sum of all values where somebody has computed it already. A number for `seq` stands
    for consecutive numbers from there on, a number for `source` for one source.
    """

    __slots__ = ("codes", "in_order", "seq", "source", "total", "ts", "value")

    def __init__(
        self,
        ts: Ints,
        value: Floats,
        seq: Ints | int,
        source: Array | int,
        in_order: bool,
        total: float | None = None,
        codes: Array | None = None,
    ) -> None:
        self.ts = ts
        self.value = value
        self.seq = seq
        self.source = source
        self.in_order = in_order
        self.total = total
        self.codes = codes

    def __reduce__(self) -> tuple[type[Rows], tuple[Any, ...]]:
        # What was picked or joined stands for itself, without what it was made from.
        return Rows, (self.ts, self.value, self.seq, self.source, self.in_order, self.total, self.codes)

    def __len__(self) -> int:
        return len(self.value)

    def cut(self, begin: int, end: int) -> Rows:
        """Rows `[begin, end)`, as views."""
        here = slice(begin, end)
        return Rows(
            self.ts[here],
            self.value[here],
            self.seq + begin if isinstance(self.seq, int) else self.seq[here],
            self.source if isinstance(self.source, int) else self.source[here],
            self.in_order,
            None,
            None if self.codes is None else self.codes[here],
        )

    def take(self, rows: Array, *, in_order: bool) -> Rows:
        """Some of the rows, by index."""
        return _Picked(self, rows, in_order)

    def times_at(self, places: Ints) -> Ints:
        """The times of some rows, by index."""
        return self.ts[places]

    def numbers(self) -> Ints:
        """The sequence number of every row."""
        if isinstance(self.seq, int):
            return np.arange(self.seq, self.seq + len(self.value), dtype=np.int64)
        return self.seq

    def sources(self) -> Array:
        """The source code of every row."""
        if isinstance(self.source, int):
            return np.full(len(self.value), self.source, np.int32)
        return self.source


class _Picked(Rows):
    """Rows picked out of others; what few operators read is picked only when it is read."""

    __slots__ = ("_index", "_of")

    def __init__(self, of: Rows, index: Array, in_order: bool) -> None:
        self._of, self._index = of, index
        self.value = of.value[index]
        self.source = of.source if isinstance(of.source, int) else of.source[index]
        self.codes = None if of.codes is None else of.codes[index]
        self.in_order, self.total = in_order, None

    def times_at(self, places: Ints) -> Ints:
        return self._of.times_at(self._index[places])

    def __getattr__(self, name: str) -> Any:
        if name == "ts":
            self.ts = self._of.ts[self._index]
            return self.ts
        if name == "seq":
            seq = self._of.seq
            self.seq = self._index + seq if isinstance(seq, int) else seq[self._index]
            return self.seq
        raise AttributeError(name)


class _Joined(Rows):
    """Rows one after another; what few operators read is joined only when it is read."""

    __slots__ = ("_pieces",)

    def __init__(self, pieces: Sequence[Rows]) -> None:
        self._pieces = pieces
        self.value = np.concatenate([rows.value for rows in pieces])
        self.codes = None
        if any(rows.codes is not None for rows in pieces):
            # Rows without codes are from before anybody asked for keys: whoever asks sees later ones only.
            self.codes = np.concatenate(
                [rows.codes if rows.codes is not None else np.zeros(len(rows), np.int64) for rows in pieces]
            )
        first = pieces[0].source
        alone = isinstance(first, int) and all(
            rows.source is first or rows.source == first for rows in pieces
        )
        self.source = first if alone else np.concatenate([rows.sources() for rows in pieces])
        self.in_order, self.total = all(rows.in_order for rows in pieces), None

    def __getattr__(self, name: str) -> Any:
        if name == "ts":
            self.ts = np.concatenate([rows.ts for rows in self._pieces])
            return self.ts
        if name == "seq":
            self.seq = np.concatenate([rows.numbers() for rows in self._pieces])
            return self.seq
        raise AttributeError(name)


def joined(pieces: Sequence[Rows]) -> Rows:
    """Rows one after another; in order if each piece is and they follow each other in time."""
    return pieces[0] if len(pieces) == 1 else _Joined(pieces)
