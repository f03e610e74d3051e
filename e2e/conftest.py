"""The cluster that the kubeconfig names, with a release of the chart on it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from e2e import helm
from e2e.api import Api, connected
from e2e.kubectl import namespace, namespaces_gone
from tests.manifests import small

# By modules.
LONG = ("test_spark", "test_certificates", "test_trees")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Parts of the operator are tried where no other one is. What takes long is begun first."""
    items.sort(key=_turn)
    for item in items:
        if "operator" in item.path.parts and item.get_closest_marker("alone") is None:
            item.add_marker(pytest.mark.parts)


def _turn(item: pytest.Item) -> int:
    module = item.path.stem
    if module in LONG or item.get_closest_marker("alone") is not None:
        return 0
    return 2 if module == "test_definitions" else 1


@pytest.fixture(scope="session")
def cluster() -> Iterator[Api]:
    """As it is. Fails where there is none: `make cluster` gives one. Afterwards too."""
    yield connected()
    namespaces_gone()


@pytest.fixture(scope="module")
def operated(cluster: Api) -> Api:
    """With the release of this checkout, whose operator serves all namespaces."""
    helm.install(helm.CHART, "--set-json", "watchNamespaces=[]", "--wait", "--timeout", "120s")
    return cluster


@pytest.fixture
def space(operated: Api, request: pytest.FixtureRequest) -> Iterator[str]:
    """A namespace of a test's own, called after it."""
    name = request.node.name.removeprefix("test_").replace("_", "-")[:50].rstrip("-")
    with namespace(name) as found:
        yield found


@pytest.fixture(scope="module")
def api(operated: Api) -> Api:
    """Once it serves the definitions."""
    operated.until(lambda: operated.judge(small()))
    return operated
