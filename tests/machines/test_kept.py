"""Columns that are kept: pieces of one message share its names."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headwater.events import Batch
from headwater.machines import sizes
from headwater.machines.kept import Kept
from headwater.machines.lane import cut


def _message(first: int, keys: int, marks: int) -> Batch:
    return Batch(
        "s",
        first,
        list(range(8)),
        [1.0] * 8,
        key=[0] * 8 if keys else None,
        keys=tuple(f"k{number}" for number in range(keys)),
        mark=[-1] * 8 if marks else None,
        marks=tuple(f"m{number}" for number in range(marks)),
    )


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2)), min_size=1, max_size=4),
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 7), st.booleans()), max_size=30),
)
def test_names_are_counted_once_as_long_as_a_piece_is_kept(
    dictionaries: list[tuple[int, int]], steps: list[tuple[int, int, bool]]
) -> None:
    messages = [_message(1, *sizes) for sizes in dictionaries]
    kept, pieces = Kept(), list[tuple[int, Batch]]()
    for number, begin, is_new in steps:
        if is_new or not pieces:
            whose = number % len(messages)
            pieces.append((whose, cut(messages[whose], begin, begin + 1)))
            kept.add(pieces[-1][1])
        else:
            kept.drop([pieces.pop(begin % len(pieces))[1]])
        names = sum(
            sizes.of_names(messages[whose].keys) + sizes.of_names(messages[whose].marks)
            for whose in {whose for whose, _ in pieces}
        )
        assert kept.bytes == names + sum(sizes.of_arrays(piece) for _, piece in pieces)
    kept.drop(piece for _, piece in pieces)
    assert kept.bytes == 0


def test_a_whole_message_takes_what_its_pieces_take() -> None:
    message, kept = _message(1, 3, 2), Kept()
    for begin in range(0, 8, 2):
        kept.add(cut(message, begin, begin + 2))
    assert kept.bytes == sizes.of_columns(message)
    kept.clear()
    assert kept.bytes == 0
    kept.add(message)
    assert kept.bytes == sizes.of_columns(message)
