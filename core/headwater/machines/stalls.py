"""Why sources that windows may wait for do not get on, as their child knows it; sent with `Register`."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

# As many sources a child reports, and as many the root names.
WORST = 10


class Reason(StrEnum):
    """Why windows wait."""

    # Fewer sources are there than are expected, and the time to wait for them is not over.
    EXPECTED = "expected"
    # Nothing was heard of the source.
    SILENT = "silent"
    # Nothing was heard of the child that reads the source.
    CHILD_SILENT = "child silent"
    # No child that takes part reads the source.
    NO_CHILD = "no child"
    # The source is too far ahead of the others in event time.
    HORIZON = "held by the horizon"
    # The next event of the source lies too far beyond the child's clock.
    FUTURE = "timestamp in the future"
    # The source has brought too many distinct keys, and is put into quarantine.
    QUARANTINE = "quarantined"
    # What was read of the source is not acknowledged by the node above.
    BACKPRESSURE = "backpressure"
    # The root refuses the process that uses the source's name.
    REFUSED = "refused"
    # The source gets on, but its events are old.
    BEHIND = "behind"


class Stall(NamedTuple):
    """One source as its child sees it; times in microseconds.

    `quiet` is how long ago the child last heard of it, `idle_in` when the child asks the root to declare it
    idle (None: not as things stand), `node` from whom backpressure comes, and `record` the number of the
    record that lies too far in the future (0: the child does not say).
    """

    source: str
    reason: Reason
    quiet: int
    idle_in: int | None = None
    node: str = ""
    record: int = 0
