"""How sources come into the tree: which child answers at an address, and who is connected to whom."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random

from headwater.machines.route import Connect, Place, Route, Settings, Try
from headwater.machines.source import SourceMachine

# The times of the run's clock.
SETTINGS = Settings(
    patience=15, longest_patience=60, retry=5, longest_retry=20, retry_known=20, pause=30, longest_pause=120
)


def address_of(child: str) -> str:
    return f"at {child}"


@dataclass(slots=True)
class _Way:
    """The way of one source. A connection ends when the process at its other end does."""

    route: Route
    connection: tuple[str, int] | None = None
    # How many welcomes of the machine the route knows.
    welcomes: int = 0


class Ways:
    """Every address leads to its own child, until a fault says otherwise."""

    def __init__(self, lives: Mapping[str, int], is_there: Callable[[str], bool]) -> None:
        """`lives`: how many processes each child has had; `is_there`: whether it runs."""
        self._lives, self._is_there = lives, is_there
        self._led: dict[str, tuple[str, ...]] = {}
        self._ways: dict[str, _Way] = {}

    def lead(self, child: str, others: tuple[str, ...]) -> None:
        """The address of a child leads to others from now on; connections that were made through it end."""
        self._led[address_of(child)] = others
        for way in self._ways.values():
            if way.route.place.address == address_of(child):
                way.connection = None

    def forget(self, child: str) -> None:
        """A child is gone for good: no address leads there any more. One that led there alone is its own
        child's again, as that of a Service is which has no other pod."""
        led = {address: tuple(each for each in to if each != child) for address, to in self._led.items()}
        self._led = {address: to for address, to in led.items() if to}

    def begin(self, source: str) -> None:
        """A process of a source begins."""
        self._ways.pop(source, None)

    def connected(self, source: str) -> str | None:
        """The child at the other end of the connection of a source."""
        way = self._ways.get(source)
        return None if way is None or way.connection is None else way.connection[0]

    def follow(self, source: str, machine: SourceMachine, first: str, now: int, chance: Random) -> None:
        """What the owner of the connections of a source does now and then; it begins at the child `first`."""
        place = Place("", address_of(first))
        way = self._ways.setdefault(source, _Way(Route([place], SETTINGS)))
        route = way.route
        if route.firsts != (place,):
            # Somebody has given it another address.
            route.firsts, route.place = (place,), place
            way.connection = None
        if way.connection is not None and not self._lasts(way.connection):
            way.connection = None
        if way.connection is None:
            machine.disconnect()
            route.on_lost(now)
            peer = self._answer(route.place, chance)
            if peer is not None and route.place.child in ("", peer):
                self._connect(way, machine, peer, now)
        if machine.assigned is not None and machine.welcomes != way.welcomes:
            way.welcomes = machine.welcomes
            route.on_assigned(*machine.assigned)
        is_silent = machine.is_silent(now)
        step = route.decide(now, is_silent=is_silent)
        if isinstance(step, Try):
            route.on_tried(step.place, self._answer(step.place, chance) or "", now)
        elif isinstance(step, Connect):
            way.connection = None
            if is_silent:
                machine.on_silence()
            machine.disconnect()
        machine.on_unreachable(route.avoid, route.failures)

    def _connect(self, way: _Way, machine: SourceMachine, peer: str, now: int) -> None:
        way.connection = peer, self._lives[peer]
        machine.connect(peer, now)
        way.route.on_connected(peer, now)

    def _lasts(self, connection: tuple[str, int]) -> bool:
        child, life = connection
        return self._is_there(child) and self._lives[child] == life

    def _answer(self, place: Place, chance: Random) -> str | None:
        """Who answers at a place; now and then nobody does."""
        child = place.address.removeprefix(address_of(""))
        there = [name for name in self._led.get(place.address, (child,)) if self._is_there(name)]
        return chance.choice(there) if there and chance.random() < 0.8 else None
