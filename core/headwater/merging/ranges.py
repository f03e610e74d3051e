"""Index arithmetic on ranges of rows."""

from __future__ import annotations

import numpy as np

from headwater.rows import Ints


def spread(begins: Ints, ends: Ints) -> Ints:
    """All indexes of the ranges `[begin, end)`, one range after another; an empty range gives none."""
    sizes = ends - begins
    shift = np.repeat(begins - (np.cumsum(sizes) - sizes), sizes)
    return shift + np.arange(len(shift))
