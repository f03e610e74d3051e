"""Every call to the API server, on a real one."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from e2e.operator.spaces import Spaces, rule
from headwater.errors import PermanentError, RetryableError
from headwater_operator import cluster as module
from headwater_operator import kinds, names
from headwater_operator.cluster import Cluster
from headwater_operator.connection import Connection, configured
from headwater_operator.errors import Forbidden, Gone, Refused


def config_map(space: str, name: str, data: dict[str, str], **metadata: Any) -> dict[str, Any]:
    kind = kinds.CONFIG_MAP
    said = {"apiVersion": kind.api_version, "kind": kind.name}
    return {**said, "metadata": {"name": name, "namespace": space, **metadata}, "data": data}


@pytest.fixture
def own(apiserver: Path) -> Cluster:
    """One that has counted nothing yet."""
    return Cluster(Connection(configured({"KUBECONFIG": str(apiserver)})))


def test_what_is_applied_is_there_and_what_is_no_longer_named_is_dropped(own: Cluster, space: str) -> None:
    own.apply(config_map(space, "x", {"a": "1", "b": "2"}))
    made = own.apply(config_map(space, "x", {"a": "3"}))
    assert made["data"] == {"a": "3"}
    assert own.get(kinds.CONFIG_MAP, space, "x") == made
    assert {each["manager"] for each in made["metadata"]["managedFields"]} == {names.MANAGER}


def test_applied_twice_nothing_changes(own: Cluster, space: str) -> None:
    first = own.apply(config_map(space, "x", {"a": "1"}))
    assert own.apply(config_map(space, "x", {"a": "1"})) == first


def test_what_somebody_else_has_changed_is_put_right(own: Cluster, spaces: Spaces, space: str) -> None:
    own.apply(config_map(space, "x", {"a": "1"}))
    spaces.request("PUT", kinds.CONFIG_MAP.object(space, "x"), config_map(space, "x", {"a": "2"}))
    assert own.apply(config_map(space, "x", {"a": "1"}))["data"] == {"a": "1"}


def test_a_list_is_read_in_pages(own: Cluster, space: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PAGE", 2)
    for n in range(5):
        own.apply(config_map(space, f"x{n}", {}, labels=names.labels("t" if n else "other")))
    before = own.reads
    found = own.list(kinds.CONFIG_MAP, space, names.selector("t"))
    assert [each["metadata"]["name"] for each in found] == ["x1", "x2", "x3", "x4"]
    assert {(each["apiVersion"], each["kind"]) for each in found} == {("v1", "ConfigMap")}
    assert own.reads - before == 2
    everywhere = own.list(kinds.CONFIG_MAP, None, names.selector("t"))
    assert {each["metadata"]["name"] for each in everywhere} >= {"x1", "x2", "x3", "x4"}


def test_reads_and_writes_are_counted(own: Cluster, space: str) -> None:
    own.list(kinds.POD, space)
    own.get(kinds.POD, space, "none")
    own.allows("list", kinds.POD, space)
    assert (own.reads, own.writes) == (3, 0)
    own.apply(config_map(space, "x", {}))
    own.delete(kinds.CONFIG_MAP, space, "x")
    assert (own.reads, own.writes) == (3, 2)
    assert own.connection.calls()["get", "pods", "404"] == 1


def test_an_object_is_deleted_once(own: Cluster, space: str) -> None:
    made = own.apply(config_map(space, "x", {}))
    assert not own.delete(kinds.CONFIG_MAP, space, "x", uid="another")
    assert own.get(kinds.CONFIG_MAP, space, "x") is not None
    assert own.delete(kinds.CONFIG_MAP, space, "x", uid=made["metadata"]["uid"], grace=0)
    assert not own.delete(kinds.CONFIG_MAP, space, "x")
    assert own.get(kinds.CONFIG_MAP, space, "x") is None


def test_a_status_is_what_was_set_last(own: Cluster, spaces: Spaces, space: str) -> None:
    topology = spaces.topology(space)
    generation = topology["metadata"]["generation"]
    assert own.set_status(kinds.TOPOLOGY, space, "small", {"observedGeneration": 1, "nodes": 3})
    assert own.set_status(kinds.TOPOLOGY, space, "small", {"observedGeneration": 2})
    found = own.get(kinds.TOPOLOGY, space, "small")
    assert found is not None
    assert found["status"] == {"observedGeneration": 2}
    assert found["metadata"]["generation"] == generation
    assert not own.set_status(kinds.TOPOLOGY, space, "none", {"observedGeneration": 1})
    assert own.get(kinds.TOPOLOGY, space, "none") is None


def test_the_same_event_again_raises_its_count(own: Cluster, spaces: Spaces, space: str) -> None:
    topology = spaces.topology(space)
    for _ in range(3):
        own.event(topology, "NoPlan", "no tree can be planned", warning=True)
    own.event(topology, "Planned", "3 layers")
    found = {each["reason"]: each for each in own.list(kinds.EVENT, space)}
    assert set(found) == {"NoPlan", "Planned"}
    assert found["NoPlan"]["count"] == 3
    assert found["NoPlan"]["type"] == "Warning"
    assert found["NoPlan"]["involvedObject"]["uid"] == topology["metadata"]["uid"]
    assert found["Planned"]["type"] == "Normal"


def test_an_event_is_counted_on_by_the_next_process(own: Cluster, spaces: Spaces, space: str) -> None:
    topology = spaces.topology(space)
    own.event(topology, "Planned", "3 layers")
    Cluster(own.connection).event(topology, "Planned", "3 layers")
    assert [each["count"] for each in own.list(kinds.EVENT, space)] == [2]


def test_an_event_in_a_loop_is_written_seldom(spaces: Spaces, space: str, own: Cluster) -> None:
    now = [1_000_000_000.0]
    timed = Cluster(own.connection, clock=lambda: now[0])
    topology = spaces.topology(space)
    before = own.writes
    for _ in range(100):
        timed.event(topology, "Failing", "x" * 5000, warning=True)
        now[0] += 1.0
    assert own.writes - before == module.EAGER + 1
    [found] = own.list(kinds.EVENT, space)
    assert found["count"] == 70
    assert len(found["message"]) == module.MESSAGE_LIMIT


def test_an_event_that_cannot_be_told_does_no_harm(
    own: Cluster, spaces: Spaces, space: str, caplog: pytest.LogCaptureFixture
) -> None:
    topology = spaces.topology(space)
    topology["metadata"]["namespace"] = "there-is-none"
    own.event(topology, "Planned", "3 layers")
    assert "an event could not be told" in caplog.text


def test_kinds_are_served_or_not(own: Cluster, spaces: Spaces) -> None:
    assert own.serves(kinds.TOPOLOGY)
    assert own.serves(kinds.POD)
    assert not own.serves(kinds.Kind("no.such", "v1", "Thing", "things"))
    assert not own.serves(kinds.Kind("apps", "v1", "Thing", "things"))


def test_what_is_wrong_is_told_by_the_kind_of_error(own: Cluster, space: str) -> None:
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "x", "namespace": space}}
    with pytest.raises(Refused, match="422") as refused:
        own.apply({**service, "spec": {"ports": [{"port": 70000}]}})
    assert isinstance(refused.value, PermanentError)
    with pytest.raises(Gone) as gone:
        own.apply(config_map("there-is-none", "x", {}))
    assert isinstance(gone.value, RetryableError)


def test_a_namespace_that_goes_is_no_matter_of_rights(own: Cluster, spaces: Spaces, space: str) -> None:
    own.apply(config_map(space, "x", {}, finalizers=["test/stay"]))
    spaces.request("DELETE", f"/api/v1/namespaces/{space}")
    with pytest.raises(Gone, match="403"):
        own.apply(config_map(space, "y", {}))
    own.apply(config_map(space, "x", {}))


def test_a_right_that_is_missing_is_named(spaces: Spaces, space: str, tmp_path: Path) -> None:
    token = spaces.account(space, [rule(kinds.POD, "list")])
    kubeconfig = spaces.kubeconfig(tmp_path / "kubeconfig", token)
    limited = Cluster(Connection(configured({"KUBECONFIG": str(kubeconfig)})))
    assert limited.list(kinds.POD, space) == []
    with pytest.raises(Forbidden, match='cannot list resource "secrets"'):
        limited.list(kinds.SECRET, space)
    assert limited.allows("list", kinds.POD, space)
    assert not limited.allows("list", kinds.POD)
    assert not limited.allows("watch", kinds.POD, space)
    assert not limited.allows("patch", kinds.TOPOLOGY, space, "status")


def test_it_is_called_from_many_threads(own: Cluster, space: str) -> None:
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda n: own.apply(config_map(space, f"x{n}", {"n": str(n)})), range(40)))
    found = own.list(kinds.CONFIG_MAP, space)
    assert {each["data"].get("n") for each in found if "data" in each} >= {str(n) for n in range(40)}
    assert own.writes == 40


def test_without_a_lease_nothing_is_written(apiserver: Path, space: str) -> None:
    leading = [True]
    connection = Connection(configured({"KUBECONFIG": str(apiserver)}), leading=lambda: leading[0], pauses=())
    held = Cluster(connection)
    held.apply(config_map(space, "x", {"a": "1"}))
    leading[0] = False
    with pytest.raises(RetryableError, match="another process may lead"):
        held.apply(config_map(space, "x", {"a": "2"}))
    found = held.get(kinds.CONFIG_MAP, space, "x")
    assert found is not None
    assert found["data"] == {"a": "1"}
