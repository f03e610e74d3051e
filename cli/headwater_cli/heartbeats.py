"""The heartbeat behind the last event of a run: how far behind it lies, so that windows close."""

from __future__ import annotations

from headwater.durations import SECOND, microseconds
from headwater.queries import Query
from headwater.topology import Topology
from headwater.windows import Session, Sliding, Tumbling

# Where no query reports empty windows, in microseconds. So windows of queries added meanwhile close too.
AFTER = 3_600 * SECOND


def closing_span(topology: Topology) -> int:
    """How far behind the last event the heartbeat lies, in microseconds.

    A query with `emit_empty` would report every empty window of an hour. If there is one, the heartbeat lies
    just far enough behind the last event to close the windows of all queries.
    """
    if not any(query.emit_empty for query in topology.queries):
        return AFTER
    return max(source.lateness for source in topology.sources) + max(map(_length, topology.queries))


def _length(query: Query) -> int:
    """How far behind an event a window with it ends at most."""
    match query.window:
        case Tumbling(length=length) | Sliding(length=length) if length is not None:
            return microseconds(length)
        case Session(gap=gap):
            return microseconds(gap)
        case _:
            return 0
