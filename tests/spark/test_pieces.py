"""The state of a bucket in pieces: whoever takes over has what the one before had, and little is written."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater_spark import pieces
from headwater_spark.pieces import OtherState, Pieces


class Memory:
    """A store that counts."""

    def __init__(self) -> None:
        self.held: dict[tuple[str, int], bytes] = {}
        self.written = 0

    def get(self, kind: str, number: int) -> bytes | None:
        return self.held.get((kind, number))

    def put(self, kind: str, number: int, value: bytes) -> None:
        assert len(value) <= pieces.PIECE
        self.held[kind, number] = value
        self.written += len(value)

    def drop(self, kind: str, number: int) -> None:
        del self.held[kind, number]


STEPS = st.lists(st.tuples(st.integers(0, 300_000), st.booleans()), max_size=12)


@settings(max_examples=100)
@given(STEPS)
def test_base_and_tail_are_what_was_put_there(steps: Sequence[tuple[int, bool]]) -> None:
    store, base, tail = Memory(), b"", b""
    for position, (size, compact) in enumerate(steps, 1):
        data = bytes([position]) * size
        made = Pieces(store)
        assert made.head.position == position - 1
        if compact:
            base, tail = tail + data, b""
            made.replace(position, base)
        else:
            tail += data
            made.append(position, data)
        found = Pieces(store)
        assert (found.base(), found.tail(), found.head.position) == (base, tail, position)
    # Nothing is left behind of what was replaced.
    head = Pieces(store).head
    assert len(store.held) == head.base + head.tail + bool(steps)


def test_what_is_written_is_in_proportion_to_what_came() -> None:
    store, came, size = Memory(), 0, 3 * pieces.LEAST
    for position in range(1, 400):
        made, data = Pieces(store), b"x" * 50_000
        made.append(position, data)
        came += len(data)
        if made.is_long:
            # A bucket that stays as large as it is, whatever comes.
            made.replace(position, b"y" * size)
    assert store.written < 3 * came
    assert Pieces(store).head.tail_bytes <= size + 50_000


def test_a_base_that_cannot_be_written_is_not_asked_for_each_time() -> None:
    store = Memory()
    asked = 0
    for position in range(1, 200):
        made = Pieces(store)
        made.append(position, b"x" * 100_000)
        if made.is_long:
            asked += 1
            made.defer()
    assert 0 < asked < 8
    assert len(Pieces(store).tail()) == 199 * 100_000


def test_other_formats_and_missing_pieces_are_told() -> None:
    store = Memory()
    Pieces(store).append(1, b"x" * 100_000)
    del store.held["tail", 1]
    with pytest.raises(OtherState, match="piece 1 of the tail"):
        Pieces(store).tail()
    head = store.held["head", 0]
    # Whatever is behind it in another format.
    for more in (b"", b"more"):
        store.held["head", 0] = head[:4] + (9).to_bytes(4, "little") + head[8:] + more
        with pytest.raises(OtherState, match="format 9, and this release reads format 1; start the release"):
            Pieces(store)
