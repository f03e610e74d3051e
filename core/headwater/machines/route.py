"""Where a source connects: the decisions alone. Whoever owns the connections carries them out (rule 9).

A source begins at the address that it was given and goes on at the child to which the root assigns it. It
gives a connection up only for one that is known to work: the assigned child is tried beside the present
connection, and the source is read where it is meanwhile. An address proves nothing: another child may answer
there tomorrow, or any of several today. Whoever answers is the child that the source is connected to.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Place:
    """An address, and the child that has to be there; without a name, whoever is."""

    child: str
    address: str


@dataclass(frozen=True, slots=True)
class Connect:
    """Give the present connection up, and connect to a place."""

    place: Place


@dataclass(frozen=True, slots=True)
class Try:
    """Find out who answers at a place; the present connection stays."""

    place: Place


@dataclass(frozen=True, slots=True)
class Settings:
    """Times in microseconds of the caller's clock."""

    # How long a place may be out of reach before another one is tried.
    patience: int = 1_500_000


class Route:
    """The way of one source into the tree."""

    def __init__(self, first: Place, settings: Settings | None = None) -> None:
        self.first = self.place = first
        # The child that has answered on the present connection; empty while there is none.
        self.peer = ""
        self._settings = settings or Settings()
        self._since: int | None = None
        self._assigned: Place | None = None
        self._unreachable: Place | None = None
        self._trying: Place | None = None
        self._reached: Place | None = None

    @property
    def avoid(self) -> str:
        """The assigned child if it cannot be reached: the root assigns the source to another one."""
        return "" if self._unreachable is None else self._unreachable.child

    def on_connected(self, peer: str, now: int) -> None:
        """A child has answered on the present connection."""
        self.peer, self._since = peer, now
        if peer == self.avoid:
            self._unreachable = None

    def on_lost(self, now: int) -> None:
        """The present connection is gone."""
        if self.peer or self._since is None:
            self.peer, self._since = "", now

    def on_assigned(self, child: str, address: str) -> None:
        """The root has said which child reads this source, and where it is."""
        self._assigned = Place(child, address) if child and address else None
        if child == self.avoid and self._assigned != self._unreachable:
            # It is somewhere else by now.
            self._unreachable = None

    def on_tried(self, place: Place, peer: str) -> None:
        """Who has answered at a place that was tried; empty: nobody."""
        if place != self._trying:
            return
        self._trying = None
        if peer and place.child in ("", peer):
            self._reached = place
        elif place.child:
            self._unreachable = place

    def decide(self, now: int, *, is_silent: bool = False) -> Connect | Try | None:
        """What to do next. `is_silent`: the child does not answer, though there is a connection."""
        reached, self._reached = self._reached, None
        if reached is not None and (reached.child != self.peer or is_silent):
            return self._connect(reached, now)
        if self.peer:
            return self._improve(is_silent=is_silent)
        if self._since is None:
            return self._connect(self.first, now)
        if now - self._since <= self._settings.patience:
            return None
        if self.place.child:
            self._unreachable = self.place
        if self.place != self.first:
            return self._connect(self.first, now)
        if self._assigned is not None and self._assigned != self.first:
            return self._connect(self._assigned, now)
        return None

    def _improve(self, *, is_silent: bool) -> Try | None:
        """A place to try beside the present connection."""
        assigned = self._assigned
        if self._trying is not None:
            return None
        if assigned is not None and assigned.child not in (self.peer, self.avoid):
            self._trying = assigned
        elif is_silent:
            self._trying = self.first
        return None if self._trying is None else Try(self._trying)

    def _connect(self, place: Place, now: int) -> Connect:
        self.place, self.peer, self._since, self._trying = place, "", now, None
        return Connect(place)
