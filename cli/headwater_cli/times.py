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


def duration(microseconds: int) -> str:
    """A length of time in its largest whole unit: `10 s`, `250 ms`, `1.5 s`, `2 min`."""
    for unit, size in (("h", 3_600_000_000), ("min", 60_000_000), ("s", 1_000_000), ("ms", 1_000)):
        if microseconds >= size:
            return f"{microseconds / size:.4g} {unit}"
    return f"{microseconds} µs"


def interval(start: int, end: int) -> str:
    """`2023-11-14 22:13:20.000 to 22:13:30.000 (10 s)`; the end has its date where it is another day."""
    first, last = moment(start), moment(end)
    same_day = first[:10] == last[:10] and " " in first
    return f"{first} to {last[11:] if same_day else last} ({duration(end - start)})"
