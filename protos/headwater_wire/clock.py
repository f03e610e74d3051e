"""The clock of the programs; machines get its time as an argument."""

from __future__ import annotations

from time import monotonic_ns, time_ns


def now() -> int:
    """Microseconds of a clock that never goes back."""
    return monotonic_ns() // 1_000


def wall() -> int:
    """Microseconds since the epoch, as event times are; for what looks at sources' clocks."""
    return time_ns() // 1_000
