"""For how long the watermark of a topology may stand still before somebody should know."""

from __future__ import annotations

from headwater.durations import SECOND
from headwater.topology.tree import Topology

# Seconds where sources send often.
STALL = 5.0
# Events that a source may leave out before its silence is worth a word.
MISSED = 3


def stall_after(topology: Topology) -> float:
    """In seconds: a few events of its slowest source, but no longer than until that is declared idle."""
    slowest = min((source.rate for source in topology.sources if source.rate > 0), default=1.0)
    return max(STALL, min(MISSED / slowest, topology.idle_after / SECOND))
