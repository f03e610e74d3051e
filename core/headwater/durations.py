"""Durations as people write them, in the microseconds that everything else counts in."""

from __future__ import annotations

import operator
import re
from datetime import timedelta
from typing import Any

Duration = int | str | timedelta

MICROSECOND = 1
MILLISECOND = 1_000
SECOND = 1_000_000

_UNITS = {
    "us": MICROSECOND,
    "µs": MICROSECOND,
    "ms": MILLISECOND,
    "s": SECOND,
    "m": 60 * SECOND,
    "h": 3_600 * SECOND,
    "d": 86_400 * SECOND,
}
_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?)(us|µs|ms|s|m|h|d)")
_WHOLE = re.compile(rf"-?(?:{_PART.pattern})+")


def integer(number: Any) -> int | None:
    """A whole number of any type, such as numpy's, as an int; None if it is none."""
    if isinstance(number, bool):
        return None
    try:
        return operator.index(number)
    except TypeError:
        return None


def microseconds(duration: Duration) -> int:
    """`"10s"`, `"1h30m"`, `timedelta(...)` or a number of microseconds, as microseconds.

    Raises ValueError with a sentence that says what would have been understood.
    """
    number = integer(duration)
    if number is not None:
        return number
    if isinstance(duration, timedelta):
        return (duration.days * 86_400 + duration.seconds) * SECOND + duration.microseconds
    text = duration.strip() if isinstance(duration, str) else ""
    if not _WHOLE.fullmatch(text):
        raise ValueError(f"{duration!r} is no duration (write for example 10s, 500ms, 1h30m)")
    parts = [(number, _UNITS[unit]) for number, unit in _PART.findall(text)]
    total = 0
    for number, unit in parts:
        whole, _, fraction = number.partition(".")
        total += int(whole) * unit
        scaled = int(fraction or "0") * unit
        if scaled % 10 ** len(fraction):
            raise ValueError(f"{duration!r} is finer than a microsecond")
        total += scaled // 10 ** len(fraction)
    return -total if text.startswith("-") else total


def human(duration: int) -> str:
    """The shortest usual way to write a number of microseconds."""
    if duration < 0:
        return "-" + human(-duration)
    if duration == 0:
        return "0s"
    parts = []
    for unit in ("d", "h", "m", "s", "ms", "us"):
        count, duration = divmod(duration, _UNITS[unit])
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts)
