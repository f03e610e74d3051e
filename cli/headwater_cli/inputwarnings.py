"""What somebody has to know of an input that was read as it stands: that much of it is in no window."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from headwater.durations import SECOND
from headwater.rows import Ints
from headwater_cli.times import duration

# The share of events from which on it is told that they are in no window.
NOTABLE = 0.01
DAY = 86_400 * SECOND


def furthest_behind(ts: Ints, largest: int) -> int:
    """How far a time lies behind an earlier one at most, in microseconds.

    `largest` is that of the events before; all times lie within the bounds of times that count.
    """
    if not len(ts):
        return 0
    reached = np.maximum(np.maximum.accumulate(ts), largest)
    # As a float no difference goes beyond int64; less than a millisecond is lost.
    return int((reached.astype(np.float64) - ts).max())


def input_warnings(sent: int, late: int, rejected: int, furthest: int) -> Iterator[str]:
    """Sentences about an input of which so many events were sent, late and rejected.

    `furthest` is how far an event lay behind an earlier one of its source, in microseconds. A time that lies
    days behind is none of usual disorder, so one such event is enough.
    """
    is_notable = late > NOTABLE * sent
    if late and (is_notable or furthest > DAY):
        remedies = ["sort the input by time, or raise lateness"] if is_notable else []
        if furthest > DAY:
            remedies.append("see that all times have the same unit")
        yield (
            f"{_of(late, sent)} are late and in no window, up to {_format_span(furthest)} behind an "
            f"earlier event of their source: {'; '.join(remedies)}"
        )
    if rejected > NOTABLE * sent:
        yield (
            f"{_of(rejected, sent)} are rejected and in no window: their value is not finite, or their "
            "time is out of bounds; see the unit of time and correct the values"
        )


def _of(count: int, sent: int) -> str:
    return f"{count:,} of {sent:,} events"


def _format_span(microseconds: int) -> str:
    return f"{microseconds // DAY:,} days" if microseconds >= 2 * DAY else duration(microseconds)
