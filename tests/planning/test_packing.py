"""Packing: everything is somewhere, nothing is too full, and hardly ever is a node too many used."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.planning.packing import Group, balanced, fewest, groups_of, loads, packed, tight
from tests.planning.grids import PLANS, fewest_bins

items = st.lists(st.integers(1, 40), min_size=1, max_size=30)


def _capacities(*sizes: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.array(sizes, np.int64)


@given(items, st.lists(st.integers(1, 90), min_size=1, max_size=20))
def test_nothing_is_lost_and_nothing_overrun(rates: list[int], sizes: list[int]) -> None:
    groups, places = groups_of(rates)
    assert [groups[place].rate for place in places] == rates
    for way in (balanced, tight):
        found = way(groups, _capacities(*sizes))
        if found is None:
            continue
        assert found.sum(axis=1).tolist() == [group.count for group in groups]
        assert (found >= 0).all()
        assert (loads(groups, found) <= sizes).all()


@given(items, st.integers(1, 12))
def test_alike_items_are_spread_evenly(rates: list[int], nodes: int) -> None:
    groups = [Group(7, len(rates))]
    found = balanced(groups, np.full(nodes, 7 * len(rates), np.int64))
    assert found is not None
    assert found.max() - found.min() <= 1


def test_nodes_that_take_more_get_more() -> None:
    found = balanced([Group(1, 300)], _capacities(100, 200, 300))
    assert found is not None
    assert found.tolist() == [[50, 100, 150]]


def test_as_few_nodes_as_by_trying_all_but_for_a_rare_one() -> None:
    chance, worse = random.Random(1), 0
    for _ in range(PLANS // 2):
        capacity = chance.randrange(5, 40)
        rates = [chance.randrange(1, capacity + 1) for _ in range(chance.randrange(1, 11))]
        groups, _ = groups_of(rates)
        room = np.full(20, capacity, np.int64)
        found = fewest(groups, room, max(-(-sum(rates) // capacity), 1))
        assert found is not None
        assert packed(groups, room[:found]) is not None
        least = fewest_bins(rates, capacity)
        assert least <= found <= least + 1
        worse += found > least
    assert worse <= PLANS // 200


def test_whole_items_may_need_more_nodes() -> None:
    room = np.full(300, 20, np.int64)
    assert fewest([Group(3, 1_000)], room, 150) == 167
    assert fewest([Group(3, 1_000)], room[:166], 150) is None
    assert fewest([Group(21, 1)], room, 1) is None
    assert fewest([Group(1, 1)], room[:0], 1) is None


@pytest.mark.parametrize("seed", range(5))
def test_numbers_of_any_size(seed: int) -> None:
    chance = random.Random(seed)
    groups = [Group(chance.randrange(1, 10**15), chance.randrange(1, 2_000)) for _ in range(40)]
    room = np.full(2_000, 10**18, np.int64)
    found = fewest(groups, room, 1)
    assert found is not None
    packing = packed(groups, room[:found])
    assert packing is not None
    assert packing.sum(axis=1).tolist() == [group.count for group in groups]
    assert int(loads(groups, packing).max()) <= 10**18
