"""The root mean square: what a motor's current or a vibration is judged by.

A state is the number of events and the sum of their squares, in whole thousandths. Whole numbers add up to
the same in any order, so every tree gives the same result to the last bit; and what was added can be taken
off again exactly, which makes sliding windows cheap.
"""

from __future__ import annotations

from math import isqrt

from headwater.aggregates import UserDefined

# Values are taken to three decimals.
SCALE = 1_000
State = tuple[int, int]


def lift(value: float) -> State:
    """One event."""
    return 1, round(value * SCALE) ** 2


def combine(left: State, right: State) -> State:
    """Two states as one; neither is changed."""
    return left[0] + right[0], left[1] + right[1]


def invert(total: State, part: State) -> State:
    """What is left of a state without a part of it."""
    return total[0] - part[0], total[1] - part[1]


def lower(state: State) -> float:
    """The result of a window, to six decimals."""
    count, squares = state
    return isqrt(squares * SCALE**2 // count) / SCALE**2


RMS = UserDefined("rms", lift, combine, lower, invert=invert)
