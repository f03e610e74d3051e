"""Nodes end when nobody sends to them, and a tree goes to rest from the edge upwards."""

from __future__ import annotations

from headwater_operator.layout import TreeNode
from headwater_operator.leaving import at_rest, drained, held_up
from tests.operator.views import member, observed, pod, root

A = TreeNode("factory-l1-0", 1, 0, "child", "root", 1.0)
B = TreeNode("factory-l1-1", 1, 1, "child", "root", 1.0)
M = TreeNode("factory-l2-0", 2, 0, "intermediate", "root", 1.0)


def test_a_node_is_drained_when_the_root_says_so() -> None:
    assert not drained(A, observed([A])), "the root says nothing"
    assert not drained(A, observed([A], answer=root(member(A.id, planned=True))))
    assert not drained(A, observed([A], answer=root(member(A.id, planned=False, sources=1))))
    assert drained(A, observed([A], answer=root(member(A.id, planned=False))))
    # It has said that it ends, or was never there.
    assert drained(A, observed([A], answer=root(member(A.id, planned=False, sources=3, left=True))))
    assert drained(A, observed([A], answer=root()))


def test_a_parent_is_drained_when_those_below_have_turned() -> None:
    below = member(A.id, parent=M.id)
    assert not drained(M, observed([A, M], answer=root(below, member(M.id, planned=False))))
    turned = member(A.id, parent="root")
    assert drained(M, observed([A, M], answer=root(turned, member(M.id, planned=False))))
    # One that ends itself does not hold it up: it sends what it has when it ends.
    going = member(B.id, parent=M.id, planned=False)
    assert drained(M, observed([A, B, M], answer=root(turned, going, member(M.id, planned=False))))


def test_whoever_is_not_registered_holds_up_the_others() -> None:
    assert held_up([A, B], observed([A, B], answer=root(member(A.id)))) == [B]
    assert held_up([A, B], observed([A, B], answer=root(member(A.id), member(B.id, left=True)))) == [B]
    assert held_up([A], observed([A])) == [A]


def test_a_tree_goes_to_rest_layer_by_layer() -> None:
    assert at_rest([A, B, M], observed([A, B, M])) == ([M], 1)
    # The Deployments of the children are gone, a pod of theirs still drains.
    assert at_rest([M], observed([M], [pod(A.id), pod(M.id, role="intermediate")])) == ([M], 1)
    assert at_rest([M], observed([M])) == ([], 1)
    assert at_rest([], observed([], [pod(M.id, role="intermediate")])) == ([], 1)
    assert at_rest([], observed([], [pod("factory-root", role="root")])) == ([], 0)


def test_who_is_on_a_machine_that_is_lost_holds_up_nobody() -> None:
    seen = observed([M], [pod(A.id), pod(M.id, role="intermediate")])
    assert at_rest([M], seen, {A.id}) == ([], 1)
    # Whoever else is of its layer does.
    both = observed([M], [pod(A.id), pod(B.id)])
    assert at_rest([M], both, {A.id}) == ([M], 1)
