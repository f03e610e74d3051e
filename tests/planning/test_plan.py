"""Plans: no node gets more than it takes, whoever sends to whom, and what cannot be planned says why."""

from __future__ import annotations

import math
import random
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest

from headwater.errors import InvalidPlan
from headwater.planning import csa
from headwater.planning.amounts import UNIT, at_least
from headwater.planning.inventory import Inventory, Kind, alike, inventory_of
from headwater.planning.plan import Demand, Plan, Within, plan
from headwater.planning.planner import Planner
from headwater.topology import topology_of
from headwater.topology.tree import LayerPlacement, NodeClass, NodeSpec, Placement
from tests.manifests import small
from tests.planning.grids import PLANS, loads

MANY = Within(max_nodes=20_000)


def _drawn(chance: random.Random) -> tuple[list[Demand], Inventory]:
    limit = round(10 ** chance.uniform(0, 4), 2)
    margin = chance.choice([0, 0.1, 0.25])
    demands = [
        Demand(
            f"class-{place}", chance.randrange(1, 400), round(chance.uniform(0.001, 0.6) * limit, 4) or 0.1
        )
        for place in range(chance.randrange(1, 6))
    ]
    return demands, alike(limit, margin)


def _check(found: Plan, demands: list[Demand]) -> None:
    inventory = found.inventory
    assert found.sources.sum(axis=1).tolist() == [each.count for each in demands]
    rates = np.array([at_least(each.rate) for each in demands])
    assert (rates @ found.sources == found.layers[0].rates).all()
    assert found.widths[-1] == 1
    assert found.layers[-1].role == "root"
    for layer, above in zip(found.layers, found.layers[1:], strict=False):
        assert layer.parents is not None
        assert layer.sends is not None
        into = np.zeros(above.width, np.int64)
        np.add.at(into, layer.parents, layer.sends)
        assert (into == above.rates).all()
    for layer in found.layers:
        room = np.array([inventory.capacity(kind) for kind in layer.kinds])
        assert (layer.rates <= room).all()
        assert (layer.headroom >= inventory.margin - 1e-9).all()


