"""Of nodes that run, one of each layer at a time is changed."""

from __future__ import annotations

from typing import Any

from headwater_operator.layout import TreeNode
from headwater_operator.rollout import Rolling, in_turn
from tests.operator.views import deployment, observed, pod

A, B, C = (TreeNode(f"factory-l1-{n}", 1, n, "child", "root", 1.0) for n in range(3))
M = TreeNode("factory-l2-0", 2, 0, "intermediate", "root", 1.0)
SECRET: dict[str, Any] = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "factory-l1-0"}}


def turn(*nodes: TreeNode) -> list[dict[str, Any]]:
    return [SECRET, *map(deployment, nodes)]


def ids(found: list[dict[str, Any]]) -> list[str]:
    return [each["metadata"]["name"] for each in found if each["kind"] == "Deployment"]


def test_one_of_each_layer_at_a_time() -> None:
    now, later = in_turn(turn(A, B, M), observed([A, B, C, M]))
    assert (ids(now), later) == ([A.id, M.id], [B.id])
    assert SECRET in now


def test_what_is_new_or_does_not_run_takes_nothing_away() -> None:
    # None of them runs yet.
    assert in_turn(turn(A, B, C), observed([])) == (turn(A, B, C), [])
    # One does not get ready: it is changed at once, and the others wait for it.
    pods = [pod(A.id, ready=False), pod(B.id), pod(C.id)]
    now, later = in_turn(turn(A, B, C), observed([A, B, C], pods))
    assert (ids(now), later) == ([A.id], [B.id, C.id])
    now, later = in_turn(turn(B, C), observed([A, B, C], pods))
    assert (ids(now), later) == ([], [B.id, C.id])


def test_what_gets_on_is_not_stuck_however_long_it_takes() -> None:
    rolling = Rolling(2, 0.0)
    for n in range(100):
        assert rolling.stalled(7.0 * n, frozenset({(f"factory-l1-{n}", 2)})) == 0
    assert rolling.stalled(7.0 * 99 + 600, frozenset()) == 600
    # One that comes and goes has come once.
    assert rolling.stalled(7.0 * 99 + 601, frozenset({("factory-l1-5", 2)})) == 601
    # The next step of the same spec is something new.
    assert rolling.stalled(7.0 * 99 + 602, frozenset({("factory-l1-5", 3)})) == 0
