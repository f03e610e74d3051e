"""A root whose machine is lost, on a real API server: when its pod is taken away by force, and when not."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import grpc
import pytest

from e2e.operator.spaces import Spaces
from headwater_operator import kinds, names
from headwater_operator.cluster import Cluster
from headwater_operator.failover import GRACE
from headwater_operator.metrics import Metrics
from headwater_operator.nodes import Nodes
from headwater_operator.reconciling import Reconciler
from headwater_operator.settings import Settings
from headwater_wire.v1 import control_pb2 as pb
from headwater_wire.v1 import control_pb2_grpc

POD = names.root_pod("small")


# Of this machine, and nobody else's.
ADDRESS = "127.0.0.77"


class _Root(control_pb2_grpc.ControlServicer):
    def Status(self, request: pb.StatusRequest, context: Any) -> pb.StatusReply:  # noqa: N802 - the name of the .proto file
        return pb.StatusReply(topology="small")


class Plant:
    """A topology that is looked at when the test says so, on machines and at times that it makes up. Nothing
    is behind the API server: what a StatefulSet and a kubelet would do, is done here."""

    def __init__(self, cluster: Cluster, spaces: Spaces, space: str) -> None:
        self.cluster, self.spaces, self.space = cluster, spaces, space
        self.now, self.metrics, self._nodes = 0.0, Metrics(), Nodes()
        settings = Settings("node", "root")
        self._look = Reconciler(cluster, settings, self._nodes, self.metrics, clock=lambda: self.now)
        self.machines(one=True, other=True)

    def topology(self, **changes: Any) -> None:
        self.spaces.topology(self.space, spec__node={"ingestLimit": 1000}, **changes)

    def machines(self, **ready: bool) -> None:
        self._nodes.replace(
            {
                "metadata": {"name": name},
                "status": {"conditions": [{"type": "Ready", "status": "True" if holds else "Unknown"}]},
            }
            for name, holds in ready.items()
        )

    def root(self, machine: str) -> str:
        """The pod as the StatefulSet makes it; gives its uid."""
        if self.cluster.get(kinds.SERVICE_ACCOUNT, self.space, "default") is None:
            path = kinds.SERVICE_ACCOUNT.collection(self.space)
            self.spaces.post(path, {"metadata": {"name": "default"}})
        document = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": POD, "labels": {**names.labels("small"), names.ROLE: names.ROOT}},
            "spec": {"nodeName": machine, "containers": [{"name": "root", "image": "root"}]},
        }
        made = self.spaces.post(kinds.POD.collection(self.space), document)
        uid: str = made["metadata"]["uid"]
        return uid

    def look(self, seconds: float = 0.0) -> dict[str, Any]:
        """Some time later; gives the condition Degraded."""
        self.now += seconds
        self._look(self.space, "small")
        document = self.cluster.get(kinds.TOPOLOGY, self.space, "small")
        assert document is not None
        conditions = document["status"]["conditions"]
        return next(each for each in conditions if each["type"] == "Degraded")

    @contextmanager
    def answering(self) -> Iterator[None]:
        """Somebody who answers as the root does, with its certificate."""
        secret = self.cluster.get(kinds.SECRET, self.space, names.certificate(names.root("small")))
        assert secret is not None
        files = {name: b64decode(content) for name, content in secret["data"].items()}
        server = grpc.server(ThreadPoolExecutor(1))
        control_pb2_grpc.add_ControlServicer_to_server(_Root(), server)  # type: ignore[no-untyped-call]  # generated
        credentials = grpc.ssl_server_credentials(
            [(files["tls.key"], files["tls.crt"])], files["ca.crt"], require_client_auth=True
        )
        server.add_secure_port(f"{ADDRESS}:{names.TREE_PORT}", credentials)
        server.start()
        try:
            yield
        finally:
            server.stop(None).wait()

    @property
    def pod(self) -> str | None:
        found = self.cluster.get(kinds.POD, self.space, POD)
        return None if found is None else found["metadata"]["uid"]

    @property
    def failovers(self) -> float:
        (found,) = (each for each in self.metrics.collect() if each.name.endswith("root_failovers"))
        return sum(each.value for each in found.samples if each.name.endswith("_total"))

    @property
    def events(self) -> list[str]:
        path = kinds.EVENT.collection(self.space)
        items = self.spaces.request("GET", path)["items"]
        return [each["message"] for each in items if each["reason"] == "RootFailover"]


@pytest.fixture
def plant(cluster: Cluster, spaces: Spaces, space: str) -> Plant:
    return Plant(cluster, spaces, space)


def test_a_root_is_taken_off_a_machine_that_stays_lost(plant: Plant) -> None:
    plant.topology(spec__root__failover="auto")
    assert plant.look()["reason"] == "AsPlanned"
    claim = plant.cluster.get(kinds.CLAIM, plant.space, "small-root")
    assert claim is not None
    assert claim["spec"]["accessModes"] == ["ReadWriteOncePod"]
    first = plant.root("one")
    assert plant.look()["reason"] == "AsPlanned"
    plant.machines(one=False, other=True)
    waits = plant.look()
    assert waits["reason"] == "RootNodeLost"
    assert f"only when that has lasted {GRACE:g} s" in waits["message"]
    plant.look(GRACE - 1)
    assert plant.pod == first
    plant.look(1)
    assert plant.pod is None
    assert plant.failovers == 1
    (said,) = plant.events
    assert f"{POD} was on one, which has been lost for 60 s or more" in said
    # Made elsewhere, it is left alone, however long the first machine is away.
    second = plant.root("other")
    assert plant.look(10 * GRACE)["reason"] == "AsPlanned"
    plant.look(10 * GRACE)
    assert (plant.pod, plant.failovers) == (second, 1)


def test_one_that_was_evicted_and_cannot_say_that_it_has_ended_is_too(plant: Plant) -> None:
    plant.topology(spec__root__failover="auto")
    plant.look()
    plant.root("one")
    plant.machines(one=False, other=True)
    plant.look()
    plant.cluster.delete(kinds.POD, plant.space, POD)
    (evicted,) = plant.cluster.list(kinds.POD, plant.space)
    assert "deletionTimestamp" in evicted["metadata"]
    plant.look(GRACE)
    assert (plant.pod, plant.failovers) == (None, 1)


def test_a_machine_that_comes_back_in_time_keeps_its_root(plant: Plant) -> None:
    plant.topology(spec__root__failover="auto")
    plant.look()
    first = plant.root("one")
    for _ in range(3):
        plant.machines(one=False, other=True)
        plant.look()
        plant.look(GRACE - 1)
        plant.machines(one=True, other=True)
        assert plant.look(GRACE)["reason"] == "AsPlanned"
    assert (plant.pod, plant.failovers) == (first, 0)


def test_a_root_that_still_answers_is_left_alone(plant: Plant) -> None:
    """Its kubelet is dead, and it is not."""
    plant.topology(spec__root__failover="auto")
    plant.look()
    first = plant.root("one")
    address = {"podIP": ADDRESS, "podIPs": [{"ip": ADDRESS}]}
    plant.spaces.patch(f"{kinds.POD.object(plant.space, POD)}/status", {"status": address})
    plant.machines(one=False, other=True)
    with plant.answering():
        plant.look()
        degraded = plant.look(10 * GRACE)
        assert "it still answers there" in degraded["message"]
        assert (plant.pod, plant.failovers) == (first, 0)
    plant.look()
    assert (plant.pod, plant.failovers) == (None, 1)


def test_by_hand_it_waits_for_ever(plant: Plant) -> None:
    plant.topology()
    plant.look()
    first = plant.root("one")
    plant.machines(other=True)
    for _ in range(3):
        degraded = plant.look(10 * GRACE)
        assert degraded["reason"] == "RootNodeLost"
        assert degraded["message"].startswith("the root is on one")
    assert (plant.pod, plant.failovers) == (first, 0)


def test_a_claim_that_a_second_root_could_have_is_never_risked(plant: Plant) -> None:
    plant.topology()
    plant.look()
    # The claim that was made before is ReadWriteOnce for good: said at once, not only when it matters.
    plant.topology(spec__root__failover="auto")
    assert plant.look()["reason"] == "NoFailover"
    first = plant.root("one")
    plant.machines(one=False, other=True)
    plant.look()
    degraded = plant.look(10 * GRACE)
    assert degraded["reason"] == "RootNodeLost"
    assert "the claim small-root has the access mode ReadWriteOnce" in degraded["message"]
    assert f"kubectl delete pod {POD}" in degraded["message"]
    assert (plant.pod, plant.failovers) == (first, 0)


def test_a_claim_of_the_user_is_looked_at(plant: Plant) -> None:
    plant.topology(spec__root__failover="auto", spec__root__storage={"claim": "mine"})
    missing = plant.look()
    assert (missing["reason"], "there is no claim mine" in missing["message"]) == ("NoFailover", True)
    requests = {"requests": {"storage": "1Gi"}}
    plant.spaces.post(
        kinds.CLAIM.collection(plant.space),
        {"metadata": {"name": "mine"}, "spec": {"accessModes": ["ReadWriteOncePod"], "resources": requests}},
    )
    assert plant.look()["reason"] == "AsPlanned"
    plant.root("one")
    plant.machines(one=False, other=True)
    plant.look()
    plant.look(GRACE)
    assert (plant.pod, plant.failovers) == (None, 1)
