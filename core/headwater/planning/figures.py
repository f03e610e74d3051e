"""Numbers as people read them."""

from __future__ import annotations

import math
from fractions import Fraction


def at_least_three_digits(number: Fraction) -> str:
    """A number in three digits that is not below it."""
    scale = Fraction(10) ** (math.floor(math.log10(number)) - 2)
    return f"{float(math.ceil(number / scale) * scale):.12g}"
