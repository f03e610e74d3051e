"""Durations as people write them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.durations import human, microseconds


@pytest.mark.parametrize(
    "given, expected",
    [
        (0, 0),
        (-7, -7),
        ("0s", 0),
        ("250us", 250),
        ("250µs", 250),
        ("1ms", 1_000),
        ("10s", 10_000_000),
        (" 10s ", 10_000_000),
        ("1h30m", 5_400_000_000),
        ("1d", 86_400_000_000),
        ("1.5s", 1_500_000),
        ("0.000001s", 1),
        ("1.50ms", 1_500),
        ("-1m30s", -90_000_000),
        (timedelta(days=-1, microseconds=5), -86_399_999_995),
        (np.int64(7), 7),
        (np.uint8(7), 7),
        (timedelta.max, 86_399_999_999_999_999_999),  # a float would not hold it
    ],
)
def test_microseconds(given: Any, expected: int) -> None:
    assert microseconds(given) == expected


@pytest.mark.parametrize(
    "given",
    ["", "10", "s", "10 s", "1e3s", "10sec", "--1s", "1s-1s", "1.s", True, 1.5, None, np.timedelta64(5, "s")],
)
def test_what_is_no_duration(given: Any) -> None:
    with pytest.raises(ValueError, match="is no duration"):
        microseconds(given)


def test_nothing_is_finer_than_a_microsecond() -> None:
    with pytest.raises(ValueError, match="is finer than a microsecond"):
        microseconds("0.5us")


@pytest.mark.parametrize(
    "given, expected",
    [(0, "0s"), (1, "1us"), (90_000_000, "1m30s"), (-1_500, "-1ms500us"), (86_400_000_000, "1d")],
)
def test_human(given: int, expected: str) -> None:
    assert human(given) == expected


@given(st.integers(-(1 << 62), 1 << 62))
def test_what_is_written_is_read_as_it_was(duration: int) -> None:
    assert microseconds(human(duration)) == duration
