"""Where a source connects: the decisions alone. Whoever owns the connections carries them out (rule 9).

A source begins at one of the addresses that it was given and goes on at the child to which the root assigns
it. It gives a connection up only for one that is known to work: the assigned child is tried beside the
present connection, and the source is read where it is meanwhile. An address proves nothing: another child may
answer there tomorrow, or any of several today. Whoever answers is the child that the source is connected to.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Place:
    """An address, and the child that has to be there; without a name, whoever is.

    Of a place where a source begins the name is one that the certificate there bears, such as that of a
    Service. Whichever child bears it is welcome.
    """

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

    # How long connecting to a place may take before another one is tried beside it, and when it is given up
    # for that one at first: the latter twice as long each time, for a way that is slow.
    patience: int = 1_500_000
    longest_patience: int = 30_000_000
    # How soon a place that did not answer is tried again: twice as long each time, up to `longest_retry`, and
    # a child that was assigned earlier after `retry_known`.
    retry: int = 500_000
    longest_retry: int = 1_000_000
    retry_known: int = 4_000_000
    # How soon the assigned child is tried again if it could not be reached: twice as long each time.
    pause: int = 5_000_000
    longest_pause: int = 120_000_000


# So many children to which the source was assigned earlier are remembered, for when neither the first address
# nor the assigned child answers.
KNOWN = 8


class Route:
    """The way of one source into the tree. It begins at `firsts`, each of which leads into the tree."""

    def __init__(self, firsts: Sequence[Place], settings: Settings | None = None) -> None:
        self.firsts = tuple(firsts)
        self.place = self.firsts[0]
        # The child that has answered on the present connection; empty while there is none.
        self.peer = ""
        self._settings = settings or Settings()
        # Since when there is no connection, and how often another place was connected to in vain since.
        self._since: int | None = None
        self._rounds = 0
        self._assigned: Place | None = None
        # Where the children are, or were, to which it was assigned; the latest first.
        self._known: list[Place] = []
        self._unreachable: Place | None = None
        # How often a place was found out of reach: each time the root is to hear of it.
        self.failures = 0
        # When the unreachable place is tried again, and the pause after that.
        self._failed_at = self._retry_at = 0
        self._pause = self._settings.pause
        self._trying: set[Place] = set()
        # When each place that was tried has last answered, or failed to, and how often it was tried.
        self._tried: dict[Place, tuple[int, int]] = {}
        # The place that was reached last, and who answered there.
        self._reached: tuple[Place, str] | None = None
        # Where the silent child itself has answered on a new connection, and since when.
        self._same_child: tuple[Place, int] | None = None

    @property
    def avoid(self) -> str:
        """The assigned child if it cannot be reached: the root assigns the source to another one."""
        return "" if self._unreachable is None else self._unreachable.child

    def on_connected(self, peer: str, now: int) -> None:
        """A child has answered on the present connection."""
        self.peer, self._since = peer, now
        self._rounds = 0
        self._forget_tries()
        if peer == self.avoid:
            self._note_reachable()

    def on_lost(self, now: int) -> None:
        """The present connection is gone."""
        if self.peer or self._since is None:
            self.peer, self._since = "", now
            self._forget_tries()

    def on_assigned(self, child: str, address: str) -> None:
        """The root has said which child reads this source, and where it is.

        A root that names a child which could not be reached knows more of it, such as that it was started
        anew, or has not heard yet: it is tried again after half of the pause.
        """
        self._assigned = Place(child, address) if child and address else None
        if self._assigned is not None:
            self._remember(self._assigned)
        if child != self.avoid:
            return
        if self._assigned != self._unreachable:
            # It is somewhere else by now.
            self._note_reachable()
        else:
            self._retry_at = min(self._retry_at, self._failed_at + self._pause // 2)

    def on_tried(self, place: Place, peer: str, now: int) -> None:
        """Who has answered at a place that was tried; empty: nobody."""
        if place not in self._trying:
            return
        self._trying.remove(place)
        self._tried[place] = now, self._tried.get(place, (0, 0))[1] + 1
        is_found = bool(peer) and place.child in ("", peer)
        if not is_found and place in (self._assigned, self._unreachable):
            self._note_unreachable(place, now)
        if not is_found and not (peer and place in self.firsts):
            return
        if is_found and place == self._unreachable:
            self._note_reachable()
        if peer != self.peer:
            self._reached = place, peer
        elif self._same_child is None:
            self._same_child = place, now

    def decide(self, now: int, *, is_silent: bool = False) -> Connect | Try | None:
        """What to do next. `is_silent`: the child does not answer, though there is a connection."""
        reached, self._reached = self._reached, None
        if reached is not None and self._is_better(*reached, is_silent=is_silent):
            return self._connect(reached[0], now)
        if self.peer:
            return self._decide_when_silent(now) if is_silent else self._decide_when_connected(now)
        if self._since is None:
            return self._connect(self.place, now)
        return self._decide_when_unconnected(now)

    def _is_better(self, place: Place, peer: str, *, is_silent: bool) -> bool:
        """Whether a place where `peer` has answered is better than the present connection."""
        if not self.peer or is_silent:
            return True
        # Any other place was tried because the child was silent, and that has spoken since.
        return place == self._assigned and place.child == peer

    def _decide_when_silent(self, now: int) -> Connect | Try | None:
        """The child is silent: another one is looked for, and the child itself on a new connection.

        A child that answers a new connection may be as silent as before, since its own way up is broken. So
        it is connected to again only if no other child has answered meanwhile.
        """
        if self._same_child is not None and now - self._same_child[1] >= self._settings.retry:
            return self._connect(self._same_child[0], now)
        others = [each for each in self._others() if each.child != self.peer]
        # Last where it is: the same address may lead to another child by now.
        firsts = sorted(self.firsts, key=lambda each: each.address == self.place.address)
        return self._try_next([*others, *firsts], now)

    def _decide_when_connected(self, now: int) -> Try | None:
        """A place to try beside the present connection, which serves."""
        assigned, unreachable = self._assigned, self._unreachable
        self._forget_tries()
        if self._trying:
            return None
        if unreachable is not None and now >= self._retry_at:
            return self._try(unreachable)
        if assigned is not None and assigned.child not in (self.peer, self.avoid):
            return self._try(assigned)
        return None

    def _decide_when_unconnected(self, now: int) -> Connect | Try | None:
        """Without a connection: all other places are tried beside the attempt under way."""
        settings, since = self._settings, self._since
        assert since is not None
        if now - since <= settings.patience:
            return None
        if self.place == self._assigned and self.place != self._unreachable:
            self._note_unreachable(self.place, now)
        others = self._others()
        if not others:
            return None
        if now - since > min(settings.patience << min(self._rounds + 1, 16), settings.longest_patience):
            self._rounds += 1
            return self._connect(self._next_place(), now)
        return self._try_next(others, now)

    def _try_next(self, places: Sequence[Place], now: int) -> Try | None:
        """The first of the places that is due: none waits for another one that does not answer."""
        for place in dict.fromkeys(places):
            if place not in self._trying and now >= self._due(place):
                return self._try(place)
        return None

    def _due(self, place: Place) -> int:
        """When a place may be tried again. Most children of earlier assignments are gone for good."""
        if place not in self._tried:
            return 0
        settings, (at, count) = self._settings, self._tried[place]
        if place not in self.firsts and place != self._assigned:
            return at + settings.retry_known
        return at + min(settings.retry << min(count - 1, 16), settings.longest_retry)

    def _next_place(self) -> Place:
        """Where to connect if that takes too long here: where it began and the assigned child, in turn."""
        others = self._others()
        begins = [each for each in others if each in self.firsts or each == self._assigned]
        if not begins:
            return others[0]
        order = [*self.firsts, self._assigned]
        here = order.index(self.place) if self.place in order else -1
        return min(begins, key=lambda each: (order.index(each) <= here, order.index(each)))

    def _others(self) -> list[Place]:
        """The places beside the present one where a child may answer: where it began and the assigned child,
        then the children that were assigned earlier."""
        places = [*self.firsts, *([] if self._assigned is None else [self._assigned]), *self._known]
        here = self.place
        return [
            place
            for place in dict.fromkeys(places)
            # Where anybody is welcome it is not looked for somebody else.
            if place != here and (here.child or place.address != here.address)
        ]

    def _remember(self, place: Place) -> None:
        if self._known[:1] != [place]:
            self._known = [place, *(each for each in self._known if each.child != place.child)][:KNOWN]

    def _try(self, place: Place) -> Try:
        self._trying.add(place)
        return Try(place)

    def _connect(self, place: Place, now: int) -> Connect:
        self.place, self.peer, self._since = place, "", now
        self._trying.clear()
        self._forget_tries()
        return Connect(place)

    def _forget_tries(self) -> None:
        """Each place may be tried at once again."""
        self._tried.clear()
        self._same_child = None

    def _note_unreachable(self, place: Place, now: int) -> None:
        settings = self._settings
        again = place == self._unreachable
        self._pause = min(2 * self._pause, settings.longest_pause) if again else settings.pause
        self._unreachable, self._failed_at, self._retry_at = place, now, now + self._pause
        self.failures += 1

    def _note_reachable(self) -> None:
        self._unreachable, self._pause = None, self._settings.pause
