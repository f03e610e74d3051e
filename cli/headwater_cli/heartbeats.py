"""The heartbeat behind the last event of a run: how far behind it lies, so that windows close."""

from __future__ import annotations

from headwater.durations import SECOND, microseconds
from headwater.queries import Query
from headwater.topology import Topology
from headwater.windows import Session, Sliding, Tumbling

# The most, in microseconds. A child does not read what lies more than a day ahead of its clock.
AFTER = 3_600 * SECOND


def closing_span(topology: Topology) -> int:
    """How far behind the last event the heartbeat lies, in microseconds.

    It closes windows of up to an hour, those of queries added meanwhile among them. A query with `emit_empty`
    would report every empty window of that hour. If there is one, the heartbeat lies only just far enough
    behind the last event to close the windows that the topology asks for.
    """
    if not any(query.emit_empty for query in topology.queries):
        return AFTER
    return min(AFTER, _longest_span(topology))


def are_all_closed(topology: Topology, after: int) -> bool:
    """Whether a heartbeat so far behind the last event closes every window that the topology asks for."""
    return _longest_span(topology) <= after


def _longest_span(topology: Topology) -> int:
    """How far behind the last event the end of a window lies at most, with the lateness."""
    lateness = max(source.lateness for source in topology.sources)
    return lateness + max(map(_longest_wait, topology.queries))


def _longest_wait(query: Query) -> int:
    """How far behind an event a window with it ends at most."""
    match query.window:
        case Tumbling(length=length) | Sliding(length=length) if length is not None:
            return microseconds(length)
        case Session(gap=gap):
            return microseconds(gap)
        case _:
            return 0
