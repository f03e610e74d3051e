"""The horizon: how far ahead of the watermark anything may lie that the root takes."""

from __future__ import annotations

from headwater.durations import Duration, microseconds
from headwater.errors import Problem, TooFarAhead
from headwater.partials import Partial
from headwater.rows import TS_MIN


def parsed(given: Duration | None) -> tuple[int | None, list[Problem]]:
    """In microseconds, and what is wrong with it."""
    try:
        found = None if given is None else microseconds(given)
    except ValueError as error:
        return None, [Problem("horizon", str(error), "give a duration such as 1h")]
    if found is not None and found < 0:
        return None, [Problem("horizon", f"is {given!r}", "give a duration from 0s on")]
    return found, []


def refuse_beyond(limit: int, partial: Partial) -> None:
    """Raise if a partial speaks of a later time."""
    # A heartbeat shows in its source's prefix alone; what the root itself has raised stays allowed.
    spans = partial.vector.values()
    moved = (s.high.largest for s in spans if s.high.largest > s.low.largest)
    furthest = max(partial.largest, max(moved, default=TS_MIN))
    if furthest > limit:
        raise TooFarAhead(furthest, limit)
