"""Looks at a topology, on a real API server, while machines, rights and names are missing."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from e2e.kubectl import kubectl
from e2e.operator.podless.plant import POD, Plant
from e2e.operator.running import rights
from e2e.operator.spaces import DEFINITIONS, SERVED, Rules, Spaces, whole
from headwater.topology import API_VERSION, QUERY_KIND
from headwater_operator import kinds, lookout, names
from headwater_operator.cluster import Cluster
from headwater_operator.kinds import Kind
from headwater_wire.v1 import control_pb2 as pb
from tests import packages

# A child on each machine, and two of them are needed.
EACH: dict[str, Any] = {
    "spec__sources__0__expected": 10,
    "spec__sources__0__rate": 10,
    "spec__node": {"ingestLimit": 60, "margin": 0},
    "spec__placement": {"child": {"mode": "perNode"}},
}


@pytest.fixture
def plant(cluster: Cluster, spaces: Spaces, space: str) -> Plant:
    return Plant(cluster, spaces, space)


def _peopled(plant: Plant) -> None:
    """The root and a child on one machine, the other child on the other."""
    plant.root("other")
    plant.ready(POD)
    plant.reached()
    plant.child("small-l1-0", "one")
    plant.child("small-l1-1", "other")


def _names(plant: Plant, kind: Kind) -> set[str]:
    found = plant.spaces.cluster.list(kind, plant.space, names.selector("small"))
    return {each["metadata"]["name"] for each in found if "deletionTimestamp" not in each["metadata"]}


def test_without_a_plan_any_more_what_runs_is_seen_to(plant: Plant) -> None:
    document = plant.topology(**EACH)
    plant.look()
    children = {"small-l1-0", "small-l1-1"}
    assert _names(plant, kinds.DEPLOYMENT) == children
    plant.good(document)
    _peopled(plant)
    with plant.answering("small-l1-0", "small-l1-1") as root:
        plant.look()
        assert root.told[-1] == {"small-l1-0": 60.0, "small-l1-1": 60.0}
        plant.machines(one=False, other=True)
        degraded = plant.look()
        assert (degraded["reason"], plant.condition("Planned")["reason"]) == ("NoPlan", "NoPlan")
        assert degraded["message"].startswith("generation 1 runs on: ")
        assert root.told[-1] == {"small-l1-0": 0.0, "small-l1-1": 60.0}
        assert plant.condition("Ready")["reason"] == "SourcesNotAssigned"
        # Gone for good, it is the same.
        plant.machines(other=True)
        assert plant.look()["reason"] == "NoPlan"
        assert root.told[-1] == {"small-l1-0": 0.0, "small-l1-1": 60.0}
        assert _names(plant, kinds.DEPLOYMENT) == children
        # It is made elsewhere, and reads as much as it may there.
        plant.cluster.delete(kinds.POD, plant.space, "small-l1-0-x", grace=0)
        plant.child("small-l1-0", "other")
        assert plant.look()["reason"] == "NoPlan"
        assert root.told[-1] == {"small-l1-0": 60.0, "small-l1-1": 60.0}
        assert plant.condition("Ready")["status"] == "True"
        plant.machines(one=False, other=False)
        assert plant.look()["reason"] == "RootNodeLost"


def test_a_function_of_a_package_is_known_where_it_is_installed(
    plant: Plant, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    window = {"type": "tumbling", "length": "1s"}
    asked = {**EACH, "spec__queries": [{"id": "q", "aggregate": ["function:rms"], "window": window}]}
    plant.topology(**asked)
    plant.look()
    planned = plant.condition("Planned")
    assert planned["reason"] == "InvalidSpec"
    assert "'rms' is no function of an installed package; install the package" in planned["message"]
    packages.install(packages.EXAMPLES / "functions", tmp_path / "site")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    # As by another process, which finds it.
    again = Plant(plant.cluster, plant.spaces, plant.space)
    again.look()
    assert again.condition("Planned")["reason"] == "Planned"
    _peopled(again)
    with again.answering("small-l1-0", "small-l1-1") as root:
        _query(again, "object", window, aggregate="function:rms")
        again.look()
        assert _accepted(again, "object") == "Accepted"
        assert json.loads(root.queries["q"])["aggregate"] == "function:rms"


def _columns(apiserver: Path, plant: Plant, *more: str) -> dict[str, str]:
    """What `kubectl get aggtopo` prints of the topology, by column."""
    at = (f"--kubeconfig={apiserver}", "--namespace", plant.space)
    head, row = kubectl(*at, "get", "aggtopo", "small", *more).splitlines()
    starts = [found.start() for found in re.finditer(r"\S+", head)]
    ends = [*starts[1:], max(len(head), len(row))]
    return {head[a:b].strip(): row[a:b].strip() for a, b in zip(starts, ends, strict=True)}


def test_the_columns_show_that_windows_wait_and_that_the_spec_is_not_what_runs(
    plant: Plant, apiserver: Path
) -> None:
    document = plant.topology(**EACH)
    plant.look()
    plant.good(document)
    _peopled(plant)
    with plant.answering("small-l1-0", "small-l1-1") as root:
        second = 1_000_000
        root.more = pb.StatusReply(
            started=True, live=10, watermark=0, largest=second, now=100 * second, still=second
        )
        plant.look()
        shown = _columns(apiserver, plant)
        # No controller ever says that it is through.
        assert (shown["READY"], shown["LAG"], shown["REASON"]) == ("True", "1s", "RollingOut")
        assert not {"ROOT", "PLANNED", "DEGRADED", "VERSION"} & shown.keys()
        # Nothing comes any more, and the largest event stays where it is.
        hold = pb.Hold(reason=pb.Hold.REASON_SILENT, child="small-l1-0", message="it sends nothing")
        hold.source.name = "press"
        root.more = pb.StatusReply(
            started=True, live=10, watermark=0, largest=second, now=200 * second, still=100 * second
        )
        root.more.holds.append(hold)
        degraded = plant.look(10.0)
        assert "source press (child small-l1-0): silent" in degraded["message"]
        shown = _columns(apiserver, plant, "--output=wide")
        print(f"\n{shown}")
        assert (shown["LAG"], shown["REASON"]) == ("100s", "WatermarkStalled")
        assert (shown["PLANNED"], shown["DEGRADED"], shown["ROOT"]) == ("True", "True", "Ready")
        assert shown["VERSION"]
        # More than two nodes would be needed for them.
        plant.topology(**{**EACH, "spec__sources__0__expected": 1_000, "spec__limits": {"maxNodes": 2}})
        plant.look(10.0)
        shown = _columns(apiserver, plant)
        assert (shown["READY"], shown["REASON"]) == ("False", "NoPlan")


def test_what_the_root_does_not_take_is_offered_again(plant: Plant) -> None:
    plant.topology(**EACH)
    plant.look()
    _peopled(plant)
    with plant.answering("small-l1-0", "small-l1-1") as root:
        root.lacks = {"wanted"}
        _query(plant, "wanted", {"type": "tumbling", "length": "1s"})
        assert plant.look()["reason"] == "QueriesRefused"
        assert _accepted(plant, "wanted") == "Refused"
        # With its next life it has what it lacked: nothing else has changed.
        root.lacks = set()
        plant.look()
        assert plant.look()["reason"] == "AsPlanned"
        assert _accepted(plant, "wanted") == "Accepted"
        often = len(root.told)
        plant.look()
        assert len(root.told) == often, "it has taken everything"


def test_a_query_for_which_there_is_no_plan_fails_alone(plant: Plant) -> None:
    """One that is computed at the root, which takes less than all events."""
    plant.topology(**EACH)
    plant.look()
    _peopled(plant)
    with plant.answering("small-l1-0", "small-l1-1") as root:
        plant.look()
        own = set(root.queries)
        _query(plant, "light", {"type": "tumbling", "length": "1s"})
        plant.look()
        assert _accepted(plant, "light") == "Accepted"
        _query(plant, "heavy", {"type": "tumbling", "count": 100})
        assert plant.look()["reason"] == "QueriesRefused"
        assert plant.condition("Planned")["reason"] == "Planned"
        assert (_accepted(plant, "heavy"), _accepted(plant, "light")) == ("Invalid", "Accepted")
        assert set(root.queries) == own | {"light"}
        # One that was light goes on as it was; and another spec is not held up.
        _query(plant, "light", {"type": "tumbling", "count": 100})
        plant.topology(**{**EACH, "spec__sources__0__rate": 11})
        plant.look()
        assert plant.condition("Planned")["observedGeneration"] == 2
        assert plant.condition("Planned")["reason"] == "Planned"
        assert _accepted(plant, "light") == "Invalid"
        _query(plant, "more", {"type": "tumbling", "length": "2s"})
        plant.look()
        assert _accepted(plant, "more") == "Accepted", "it needs no event at the root"
        assert json.loads(root.queries["light"])["window"] == {"type": "tumbling", "length": "1s"}


def test_a_query_for_which_there_is_no_plan_holds_up_no_beginning(plant: Plant) -> None:
    plant.topology(**EACH)
    _query(plant, "heavy", {"type": "tumbling", "count": 100})
    assert plant.look()["reason"] == "QueriesRefused"
    assert _names(plant, kinds.DEPLOYMENT) == {"small-l1-0", "small-l1-1"}
    assert _accepted(plant, "heavy") == "Invalid"


def _query(plant: Plant, name: str, window: dict[str, Any], aggregate: str = "sum") -> None:
    plant.spaces.cluster.apply(
        {
            "apiVersion": API_VERSION,
            "kind": QUERY_KIND,
            "metadata": {"name": name, "namespace": plant.space},
            "spec": {"topologyRef": "small", "aggregate": aggregate, "window": window},
        }
    )


def _accepted(plant: Plant, query: str) -> str:
    found = plant.cluster.get(kinds.QUERY, plant.space, query)
    assert found is not None
    reason: str = found["status"]["conditions"][0]["reason"]
    return reason


def test_a_tree_comes_to_rest_although_a_machine_is_lost(plant: Plant) -> None:
    plant.topology(**EACH)
    plant.look()
    plant.root("other")
    for number, machine in enumerate(("one", "other")):
        plant.child(f"small-l1-{number}", machine)
    plant.machines(one=False, other=True)
    plant.topology(**EACH, spec__suspend=True)
    plant.look()
    assert not _names(plant, kinds.DEPLOYMENT)
    for number in range(2):
        plant.cluster.delete(kinds.POD, plant.space, f"small-l1-{number}-x")
    plant.look()
    assert _replicas(plant) == 1, "one of them is on a machine that is there, and may still drain"
    plant.cluster.delete(kinds.POD, plant.space, "small-l1-1-x", grace=0)
    plant.look()
    assert _replicas(plant) == 0
    plant.cluster.delete(kinds.POD, plant.space, POD, grace=0)
    plant.look()
    assert plant.condition("Progressing")["reason"] == "Suspended"
    assert "small-l1-0" in plant.condition("Progressing")["message"]


def _replicas(plant: Plant) -> int:
    found = plant.cluster.get(kinds.STATEFUL_SET, plant.space, "small-root")
    assert found is not None
    replicas: int = found["spec"]["replicas"]
    return replicas


def test_what_is_kept_is_not_written_over_that_of_others(plant: Plant) -> None:
    path = kinds.CONFIG_MAP.collection(plant.space)
    theirs = plant.spaces.post(path, {"metadata": {"name": "small-kept"}, "data": {"a": "b"}})
    plant.topology()
    degraded = plant.look()
    assert (degraded["reason"], "small-kept" in degraded["message"]) == ("NameTaken", True)
    assert plant.cluster.get(kinds.CONFIG_MAP, plant.space, "small-kept") == theirs


def test_nothing_is_written_where_nothing_has_changed(plant: Plant) -> None:
    """Also where sources send more than was said, by factors that have no short binary form."""
    document = plant.topology(spec__sources__0__expected=10, spec__sources__0__rate=10)
    plant.good(document, factor=1.2)
    for _ in range(2):
        plant.look()
    before = plant.cluster.writes
    plant.look()
    assert plant.cluster.writes == before


@contextmanager
def _limited(spaces: Spaces, space: str, folder: Path, rules: Rules) -> Iterator[Plant]:
    """Looked at by somebody who may do so much, in that namespace alone."""
    kubeconfig = spaces.kubeconfig(folder / "kubeconfig", spaces.account(space, rules))
    with whole(kubeconfig) as cluster:
        yield Plant(cluster, spaces, space)


def test_without_the_right_to_give_rights_all_but_executors_is_there(
    spaces: Spaces, space: str, tmp_path: Path
) -> None:
    given = rights(kinds.SERVICE_ACCOUNT, kinds.ROLE, kinds.ROLE_BINDING)
    asked = {"engine": "spark", "spark": {"executors": 2}, "storage": {"claim": "shared"}}
    with _limited(spaces, space, tmp_path, given) as plant:
        plant.topology(spec__root=asked)
        degraded = plant.look()
        assert degraded["reason"] == "ApplyFailed"
        assert "serviceaccounts" in degraded["message"]
        assert _names(plant, kinds.DEPLOYMENT)


@contextmanager
def _monitors(spaces: Spaces) -> Iterator[None]:
    """With the kinds of the Prometheus operator, as far as an API server has to know them."""
    made = []
    for kind in lookout.MONITORS:
        schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        version = {
            "name": kind.version,
            "served": True,
            "storage": True,
            "schema": {"openAPIV3Schema": schema},
        }
        called = {"kind": kind.name, "plural": kind.plural, "singular": kind.name.lower()}
        name = f"{kind.plural}.{kind.group}"
        spec = {"group": kind.group, "scope": "Namespaced", "names": called, "versions": [version]}
        spaces.post(DEFINITIONS, {"metadata": {"name": name}, "spec": spec})
        made.append(name)
    try:
        _until(spaces, served=True)
        yield
    finally:
        for name in made:
            spaces.request("DELETE", f"{DEFINITIONS}/{name}")
        _until(spaces, served=False)


def _until(spaces: Spaces, *, served: bool) -> None:
    end = time.monotonic() + SERVED
    while not all(spaces.cluster.serves(kind) == served for kind in lookout.MONITORS):
        assert time.monotonic() < end
        time.sleep(0.1)


def test_monitors_are_made_in_the_one_namespace_that_is_served_and_may_go(
    spaces: Spaces, space: str, tmp_path: Path
) -> None:
    with _limited(spaces, space, tmp_path, rights()) as plant:
        plant.topology()
        with _monitors(spaces):
            plant.look()
            for kind in lookout.MONITORS:
                assert _names(plant, kind), kind.name
        # It is not looked after again for minutes, and stops nothing.
        plant.cluster.delete(kinds.DEPLOYMENT, space, "small-l1-0")
        plant.look()
        plant.look()
        assert _names(plant, kinds.DEPLOYMENT) == {"small-l1-0"}
