"""Times of events as people read them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND, _SECOND, _MINUTE, _HOUR = 1_000, 1_000_000, 60_000_000, 3_600_000_000


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
    """A length of time: `7 µs`, `250 ms`, `1.5 s`, `2 min`, `1 min 1.2 s`, `2 h 30 min`.

    Rounded before its unit is chosen: what rounds to a whole one of the next unit is shown in that.
    """
    if microseconds < _MILLISECOND:
        return f"{microseconds} µs"
    for unit, size, limit in (("ms", _MILLISECOND, _SECOND), ("s", _SECOND, _MINUTE)):
        shown = float(f"{microseconds / size:.4g}")
        if shown * size < limit:
            return f"{shown:g} {unit}"
    tenths = _rounded(microseconds, _SECOND // 10)
    if tenths < _HOUR:
        minutes, rest = divmod(tenths, _MINUTE)
        return f"{minutes} min" + (f" {rest / _SECOND:g} s" if rest else "")
    hours, rest = divmod(_rounded(microseconds, _MINUTE), _HOUR)
    return f"{hours:,} h" + (f" {rest // _MINUTE} min" if rest else "")


def _rounded(microseconds: int, step: int) -> int:
    return (microseconds + step // 2) // step * step


def interval(start: int, end: int) -> str:
    """`2023-11-14 22:13:20.000 to 22:13:30.000 (10 s)`; the end has its date where it is another day."""
    first, last = moment(start), moment(end)
    same_day = first[:10] == last[:10] and " " in first
    return f"{first} to {last[11:] if same_day else last} ({duration(end - start)})"
