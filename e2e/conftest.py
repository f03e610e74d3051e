"""The cluster that the kubeconfig names, with a release of the chart on it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from kubernetes import client, config

from e2e import helm
from e2e.api import Api
from tests.manifests import small


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Parts of the operator are tried where no other one is."""
    for item in items:
        if item.path.parent.name == "operator":
            item.add_marker(pytest.mark.alone)


@pytest.fixture(scope="session")
def cluster() -> Iterator[Api]:
    """As it is. Fails where there is none: `make cluster` gives one."""
    config.load_kube_config()  # type: ignore[no-untyped-call]  # the client's own types
    with client.ApiClient() as connection:
        yield Api(connection)


@pytest.fixture(scope="module")
def operated(cluster: Api) -> Api:
    """With the release of this checkout, whose operator serves all namespaces."""
    helm.install(helm.CHART, "--set-json", "watchNamespaces=[]", "--wait", "--timeout", "120s")
    return cluster


@pytest.fixture(scope="module")
def api(cluster: Api) -> Api:
    """With the release of this checkout."""
    helm.install()
    cluster.until(lambda: cluster.judge(small()))
    return cluster
