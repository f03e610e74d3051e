"""Events of a source in a test, and how they come into its spool."""

from __future__ import annotations

import numpy as np

from headwater_source.columns import Coded, Events
from headwater_source.spool import Spool

LATENESS = 1_000_000
KEYS = ("a", "b", "c")


def disordered(number: int, first: int, rows: int) -> Events:
    """Events of one part, one a millisecond from the first one on: in some disorder, some of them late. They
    follow from what is given alone."""
    rng = np.random.default_rng(number)
    late = np.where(rng.random(rows) < 0.1, rng.integers(0, 2 * LATENESS, rows), 0)
    ts = (first + np.arange(rows)) * 1_000 - late
    key = Coded(rng.integers(0, len(KEYS), rows).astype(np.int32), KEYS)
    return Events(ts, rng.integers(-50, 50, rows).astype(float), key=key)


def append(spool: Spool, events: Events) -> None:
    key = events.key
    spool.append(
        events.ts,
        events.value,
        key=None if key is None else key.codes,
        keys=() if key is None else key.names,
        bare=events.bare,
    )
