"""Arrays as packed little-endian bytes; what comes in is checked before it is looked at."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from headwater_wire.errors import Malformed

Array = npt.NDArray[Any]


def packed(column: Array, dtype: str) -> bytes:
    return np.ascontiguousarray(column, dtype).tobytes()


def viewed(data: bytes, dtype: str, field: str, size: int | None = None) -> Array:
    """The array in some bytes, as a view; `size` is how long it has to be."""
    item = np.dtype(dtype).itemsize
    if len(data) % item or (size is not None and len(data) != size * item):
        wanted = f"a multiple of {item}" if size is None else f"{size * item}"
        raise Malformed(field, f"has {len(data)} bytes", f"send {wanted}")
    return np.frombuffer(data, dtype)


def narrow(codes: Array, names: int) -> bytes:
    """Codes below `names` in as few bytes as hold them."""
    return packed(codes, width(names))


def width(names: int) -> str:
    return "<u1" if names <= 1 << 8 else "<u2" if names <= 1 << 16 else "<u4"


def coded(data: bytes, names: int, field: str, size: int) -> npt.NDArray[np.int32]:
    """Codes below `names`, of one byte or more."""
    codes = viewed(data, width(names), field, size)
    if size and int(codes.max()) >= names:
        raise Malformed(field, f"has the code {int(codes.max())}", f"send codes below {names}")
    return codes.astype(np.int32)
