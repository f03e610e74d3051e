"""Windows of a user's function that move on: what leaves them is undone, the rest is not combined again."""

from __future__ import annotations

from functools import reduce
from typing import Any

import numpy as np

from headwater.operators import Columns, Custom
from headwater.rows import Array, Ints

# How many windows are carried along: those of queries with different lengths do not meet.
CARRIED = 8


class Carried:
    """The states of the last windows over a column of slices, by the rows that are in them."""

    def __init__(self, operator: Custom) -> None:
        self._operator = operator
        self._windows: list[tuple[int, int, Any]] = []

    def fold(self, column: Array, low: Ints, high: Ints) -> Columns:
        """One state for each range of rows, none of them empty."""
        states = np.empty(len(low), object)
        for place, (begin, end) in enumerate(zip(low.tolist(), high.tolist(), strict=True)):
            states[place] = self._moved(column, begin, end)
        return (states,)

    def _moved(self, column: Array, low: int, high: int) -> Any:
        """The state of one range: from a window that is a few rows behind it, else from its own rows."""
        cost, nearest = high - low, None
        for window in self._windows:
            begin, end, _ = window
            if begin <= low < end <= high and low - begin + high - end < cost:
                cost, nearest = low - begin + high - end, window
        if nearest is None:
            state = reduce(self._operator.joined, column[low:high])
            del self._windows[CARRIED - 1 :]
        else:
            self._windows.remove(nearest)
            begin, end, state = nearest
            state = reduce(self._operator.joined, column[end:high], state)
            state = reduce(self._operator.undone, column[begin:low], state)
        self._windows.insert(0, (low, high, state))
        return state

    def forget(self, column: Array, before: int) -> None:
        """Rows before this one go: they leave the windows while they can still be undone."""
        self._windows = [
            (before, end, reduce(self._operator.undone, column[begin:before], state))
            if begin < before
            else (begin, end, state)
            for begin, end, state in self._windows
            if end > before
        ]

    def shift(self, rows: int) -> None:
        """The first rows are gone; those behind them have moved up."""
        self._windows = [(begin - rows, end - rows, state) for begin, end, state in self._windows]
