"""Nodes on their way out: when one may be deleted, and in which order a whole tree goes to rest."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence

from headwater_operator import names
from headwater_operator.layout import TreeNode
from headwater_operator.observation import Observed


def held_up(nodes: Iterable[TreeNode], observed: Observed) -> list[TreeNode]:
    """Those that are not registered yet: as long as there are some, nobody is told to leave."""
    members = observed.members
    return [node for node in nodes if node.id not in members]


def drained(node: TreeNode, observed: Observed) -> bool:
    """Whether nobody sends to a node any more, as the root says: it has no source, and is nobody's parent."""
    if observed.root is None:
        return False
    member = observed.members.get(node.id)
    if member is None:
        # It never was there, or has ended by itself.
        return True
    if member.planned or member.sources:
        return False
    below = (other for other in observed.members.values() if other.planned and other.name != node.id)
    # A root that has just started has not heard from everybody yet.
    return not any(other.parent in ("", node.id) for other in below)


def at_rest(
    running: Sequence[TreeNode], observed: Observed, absent: Container[str] = ()
) -> tuple[list[TreeNode], int]:
    """The nodes that stay for now, and how many pods the root has, on the way to none: layer by layer from
    the edge, so that what a node still holds its parent takes."""
    layers = {node.layer for node in running}
    # A pod that still drains holds up the layer above it; one on a machine that is lost never says that it is
    # through, and has nothing that its sources do not have.
    layers |= {
        layer
        for id, pods in observed.pods.items()
        if pods and id not in absent and (layer := names.layer_of(id)) is not None
    }
    lowest = min(layers, default=None)
    if lowest is None:
        return [], 0
    return [node for node in running if node.layer > lowest], 1
