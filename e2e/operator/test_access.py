"""What may be watched, by the rights that an account has on a real API server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.operator.running import NODES, rights
from e2e.operator.spaces import Spaces
from headwater.errors import Invalid
from headwater_operator import kinds
from headwater_operator.access import Right, review
from headwater_operator.cluster import Cluster
from headwater_operator.connection import Connection, configured


@pytest.fixture
def accounts(spaces: Spaces, tmp_path: Path) -> Iterator[Accounts]:
    found = Accounts(spaces, tmp_path)
    yield found
    found.close()


class Accounts:
    def __init__(self, spaces: Spaces, folder: Path) -> None:
        self._spaces, self._folder = spaces, folder
        self._made: list[Connection] = []

    def called(self, token: str) -> Cluster:
        """The cluster as the owner of a token sees it."""
        kubeconfig = self._spaces.kubeconfig(self._folder / f"kubeconfig-{len(self._made)}", token)
        self._made.append(Connection(configured({"KUBECONFIG": str(kubeconfig)})))
        return Cluster(self._made[-1])

    def close(self) -> None:
        for connection in self._made:
            connection.close()


def test_with_all_rights_everything_is_watched(spaces: Spaces, space: str, accounts: Accounts) -> None:
    own = accounts.called(spaces.account(space, rights(), NODES))
    found = review(own, [space])
    assert found.namespaces == (space,)
    assert found.nodes
    assert found.missing == frozenset()
    assert own.writes == 0


def test_nodes_are_optional(spaces: Spaces, space: str, accounts: Accounts) -> None:
    found = review(accounts.called(spaces.account(space, rights())), [space])
    assert found.namespaces == (space,)
    assert not found.nodes
    assert found.missing == {Right("list", "nodes", None), Right("watch", "nodes", None)}


def test_a_right_to_work_that_is_missing_stops_no_watch(
    spaces: Spaces, space: str, accounts: Accounts
) -> None:
    found = review(accounts.called(spaces.account(space, rights(kinds.SECRET), NODES)), [space])
    assert found.namespaces == (space,)
    assert {right.resource for right in found.missing} == {"secrets"}
    assert {right.verb for right in found.missing} == {"get", "list", "create", "patch", "delete"}


def test_a_namespace_without_rights_is_left_out(spaces: Spaces, space: str, accounts: Accounts) -> None:
    other = spaces.make()
    found = review(accounts.called(spaces.account(space, rights(), NODES)), [space, other])
    assert found.namespaces == (space,)
    assert Right("watch", "pods", other) in found.missing


def test_with_nothing_to_watch_each_right_is_named_with_its_remedy(
    spaces: Spaces, space: str, accounts: Accounts
) -> None:
    own = accounts.called(spaces.account(space, rights(kinds.POD)))
    with pytest.raises(Invalid) as refused:
        review(own, [space])
    told = [str(problem) for problem in refused.value.problems]
    assert [each.split(":")[0] for each in told] == [
        f"list pods in namespace {space}",
        f"watch pods in namespace {space}",
    ]
    assert "bind a Role" in told[0]
    # Everywhere it may watch nothing.
    with pytest.raises(Invalid, match=r"list deployments\.apps everywhere"):
        review(own, [])


def test_everywhere_is_asked_for_once(spaces: Spaces, space: str, accounts: Accounts) -> None:
    own = accounts.called(spaces.account(space, [], [*rights(), *NODES]))
    assert review(own, []).namespaces is None


def test_without_the_definitions_it_says_so(apiserver: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kinds, "TOPOLOGY", kinds.Kind("headwater.dev", "v9", "AggregationTopology", "none"))
    connection = Connection(configured({"KUBECONFIG": str(apiserver)}))
    with pytest.raises(Invalid, match=r"none\.headwater\.dev: is not served.*crds\.install=true"):
        review(Cluster(connection), [])
    connection.close()
