"""The paper's model, played: planned trees lose nothing, its counter-examples do."""

from __future__ import annotations

import random

import pytest

from headwater.planning import csa
from headwater.planning.inventory import alike
from headwater.planning.plan import Demand, plan
from headwater_simulator.flows import played


def test_the_planned_tree_loses_nothing() -> None:
    for seed in range(3):
        flows = played(500, 0.5, 20, [13, 7, 4, 2, 1], seconds=300, seed=seed)
        assert [flow.lost for flow in flows] == [0] * 5
        assert all(flow.busiest < 20.5 for flow in flows)


@pytest.mark.parametrize(
    "layers,lost", [([1], 0.91), ([13, 1], 0.83), ([13, 7, 1], 0.67), ([13, 7, 4, 1], 0.37)]
)
def test_smaller_trees_lose_at_the_root_and_only_there(layers: list[int], lost: float) -> None:
    flows = played(500, 0.5, 20, layers, seconds=300, seed=1)
    assert [flow.lost for flow in flows[:-1]] == [0] * (len(layers) - 1)
    assert flows[-1].share == pytest.approx(lost, abs=0.04)


def test_trees_planned_with_a_margin_lose_nothing_and_with_one_layer_less_do() -> None:
    chance = random.Random(1)
    for seed in range(12):
        sources, limit = chance.randrange(50, 1_200), chance.choice([10, 20, 50])
        found = plan([Demand("s", sources, 0.5)], alike(limit, 0.1))
        flows = played(sources, 0.5, limit, found.widths, seconds=120, seed=seed)
        assert sum(flow.lost for flow in flows) == 0
        if found.less is not None and len(found.less.layers) > 1:
            less = played(sources, 0.5, limit, found.less.layers, seconds=120, seed=seed)
            assert less[-1].busiest > flows[-1].busiest


def test_theorem_1_is_passed_where_nodes_send_at_once() -> None:
    """The factor of Theorem 1 takes for granted that how soon a node sends again says nothing about how many
    of its items went elsewhere in between. It does: who sends again at once has sent just one."""
    layers = [13, 7, 4, 2, 1]
    arrived = [flow.arrived / 600 for flow in played(500, 0.5, 1e9, layers, seconds=600, seed=1)]
    bound = [float(csa.reaching(csa.exact(250), layers[:number])) for number in range(len(layers))]
    above = [came / most - 1 for came, most in zip(arrived, bound, strict=True)]
    assert above[0] == pytest.approx(0, abs=0.02)
    assert above[1] == pytest.approx(0, abs=0.02)
    assert 0.01 < above[2] < above[3] < above[4] < 0.3
