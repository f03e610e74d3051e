"""Queries of which too many windows wait."""

from __future__ import annotations

from dataclasses import dataclass

from headwater.groups.marked import MarkedGroup
from headwater.roster import Roster

# As many sources a query that is degraded names.
NAMED = 10


@dataclass(frozen=True, slots=True)
class Degraded:
    """A punctuation query of which more windows wait than its `max_open`, and for which sources.

    Those that most windows wait for come first, ten at most; `reason` says it in a sentence.
    """

    query: str
    reason: str
    waiting: int
    sources: tuple[str, ...]


def crowd(group: MarkedGroup, roster: Roster, watermark: int | None, missing: int) -> Degraded | None:
    """What waits of a query, if that is too much; `missing` sources are expected and not there yet."""
    members = roster.members(group)
    unfinished = group.unfinished(watermark, members, roster.marks(group), roster.site)
    waiting, limit = len(unfinished), group.window.max_open
    if waiting <= limit:
        return None
    lows = {source.code: source.largest - source.lateness for source in roster}
    held_back = {} if missing else group.held_back(unfinished, members, lows)
    # Every window waits a while for everybody: named are those who alone let too many wait, if any do.
    alone = {code: number for code, number in held_back.items() if number > limit}
    held_back = alone or held_back
    names = {code: roster.name(code) for code in held_back}
    sources = tuple(names[code] for code in sorted(names, key=lambda c: (-held_back[c], names[c])))
    if missing:
        what, remedy = f"sources that are expected ({missing} more)", "admit them or start without them"
    elif sources:
        more = f" and {len(sources) - NAMED} more" if len(sources) > NAMED else ""
        what, remedy = ", ".join(map(repr, sources[:NAMED])) + more, "idle or retire them"
    else:
        what, remedy = "a source to speak, since all are idle or retired", "let one resume"
    reason = f"{waiting} windows wait to be final, for {what}; {remedy}, or raise max_open ({limit})"
    return Degraded(group.member.query.id, reason, waiting, sources[:NAMED])
