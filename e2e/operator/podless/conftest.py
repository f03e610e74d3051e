"""Always an API server with nothing behind it, also where there is a cluster: a test says itself what has
become of machines, pods and claims, and defines what is for all who use a cluster."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e import apiserver as alone
from e2e.operator.spaces import whole
from headwater_operator.cluster import Cluster


@pytest.fixture(scope="session")
def apiserver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The kubeconfig of somebody who may do everything."""
    with alone.reached(tmp_path_factory.mktemp("apiserver")) as found:
        yield found


# Also this one: what was made for a session is not made again for another API server.
@pytest.fixture(scope="session")
def cluster(apiserver: Path) -> Iterator[Cluster]:
    with whole(apiserver) as found:
        yield found
