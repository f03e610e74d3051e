"""The nodes of a tree as a cluster has to run them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from headwater.topology.tree import Selector

Role = Literal["child", "intermediate"]


@dataclass(frozen=True, slots=True)
class TreeNode:
    """A child or an intermediate: `parent` is the id of another node, or that of the root."""

    id: str
    layer: int
    number: int
    role: Role
    parent: str
    # Items a second that are planned onto it at most.
    capacity: float
    # Labels of its class, beside those that its layer asks for.
    selector: Selector = ()
    # The one node of the cluster that it is for, by its label kubernetes.io/hostname; None: any that fits.
    host: str | None = None
