"""Bin packing: groups of items that send as much each, onto nodes that take so much.

A packing has a row for each group and a column for each node: how many items of the group the node has.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Whole = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Group:
    """So many items of one rate."""

    rate: int
    count: int


def groups_of(rates: Sequence[int]) -> tuple[list[Group], Whole]:
    """The groups of single items, the largest rate first, and of each item which one it is in."""
    distinct, place, counts = np.unique(np.asarray(rates, np.int64), return_inverse=True, return_counts=True)
    found = [Group(int(rate), int(count)) for rate, count in zip(distinct[::-1], counts[::-1], strict=True)]
    return found, len(distinct) - 1 - place.astype(np.int64)


def loads(groups: Sequence[Group], packing: Whole) -> Whole:
    rates = np.array([group.rate for group in groups], np.int64)
    return np.asarray(rates @ packing, np.int64)


def balanced(groups: Sequence[Group], capacities: Whole) -> Whole | None:
    """Each item, the largest first, onto the node that has the most room behind it by its capacity (LPT);
    None if that leaves some over."""
    packing = np.zeros((len(groups), len(capacities)), np.int64)
    load = np.zeros(len(capacities), np.int64)
    for row, group in _largest_first(groups):
        room = (capacities - load) // group.rate
        if int(room.sum()) < group.count:
            return None
        taken = _levelled(group, load, capacities, room)
        packing[row] = taken
        load += taken * group.rate
    return packing


def _levelled(group: Group, load: Whole, capacities: Whole, room: Whole) -> Whole:
    """How many items of a group each node takes, so that nodes are equally full behind it."""
    level = _level(group.rate * group.count, load, capacities)
    # As if items could be cut; what is left over by then is less than one for each node.
    taken = np.clip(np.floor((level * capacities - load) / group.rate), 0, room).astype(np.int64)
    left = group.count - int(taken.sum())
    while left > 0:
        filled = (load + (taken + 1) * group.rate) / capacities
        open_ = np.flatnonzero(taken < room)
        lowest = open_[np.argsort(filled[open_], kind="stable")[:left]]
        taken[lowest] += 1
        left -= len(lowest)
    while left < 0:
        # A float may have been one too high.
        most = np.argsort(-np.where(taken > 0, (load + taken * group.rate) / capacities, -1), kind="stable")
        taken[most[: min(-left, int((taken > 0).sum()))]] -= 1
        left = group.count - int(taken.sum())
    return taken


def _level(more: int, load: Whole, capacities: Whole) -> float:
    """How full nodes are when so much more was poured onto those that are the least full."""
    order = np.argsort(load / capacities, kind="stable")
    levels, sizes = (load / capacities)[order], capacities[order].astype(np.float64)
    wide = np.cumsum(sizes)
    # What it takes to bring all before each node to its level.
    needed = levels * wide - np.cumsum(levels * sizes)
    last = int(np.searchsorted(needed, more, side="right")) - 1
    return float(levels[last] + (more - needed[last]) / wide[last])


def tight(groups: Sequence[Group], capacities: Whole) -> Whole | None:
    """Each item, the largest first, onto the fullest node that has room (best fit decreasing); nodes that
    are not needed stay empty. None if some are left over."""
    packing = np.zeros((len(groups), len(capacities)), np.int64)
    load = np.zeros(len(capacities), np.int64)
    for row, group in _largest_first(groups):
        left = capacities - load
        # Those that hold something first, the fullest before; then empty ones in the order given.
        order = np.lexsort((np.where(load > 0, left, 0), load == 0))
        room = (left // group.rate)[order]
        before = np.cumsum(room) - room
        taken = np.clip(group.count - before, 0, room)
        if int(taken.sum()) < group.count:
            return None
        packing[row, order] = taken
        load += packing[row] * group.rate
    return packing


def _largest_first(groups: Sequence[Group]) -> list[tuple[int, Group]]:
    rows: list[tuple[int, Group]] = [(row, group) for row, group in enumerate(groups) if group.count]
    return sorted(rows, key=lambda found: -found[1].rate)


def packed(groups: Sequence[Group], capacities: Whole) -> Whole | None:
    """Balanced if that goes, else tight; None if neither does."""
    found = balanced(groups, capacities)
    return tight(groups, capacities) if found is None else found


def fewest(groups: Sequence[Group], capacities: Whole, low: int) -> int | None:
    """How many of the nodes, in their order and `low` of them or more, `packed` needs; None if all are too
    few. `low` is at least 1."""
    last = len(capacities)
    if low > last:
        return None
    if packed(groups, capacities[:low]) is not None:
        return low
    # Twice as many more each time, then halfway in between: what fits on some fits on more of them but for
    # rare cases, which cost a node.
    step, high = 1, low
    while high < last:
        high = min(low + step, last)
        if packed(groups, capacities[:high]) is not None:
            break
        low, step = high, 2 * step
    else:
        return None
    while high - low > 1:
        middle = (low + high) // 2
        if packed(groups, capacities[:middle]) is None:
            low = middle
        else:
            high = middle
    return high
