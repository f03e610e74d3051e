"""Units of times that are given as numbers since 1970, and whether numbers look like another unit."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Literal, get_args

import numpy as np

from headwater.durations import MILLISECOND, SECOND
from headwater.errors import Problem
from headwater.rows import TS_MAX, TS_MIN, Floats, Ints

TimeUnit = Literal["s", "ms", "us", "ns"]
UNITS: tuple[TimeUnit, ...] = get_args(TimeUnit)
WORDS = {"s": "seconds", "ms": "milliseconds", "us": "microseconds", "ns": "nanoseconds"}
# So many of the first times of an input are judged.
FIRST = 100

# A number of a unit is this many microseconds; a nanosecond is part of one.
_SCALES = {"s": SECOND, "ms": MILLISECOND, "us": 1}
# Up to so many microseconds (2041) a float multiplied by its scale is less than half a microsecond off.
_EXACT = 2.0**51
# A decimal number with its first digit behind this place is less than a microsecond in any unit.
_FINEST = -30
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_EARLIEST = (datetime(1990, 1, 1, tzinfo=UTC) - _EPOCH) // timedelta(microseconds=1)
_LATEST = (datetime(2100, 1, 1, tzinfo=UTC) - _EPOCH) // timedelta(microseconds=1)


def time_unit_problem(unit: object) -> Problem | None:
    """What is wrong with a unit that a program gives; None stands for microseconds."""
    if unit is None or (isinstance(unit, str) and unit in UNITS):
        return None
    return Problem("unit", f"is {unit!r}", f"give one of {', '.join(UNITS)}")


def to_microseconds(number: int, unit: TimeUnit) -> int:
    """One time as microseconds; what is finer is cut off."""
    return number // 1_000 if unit == "ns" else number * _SCALES[unit]


def from_microseconds(microseconds: int, unit: TimeUnit) -> int:
    """The number of a unit that a time is."""
    return microseconds * 1_000 if unit == "ns" else microseconds // _SCALES[unit]


def decimal_to_microseconds(number: Decimal, unit: TimeUnit) -> int:
    """One time with a fraction as microseconds; what is finer is cut off."""
    if number and number.adjusted() < _FINEST:
        # As a fraction it would take memory without bound.
        return -1 if number < 0 else 0
    return math.floor(Fraction(number) * to_microseconds(1_000, unit) / 1_000)


def fraction_remedy(number: Decimal, option: str) -> str:
    """What to do about a time with a fraction and without a unit: give the unit that it looks like.

    `option` is how a unit is given, with `{unit}` in it.
    """
    whole = math.floor(number)
    unit = likely_unit(np.array([whole], np.int64)) if TS_MIN <= whole <= TS_MAX else None
    if unit is None:
        return f"say which unit it is, such as {option.format(unit='s')}, or give whole microseconds"
    return f"this looks like {WORDS[unit]}: {option.format(unit=unit)}"


def column_to_microseconds(numbers: Ints, unit: TimeUnit) -> Ints:
    """Times as microseconds. What int64 cannot hold becomes a time that is rejected."""
    if unit == "us":
        return numbers
    if unit == "ns":
        return numbers // 1_000
    scale = _SCALES[unit]
    found = numbers * scale
    found[numbers > TS_MAX // scale] = TS_MAX
    found[numbers < -(-TS_MIN // scale)] = TS_MIN
    return found


def floats_to_microseconds(numbers: Floats, unit: TimeUnit) -> Ints:
    """Finite times with fractions as microseconds, each as the shortest decimal number that stands for it.

    What is finer is cut off, and what int64 cannot hold becomes a time that is rejected.
    """
    if unit == "ns":
        return np.array([float_to_microseconds(number, unit) for number in numbers.tolist()], np.int64)
    scale = _SCALES[unit]
    exact = np.abs(numbers) < _EXACT / scale
    near = np.where(exact, numbers, 0.0)
    nearest = np.rint(near * scale)
    # Cut off, unless the nearest microsecond reads as the same float.
    found = np.floor(near * scale)
    found -= found / scale > near
    found += (found + 1) / scale <= near
    times: Ints = np.where(nearest / scale == near, nearest, found).astype(np.int64)
    for row in np.flatnonzero(~exact).tolist():
        times[row] = float_to_microseconds(float(numbers[row]), unit)
    return times


def float_to_microseconds(number: float, unit: TimeUnit) -> int:
    """One finite float as `floats_to_microseconds` reads it."""
    return bounded(decimal_to_microseconds(Decimal(repr(number)), unit))


def bounded(microseconds: int) -> int:
    """A time, or one that is rejected for what int64 cannot hold."""
    return microseconds if TS_MIN <= microseconds <= TS_MAX else TS_MAX


def likely_unit(numbers: Ints) -> TimeUnit | None:
    """The unit in which all of these numbers are times from 1990 to 2100; None if there is none."""
    if not len(numbers):
        return None
    low, high = int(numbers.min()), int(numbers.max())
    for unit in ("us", *UNITS):
        if to_microseconds(low, unit) >= _EARLIEST and to_microseconds(high, unit) < _LATEST:
            return unit
    return None


def is_outside(numbers: Ints) -> bool:
    """Whether all of these microseconds lie before 1990 or after 2100."""
    return bool(len(numbers)) and not bool(((numbers >= _EARLIEST) & (numbers < _LATEST)).any())


def other_unit(number: int, unit: TimeUnit) -> TimeUnit | None:
    """The unit that a number of `unit` looks like instead; None unless it lies after 2100 in its own, and
    from 1990 to 2100 in another one."""
    if to_microseconds(number, unit) < _LATEST or not TS_MIN <= number <= TS_MAX:
        return None
    return likely_unit(np.array([number], np.int64))


def given_unit_problem(field: str, numbers: Ints, unit: TimeUnit, option: str) -> Problem | None:
    """Refuse the first times of an input whose unit was given, if they all lie after 2100 in it, and from
    1990 to 2100 in another one.

    Microseconds are what they are said to be: that is how to insist on them. So are small numbers of any
    unit: programs may count from any zero.
    """
    others = {other_unit(number, unit) for number in numbers[:FIRST].tolist()}
    other = others.pop() if len(others) == 1 and unit != "us" else None
    if other is None:
        return None
    first = int(numbers[0])
    shown = _shown(to_microseconds(first, unit))
    message = f"begins with {first}, which is {shown} in {WORDS[unit]}"
    return Problem(field, message, f"these look like {WORDS[other]}: {option.format(unit=other)}")


def unit_problem(field: str, numbers: Ints, option: str, *, strict: bool) -> Problem | None:
    """Refuse the first times of an input whose unit nobody has given, if another unit is meant.

    `option` is how a unit is given, with `{unit}` in it. Unless `strict`, only numbers are refused that are
    times from 1990 to 2100 in another unit: programs may count from any zero.
    """
    first = numbers[:FIRST]
    if not is_outside(first):
        return None
    unit = likely_unit(first)
    if unit is None and not strict:
        return None
    message = f"begins with {int(first[0])}, which is {_shown(int(first[0]))} in microseconds"
    if unit is None:
        return Problem(
            field,
            message,
            f"say which unit the numbers have, such as {option.format(unit='ms')}; "
            f"if they are microseconds: {option.format(unit='us')}",
        )
    return Problem(
        field,
        message,
        f"these look like {WORDS[unit]}: {option.format(unit=unit)} "
        f"({option.format(unit='us')} if they are microseconds)",
    )


def _shown(microseconds: int) -> str:
    try:
        return (_EPOCH + timedelta(microseconds=microseconds)).strftime("%Y-%m-%d %H:%M:%S")
    except OverflowError:
        return "beyond the year 9999"
