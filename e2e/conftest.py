"""The cluster that the kubeconfig names, with a release of the chart on it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from e2e import helm
from e2e.api import Api, connected
from e2e.kubectl import namespace, namespaces_gone
from tests.manifests import small

# What takes minutes, and what takes half of one: each of four workers is given two tests to begin with.
LONG = (
    "test_sources_that_send_more_than_was_said_get_a_wider_tree",
    "test_another_authority_takes_over_while_data_flow",
    "test_the_root_as_a_spark_job_alone_and_with_executors",
    "test_a_child_on_each_machine_at_its_port",
)
BRIEF = (
    "test_by_ports_of_machines",
    "test_by_balancers",
    "test_a_spec_that_cannot_be_had_leaves_what_runs",
    "test_paused_nothing_is_changed",
)
FIRST = [name for pair in zip(LONG, BRIEF, strict=True) for name in pair]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Parts of the operator are tried where no other one is. What takes long is begun first."""
    items.sort(key=_turn)
    for item in items:
        if "operator" in item.path.parts and item.get_closest_marker("alone") is None:
            item.add_marker(pytest.mark.parts)


def _turn(item: pytest.Item) -> tuple[int, int]:
    """Trees grow before definitions are tried, which take a moment each."""
    if item.name in FIRST:
        return 0, FIRST.index(item.name)
    if item.get_closest_marker("alone") is not None:
        return 2, 0
    order = {"test_trees": 1, "test_definitions": 3}
    return order.get(item.path.stem, 2), 0


@pytest.fixture(scope="session")
def cluster() -> Iterator[Api]:
    """As it is. Fails where there is none: `make cluster` gives one. Afterwards too."""
    yield connected()
    namespaces_gone()


@pytest.fixture(scope="module")
def operated(cluster: Api) -> Api:
    """With the release of this checkout, whose operator serves all namespaces."""
    helm.install(helm.CHART, "--set-json", "watchNamespaces=[]", *helm.WAIT)
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
