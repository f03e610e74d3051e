"""Which files of a growing dataset become one: few files are read faster than many."""

from __future__ import annotations

from collections.abc import Sequence

FEWEST = 16
# A file that is as large is left alone; what becomes one is not larger, but for the last that joins it.
LARGE = 32 * 2**20


def due(sizes: Sequence[int], fewest: int = FEWEST, large: int = LARGE) -> range | None:
    """The places of the files to merge, of those in the order of their positions; None if it is too early.

    From the newest backwards, and no file that is larger than all behind it together: so a row is written
    again only when it comes into a file twice as large, a dozen times at most.
    """
    first, total = len(sizes), 0
    while first and sizes[first - 1] < large and total < large:
        size = sizes[first - 1]
        if len(sizes) - first >= fewest and size > total:
            break
        first, total = first - 1, total + size
    return range(first, len(sizes)) if len(sizes) - first >= fewest else None
