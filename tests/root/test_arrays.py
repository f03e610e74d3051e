"""Arrays in a snapshot: every array comes back as it was, and damaged bytes are refused, never followed."""

from __future__ import annotations

import pickle
from io import BytesIO
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as drawn

from headwater.machines.lanes import shared
from headwater_root import arrays
from headwater_root.arrays import BadArray, CheckedUnpickler
from headwater_root.snapshots import Snapshots, Unreadable, Unwritable

CODEC = Snapshots((), lambda name: None, shared)
Values = np.ndarray[Any, Any]


def read_old(data: bytes) -> Any:
    return CheckedUnpickler(BytesIO(data)).load()


def same(left: Values, right: Values) -> bool:
    values = left.tolist() == right.tolist() if left.dtype.hasobject else left.tobytes() == right.tobytes()
    layout = [(each.dtype, each.shape, each.flags.fnc) for each in (left, right)]
    return values and layout[0] == layout[1] and right.flags.writeable


@st.composite
def values(draw: st.DrawFn) -> Values:
    dtype = draw(
        st.one_of(
            drawn.scalar_dtypes().map(lambda each: each.newbyteorder("=")),
            st.sampled_from([np.dtype("U3"), np.dtype("S2"), np.dtype(object)]),
        )
    )
    shape = draw(drawn.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4))
    elements = st.one_of(st.none(), st.integers(), st.tuples(st.text())) if dtype.kind == "O" else None
    array: Values = draw(drawn.arrays(dtype, shape, elements=elements))
    return np.asfortranarray(array) if draw(st.booleans()) and array.ndim else array


@given(values())
def test_an_array_comes_back_as_it_was(array: Values) -> None:
    for read in (CODEC.decode(CODEC.encode(array)), read_old(pickle.dumps(array, protocol=4))):
        assert same(array, read)


@given(values().filter(lambda array: array.size > 0 and array.dtype.kind != "O"))
def test_a_single_value_comes_back_as_it_was(array: Values) -> None:
    single = array.flat[0]
    for read in (CODEC.decode(CODEC.encode(single)), read_old(pickle.dumps(single, protocol=4))):
        assert type(read) is type(single)
        assert np.asarray(read).tobytes() == np.asarray(single).tobytes()


@pytest.mark.parametrize(
    "kind",
    ["i8", "?", "f4", "O", "U3", "M8[25s]", (float, (3,)), (np.int64, (2, 3)), (object, (2,)), (float, (0,))],
)
def test_a_type_comes_back_as_it_was(kind: Any) -> None:
    dtype = np.dtype(kind)
    for read in (CODEC.decode(CODEC.encode(dtype)), read_old(pickle.dumps(dtype, protocol=4))):
        assert read == dtype
        assert np.empty(2, read).shape == np.empty(2, dtype).shape


def test_one_array_in_two_places_stays_one() -> None:
    array = np.arange(3)
    first, second = CODEC.decode(CODEC.encode([array, array]))
    assert first is second


class Named(np.ndarray[Any, Any]):
    """An array of a class of its own."""


def test_an_array_of_another_class_is_refused() -> None:
    with pytest.raises(Unwritable, match="an array of the class Named"):
        CODEC.encode(np.arange(3).view(Named))


def test_a_record_comes_back_and_one_of_objects_is_refused() -> None:
    record = np.array([(1, 2.5)], [("a", "i4"), ("b", "f8")])
    assert same(record, CODEC.decode(CODEC.encode(record)))
    with pytest.raises(Unwritable, match="an array of"):
        CODEC.encode(np.array([(1, None)], [("a", "i4"), ("b", object)]))


@pytest.mark.parametrize(
    "arguments",
    [
        ("<i8", (3,), "C", bytes(16)),
        ("<i8", (-1, -2), "C", bytes(16)),
        ("<i8", (1 << 61, 8), "C", b""),
        ("<i8", [2], "C", bytes(16)),
        ("<i8", (True, 2), "C", bytes(16)),
        ("<i8", (2,), "A", bytes(16)),
        ("|O", (2,), "C", bytes(16)),
        ([("a", "|O")], (2,), "C", bytes(16)),
        ("<i8", (2,), "C", "x" * 16),
        # Values of no bytes would make arrays of any size out of nothing.
        ("|V0", (1 << 62,), "C", b""),
        ("<U0", (1 << 40,), "C", b""),
        ([], (1 << 62,), "C", b""),
    ],
)
def test_contradictions_are_refused(arguments: Any) -> None:
    with pytest.raises(BadArray):
        arrays.read_array(*arguments)


