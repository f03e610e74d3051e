"""The cluster that the kubeconfig names, with a release of the chart on it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from e2e import helm
from e2e.api import Api, connected
from e2e.kubectl import namespace, namespaces_gone
from tests.manifests import small

WORKERS = 4
# Those that take a minute and more, the longest first.
LONG = (
    "test_the_root_as_a_spark_job_alone_and_with_executors",
    "test_sources_flow_again_by_every_way_in",
    "test_sources_that_send_more_than_was_said_get_a_wider_tree",
    "test_another_authority_takes_over_while_data_flow",
    "test_a_tree_rests_and_wakes_beside_another",
    "test_a_tree_that_is_widened_and_narrowed_restarts_nobody_who_stays",
    "test_sources_flow_again_when_all_children_are_replaced",
    "test_a_topology_gives_exact_windows",
)


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> Iterator[None]:
    """Marks the tests of the operator's parts, and orders what `-m` has selected."""
    for item in items:
        if "operator" in item.path.parts and item.get_closest_marker("alone") is None:
            item.add_marker(pytest.mark.parts)
    yield
    items[:] = _in_order(items)


def _in_order(items: list[pytest.Item]) -> list[pytest.Item]:
    """The longest first, then other trees, then the verdicts on definitions, which take a moment each. Each
    worker is given two tests to begin with: the second one is short, since it waits for the first."""
    ordered = sorted(items, key=_turn)
    count = min(WORKERS, sum(_name(item) in LONG for item in ordered))
    longest, others = ordered[:count], ordered[count:]
    short = others[len(others) - count :] if len(others) > 2 * count else []
    begin = [item for pair in zip(longest, short, strict=False) for item in pair]
    return begin + others[: len(others) - count] if begin else ordered


def _name(item: pytest.Item) -> str:
    """Without its parameters."""
    return item.name.partition("[")[0]


def _turn(item: pytest.Item) -> tuple[int, int]:
    if _name(item) in LONG:
        return 0, LONG.index(_name(item))
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
