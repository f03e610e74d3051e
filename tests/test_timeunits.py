"""Times that are floats: a column of them is read as each of them by itself."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from headwater.timeunits import UNITS, TimeUnit, float_to_microseconds, floats_to_microseconds

_SCALES = {"s": 1e6, "ms": 1e3, "us": 1.0, "ns": 1e-3}


@st.composite
def _floats(draw: st.DrawFn) -> tuple[TimeUnit, list[float]]:
    """Times of a unit: any, those beside a whole microsecond, and those of a few decimals."""
    unit = draw(st.sampled_from(UNITS))
    whole = st.integers(-(2**62), 2**62) | st.integers(-(2**52), 2**52) | st.integers(-3_000, 3_000)
    beside = st.tuples(whole, st.sampled_from([-np.inf, 0.0, np.inf])).map(
        lambda drawn: (
            float(np.nextafter(drawn[0] / _SCALES[unit], drawn[1])) if drawn[1] else drawn[0] / _SCALES[unit]
        )
    )
    few: Any = st.tuples(st.integers(-(10**10), 10**10), st.integers(0, 9)).map(
        lambda drawn: drawn[0] / 10 ** drawn[1]
    )
    number = st.floats(allow_nan=False, allow_infinity=False) | beside | few
    return unit, draw(st.lists(number, max_size=20))


@given(_floats())
def test_a_column_of_floats_is_read_as_each_by_itself(drawn: tuple[TimeUnit, list[float]]) -> None:
    unit, numbers = drawn
    found = floats_to_microseconds(np.array(numbers, np.float64), unit)
    assert found.tolist() == [float_to_microseconds(number, unit) for number in numbers]


def test_a_time_of_the_clock_is_cut_to_microseconds() -> None:
    numbers = np.array([1_700_000_000.1234567, 1_700_000_000.123456, -0.0000001])
    assert floats_to_microseconds(numbers, "s").tolist() == [
        1_700_000_000_123_456,
        1_700_000_000_123_456,
        -1,
    ]