def test_objects_that_are_fewer_than_the_shape_says_are_refused() -> None:
    for shape, held in (((3,), [1]), ((1,), [1, 2]), ((1,), (1,)), ((-1,), [])):
        with pytest.raises(BadArray):
            arrays.read_objects(shape, "C", held)  # type: ignore[arg-type]  # what damaged bytes may hold


class Crafted:
    """Pickled as numpy pickles, with a state of the test's choice."""

    def __init__(self, function: Any, arguments: tuple[Any, ...], state: tuple[Any, ...]) -> None:
        self._reduced = function, arguments, state

    def __reduce__(self) -> tuple[Any, ...]:
        return self._reduced


def an_array(shape: Any, dtype: Any, data: Any) -> Crafted:
    reduced: Any = np.empty(0).__reduce__()
    return Crafted(reduced[0], reduced[1], (1, shape, dtype, False, data))


def a_type(name: str, *state: Any) -> Crafted:
    return Crafted(np.dtype, (name, False, True), state)


PLAIN = (None, None, None, -1, -1, 0)


@pytest.mark.parametrize(
    "crafted",
    [
        # numpy alone ends the process at the first three.
        an_array((5,), np.dtype(object), [1, 2]),
        a_type("m8", 3, "<", *PLAIN),
        an_array((1 << 20,), np.dtype(object), []),
        an_array((5,), np.dtype("i8"), b"short"),
        an_array((-5,), np.dtype("i8"), b""),
        an_array((1 << 62, 4), np.dtype("i8"), b""),
        an_array((2,), np.dtype("V8"), bytes(16)),
        an_array((1,), "i8", bytes(8)),
        an_array((1,), np.dtype("i8"), None),
        a_type("i8", 3, ">", *PLAIN),
        a_type("i8", 3, "<", None, ("a",), {"a": (np.dtype("i8"), 0)}, -1, -1, 0),
        a_type("i8,m8", 3, "<", *PLAIN),
        a_type("U3", 3, "<", None, None, None, 1 << 20, 4, 8),
        a_type("M8", 4, "<", *PLAIN, (None, (b"eons", 1, 1, 1))),
        a_type("M8", 4, "<", *PLAIN, (None, (b"us", 0, 1, 1))),
        a_type("M8", 4, "<", *PLAIN, (None, (b"us", 1))),
        a_type("V24", 3, "|", (np.dtype("f8"), (4,)), None, None, 24, 8, 0),
        a_type("V24", 3, "|", (np.dtype("f8"), (3,)), None, None, 24, 1, 0),
        a_type("V24", 3, "|", (np.dtype("f8"), (3,)), None, None, 240, 8, 0),
        a_type("V16", 3, "|", (np.dtype(object), (2,)), None, None, 16, 8, 0),
    ],
)
def test_what_numpy_would_follow_is_refused(crafted: Crafted) -> None:
    with pytest.raises((BadArray, ValueError, TypeError)):
        read_old(pickle.dumps(crafted, protocol=4))


@pytest.mark.parametrize(
    "crafted",
    [
        # An array that was read is given another state: again numpy alone ends the process.
        Crafted(arrays.read_array, ("<i8", (1,), "C", bytes(8)), (1, (5,), np.dtype(object), False, [1, 2])),
        Crafted(arrays.read_dtype, ("<m8[s]", ()), (3, "<", *PLAIN)),
        Crafted(arrays.read_objects, ((1,), "C", [1]), (1, (1 << 20,), np.dtype(object), False, [])),
        Crafted(
            arrays.read_dtype, ([("a", "<i8")], ()), (3, "|", (np.dtype("i8"), (1,)), None, None, 8, 8, 0)
        ),
    ],
)
def test_no_state_is_followed_unseen(crafted: Crafted) -> None:
    head = CODEC.encode(None).partition(b"\x80")[0]
    with pytest.raises(Unreadable):
        CODEC.decode(head + pickle.dumps(crafted, protocol=4))
