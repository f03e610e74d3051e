"""Arrays in a snapshot: how they are written, and how they are read from bytes that may be damaged.

numpy's own unpickling trusts its input: a changed letter in a type, or fewer objects than the shape says,
reads memory that is not the array's and ends the process. Here an array is written as its type, shape and
values, which are checked against each other before an array is made. `CheckedUnpickler` refuses states that
numpy would follow, and reads arrays as numpy pickles them: snapshots up to format 7 hold such.
"""

from __future__ import annotations

import math
import pickle
import re
from collections.abc import Callable
from io import BytesIO
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.lib.format import descr_to_dtype, dtype_to_descr

_BUILD = pickle.BUILD[0]
Order = Literal["C", "F"]
Reduced = tuple[Callable[..., Any], tuple[Any, ...]]


class BadArray(ValueError):
    """An array that cannot be written, or whose bytes contradict each other."""


def reduce_array(array: np.ndarray[Any, Any]) -> Reduced:
    """What pickle writes for an array: the function that reads it, and its arguments."""
    if type(array) is not np.ndarray:
        raise BadArray(f"an array of the class {type(array).__name__}")
    order: Order = "F" if array.flags.fnc else "C"
    if array.dtype.kind == "O":
        return read_objects, (array.shape, order, array.ravel(order).tolist())
    if array.dtype.hasobject or not array.dtype.itemsize:
        raise BadArray(f"an array of {array.dtype}")
    return read_array, (dtype_to_descr(array.dtype), array.shape, order, array.tobytes(order))


def reduce_dtype(dtype: np.dtype[Any]) -> Reduced:
    """What pickle writes for a type of values, which may be a vector of them."""
    return read_dtype, (dtype_to_descr(dtype.base), dtype.shape)


def reduce_scalar(scalar: np.generic) -> Reduced:
    """What pickle writes for a single value of numpy's."""
    # An empty text has a type of no bytes, but takes some. As an array it has a type that fits.
    array = np.asarray(scalar)
    if array.dtype.hasobject:
        raise BadArray(f"a value of {array.dtype}")
    return read_scalar, (dtype_to_descr(array.dtype), array.tobytes())


def read_array(description: Any, shape: tuple[int, ...], order: Order, data: bytes) -> np.ndarray[Any, Any]:
    """The array that `reduce_array` wrote, in memory of its own."""
    dtype = descr_to_dtype(description)
    _check_order(order)
    if dtype.hasobject or dtype.shape or not dtype.itemsize or not isinstance(data, bytes):
        raise BadArray(f"no array of plain values: {dtype}")
    if _count_values(shape) * dtype.itemsize != len(data):
        raise BadArray(f"an array of {dtype} and the shape {shape} in {len(data)} bytes")
    return np.ndarray(shape, dtype, buffer=data, order=order).copy("K")


def read_objects(shape: tuple[int, ...], order: Order, values: list[object]) -> np.ndarray[Any, Any]:
    """The array of objects that `reduce_array` wrote."""
    _check_order(order)
    if not isinstance(values, list) or _count_values(shape) != len(values):
        raise BadArray(f"an array of the shape {shape} with another number of objects")
    flat = np.empty(len(values), object)
    for place, value in enumerate(values):
        flat[place] = value
    return flat.reshape(shape, order=order)


def read_dtype(description: Any, shape: tuple[int, ...]) -> np.dtype[Any]:
    """The type that `reduce_dtype` wrote."""
    dtype = descr_to_dtype(description)
    _count_values(shape)
    return np.dtype((dtype, shape)) if shape else dtype


def read_scalar(description: Any, data: bytes) -> Any:
    """The value that `reduce_scalar` wrote."""
    return read_array(description, (1,), "C", data)[0]


def _check_order(order: object) -> None:
    if order not in ("C", "F"):
        raise BadArray(f"no order of values: {order!r}")


def _count_values(shape: object) -> int:
    """How many values an array of a shape has."""
    if not isinstance(shape, tuple) or not all(type(each) is int and each >= 0 for each in shape):
        raise BadArray(f"no shape: {shape!r}")
    return math.prod(shape)


