"""An operator that is there before the definitions of its kinds are."""

from __future__ import annotations

from pathlib import Path

import pytest

from e2e.operator.running import NODES, Operator, rights
from e2e.operator.spaces import Spaces
from headwater_operator import kinds
from headwater_operator.cluster import Cluster


# Whoever else is there needs them.
@pytest.mark.alone
def test_it_waits_for_its_definitions(cluster: Cluster, tmp_path: Path) -> None:
    spaces = Spaces(cluster)
    spaces.undefine()
    space = spaces.make()
    try:
        token = spaces.account(space, rights(), NODES)
        kubeconfig = spaces.kubeconfig(tmp_path / "kubeconfig", token)
        with Operator(tmp_path, kubeconfig, space) as operator:
            missing = "aggregationtopologies.headwater.dev: is not served by the API server"
            operator.until(
                lambda: any(missing in each["problem"] for each in operator.said("watches are begun anew"))
            )
            assert operator.get("/healthz")[0] == 200
            assert operator.get("/readyz")[0] == 503
            spaces.define()
            spaces.topology(space, "a")
            operator.called(f"{space}/a")
            operator.until(lambda: operator.get("/readyz")[0] == 200)
            # They go again, and it goes on waiting.
            assert cluster.delete(kinds.TOPOLOGY, space, "a")
            spaces.undefine()
            operator.until(lambda: len(operator.said("watches are begun anew")) > 1)
            assert operator.runs
    finally:
        spaces.clear()
