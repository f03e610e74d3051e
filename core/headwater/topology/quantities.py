"""Quantities as Kubernetes writes them: cores, bytes."""

from __future__ import annotations

import re
from fractions import Fraction

_QUANTITY = re.compile(
    r"(?P<number>[0-9]+(\.[0-9]*)?|\.[0-9]+)(?P<unit>[numkMGTPE]|[KMGTPE]i|[eE][-+]?[0-9]{1,3})?"
)
_POWERS = {"n": -3, "u": -2, "m": -1, "k": 1, "M": 2, "G": 3, "T": 4, "P": 5, "E": 6}


def amount(quantity: str) -> Fraction:
    """Of a quantity; 0 if it is none."""
    given = _QUANTITY.fullmatch(quantity)
    if given is None:
        return Fraction(0)
    number, unit = Fraction(given["number"]), given["unit"] or ""
    if unit.endswith("i"):
        return number * Fraction(1024) ** (1 if unit == "Ki" else _POWERS[unit[0]])
    if len(unit) > 1:
        return number * Fraction(10) ** int(unit[1:])
    return number * Fraction(1000) ** _POWERS.get(unit, 0)
