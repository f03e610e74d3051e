"""The network of a run: it delays, loses, repeats and reorders, and parts of it may be cut or slow."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from headwater_simulator.plans import Plan

# What stands for everybody in a cut.
ALL = "*"


class Network:
    """When each message arrives. Every way between two has chance of its own, so that a plan that is cut
    down elsewhere stays the same here."""

    def __init__(self, plan: Plan) -> None:
        self._plan, self._quiet = plan, False
        self._chance: dict[tuple[str, str], Random] = {}
        self._cut: dict[tuple[str, str], int] = {}
        self._slow: dict[str, int] = {}

    def heal(self) -> None:
        """From now on nothing is lost, and nothing is slow."""
        self._quiet = True
        self._cut.clear()
        self._slow.clear()

    def cut(self, sender: str, to: str, until: int) -> None:
        self._cut[sender, to] = max(until, self._cut.get((sender, to), 0))

    def slow(self, sender: str, until: int) -> None:
        self._slow[sender] = until

    def is_open(self, sender: str, to: str, now: int) -> bool:
        if not self._cut:
            return True
        ways = ((sender, to), (sender, ALL), (ALL, to))
        return not any(self._cut.get(way, 0) > now for way in ways)

    def times(self, sender: str, to: str, now: int) -> Iterator[int]:
        """How long each copy of a message is under way."""
        plan, chance = self._plan, self._chance.get((sender, to))
        if chance is None:
            chance = self._chance[sender, to] = Random(f"{plan.seed} {sender} {to}")
        copies = 1
        if not self._quiet:
            copies += chance.random() < plan.repeat
            copies -= chance.random() < plan.loss
        if not self.is_open(sender, to, now):
            return
        longest = plan.delay + (40 if self._slow.get(sender, 0) > now else 0)
        for _ in range(copies):
            yield chance.randint(1, longest)
