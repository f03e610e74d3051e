"""Who sends to whom, as stable as can be: what is moved costs a rewind, so as little is moved as possible."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Move:
    """An item that goes to another node; `before` is None where it is new."""

    item: str
    before: str | None
    after: str


class NoRoom(Exception):
    """Items that fit onto no node; `needed` is what they send together."""

    def __init__(self, items: Iterable[str], needed: int) -> None:
        self.items, self.needed = list(items), needed
        super().__init__(f"{len(self.items)} items do not fit anywhere")


def assigned(
    rates: Mapping[str, int], capacities: Mapping[str, int], before: Mapping[str, str]
) -> dict[str, str]:
    """The node of each item. Items stay where they are, unless their node is gone or has more than it takes:
    then the fewest go that bring it within that. Raises `NoRoom` where some fit nowhere."""
    held: dict[str, list[str]] = defaultdict(list)
    load = dict.fromkeys(capacities, 0)
    found: dict[str, str] = {}
    loose: list[str] = []
    for item, rate in rates.items():
        node = before.get(item)
        if node is None or node not in capacities:
            loose.append(item)
        else:
            found[item] = node
            held[node].append(item)
            load[node] += rate
    for node, capacity in capacities.items():
        for item in _shed(held[node], rates, load[node] - capacity):
            load[node] -= rates[item]
            del found[item]
            loose.append(item)
    homeless: list[str] = []
    # The largest first; by name where they are alike, so that it does not depend on who came first.
    for item in sorted(loose, key=lambda item: (-rates[item], item)):
        rate = rates[item]
        fitting = [node for node in capacities if load[node] + rate <= capacities[node]]
        if not fitting:
            homeless.append(item)
            continue
        node = min(fitting, key=lambda node: (load[node] + rate) / capacities[node])
        found[item] = node
        load[node] += rate
    if homeless:
        raise NoRoom(homeless, sum(rates[item] for item in homeless))
    return found


def _shed(items: Iterable[str], rates: Mapping[str, int], excess: int) -> list[str]:
    """The fewest items that send so much together; the last one of them no larger than it has to be."""
    if excess <= 0:
        return []
    found: list[str] = []
    left = sorted(items, key=lambda item: (-rates[item], item))
    while excess > 0:
        enough = [item for item in left if rates[item] >= excess]
        item = enough[-1] if enough else left[0]
        left.remove(item)
        found.append(item)
        excess -= rates[item]
    return found


def moves(before: Mapping[str, str], after: Mapping[str, str]) -> list[Move]:
    """What differs, in the order of `after`."""
    return [Move(item, before.get(item), node) for item, node in after.items() if before.get(item) != node]


def without(
    rates: Mapping[str, int], capacities: Mapping[str, int], before: Mapping[str, str], count: int
) -> dict[str, int]:
    """The nodes that stay if so many are given up: those go of which the fewest items have to move; fewer
    go where their items would not fit elsewhere."""
    left = dict(capacities)
    held: dict[str, int] = defaultdict(int)
    for item in rates:
        held[before.get(item, "")] += 1
    names = list(capacities)
    for node in sorted(names, key=lambda node: (held[node], -names.index(node))):
        if count <= 0 or len(left) == 1:
            break
        tried = {name: capacity for name, capacity in left.items() if name != node}
        try:
            assigned(rates, tried, before)
        except NoRoom:
            continue
        left, count = tried, count - 1
    return left
