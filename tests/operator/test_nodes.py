"""What matters of a Node, and what is no news."""

from __future__ import annotations

from typing import Any

import pytest

from headwater_operator.nodes import ClusterNode, Nodes, Taint, node_of


def document(name: str = "edge-1", ready: str = "True", beat: str = "12:00", **spec: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "labels": {"tier": "edge"}, "resourceVersion": beat},
        "spec": spec,
        "status": {
            "conditions": [
                {"type": "MemoryPressure", "status": "False", "lastHeartbeatTime": beat},
                {"type": "Ready", "status": ready, "lastHeartbeatTime": beat},
            ],
            "allocatable": {"cpu": "4"},
        },
    }


def test_a_node_is_read() -> None:
    taints = [{"key": "only", "effect": "NoSchedule"}, {"key": "a", "value": "b", "effect": "NoExecute"}]
    assert node_of(document(unschedulable=True, taints=taints)) == ClusterNode(
        name="edge-1",
        labels={"tier": "edge"},
        ready=True,
        unschedulable=True,
        taints=(Taint("only", "", "NoSchedule"), Taint("a", "b", "NoExecute")),
    )


@pytest.mark.parametrize("ready", ["False", "Unknown"])
def test_a_node_that_is_not_heard_of_is_not_ready(ready: str) -> None:
    assert not node_of(document(ready=ready)).ready


def test_a_bare_node_is_not_ready_and_neither_is_one_that_goes() -> None:
    assert node_of({"metadata": {"name": "new"}}) == ClusterNode("new", {}, False, False, ())
    going = document()
    going["metadata"]["deletionTimestamp"] = "now"
    assert not node_of(going).ready


def test_a_heartbeat_is_no_news() -> None:
    nodes = Nodes()
    assert nodes.update(document())
    assert not nodes.update(document(beat="12:01"))
    assert nodes.update(document(beat="12:02", ready="Unknown"))
    assert nodes.update(document(beat="12:03", unschedulable=True))
    labelled = document(beat="12:04", unschedulable=True)
    labelled["metadata"]["labels"]["tier"] = "fog"
    assert nodes.update(labelled)
    assert nodes.remove("edge-1")
    assert not nodes.remove("edge-1")


def test_nodes_are_not_known_before_all_of_them_were_listed() -> None:
    nodes = Nodes()
    nodes.update(document("a"))
    assert nodes.all() is None
    assert nodes.replace([document("b"), document("c")])
    assert list(nodes.all() or ()) == ["b", "c"]
    assert not nodes.replace([document("b", beat="later"), document("c")])
    assert nodes.replace([document("c")])
    assert nodes.forget()
    assert not nodes.forget()
    assert nodes.all() is None


def test_a_cluster_without_nodes_is_known() -> None:
    nodes = Nodes()
    nodes.replace([])
    assert nodes.all() == {}
