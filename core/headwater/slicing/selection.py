"""Which rows a predicate selects."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from headwater.queries import Where
from headwater.rows import Array, Rows


def selected(where: Where, rows: Rows, keys: Sequence[str]) -> Array:
    """The indexes of the rows that match; their codes are indexes into `keys`."""
    allowed = None
    if where.keys is not None:
        if rows.codes is None:
            allowed = np.full(len(rows), "" in where.keys)
        else:
            allowed = np.array([key in where.keys for key in keys] or [False])[rows.codes]
    return np.flatnonzero(where.mask(rows.value, allowed))
