"""Items a second as whole millionths: sums of them are exact, and comparing them with a limit is too."""

from __future__ import annotations

import math
from fractions import Fraction

from headwater.planning.csa import exact

UNIT = 1_000_000
# So that what a node takes, in millionths, is a number of 64 bits.
MOST = 10.0**12


def at_least(rate: float | Fraction) -> int:
    """A rate, rounded up."""
    return math.ceil(exact(rate) * UNIT)


def at_most(limit: float | Fraction) -> int:
    """A limit, rounded down."""
    return math.floor(exact(limit) * UNIT)


def shown(amount: int) -> float:
    return amount / UNIT
