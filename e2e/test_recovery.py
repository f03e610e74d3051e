"""Sources flow again when the tree is replaced under them, and none of their events is late."""

from __future__ import annotations

import pytest

from e2e import recovery
from e2e.api import Api

IDLE_AFTER = "30s"


@pytest.mark.promise("sources flow again when all children behind their address are replaced")
def test_sources_flow_again_when_all_children_are_replaced(operated: Api) -> None:
    outcome = recovery.run("nodePort", 12, ("all", "renamed"), 1, IDLE_AFTER)
    assert outcome.windows > 0
    assert outcome.late == 0


@pytest.mark.parametrize("expose", ["clusterIP", "loadBalancer", "portForward"])
@pytest.mark.parametrize("sources", recovery.SOURCES)
def test_sources_flow_again_by_every_way_in(operated: Api, expose: str, sources: int) -> None:
    outcome = recovery.run(expose, sources, recovery.REPLACE, 1, IDLE_AFTER)
    assert outcome.windows > 0
    assert outcome.late == 0


# It takes the port of machines that another test takes too.
@pytest.mark.alone
@pytest.mark.parametrize("sources", recovery.SOURCES)
def test_sources_flow_again_by_ports_of_machines(operated: Api, sources: int) -> None:
    outcome = recovery.run("hostPort", sources, recovery.REPLACE, 1, IDLE_AFTER)
    assert outcome.windows > 0
    assert outcome.late == 0
