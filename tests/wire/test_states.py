"""States of users' functions as bytes: what was said is heard again, and nothing else is obeyed."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.operators import NOTHING
from headwater_wire import states
from headwater_wire.errors import Malformed
from headwater_wire.v1 import partials_pb2 as pb

PLAIN = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.fractions()
STATES = st.recursive(
    PLAIN,
    lambda inner: (
        st.lists(inner) | st.lists(inner).map(tuple) | st.dictionaries(st.text() | st.integers(), inner)
    ),
    max_leaves=8,
)


def column(rows: list[Any]) -> Any:
    found = np.empty(len(rows), object)
    found[:] = rows
    return found


def returned(rows: list[Any]) -> list[Any]:
    sent = [pb.State.FromString(state.SerializeToString()) for state in states.encode([(column(rows),)])]
    ((found,),) = states.decode(sent, len(rows))
    return list(found.tolist())


@settings(max_examples=100)
@given(st.lists(STATES | st.just(NOTHING), min_size=1, max_size=5))
def test_what_was_said_is_heard(rows: list[Any]) -> None:
    found = returned(rows)
    assert found == rows
    assert list(map(type, found)) == list(map(type, rows))


def test_states_that_are_all_none_stay_none() -> None:
    assert returned([None, None]) == [None, None]
    assert returned([(), []]) == [(), []]


def test_lists_of_values_stay_arrays() -> None:
    first, none, last = returned([(np.array([1.0, 2.0]),), None, [np.array([3.0]), np.array([4.0])]])
    assert [piece.tolist() for piece in first] == [[1.0, 2.0]]
    assert not none
    assert [piece.tolist() for piece in last] == [[3.0, 4.0]]


@pytest.mark.parametrize(
    "said",
    [
        b'{"/": ["1e999999999"]}',
        b'{"/": ["1", "2"]}',
        b'{"/": [1.5, 2]}',
        b'{"/": [1, 0]}',
        b'{"/": [1]}',
        b'{"/": 7}',
        b'{"{}": [[[1], 2]]}',
        b'{"{}": 3}',
        b'{"a": [], "b": []}',
        b"{}",
        b"no JSON",
        b"\x80\x04K\x01.",
        b"[" * 200_000,
        b'{"()":[' * 50_000 + b"]}" * 50_000,
        b"9" * 10_000,
    ],
)
def test_what_is_no_state_is_refused(said: bytes) -> None:
    sent = pb.State(columns=[pb.Column(objects=pb.Objects(row=[said]))])
    with pytest.raises(Malformed):
        states.decode([sent], 1)


def test_a_state_that_cannot_be_said_is_told() -> None:
    with pytest.raises(TypeError, match="cannot be sent; keep states to numbers"):
        states.encode([(column([object()]),)])
    assert returned([Fraction(1, 3)]) == [Fraction(1, 3)]
