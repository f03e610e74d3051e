"""A plan over a cluster: nodes stay, numbers are never given twice, nobody has more than it takes."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.errors import InvalidPlan
from headwater.planning.amounts import UNIT
from headwater.planning.asked import plan_of
from headwater.topology import Topology, topology_of
from headwater_operator import names
from headwater_operator.layout import HOSTNAME, Host, Layout, TreeNode, capacity_of, held, laid_out
from headwater_operator.reporting import SLACK


def topology(count: int = 500, **more: Any) -> Topology:
    return topology_of(
        {
            "apiVersion": "headwater.dev/v1alpha1",
            "kind": "AggregationTopology",
            "metadata": {"name": "factory"},
            "spec": {
                "sources": [{"class": "s", "site": "hall", "expected": count, "rate": 0.5, "lateness": "2s"}],
                "node": {"ingestLimit": 20, "margin": 0},
                "root": {"engine": "embedded"},
                **more,
            },
        }
    )


def fresh(asked: Topology, hosts: Sequence[Host] | None = None) -> Layout:
    return laid_out(asked, hosts, (), {}, {})


def again(
    before: Layout, asked: Topology, hosts: Sequence[Host] | None = None, factor: float = 1.0
) -> Layout:
    named: dict[int, int] = defaultdict(lambda: -1)
    for node in (*before.nodes, *before.leaving):
        named[node.layer] = max(named[node.layer], node.number)
    parents = {node.id: node.parent for node in before.nodes}
    return laid_out(asked, hosts, before.nodes, parents, named, factor)


def widths(layout: Layout) -> list[int]:
    counts: dict[int, int] = defaultdict(int)
    for node in layout.nodes:
        counts[node.layer] += 1
    return [counts[layer] for layer in sorted(counts)]


def assert_sound(layout: Layout) -> None:
    """Everybody sends to a node of the layer above that takes it, and those on top to the root."""
    by_id = {node.id: node for node in layout.nodes}
    assert len(by_id) == len(layout.nodes)
    taken: dict[str, float] = defaultdict(float)
    top = max(node.layer for node in layout.nodes)
    by_layer: dict[int, list[TreeNode]] = defaultdict(list)
    for node in layout.nodes:
        assert node.id == names.node("factory", node.layer, node.number)
        assert node.role == ("child" if node.layer == 1 else "intermediate")
        by_layer[node.layer].append(node)
    assert layout.plan is not None
    for number, nodes in by_layer.items():
        layer = layout.plan.layers[number - 1]
        for place, node in enumerate(nodes):
            if number == top:
                assert node.parent == names.ROOT
            else:
                assert by_id[node.parent].layer == number + 1
                assert layer.sends is not None
                taken[node.parent] += layer.sends[place] / UNIT
    for id, rate in taken.items():
        assert rate <= by_id[id].capacity + 1e-6


def test_the_tree_of_the_paper() -> None:
    layout = fresh(topology())
    assert widths(layout) == [13, 7, 4, 2]
    assert layout.plan is not None
    assert layout.plan.widths == [13, 7, 4, 2, 1]
    assert_sound(layout)
    assert [node.id for node in layout.nodes][:2] == ["factory-l1-0", "factory-l1-1"]
    assert layout.nodes[0].capacity == 20


@given(
    st.lists(
        st.tuples(st.integers(1, 300), st.floats(0.01, 15.0)),
        min_size=1,
        max_size=4,
    ),
    st.floats(0.0, 0.3),
    st.sampled_from([1.0, 1.5, 3.0]),
)
def test_there_is_room_for_every_source_that_is_expected(
    classes: list[tuple[int, float]], margin: float, factor: float
) -> None:
    sources = [
        {"class": f"c{n}", "site": "hall", "expected": expected, "rate": rate / 3, "lateness": "2s"}
        for n, (expected, rate) in enumerate(classes)
    ]
    node, limits = {"ingestLimit": 60, "margin": margin}, {"maxNodes": 10_000}
    asked = topology(sources=sources, node=node, limits=limits)
    layout = laid_out(asked, None, (), {}, {}, factor)
    room = sum(node.capacity for node in layout.nodes if node.role == "child")
    assert room >= asked.rate * factor * (1 - SLACK)


def test_the_same_again_is_the_same() -> None:
    layout = fresh(topology())
    after = again(layout, topology())
    assert (after.nodes, after.leaving) == (layout.nodes, ())


def test_few_sources_are_one_child() -> None:
    layout = fresh(topology(10))
    (node,) = layout.nodes
    assert (node.id, node.parent, node.role) == ("factory-l1-0", names.ROOT, "child")


@given(st.lists(st.integers(1, 700), min_size=2, max_size=6))
def test_nodes_stay_and_no_number_is_given_twice(counts: list[int]) -> None:
    layout = fresh(topology(counts[0]))
    gone: set[str] = set()
    for count in counts[1:]:
        asked = topology(count)
        after = again(layout, asked)
        before, now = {n.id for n in layout.nodes}, {n.id for n in after.nodes}
        assert_sound(after)
        planned = plan_of(asked).widths
        assert widths(after) == (planned[:-1] or [1])
        assert {n.id for n in after.leaving} == before - now
        assert not now & gone
        # A layer that grows loses nobody, one that shrinks gets nobody.
        for layer in range(1, 6):
            old = {id for id in before if names.parts(id) == ("factory", layer, _number(id))}
            new = {id for id in now if names.parts(id) == ("factory", layer, _number(id))}
            assert old <= new or new <= old
        gone |= before - now
        # What was given in layers that are gone is remembered by whoever knows all nodes that ever were.
        layout = Layout(after.plan, after.nodes, (*after.leaving, *layout.leaving))


def _number(id: str) -> int:
    found = names.parts(id)
    assert found is not None
    return found[2]


def test_sources_that_send_more_get_a_wider_tree() -> None:
    layout = fresh(topology(100))
    after = again(layout, topology(100), factor=2.0)
    assert widths(after) == plan_of(topology(200)).widths[:-1]
    assert {n.id for n in layout.nodes} <= {n.id for n in after.nodes}


def hosts(count: int, **labels: str) -> list[Host]:
    return [
        Host(f"edge-{n}", {HOSTNAME: f"edge-{n}", "headwater.dev/tier": "edge", **labels})
        for n in range(count)
    ]


PER_NODE = {"placement": {"child": {"mode": "perNode", "nodeSelector": {"headwater.dev/tier": "edge"}}}}


def test_a_child_for_each_node() -> None:
    asked = topology(100, **PER_NODE)
    layout = fresh(asked, [*hosts(4), Host("cloud", {HOSTNAME: "cloud"})])
    children = [node for node in layout.nodes if node.role == "child"]
    assert [node.host for node in children] == ["edge-0", "edge-1", "edge-2", "edge-3"]
    assert_sound(layout)
    # One joins, one is lost: the others stay.
    others = [*hosts(5)[:1], *hosts(5)[2:]]
    after = again(layout, asked, others)
    assert [(node.id, node.host) for node in after.nodes if node.role == "child"] == [
        ("factory-l1-0", "edge-0"),
        ("factory-l1-2", "edge-2"),
        ("factory-l1-3", "edge-3"),
        ("factory-l1-4", "edge-4"),
    ]
    assert [node.id for node in after.leaving if node.role == "child"] == ["factory-l1-1"]


def test_where_there_are_too_few_machines_it_is_said() -> None:
    with pytest.raises(InvalidPlan, match=r"nodeSelector: no node that is ready has headwater.dev/tier=edge"):
        fresh(topology(100, **PER_NODE), [])
    with pytest.raises(InvalidPlan, match="which nodes there are is not known"):
        fresh(topology(100, **PER_NODE), None)
    with pytest.raises(InvalidPlan):
        fresh(topology(500, **PER_NODE), hosts(2))


def test_classes_that_are_counted_are_no_more_than_there_are() -> None:
    classes = [{"selector": {"headwater.dev/device": "pi4"}, "ingestLimit": 12, "count": 40}]
    asked = topology(
        60,
        node={"ingestLimit": 20, "margin": 0, "classes": classes},
        placement={"child": {"nodeSelector": {"headwater.dev/device": "pi4"}}},
    )
    device = {"headwater.dev/device": "pi4"}
    layout = fresh(asked, hosts(8, **device))
    assert widths(layout)[0] == 3
    assert {node.selector for node in layout.nodes if node.role == "child"} == {tuple(device.items())}
    lost = [Host(host.name, host.labels, ready=place > 5) for place, host in enumerate(hosts(8, **device))]
    with pytest.raises(InvalidPlan):
        again(layout, asked, lost)


def test_without_a_limit_there_is_no_plan() -> None:
    with pytest.raises(InvalidPlan, match=r"spec\.node\.ingestLimit: is missing"):
        fresh(topology(10, node=None))


def test_without_a_plan_all_stay_as_they_are() -> None:
    before = fresh(topology())
    told = {node.id: node.parent for node in before.nodes}
    layout = held(topology(), None, before.nodes, told)
    assert (layout.plan, layout.leaving) == (None, ())
    assert layout.nodes == before.nodes


def test_who_was_led_around_others_is_led_back_to_them() -> None:
    """While all intermediates were away everybody sent to the root."""
    before = fresh(topology())
    layout = held(
        topology(), None, before.nodes, dict.fromkeys((node.id for node in before.nodes), names.ROOT)
    )
    by_id = {node.id: node for node in layout.nodes}
    for node in layout.nodes:
        above = 5 if node.parent == names.ROOT else by_id[node.parent].layer
        assert above == node.layer + 1
    counts = Counter(node.parent for node in layout.nodes if node.layer == 1)
    assert max(counts.values()) - min(counts.values()) <= 1


def test_what_a_node_takes_follows_from_its_machine() -> None:
    small = {"selector": {"device": "pi4"}, "ingestLimit": 12}
    asked = topology(node={"ingestLimit": 20, "margin": 0.5, "classes": [small]})
    pi = Host("pi", {"device": "pi4", HOSTNAME: "pi"})

    def takes(selector: Any = (), host: str | None = None) -> float:
        node = TreeNode("factory-l1-0", 1, 0, "child", "", 0.0, selector, host)
        return capacity_of(asked, [pi, Host("other", {HOSTNAME: "other"})], node)

    assert takes() == 10
    assert takes((("device", "pi4"),)) == 6
    assert takes((("device", "gone"),)) == 10
    assert takes(host="pi") == 6
    assert takes(host="other") == takes(host="gone") == 10
