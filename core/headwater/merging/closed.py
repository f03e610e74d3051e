"""Windows that are final, as columns, before their functions are lowered."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from headwater.operators import Columns, Operator
from headwater.rows import TS_MIN, Array, Ints


@dataclass(slots=True)
class Closed:
    """Rows `(query, code, start, end, states)`; without key the code is 0.

    `first` and `last` are the times of the first and the last event of windows whose bounds are ranks;
    TS_MIN stands for a time that is not known.
    """

    query: Array
    code: Ints
    start: Ints
    end: Ints
    states: list[Columns]
    first: Ints | None = None
    last: Ints | None = None

    def __setstate__(self, state: Any) -> None:
        # A state of a release before has no `first` and `last`.
        self.first = self.last = None
        for name, value in state[1].items():
            setattr(self, name, value)

    def take(self, chosen: Array) -> Closed:
        """Some of the rows, by a mask."""
        return Closed(
            self.query[chosen],
            self.code[chosen],
            self.start[chosen],
            self.end[chosen],
            [tuple(column[chosen] for column in columns) for columns in self.states],
            None if self.first is None else self.first[chosen],
            None if self.last is None else self.last[chosen],
        )


def joined(operators: Sequence[Operator], chunks: Sequence[Closed]) -> Closed:
    """Several chunks of one group as one, in their order."""
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
        _joined_times(chunks, "first"),
        _joined_times(chunks, "last"),
    )


def _joined_times(chunks: Sequence[Closed], name: Literal["first", "last"]) -> Ints | None:
    """A time of each row; not known for a chunk that a release before has closed."""
    given = [getattr(chunk, name) for chunk in chunks]
    if all(times is None for times in given):
        return None
    return np.concatenate(
        [
            np.full(len(chunk.query), TS_MIN) if times is None else times
            for chunk, times in zip(chunks, given, strict=True)
        ]
    )
