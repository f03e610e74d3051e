"""Loads and limits over many orders of magnitude, and what one computer finds by trying everything."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator, Sequence
from fractions import Fraction

from headwater.planning import csa

# How many plans a property is checked against; HEADWATER_PLANS=100000 pytest tests/planning asks for more.
PLANS = int(os.environ.get("HEADWATER_PLANS", "2000"))


def loads(count: int, seed: int, *, most: float = 1e5) -> Iterator[tuple[Fraction, Fraction]]:
    """Loads and limits as people write them."""
    chance = random.Random(seed)
    for _ in range(count):
        limit = round(10 ** chance.uniform(-1, 5), chance.randrange(4)) or 1.0
        # Often right at a limit, where one more or less decides.
        times = chance.choice(
            [10 ** chance.uniform(-1, 5), chance.randrange(1, 300), chance.randrange(1, 64) / 8]
        )
        load = csa.exact(limit) * csa.exact(min(round(times, 4), most) or 1)
        yield load, csa.exact(limit)


def holds(layers: Sequence[int], load: Fraction, limit: Fraction) -> bool:
    return all(bound <= limit for bound in csa.bounds(load, layers))


def best(load: Fraction, limit: Fraction, most: int) -> int:
    """The fewest nodes, root included, of any tree that respects Theorem 1's bound; by trying all."""
    found = most

    def search(layers: list[int]) -> None:
        nonlocal found
        if sum(layers) + 1 >= found:
            return
        if layers and csa.reaching(load, layers) <= limit:
            found = sum(layers) + 1
            return
        least = -(-csa.reaching(load, layers) // limit)
        for width in range(max(int(least), 2), found - sum(layers)):
            search([*layers, width])

    if load <= limit:
        return 1
    search([])
    return found


def fewest_bins(items: Sequence[int], capacity: int) -> int:
    """Bin packing, by trying all."""
    ordered = sorted(items, reverse=True)
    found = len(items)

    def search(place: int, bins: list[int]) -> None:
        nonlocal found
        if len(bins) >= found:
            return
        if place == len(ordered):
            found = len(bins)
            return
        tried = set()
        for number, load in enumerate(bins):
            if load + ordered[place] <= capacity and load not in tried:
                tried.add(load)
                bins[number] += ordered[place]
                search(place + 1, bins)
                bins[number] -= ordered[place]
        search(place + 1, [*bins, ordered[place]])

    search(0, [])
    return found
