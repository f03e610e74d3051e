"""Times of events as people read them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def moment(microseconds: int) -> str:
    """`2023-11-14 22:13:20.500`; what no calendar holds stays a number."""
    try:
        found = _EPOCH + timedelta(microseconds=microseconds)
    except OverflowError:
        return f"{microseconds:,}"
    return found.strftime("%Y-%m-%d %H:%M:%S.") + f"{found.microsecond // 1_000:03}"


def read(text: str) -> int:
    """Microseconds of a time as people write it, in UTC unless it says otherwise, or of a plain number of
    them; raises `ValueError`."""
    if text.lstrip("-").isdecimal():
        return int(text)
    found = datetime.fromisoformat(text)
    if found.tzinfo is None:
        found = found.replace(tzinfo=UTC)
    return (found - _EPOCH) // timedelta(microseconds=1)


def seconds(microseconds: float) -> str:
    """A stretch of time: `0.3 s`."""
    return f"{microseconds / 1e6:,.1f} s"
