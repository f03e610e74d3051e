"""Windows that are final, as columns, before their functions are lowered."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from headwater.operators import Columns, Operator
from headwater.rows import Array, Ints


@dataclass(slots=True)
class Closed:
    """Rows `(query, code, start, end, states)`; without key the code is 0."""

    query: Array
    code: Ints
    start: Ints
    end: Ints
    states: list[Columns]


def joined(operators: Sequence[Operator], chunks: Sequence[Closed]) -> Closed:
    """Several chunks as one, in their order."""
    if len(chunks) == 1:
        return chunks[0]
    return Closed(
        np.concatenate([chunk.query for chunk in chunks]),
        np.concatenate([chunk.code for chunk in chunks]),
        np.concatenate([chunk.start for chunk in chunks]),
        np.concatenate([chunk.end for chunk in chunks]),
        [
            tuple(
                np.concatenate(parts)
                for parts in zip(*(chunk.states[place] for chunk in chunks), strict=True)
            )
            for place in range(len(operators))
        ],
    )
