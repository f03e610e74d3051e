"""Conservative Sequential Assignments: how many nodes each layer has, so that none is overrun.

The paper's formulas, in exact numbers: a load is what all sources send together, a limit is what one node
takes, both in items a second. An item of a child is an event, an item of a node above is a row of a partial.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise

# Lemma 1: a layer that follows two of at least two nodes has at most seven twelfths of what the one before
# it takes.
SHRINKS, ETA = Fraction(7, 12), Fraction(49, 72)
# Theorem 3: by how much a tree is larger at most than the fewest nodes that could take the load.
FACTOR, PRINTED = Fraction(11, 5), 1 / ETA
# Beyond what a float has.
MOST_LAYERS = 2_048


def exact(number: float | Fraction) -> Fraction:
    """What somebody has written: 0.1 is a tenth."""
    return number if isinstance(number, Fraction) else Fraction(str(number))


def widths(load: float | Fraction, limit: float | Fraction) -> list[int]:
    """Algorithm 2: the fewest nodes for each layer by the bound of Theorem 1, from the children up; the last
    one, of width 1, is the root."""
    load, limit = exact(load), exact(limit)
    found: list[int] = []
    while not found or found[-1] > 1:
        if len(found) > MOST_LAYERS:
            raise OverflowError(f"{len(found)} layers")
        found.append(max(math.ceil(reaching(load, found) / limit), 1))
    return found


def reaching(load: Fraction, below: Sequence[int]) -> Fraction:
    """Theorem 1: what reaches a layer as a whole at most, if the layers below it have these widths."""
    share = Fraction(1, 2 ** len(below))
    for width, above in pairwise(below):
        share *= 1 + Fraction(1, width * (2 * above - 1))
    return load * share


def bounds(load: float | Fraction, layers: Sequence[int]) -> list[Fraction]:
    """Theorem 1: what reaches any one node of each layer at most."""
    load = exact(load)
    return [reaching(load, layers[:number]) / width for number, width in enumerate(layers)]


def most_layers(load: float | Fraction, limit: float | Fraction) -> int:
    """Lemma 1. It says too little where a load is just above one node: the layer behind the first then has
    width 1, which its proof leaves out."""
    times = exact(load) / exact(limit)
    if times <= 1:
        return 1
    return max(_ceil_of_log(times / ETA), 2)


def _ceil_of_log(times: Fraction) -> int:
    """The smallest number of layers after which what shrinks by 7/12 is at most 1; exact."""
    found = 0
    while times > 1:
        times *= SHRINKS
        found += 1
    return found


def most_nodes(load: float | Fraction, limit: float | Fraction, factor: Fraction = FACTOR) -> float:
    """Theorem 3, put right: how many nodes there are at most, by the fewest that could take the load.

    As it is printed (with `PRINTED`) it is passed by the paper's own example, 27 nodes for 24.8: the sum of
    its proof counts the first layer as six sevenths of itself, and its last line leaves out a factor of 7/5.
    The first layer has OPT nodes, and those behind it together 6/5 of the load and one each for rounding.
    """
    times = exact(load) / exact(limit)
    if times <= 1:
        return 1.0
    return float(factor * math.ceil(times)) + math.log(times, float(1 / SHRINKS)) + 1
