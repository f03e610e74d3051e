"""States of operators as columns of a message, and back."""

from __future__ import annotations

import json
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from headwater.operators import NOTHING, Columns
from headwater_wire.arrays import Array, packed, viewed
from headwater_wire.errors import Malformed
from headwater_wire.v1 import partials_pb2 as pb

_PLAIN = {"float64": "<f8", "int64": "<i8", "int32": "<i4", "complex128": "<c16"}


def encode(states: Sequence[Columns]) -> list[pb.State]:
    return [pb.State(columns=[_column(column) for column in columns]) for columns in states]


def decode(states: Sequence[pb.State], size: int) -> list[Columns]:
    """The states of `size` cells."""
    return [tuple(_array(column, size) for column in state.columns) for state in states]


def _column(column: Array) -> pb.Column:
    if column.dtype == object:
        rows = column.tolist()
        # With arrays in some row it is of `values`; without, a user's own states may look the same.
        if any(_is_list(row) and row for row in rows):
            return pb.Column(lists=_lists(rows))
        return pb.Column(objects=pb.Objects(row=[_said(row) for row in rows]))
    if column.ndim == 2:
        return pb.Column(matrix=pb.Matrix(width=column.shape[1], float64=packed(column, "<f8")))
    name = column.dtype.name
    if name not in _PLAIN:
        raise TypeError(f"no message for a column of {name}")
    return pb.Column(**{name: packed(column, _PLAIN[name])})  # type: ignore[arg-type]  # one of the fields


def _is_list(row: Any) -> bool:
    """Whether it is a state of `values`: pieces of float64."""
    return isinstance(row, tuple | list) and all(isinstance(piece, np.ndarray) for piece in row)


def _lists(rows: Sequence[Sequence[Array] | None]) -> pb.Lists:
    sizes = [sum(map(len, row or ())) for row in rows]
    pieces = [piece for row in rows for piece in row or ()]
    values = np.concatenate(pieces) if pieces else np.empty(0)
    return pb.Lists(sizes_uint32=packed(np.array(sizes), "<u4"), float64=packed(values, "<f8"))


def _array(column: pb.Column, size: int) -> Array:
    kind = column.WhichOneof("data")
    if kind in _PLAIN:
        return viewed(getattr(column, kind), _PLAIN[kind], kind, size)
    if kind == "matrix":
        width = column.matrix.width
        return viewed(column.matrix.float64, "<f8", "matrix", size * width).reshape(size, width)
    if kind == "lists":
        return _rows_of(column.lists, size)
    if kind == "objects":
        if len(column.objects.row) != size:
            raise Malformed("objects", f"has {len(column.objects.row)} rows", f"send {size}")
        found = np.empty(size, object)
        found[:] = [_heard(row) for row in column.objects.row]
        return found
    raise Malformed("column", "is of no kind that is known here", "send one of this version")


def _rows_of(lists: pb.Lists, size: int) -> Array:
    sizes = viewed(lists.sizes_uint32, "<u4", "lists.sizes_uint32", size).astype(np.int64)
    values = viewed(lists.float64, "<f8", "lists.float64", int(sizes.sum()))
    found = np.empty(size, object)
    ends = np.cumsum(sizes)
    for row, (end, length) in enumerate(zip(ends.tolist(), sizes.tolist(), strict=True)):
        found[row] = (values[end - length : end],) if length else ()
    return found


# States of users' functions: what JSON holds, and tuples and fractions.


def _said(state: Any) -> bytes:
    if state is NOTHING:
        return b""
    return json.dumps(_tagged(state), separators=(",", ":")).encode()


def _tagged(state: Any) -> Any:
    if state is None or isinstance(state, bool | int | float | str):
        return state
    if isinstance(state, Fraction):
        return {"/": [state.numerator, state.denominator]}
    if isinstance(state, tuple):
        return {"()": [_tagged(each) for each in state]}
    if isinstance(state, list):
        return [_tagged(each) for each in state]
    if isinstance(state, dict):
        return {"{}": [[_tagged(key), _tagged(value)] for key, value in state.items()]}
    raise TypeError(
        f"a state of {type(state).__name__} cannot be sent; keep states to numbers, strings, None, "
        "fractions, and tuples, lists and dicts of them"
    )


def _heard(said: bytes) -> Any:
    if not said:
        return NOTHING
    try:
        return _untagged(json.loads(said))
    except (ValueError, TypeError, ZeroDivisionError, RecursionError) as error:
        raise Malformed(
            "objects", f"has a row that cannot be read ({error})", "send states as JSON"
        ) from error


def _untagged(said: Any) -> Any:
    if isinstance(said, list):
        return [_untagged(each) for each in said]
    if not isinstance(said, dict):
        return said
    ((tag, held),) = said.items()
    if tag == "/":
        numerator, denominator = held
        # Never a string: "1e999999999" would be a number of a billion digits.
        if not isinstance(numerator, int) or not isinstance(denominator, int):
            raise TypeError("a fraction is two whole numbers")
        return Fraction(numerator, denominator)
    if tag == "()":
        return tuple(_untagged(each) for each in held)
    return {_untagged(key): _untagged(value) for key, value in held}
