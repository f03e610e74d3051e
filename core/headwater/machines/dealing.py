"""Which child reads which source, where a plan says how much each child takes.

Decided by the root, which knows who is there, and logged: so a tree deals sources out, and takes them off
nodes that are to end, while nobody who plans is there.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence

from headwater.machines.reachability import Reachability
from headwater.machines.recent import Recent
from headwater.machines.state import State
from headwater.sources import SourceId

# How often sources are moved, each time one of a child at most (rule 8), and how long one stays where it was
# moved to, in microseconds.
INTERVAL, STAY = 100_000, 10_000_000
# A child has too much only beyond what adding rates up can err by.
SLACK = 1e-9


class Dealing:
    """Over the children that are planned. Nothing here is state: all of it follows from the log."""

    def __init__(self, state: State, reachability: Reachability) -> None:
        self._state, self._reachability = state, reachability
        self._loads: dict[str, float] = {}
        # Of which state of the assignment these loads are.
        self._turns: int | None = None
        self._moved: Recent[str, int] = Recent(STAY)
        self._looked: int | None = None

    def chosen(self, source: str, site: str, lateness: int, avoid: str) -> str | None:
        """The child that has the most room for a source and can be reached by it; None if there is none."""
        weight = self._state.members.rate(site, lateness)
        excluded = self._reachability.unreachable(source) | {avoid}
        return self._roomiest(weight, excluded, self._counted())

    def load(self, child: str) -> float:
        """Items a second of the sources that a child is to read, as planned."""
        return self._counted().get(child, 0.0)

    def moves(self, now: int) -> dict[str, str]:
        """Sources that others are to read from now on: those of children that are to have none, and of such
        as have more than they take."""
        members = self._state.members
        if members.spec is None or (self._looked is not None and now - self._looked < INTERVAL):
            return {}
        self._looked = now
        # With what is moved on the way.
        loads = dict(self._counted())
        # Where nobody has room for the least that a source sends, none is to be looked for.
        least = members.least
        room = any(
            capacity * (1 + SLACK) >= loads.get(node, 0.0) + least for node, capacity in self._takers()
        )
        found: dict[str, str] = {}
        for child in members.readers:
            planned = members.planned.get(child)
            capacity = 0.0 if planned is None else planned.capacity
            move = None
            if loads.get(child, 0.0) > capacity * (1 + SLACK) and (room or capacity <= 0):
                move = self._move(child, loads, now, ends=capacity <= 0)
            if move is not None:
                source, to = move
                found[source] = to
                self._moved.put(source, now, now)
                loads[child] -= self._weight(source)
                loads[to] = loads.get(to, 0.0) + self._weight(source)
        return found

    def noted(self, before: Sequence[tuple[str, str | None]]) -> None:
        """So many sources were assigned, and nothing else; each with the child that was to read it before.
        What is known of loads is counted on."""
        members = self._state.members
        if self._turns is None or self._turns + len(before) != members.turns:
            return
        for source, child in before:
            weight, to = self._weight(source), members.assigned(source)
            if child is not None:
                self._loads[child] = self._loads.get(child, 0.0) - weight
            if to is not None:
                self._loads[to] = self._loads.get(to, 0.0) + weight
        self._turns = members.turns

    def _move(
        self, child: str, loads: Mapping[str, float], now: int, *, ends: bool
    ) -> tuple[str, str] | None:
        """A source of a child, and who is to read it; `ends`: the child is to have none."""
        # Of sources that send as much and can reach the same children, one is like the other.
        tried: set[tuple[float, frozenset[str]]] = set()
        for source in self._state.members.sources_of(child):
            last = self._moved.get(source)
            weight, unreachable = self._weight(source), self._reachability.unreachable(source)
            if (weight, unreachable) in tried or (last is not None and now - last < STAY):
                continue
            tried.add((weight, unreachable))
            to = self._roomiest(weight, unreachable | {child}, loads)
            if to is None and ends:
                # Its child ends in any case: it is to find another one, wherever that is.
                to = self._roomiest(weight, {child}, loads)
            if to is None:
                continue
            # Off a child that is to have none at any rate; else only where there is room for it.
            room = self._state.members.planned[to].capacity - loads.get(to, 0.0)
            if ends or weight <= room * (1 + SLACK):
                return source, to
        return None

    def _roomiest(self, weight: float, excluded: Container[str], loads: Mapping[str, float]) -> str | None:
        """The child with the most room."""
        shares = (
            ((loads.get(node, 0.0) + weight) / capacity, node)
            for node, capacity in self._takers()
            if node not in excluded
        )
        return min(shares, default=(0.0, None))[1]

    def _takers(self) -> Iterator[tuple[str, float]]:
        """The children that are planned to read sources, and are there."""
        members = self._state.members
        for node, planned in members.planned.items():
            if planned.capacity > 0 and members.is_live(node) and members.nodes[node].child:
                yield node, planned.capacity

    def _counted(self) -> Mapping[str, float]:
        """What children have, added up anew unless it is known."""
        members = self._state.members
        if self._turns != members.turns:
            self._turns = members.turns
            self._loads = {
                child: sum(map(self._weight, members.sources_of(child))) for child in members.readers
            }
        return self._loads

    def _weight(self, name: str) -> float:
        """Items a second that a source is planned with; one that has not come yet is as usual."""
        held, members = self._state.openings.held(name), self._state.members
        if held is None:
            return members.rate("", -1)
        source = self._state.engine.sources[str(SourceId(name, held.incarnation))]
        return members.rate(source.site, source.lateness)
