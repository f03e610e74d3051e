"""A topology that is looked at when the test says so, on machines and at times that it makes up."""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from os import environ
from typing import Any

import grpc
import pytest

from e2e.operator.spaces import Spaces
from headwater.errors import Problem
from headwater_operator import kinds, lookout, names, rootclient
from headwater_operator.cluster import Cluster, Document
from headwater_operator.comparison import stamped
from headwater_operator.failover import GRACE, SILENT
from headwater_operator.keeping import Kept, manifest_of
from headwater_operator.metrics import Metrics
from headwater_operator.nodes import Nodes
from headwater_operator.reconciling import Reconciler
from headwater_operator.rendering import Owner
from headwater_operator.settings import Settings
from headwater_root.problems import problems_message
from headwater_wire.v1 import control_pb2 as pb
from headwater_wire.v1 import control_pb2_grpc

POD = names.root_pod("small")
# Of this machine, and of nobody else who tests on it.
ADDRESS = f"127.0.77.{int(environ.get('PYTEST_XDIST_WORKER', 'gw0').removeprefix('gw')) + 1}"


class Root(control_pb2_grpc.ControlServicer):
    """Has these children, and says of them and of queries what it was told last."""

    def __init__(self, nodes: Iterable[str]) -> None:
        # Of each time: how much each node is to read.
        self.told: list[dict[str, float]] = []
        # Queries that it does not take.
        self.lacks: set[str] = set()
        # What it says beside that.
        self.more = pb.StatusReply()
        self._spec = pb.SpecPart()
        self._nodes = list(nodes)

    @property
    def queries(self) -> dict[str, str]:
        """Documents as in the list of a manifest, by id."""
        found = {}
        for document in map(json.loads, self._spec.queries):
            if "kind" in document:
                spec = {name: value for name, value in document["spec"].items() if name != "topologyRef"}
                document = {"id": document["metadata"]["name"], **spec}
            found[document["id"]] = json.dumps(document)
        return found

    def Status(self, request: pb.StatusRequest, context: Any) -> pb.StatusReply:  # noqa: N802 - the name of the .proto file
        planned = {node.node: node for node in self._spec.nodes}
        nodes = [
            pb.NodeStatus(
                name=id,
                child=True,
                state=pb.NodeStatus.STATE_MEMBER,
                planned=id in planned,
                planned_parent=planned[id].parent if id in planned else "",
                parent=names.ROOT,
                capacity=planned[id].capacity if id in planned else 0.0,
            )
            for id in self._nodes
        ]
        digest, generation = self._spec.digest, self._spec.generation
        found = pb.StatusReply(
            topology="small", nodes=nodes, totals=pb.Totals(), digest=digest, generation=generation
        )
        found.MergeFrom(self.more)
        return found

    def ApplySpec(self, parts: Iterator[pb.SpecPart], context: Any) -> pb.ApplySpecReply:  # noqa: N802 - likewise
        spec = pb.SpecPart()
        for part in parts:
            spec.MergeFrom(part)
        self._spec = spec
        self.told.append({node.node: node.capacity for node in spec.nodes})
        lacks = problems_message([Problem("aggregate", "is not there", "install it")])
        refused = [pb.AppliedQuery(id=id, problems=lacks) for id in self.lacks & set(self.queries)]
        return pb.ApplySpecReply(queries=refused)

    def ListQueries(self, request: pb.ListQueriesRequest, context: Any) -> pb.ListQueriesReply:  # noqa: N802 - likewise
        active = pb.ListedQuery.STATE_ACTIVE
        listed = [pb.ListedQuery(id=id, document=text, state=active) for id, text in self.queries.items()]
        return pb.ListQueriesReply(queries=listed)


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
    def answering(self, *nodes: str, party: str = names.root("small")) -> Iterator[Root]:
        """Somebody who answers as the root does, with its certificate or that of another party, and has these
        children."""
        root = Root(nodes)
        secret = self.cluster.get(kinds.SECRET, self.space, names.certificate(party))
        assert secret is not None
        files = {name: b64decode(content) for name, content in secret["data"].items()}
        server = grpc.server(ThreadPoolExecutor(2))
        control_pb2_grpc.add_ControlServicer_to_server(root, server)  # type: ignore[no-untyped-call]  # generated
        credentials = grpc.ssl_server_credentials(
            [(files["tls.key"], files["tls.crt"])], files["ca.crt"], require_client_auth=True
        )
        server.add_secure_port(f"{ADDRESS}:{names.TREE_PORT}", credentials)
        server.start()
        try:
            # On a busy machine too.
            with pytest.MonkeyPatch.context() as patience:
                patience.setattr(rootclient, "SECONDS", 30.0)
                patience.setattr(lookout, "ANSWER", 30.0)
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
