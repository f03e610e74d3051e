"""An API server for the operator's parts: the cluster of KUBECONFIG, or one without anything behind it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e import apiserver as alone
from e2e import helm
from e2e.operator.spaces import Spaces, whole
from headwater_operator.cluster import Cluster


@pytest.fixture(scope="session")
def apiserver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The kubeconfig of somebody who may do everything. No release is there: its operator would see to the
    topologies of tests too."""
    if given := os.environ.get("KUBECONFIG"):
        helm.uninstall()
        yield Path(given)
        return
    with alone.reached(tmp_path_factory.mktemp("apiserver")) as found:
        yield found


@pytest.fixture(scope="session")
def cluster(apiserver: Path) -> Iterator[Cluster]:
    """The whole of it."""
    with whole(apiserver) as found:
        yield found


@pytest.fixture(scope="module")
def spaces(cluster: Cluster) -> Iterator[Spaces]:
    """Namespaces of a test's own, where both kinds are served; all is removed behind the module."""
    with Spaces(cluster) as found:
        yield found


@pytest.fixture
def space(spaces: Spaces) -> str:
    return spaces.make()
