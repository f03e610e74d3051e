"""Topologies on a cluster, from the devices to the sink: every window is what one computer would compute."""

from __future__ import annotations

from e2e.api import Api
from e2e.images import NODE
from e2e.kubectl import namespace
from e2e.trees import Fleet, planted, topology


def test_a_topology_gives_exact_windows(operated: Api) -> None:
    with namespace("trees-exact") as space, planted(space, topology("small", 12)) as tree:
        tree.settled()
        assert tree.status["widths"] == "6 3 2 1"
        sending = tree.send(Fleet(12), NODE)
        sending.done()
        assert tree.assert_exact() > 50
        tree.until(lambda: tree.status.get("sources") == 12, "the status does not say who sends", 60)