class CheckedUnpickler(pickle._Unpickler):
    """Checks the state that a pickle gives an array or a type, since numpy does not. This is Python's own
    unpickler: the fast one hands an object its state unseen."""

    stack: list[Any]
    # What happens at each code of a pickle; the entry of one of them is replaced below.
    dispatch: ClassVar[dict[int, Callable[[Any], None]]] = dict(pickle._Unpickler.dispatch)

    def __init__(self, file: BytesIO) -> None:
        super().__init__(file)

    def find_class(self, module: str, name: str) -> Any:
        return OF_NUMPY[module, name] if (module, name) in OF_NUMPY else super().find_class(module, name)

    def _build(self) -> None:
        built, state = self.stack[-2:]
        if isinstance(built, np.ndarray):
            _check_array(state)
        elif isinstance(built, np.dtype):
            _check_dtype(built, state)
        of_python: Callable[[Any], None] = pickle._Unpickler.dispatch[_BUILD]
        of_python(self)

    dispatch[_BUILD] = _build


_DTYPE_NAME = re.compile(r"\?|O\d?|[biufcSUmMV]\d{1,9}")
_UNITS = (b"Y", b"M", b"W", b"D", b"h", b"m", b"s", b"ms", b"us", b"ns", b"ps", b"fs", b"as", b"generic")


def _begin_array(*_: object) -> np.ndarray[Any, Any]:
    """An empty array, whose state follows in the pickle."""
    return np.empty(0, np.int8)


def _begin_dtype(name: str, *_: object) -> np.dtype[Any]:
    """A type by its name, whose state follows in the pickle."""
    if not isinstance(name, str) or not _DTYPE_NAME.fullmatch(name):
        raise BadArray(f"no type of values: {name!r}")
    # Plain numbers are numpy's own objects, which no state changes.
    return np.dtype(name, copy=name[0] in "SUVmM")


def _pickled_scalar(dtype: np.dtype[Any], data: bytes) -> Any:
    return read_scalar(dtype_to_descr(dtype), data) if dtype.itemsize else dtype.type()


# What numpy's pickles name. The class of arrays is only an argument of `_reconstruct`, which needs none here.
OF_NUMPY: dict[tuple[str, str], Any] = {
    ("numpy", "ndarray"): None,
    ("numpy", "dtype"): _begin_dtype,
    ("numpy._core.multiarray", "_reconstruct"): _begin_array,
    ("numpy._core.multiarray", "scalar"): _pickled_scalar,
    # The same in numpy 1.
    ("numpy.core.multiarray", "_reconstruct"): _begin_array,
    ("numpy.core.multiarray", "scalar"): _pickled_scalar,
}


def _check_array(state: Any) -> None:
    """Checks what gives an array its type, shape and values."""
    _, shape, dtype, _, data = state
    if not isinstance(dtype, np.dtype) or dtype.shape or dtype.kind == "V" or not dtype.itemsize:
        raise BadArray("an array of no type")
    objects = dtype.kind == "O"
    if not isinstance(data, list if objects else bytes):
        raise BadArray("an array with no values")
    if _count_values(shape) * (1 if objects else dtype.itemsize) != len(data):
        raise BadArray(f"an array of {dtype} and the shape {shape} with another number of values")


def _check_dtype(dtype: np.dtype[Any], state: Any) -> None:
    """Checks what completes a type: nothing of a number, the unit of a time, the element of a vector."""
    version, order, vector, names, fields, size, alignment, flags, *unit = state
    if order not in ("<", "|", "=") or names is not None or fields is not None or dtype.names or dtype.shape:
        raise BadArray(f"the type {dtype} with the state {state}")
    expected: tuple[Any, ...]
    if dtype.kind in "SU":
        expected = (3, None, dtype.itemsize, dtype.alignment, flags, [])
    elif dtype.kind == "V":
        base, shape = vector
        if (
            not isinstance(base, np.dtype)
            or base.kind in "VmM"
            or _count_values(shape) * base.itemsize != dtype.itemsize
        ):
            raise BadArray(f"a vector of {base} and the shape {shape} in {dtype.itemsize} bytes")
        expected = (3, vector, dtype.itemsize, base.alignment, base.flags, [])
    elif dtype.kind in "mM":
        ((metadata, (name, *steps)),) = unit
        if metadata or name not in _UNITS or [type(each) for each in steps] != [int] * 3:
            raise BadArray(f"no unit of time: {unit!r}")
        expected = (4, None, -1, -1, 0, [(metadata, (name, *(min(max(each, 1), 1 << 30) for each in steps)))])
    else:
        expected = (3, None, -1, -1, flags, [])
    if (version, vector, size, alignment, flags, unit) != expected:
        raise BadArray(f"the type {dtype} with the state {state}")
