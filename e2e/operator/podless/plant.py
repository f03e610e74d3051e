"""A topology that is looked at when the test says so, on machines and at times that it makes up."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import grpc

from e2e.operator.spaces import Spaces
from headwater_operator import kinds, names
from headwater_operator.cluster import Cluster, Document
from headwater_operator.comparison import stamped
from headwater_operator.failover import GRACE, SILENT
from headwater_operator.keeping import Kept, manifest_of
from headwater_operator.metrics import Metrics
from headwater_operator.nodes import Nodes
from headwater_operator.reconciling import Reconciler
from headwater_operator.rendering import Owner
from headwater_operator.settings import Settings
from headwater_wire.v1 import control_pb2 as pb
from headwater_wire.v1 import control_pb2_grpc

POD = names.root_pod("small")
# Of this machine, and nobody else's.
ADDRESS = "127.0.0.77"


class Root(control_pb2_grpc.ControlServicer):
    """Says that it has these nodes, and keeps what it is told: of each node how much it is to read."""

    def __init__(self, nodes: Mapping[str, float]) -> None:
        self.told: list[dict[str, float]] = []
        self._nodes = [
            pb.NodeStatus(
                name=id,
                child=True,
                state=pb.NodeStatus.STATE_MEMBER,
                planned=True,
                planned_parent=names.ROOT,
                parent=names.ROOT,
                capacity=capacity,
            )
            for id, capacity in nodes.items()
        ]

    def Status(self, request: pb.StatusRequest, context: Any) -> pb.StatusReply:  # noqa: N802 - the name of the .proto file
        return pb.StatusReply(topology="small", nodes=self._nodes, totals=pb.Totals())

    def ApplySpec(self, parts: Iterator[pb.SpecPart], context: Any) -> pb.ApplySpecReply:  # noqa: N802 - likewise
        self.told.append({node.node: node.capacity for part in parts for node in part.nodes})
        return pb.ApplySpecReply()


class Plant:
    """Nothing is behind the API server: what a StatefulSet and a kubelet would do, is done here."""

    def __init__(self, cluster: Cluster, spaces: Spaces, space: str) -> None:
        self.cluster, self.spaces, self.space = cluster, spaces, space
        self.now, self.metrics, self._nodes = 0.0, Metrics(), Nodes()
        settings = Settings("node", "root")
        self._look = Reconciler(cluster, settings, self._nodes, self.metrics, clock=lambda: self.now)
        self.machines(one=True, other=True)

    def topology(self, **changes: Any) -> Document:
        return self.spaces.topology(self.space, **{"spec__node": {"ingestLimit": 1000}, **changes})

    def good(self, document: Document, factor: float = 1.0) -> None:
        """As if it had been rolled out."""
        metadata = document["metadata"]
        owner = Owner(self.space, "small", metadata["uid"])
        kept = Kept(metadata["generation"], document["spec"], numbers={1: 1}, factor=factor)
        self.cluster.apply(stamped(manifest_of(owner, kept)))

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
        return self._pod(POD, machine, {names.ROLE: names.ROOT})

    def child(self, id: str, machine: str) -> None:
        """The pod of one, as its Deployment makes it, and ready."""
        self._pod(f"{id}-x", machine, {names.ROLE: "child", names.NODE: id})
        self.ready(f"{id}-x")

    def _pod(self, name: str, machine: str, labels: Mapping[str, str]) -> str:
        if self.cluster.get(kinds.SERVICE_ACCOUNT, self.space, "default") is None:
            path = kinds.SERVICE_ACCOUNT.collection(self.space)
            self.spaces.post(path, {"metadata": {"name": "default"}})
        document = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "labels": {**names.labels("small"), **labels}},
            "spec": {"nodeName": machine, "containers": [{"name": "one", "image": "one"}]},
        }
        made = self.spaces.post(kinds.POD.collection(self.space), document)
        uid: str = made["metadata"]["uid"]
        return uid

    def reached(self) -> None:
        """The root has an address."""
        self._says(POD, {"podIP": ADDRESS, "podIPs": [{"ip": ADDRESS}]})

    def ready(self, pod: str) -> None:
        self._says(pod, {"conditions": [{"type": "Ready", "status": "True"}]})

    def _says(self, pod: str, status: Mapping[str, Any]) -> None:
        self.spaces.patch(f"{kinds.POD.object(self.space, pod)}/status", {"status": status})

    def look(self, seconds: float = 0.0) -> dict[str, Any]:
        """Some time later; gives the condition Degraded."""
        self.now += seconds
        self._look(self.space, "small")
        return self.condition("Degraded")

    def condition(self, kind: str) -> dict[str, Any]:
        document = self.spaces.cluster.get(kinds.TOPOLOGY, self.space, "small")
        assert document is not None
        conditions = document["status"]["conditions"]
        return next(each for each in conditions if each["type"] == kind)

    def silence(self, seconds: float = GRACE) -> None:
        """So much later, and as often as nobody may answer without being taken for dead."""
        self.look(seconds)
        for _ in range(SILENT - 1):
            self.look()

    @contextmanager
    def answering(self, **nodes: float) -> Iterator[Root]:
        """Somebody who answers as the root does, with its certificate, and has children `l1_0`, ... that read
        so much."""
        root = Root({f"small-{id.replace('_', '-')}": capacity for id, capacity in nodes.items()})
        secret = self.cluster.get(kinds.SECRET, self.space, names.certificate(names.root("small")))
        assert secret is not None
        files = {name: b64decode(content) for name, content in secret["data"].items()}
        server = grpc.server(ThreadPoolExecutor(1))
        control_pb2_grpc.add_ControlServicer_to_server(root, server)  # type: ignore[no-untyped-call]  # generated
        credentials = grpc.ssl_server_credentials(
            [(files["tls.key"], files["tls.crt"])], files["ca.crt"], require_client_auth=True
        )
        server.add_secure_port(f"{ADDRESS}:{names.TREE_PORT}", credentials)
        server.start()
        try:
            yield root
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
