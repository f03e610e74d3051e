"""Up to where each source is counted at the root, and what is said of that to nodes (rules 6 and 9)."""

from __future__ import annotations

from collections.abc import Iterable

from headwater.errors import InvalidPartial, OtherQueries, StaleVersion
from headwater.machines.commits import Commits
from headwater.machines.listeners import Listeners
from headwater.machines.messages import (
    Ack,
    Ask,
    Commit,
    Delivery,
    Echo,
    Outbox,
    Probe,
    Resync,
    Standing,
    Tell,
)
from headwater.machines.records import Resumed
from headwater.machines.refusals import Refusals
from headwater.machines.rootlane import RootLane
from headwater.machines.state import State
from headwater.partials import Partial, Span


class Positions:
    """Batches, probes and questions of nodes that take part."""

    def __init__(self, state: State, commits: Commits, pending: int, memory: int) -> None:
        """At most `pending` batches wait to be made durable; who has not asked for `memory` microseconds is
        forgotten."""
        self.refused = 0
        self.refusals = Refusals()
        self._state, self._commits, self._bound = state, commits, pending
        self._listeners = Listeners(memory)

    def delivered(self, sender: str, message: Delivery, out: Outbox) -> None:
        """A batch: it waits to be made durable if it fits, whole (rule 6)."""
        partial, vector = message.partial, message.partial.vector
        self._check_echoes(sender, message.echoes)
        if partial.version > self._state.engine.version:
            raise self._state.behind(f"{sender} has version {partial.version} of the queries")
        lane = self._state.lanes.get(message.lane)
        if message.lane and lane is not None and lane.ahead:
            # What is decided for later holds from where it leaves them; and it may be the last of its lane.
            self._commits.commit(out)
            lane = self._state.lanes.get(message.lane)
        if lane is None:
            # The lane has ended: nobody waits for it.
            out.add(sender, Ack(message.stream, message.id))
            return
        gone = [name for name in vector if lane.is_gone(name)]
        if gone:
            out.add(sender, self._resync(message, lane, gone, partial.version))
            return
        sources = lane.engine.sources
        if all(span.high.position <= lane.prefix(n).position for n, span in vector.items()):
            # What waits is not counted yet: it is acknowledged when it is durable.
            if all(span.high.position <= sources[n].position for n, span in vector.items()):
                out.add(sender, Ack(message.stream, message.id))
            return
        if message.lane == 0:
            idle = [
                n
                for n, span in vector.items()
                if sources[n].idle and span.high.position > sources[n].position
            ]
            if idle:
                self._commits.decide_behind(out, *(Resumed(n) for n in idle))
        elif any(self._is_early(name, span.high.position) for name, span in vector.items()):
            # What never will fit may be of records that are gone: lane 0 would never come to them.
            if any(_is_over(lane, name, span) for name, span in vector.items()):
                out.add(sender, self._resync(message, lane, list(vector), partial.version))
            return
        try:
            fits = _fits(lane, partial)
        except InvalidPartial as error:
            self.refusals.add(sender, error)
            return
        if not fits:
            out.add(sender, self._resync(message, lane, list(vector), partial.version))
        elif self._commits.pending < self._bound:
            self._commits.add(sender, message)

    def probed(self, sender: str, message: Probe, now: int, out: Outbox) -> None:
        """Say which positions are other ones here, and what is new."""
        self._check_echoes(sender, message.echoes)
        lane = self._state.lanes.get(message.lane)
        if lane is not None:
            wrong = [
                name
                for name, head in message.heads.items()
                if lane.is_gone(name)
                or lane.prefix(name) != head
                or lane.barrier(name, self._opening(name)) != message.barriers.get(name)
            ]
            if wrong:
                out.add(sender, self._resync(message, lane, wrong, message.version))
        state = self._state
        commit = Commit(
            message.stream,
            self._listeners.news(sender, message, state.counted, now),
            state.engine.watermark,
            state.changes(message.version),
            state.terms.at(state.position),
            tuple(state.lanes),
            state.engine.version,
        )
        out.add(sender, commit)

    def asked(self, sender: str, message: Ask, out: Outbox) -> None:
        lane = self._state.lanes.get(message.lane)
        if lane is not None:
            known = {
                name: self._standing(lane, name) for name in message.sources if name in lane.engine.sources
            }
            out.add(sender, Tell(message.stream, message.lane, known, self._state.changes(message.version)))

    def _is_early(self, name: str, number: int) -> bool:
        """No lane goes beyond lane 0: it is said again when that has come, if it ever will."""
        main = self._state.lanes[0]
        return number > main.prefix(name).position and not main.is_gone(name)

    def _opening(self, name: str) -> str:
        """What the log says last; a lane may take it later."""
        return self._state.engine.sources[name].opening

    def _standing(self, lane: RootLane, name: str) -> Standing | None:
        return None if lane.is_gone(name) else lane.standing(name, self._opening(name))

    def _resync(
        self, message: Delivery | Probe, lane: RootLane, names: Iterable[str], version: int
    ) -> Resync:
        self.refused += 1
        standings = {name: self._standing(lane, name) for name in names}
        return Resync(message.stream, message.id, message.lane, standings, self._state.changes(version))

    def _check_echoes(self, sender: str, echoes: Iterable[Echo]) -> None:
        for echo in echoes:
            if not self._state.terms.knows(echo, self._state.position):
                told = f"{sender} has heard of record {echo.position} of term {echo.term}"
                raise self._state.behind(told)


def _is_over(lane: RootLane, name: str, span: Span) -> bool:
    """Whether a lane will never take what begins so, or goes across what was decided."""
    low, stands = span.low, lane.prefix(name)
    return (low.position <= stands.position and low != stands) or lane.parts(
        name, low.position, span.high.position
    )


def _fits(lane: RootLane, partial: Partial) -> bool:
    for name, span in partial.vector.items():
        if not lane.fits(name, span.low) or lane.parts(name, span.low.position, span.high.position):
            return False
    try:
        lane.engine.check(partial)
    except (StaleVersion, OtherQueries):
        return False
    return True
