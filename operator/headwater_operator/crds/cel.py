"""Expressions of the Common Expression Language that the rules share."""

from __future__ import annotations

from headwater.durations import human

# A duration, part by part; finer than a microsecond is none.
_UNITS = {
    "us": (1.0, r"(\.0+)?"),
    "µs": (1.0, r"(\.0+)?"),
    "ms": (1e3, r"(\.[0-9]{1,3}0*)?"),
    "s": (1e6, r"(\.[0-9]{1,6}0*)?"),
    "m": (6e7, r"(\.[0-9]{1,7}0*)?"),
    "h": (3.6e9, r"(\.[0-9]{1,8}0*)?"),
    "d": (8.64e10, r"(\.[0-9]{1,8}0*)?"),
}
PARTS = "(" + "|".join(f"[0-9]+{fraction}{unit}" for unit, (_, fraction) in _UNITS.items()) + ")+"
_PART = r"[0-9.]+[a-zµ]+"


def quoted(text: str) -> str:
    """A string of the language."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def microseconds(duration: str) -> str:
    """The microseconds of a duration, without its sign: whole ones, whatever a double makes of a part."""
    factor = f"{_UNITS['d'][0]:.1f}"
    for unit in ("h", "m", "s", "ms", "µs", "us"):
        factor = f"part.endsWith('{unit}') ? {_UNITS[unit][0]:.1f} : {factor}"
    number = "double(part.find('[0-9.]+'))"
    return f"{duration}.findAll({quoted(_PART)}).map(part, int({number} * ({factor}) + 0.5)).sum()"


def bounds(at_least: int, at_most: int | None) -> str:
    """In words."""
    low = f"{human(at_least)} or more"
    return low if at_most is None else f"{low}, and {human(at_most)} at most"
