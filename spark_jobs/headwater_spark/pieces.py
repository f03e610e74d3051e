"""The state of a bucket in pieces, so that a micro-batch writes about as much as it has read.

A *base* is the bucket as it was once; the *tail* is the rows that it has taken since. Whoever has the bucket
in memory adds to the tail; whoever has not, takes the base and then the rows of the tail. When the tail has
grown longer than the base there is a new base: so all that is written is at most some three times what came
in. No piece is longer than 64 KiB.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from headwater.errors import PermanentError

FORMAT = 1
PIECE = 64 << 10
# A tail of so many bytes is always allowed.
LEAST = 1 << 20
_HEAD = struct.Struct("<4sI6Q")
# In all formats.
_BEGIN = struct.Struct("<4sI")
_MAGIC = b"HWBK"
HEAD, BASE, TAIL = "head", "base", "tail"


class OtherState(PermanentError):
    """State that this release cannot go on with."""


class Store(Protocol):
    """Values by kind and number, as Spark keeps them."""

    def get(self, kind: str, number: int) -> bytes | None: ...

    def put(self, kind: str, number: int, value: bytes) -> None: ...

    def drop(self, kind: str, number: int) -> None: ...


@dataclass(slots=True)
class Head:
    """Up to which record of the log the state has come, and what it consists of."""

    position: int = 0
    # The same of the base alone.
    base_position: int = 0
    # Pieces of the base and of the tail.
    base: int = 0
    tail: int = 0
    base_bytes: int = 0
    tail_bytes: int = 0

    def encode(self) -> bytes:
        given = (self.position, self.base_position, self.base, self.tail, self.base_bytes, self.tail_bytes)
        return _HEAD.pack(_MAGIC, FORMAT, *given)

    @classmethod
    def decode(cls, data: bytes) -> Head:
        magic, found = _BEGIN.unpack_from(data.ljust(_BEGIN.size, b"\0"))
        if magic != _MAGIC or found != FORMAT or len(data) != _HEAD.size:
            raise OtherState(
                f"the checkpoint holds the state of a bucket in format {found}, and this release reads "
                f"format {FORMAT}; start the release that wrote it"
            )
        return cls(*_HEAD.unpack(data)[2:])


class Pieces:
    """The state of one bucket in its store."""

    def __init__(self, store: Store) -> None:
        self._store = store
        data = store.get(HEAD, 0)
        self.head = Head() if data is None else Head.decode(data)

    def base(self) -> bytes:
        return b"".join(self._read(BASE, self.head.base))

    def tail(self) -> bytes:
        return b"".join(self._read(TAIL, self.head.tail))

    def _read(self, kind: str, count: int) -> Iterator[bytes]:
        for number in range(count):
            piece = self._store.get(kind, number)
            if piece is None:
                raise OtherState(f"piece {number} of the {kind} of a bucket is missing in the checkpoint")
            yield piece

    @property
    def is_long(self) -> bool:
        """Whether it is time for a new base."""
        return self.head.tail_bytes > max(self.head.base_bytes, LEAST)

    def append(self, position: int, data: bytes) -> None:
        """Rows that the bucket has taken, up to a record of the log."""
        head = self.head
        for begin in range(0, len(data), PIECE):
            self._store.put(TAIL, head.tail, data[begin : begin + PIECE])
            head.tail += 1
        head.tail_bytes += len(data)
        head.position = position
        self._store.put(HEAD, 0, head.encode())

    def replace(self, position: int, data: bytes) -> None:
        """The bucket itself, as it is behind a record of the log."""
        before = self.head
        pieces = [data[begin : begin + PIECE] for begin in range(0, len(data), PIECE)]
        for number, piece in enumerate(pieces):
            self._store.put(BASE, number, piece)
        for number in range(len(pieces), before.base):
            self._store.drop(BASE, number)
        for number in range(before.tail):
            self._store.drop(TAIL, number)
        self.head = Head(position, position, len(pieces), 0, len(data), 0)
        self._store.put(HEAD, 0, self.head.encode())

    def defer(self) -> None:
        """There can be no new base: ask again when the tail is twice as long."""
        self.head.base_bytes = 2 * self.head.tail_bytes
        self._store.put(HEAD, 0, self.head.encode())