def test_every_node_of_every_plan_keeps_its_margin() -> None:
    chance, grown = random.Random(1), 0
    for _ in range(PLANS // 4):
        demands, inventory = _drawn(chance)
        found = plan(demands, inventory, MANY)
        _check(found, demands)
        kept = csa.exact(inventory.child[0].limit) * (1 - csa.exact(inventory.margin))
        least = csa.widths(found.load, kept)
        # Never less than CSA asks for, and more only with a word about it.
        assert len(found.widths) >= len(least)
        assert all(ours >= theirs for ours, theirs in zip(found.widths, least, strict=False))
        assert found.widths == least or found.notes
        grown += found.widths != least
    assert grown > 0


def test_alike_sources_that_fill_nodes_evenly_are_planned_as_in_the_paper() -> None:
    for load, limit in loads(PLANS // 2, seed=7, most=300):
        # So small that they can be put anywhere, where nodes are not full to the last item.
        rate = round(limit / 20_000, 6)
        count = max(round(load / rate), 1)
        times = count * rate / limit
        if math.ceil(times) - times > Fraction(1, 15):
            found = plan([Demand("s", count, float(rate))], alike(float(limit), 0), MANY)
            assert found.widths == csa.widths(found.load, limit), (load, limit, found.notes)


@pytest.mark.parametrize(
    "sources,layers", [(500, [13, 7, 4, 2, 1]), (950, [24, 12, 6, 3, 2, 1]), (40, [1]), (41, [2, 1])]
)
def test_the_answers_of_the_paper(sources: int, layers: list[int]) -> None:
    found = plan([Demand("s", sources, 0.5)], alike(20, 0))
    assert (found.widths, found.notes) == (layers, ())
    _check(found, [Demand("s", sources, 0.5)])


def test_what_one_layer_less_would_lose() -> None:
    found = plan([Demand("s", 500, 0.5)], alike(20, 0))
    assert found.less is not None
    assert found.less.layers == (13, 7, 4, 1)
    assert found.less.rate >= csa.reaching(Fraction(250), [13, 7, 4])
    assert 0.3 < found.less.lost < 0.5
    assert plan([Demand("s", 40, 0.5)], alike(20, 0)).less is None


def test_one_layer_less_passes_what_the_root_keeps_free() -> None:
    chance = random.Random(2)
    for _ in range(PLANS // 8):
        demands, inventory = _drawn(chance)
        less = plan(demands, inventory, MANY).less
        if less is not None:
            assert less.rate * UNIT > inventory.capacity(inventory.root[0])


def test_a_margin_is_kept_free() -> None:
    # The paper: 18 for a limit of 20.
    assert plan([Demand("s", 500, 0.5)], alike(20, 0.1)).widths == csa.widths(250, 18) == [14, 7, 4, 2, 1]


def test_measured_rates_correct_the_bound() -> None:
    sources = [Demand("s", 500, 0.5)]
    # Children that send one row for a hundred events need nobody between them and the root.
    assert plan(sources, alike(20, 0), reductions={1: 0.01}).widths == [13, 1]
    assert plan(sources, alike(20, 0), reductions={1: 0.5, 2: 0.05}).widths == [13, 7, 1]
    # More than the bound: a holistic function sends every value on.
    found = plan(sources, alike(20, 0), reductions={1: 1.0, 2: 0.4, 3: 0.3})
    assert found.widths == [13, 13, 7, 2, 1]


def test_nodes_of_several_kinds() -> None:
    small, large, root = Kind("pi4", 12, 8), Kind("server", 40, 3), Kind("cloud", 100, 1)
    inventory = Inventory((small, large), (large,), (root,), 0)
    found = plan([Demand("s", 300, 0.5)], inventory)
    _check(found, [Demand("s", 300, 0.5)])
    # Those that take the most are taken first.
    assert [kind.name for kind in found.layers[0].kinds] == ["server"] * 3 + ["pi4"] * 3
    assert found.widths == [6, 1]
    # A layer has what those below it have left.
    said = _problem([Demand("s", 300, 0.5)], Inventory((small, large), (large,), (large,), 0))
    assert "for layer 2 there is no node left; add " in said


def test_minimum_widths_and_children_on_every_node() -> None:
    assert plan([Demand("s", 500, 0.5)], alike(20, 0), Within(min_width=30)).widths == [30, 15, 8, 4, 1]
    kinds = (Kind("pi4", 20, 30),)
    anything = (Kind("any", 20),)
    every = Within(per_node=True)
    assert plan([Demand("s", 500, 0.5)], Inventory(kinds, anything, anything, 0), every).widths[0] == 30


# What cannot be planned


def _problem(demands: list[Demand], inventory: Inventory, within: Within = MANY) -> str:
    with pytest.raises(InvalidPlan) as caught:
        plan(demands, inventory, within)
    assert len(caught.value.problems) == 1
    return str(caught.value.problems[0])


@pytest.mark.parametrize("rate", [0, -1, float("nan"), float("inf"), 1e13])
def test_rates_that_are_none(rate: float) -> None:
    said = _problem([Demand("s", 5, rate, "spec.sources[3]")], alike(20, 0))
    assert said.startswith(f"spec.sources[3].rate: is {rate:g}; give items a second, above 0")


@pytest.mark.parametrize("limit", [0, -20, float("nan"), float("inf"), 1e-9])
def test_limits_that_are_none(limit: float) -> None:
    said = _problem([Demand("s", 5, 1e-9)], alike(limit, 0))
    assert said.startswith(f"spec.node.ingestLimit: is {limit:g}")


@pytest.mark.parametrize("margin", [-0.1, 1, 1.5, float("nan")])
def test_margins_that_are_none(margin: float) -> None:
    said = _problem([Demand("s", 5, 1)], alike(20, margin))
    assert said == f"spec.node.margin: is {margin:g}; give a share from 0 to below 1, such as 0.1"


def test_no_sources() -> None:
    assert _problem([], alike(20, 0)).startswith("spec.sources: is empty")
    assert "expected: is 0; expect 1" in _problem([Demand("s", 0, 1)], alike(20, 0))


def test_a_source_above_any_limit() -> None:
    assert _problem([Demand("camera", 2, 30, "spec.sources[1]"), Demand("s", 5, 1)], alike(20, 0.1)) == (
        "spec.sources[1].rate: one source of 'camera' sends 30 items a second, but a child takes at most 18 "
        "items a second (20 less a margin of 0.1); raise spec.node.ingestLimit to 33.4 if the nodes take "
        "that (headwater bench node measures it), or split the source"
    )
    # The remedy is one.
    assert plan([Demand("camera", 2, 30)], alike(33.4, 0.1)).widths == [2, 1]


def test_more_nodes_than_a_tree_may_have() -> None:
    within = Within(max_nodes=20)
    assert _problem([Demand("s", 500, 0.5)], alike(20, 0), within) == (
        "spec.limits.maxNodes: is 20, but 250 items a second need 27 nodes, [13 7 4 2 1]; raise it to 27, or "
        "raise spec.node.ingestLimit to 28.1"
    )
    assert plan([Demand("s", 500, 0.5)], alike(28.1, 0), within).nodes <= 20
    assert plan([Demand("s", 500, 0.5)], alike(20, 0), Within(max_nodes=27)).nodes == 27


def test_more_than_all_nodes_of_a_kind_take() -> None:
    few = (Kind("pi4", 12, 8, "spec.node.classes[0].ingestLimit"),)
    anything = (Kind("any", 20),)
    demands = [Demand("s", 500, 0.5)]
    assert _problem(demands, Inventory(few, anything, anything, 0.1)) == (
        "spec.node.classes[0].count: the children must take 250 items a second, but 8 nodes take "
        "8 x 10.8 = 86.4, 163.6 too little; add 16 more of pi4, or raise "
        "spec.node.classes[0].ingestLimit to 35.1 and spec.node.ingestLimit to 58.4"
    )
    enough = (Kind("pi4", 12, 24),)
    assert plan(demands, Inventory(enough, anything, anything, 0.1)).widths[0] == 24
    raised = (Kind("any", 58.4),)
    assert plan(demands, Inventory((Kind("pi4", 35.1, 8),), raised, raised, 0.1)).widths[0] == 8


def test_nobody_is_left_for_the_root() -> None:
    only = (Kind("pi4", 12, 0, "spec.node.classes[0].ingestLimit"),)
    assert "for the root there is no node left; add 1 more of pi4" in _problem(
        [Demand("s", 1, 0.5)], Inventory((Kind("any", 20),), (Kind("any", 20),), only, 0)
    )


def test_a_weak_root_under_strong_nodes_needs_wider_layers() -> None:
    small, strong = (Kind("pi", 1, None, "spec.node.classes[0].ingestLimit"),), (Kind("any", 20),)
    demands, inventory = [Demand("s", 500, 0.5)], Inventory(strong, strong, small, 0)
    found = plan(demands, inventory, MANY)
    assert found.widths == [250, 125, 63, 32, 16, 8, 4, 2, 2, 1]
    assert found.layers[0].limits.tolist() == [20] * 250
    assert found.layers[-1].headroom.min() >= 0
    assert found.notes == (
        "no node is given more than 1 items/s: otherwise nothing fits above the stronger ones",
    )
    # As many nodes there are not.
    said = _problem(demands, inventory, Within(1, 200))
    assert said.startswith("spec.node.classes[0].ingestLimit: is 1 for the root, but 13.0311 items a second")
    assert said.endswith("raise it to 13.1, or have more nodes, also by spec.limits.maxNodes")


def test_a_running_tree_gives_no_node_more_than_its_plan_does() -> None:
    weak = [{"selector": {"tier": "cloud"}, "ingestLimit": 10}]
    document = small(
        spec__node={"ingestLimit": 100, "margin": 0.1, "classes": weak},
        spec__placement={"root": {"nodeSelector": {"tier": "cloud"}}},
        spec__sources__0__rate=1,
    )
    topology = topology_of(document)
    assert topology.node is not None
    planner = Planner(topology, topology.node)
    assert planner.replan(0, {f"s{n}": 1.0 for n in range(9)}).tree.widths == [1, 1]
    tree = planner.replan(1, {f"s{n}": 8.0 for n in range(9)}).tree
    # Each of 8 with a child of its own, which sends half of it: 9 is the most that a root of 10 takes.
    assert max(Counter(tree.sources.values()).values()) == 1
    assert len(set(tree.sources.values())) == 9


def test_a_root_that_no_number_of_layers_helps() -> None:
    forwarded = dict.fromkeys(range(1, 65), 1.0)
    with pytest.raises(InvalidPlan) as caught:
        plan([Demand("s", 100, 1)], alike(20, 0.1), MANY, forwarded)
    assert str(caught.value.problems[0]) == (
        "spec.node.ingestLimit: is 20 for the root, but 100 items a second reach it behind any number of "
        "layers; raise it to 112"
    )


@pytest.mark.parametrize("strong", [21, 30, 50, 60, 200])
@pytest.mark.parametrize("role", ["child", "intermediate"])
def test_stronger_nodes_never_make_a_plan_impossible(role: str, strong: float) -> None:
    plain, more = (Kind("plain", 20),), (Kind("strong", strong),)
    child, intermediate = (more, plain) if role == "child" else (plain, more)
    found = plan([Demand("s", 100, 1)], Inventory(child, intermediate, plain, 0.1), MANY)
    assert found.nodes <= 12
    for layer in found.layers:
        assert (layer.rates <= layer.limits * 0.9 * UNIT).all()


# What a manifest says


ANYWHERE = Placement()


def _classes(*classes: NodeClass, placement: Placement = ANYWHERE) -> Inventory:
    return inventory_of(NodeSpec(20, 0.1, classes), placement)


def test_a_class_that_a_layer_asks_for_is_all_that_it_has() -> None:
    pi = NodeClass((("device", "pi4"),), 12, 8)
    child = LayerPlacement("pool", (("device", "pi4"), ("tier", "edge")))
    found = _classes(pi, placement=Placement(child=child))
    assert found.child == (Kind("device=pi4", 12, 8, "spec.node.classes[0].ingestLimit"),)


def test_a_class_that_a_layer_may_meet_lowers_its_limit() -> None:
    pi = NodeClass((("device", "pi4"),), 12)
    elsewhere = LayerPlacement("pool", (("device", "server"),))
    found = _classes(pi, placement=Placement(intermediate=elsewhere))
    assert [kind.limit for kind in found.child] == [12]
    assert [kind.limit for kind in found.intermediate] == [20]


def test_a_class_of_which_the_number_is_known_is_used_beside_others() -> None:
    found = _classes(NodeClass((("device", "big"),), 200, 2))
    assert [(kind.limit, kind.count) for kind in found.child] == [(200, 2), (20, None)]


def test_of_two_classes_the_one_that_says_more_holds() -> None:
    wide = NodeClass((("tier", "edge"),), 15)
    narrow = NodeClass((("device", "pi4"), ("tier", "edge")), 12)
    child = LayerPlacement("pool", (("device", "pi4"), ("tier", "edge")))
    found = _classes(wide, narrow, placement=Placement(child=child))
    assert [kind.limit for kind in found.child] == [12]


def test_classes_that_contradict_each_other() -> None:
    one, other = NodeClass((("device", "pi4"),), 12), NodeClass((("tier", "edge"),), 15)
    child = LayerPlacement("pool", (("device", "pi4"), ("tier", "edge")))
    with pytest.raises(InvalidPlan) as caught:
        _classes(one, other, placement=Placement(child=child))
    assert [str(problem) for problem in caught.value.problems] == [
        "spec.node.classes[1].ingestLimit: is 15 for tier=edge, but classes[0] says 12 for device=pi4, and "
        "spec.placement.child asks for nodes that are both; give a class for device=pi4,tier=edge"
    ]
    # It is none where both say the same.
    same = NodeClass((("tier", "edge"),), 12)
    assert [kind.limit for kind in _classes(one, same, placement=Placement(child=child)).child] == [12]
