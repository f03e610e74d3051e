"""The model of the CSA paper, played: sources that send by chance, nodes that aggregate with one buffer, and
a limit on what a node takes. Shows what a tree loses, layer by layer.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

# How long what arrives may wait at a node, in seconds: a burst is no overrun.
PATIENCE = 10.0


@dataclass(frozen=True, slots=True)
class Flow:
    """What came to a layer, and how much of it was lost there."""

    arrived: int
    lost: int
    # Items a second that came to the node to which the most came.
    busiest: float

    @property
    def share(self) -> float:
        return self.lost / max(self.arrived, 1)


def played(
    sources: int,
    rate: float,
    limit: float,
    layers: Sequence[int],
    seconds: float,
    seed: int,
    patience: float = PATIENCE,
) -> list[Flow]:
    """Send for so many seconds through layers of these widths; gives what came to each.

    Periods are changing all the while, and half of the sources are in the next one: the most that nodes can
    send on (Theorem 1). Each node that has room takes an item in its turn, `limit` of them a second; what
    would have to wait for longer than its patience is lost, as Kinesis does.
    """
    chance = random.Random(seed)
    # (when, period) of what arrives at a layer.
    items = sorted(_sent(sources, rate, seconds, chance))
    found: list[Flow] = []
    for width in layers:
        flow, items = _through(items, width, limit, seconds, patience, chance)
        found.append(flow)
    return found


def _sent(sources: int, rate: float, seconds: float, chance: random.Random) -> list[tuple[float, int]]:
    """Poisson processes, one for each source."""
    sent: list[tuple[float, int]] = []
    for source in range(sources):
        at = chance.expovariate(rate)
        while at < seconds:
            sent.append((at, source % 2))
            at += chance.expovariate(rate)
    return sent


def _through(
    items: Sequence[tuple[float, int]],
    width: int,
    limit: float,
    seconds: float,
    patience: float,
    chance: random.Random,
) -> tuple[Flow, list[tuple[float, int]]]:
    """Through one layer: each item goes to any of its nodes; what they send comes out in its order."""
    lost = 0
    free, period, arrived = [0.0] * width, [-1] * width, [0] * width
    sent: list[tuple[float, int]] = []
    for at, of in items:
        node = chance.randrange(width)
        arrived[node] += 1
        begins = max(at, free[node])
        if begins - at > patience:
            lost += 1
            continue
        free[node] = begins + 1 / limit
        # Algorithm 1: another period sends what was gathered of the last one.
        if of != period[node]:
            if period[node] >= 0:
                sent.append((free[node], period[node]))
            period[node] = of
    sent.sort()
    return Flow(len(items), lost, max(arrived) / seconds), sent
