"""One look at a topology and all that is there of it: everything that is asked of API server and root."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

from headwater_operator import kinds, names
from headwater_operator.cluster import Cluster, Document
from headwater_operator.errors import Forbidden
from headwater_operator.kinds import Kind
from headwater_operator.observation import Observed, Pod, pods_of
from headwater_operator.rootclient import Material, RootClient, RootUnreachable, connected
from headwater_wire.v1 import control_pb2 as pb

# What the operator makes for a topology.
OWNED = (
    kinds.DEPLOYMENT,
    kinds.STATEFUL_SET,
    kinds.SERVICE,
    kinds.CONFIG_MAP,
    kinds.SECRET,
    kinds.CLAIM,
    kinds.DISRUPTION_BUDGET,
    kinds.NETWORK_POLICY,
    kinds.SERVICE_ACCOUNT,
    kinds.ROLE,
    kinds.ROLE_BINDING,
)
MONITORS = (kinds.POD_MONITOR, kinds.PROMETHEUS_RULE)
OPTIONAL = (kinds.SERVICE_ACCOUNT, kinds.ROLE, kinds.ROLE_BINDING, *MONITORS)
# Seconds after which it is asked again what kinds there are.
AGAIN = 600.0


class Lookout:
    """Called from any thread."""

    def __init__(self, cluster: Cluster, pool: ThreadPoolExecutor) -> None:
        self._cluster, self._pool = cluster, pool
        # When that was found out.
        self._monitored: tuple[float, bool] | None = None

    @property
    def monitored(self) -> bool:
        """Whether the cluster has the kinds of the Prometheus operator, and we may use them."""
        if self._monitored is None or time.monotonic() - self._monitored[0] > AGAIN:
            found = all(
                self._cluster.serves(kind) and self._cluster.allows("patch", kind) for kind in MONITORS
            )
            self._monitored = (time.monotonic(), found)
        return self._monitored[1]

    def objects(self, namespace: str, topology: str) -> Observed:
        """What there is in the cluster."""
        selector = names.selector(topology)
        asked = (*OWNED, *(MONITORS if self.monitored else ()), kinds.POD)

        def listed(kind: Kind) -> list[Document]:
            try:
                return self._cluster.list(kind, namespace, selector)
            except Forbidden:
                # Without the right to give rights there are no executors, and all else goes on.
                if kind not in OPTIONAL:
                    raise
                return []

        *found, pods = self._pool.map(listed, asked)
        return Observed(tuple(each for part in found for each in part), pods_of(pods))

    def with_taken(self, observed: Observed, namespace: str, wanted: Iterable[Mapping[str, Any]]) -> Observed:
        """With the objects of others that have the name of one that is wanted."""
        known = {(each["kind"], each["metadata"]["name"]) for each in observed.objects}
        missing = [each for each in wanted if (each["kind"], each["metadata"]["name"]) not in known]

        def got(manifest: Mapping[str, Any]) -> Document | None:
            return self._cluster.get(kinds.kind_of(manifest), namespace, manifest["metadata"]["name"])

        taken = [each for each in self._pool.map(got, missing) if each is not None]
        return replace(observed, objects=(*observed.objects, *taken)) if taken else observed

    def ask_root(
        self, observed: Observed, namespace: str, topology: str
    ) -> tuple[pb.StatusReply | None, str]:
        """How the root stands, and why that is not known if it is not."""
        pod = observed.pod(names.root(topology))
        if pod is None or not pod.ready:
            return None, ""
        try:
            with self.root(observed, namespace, topology) as client:
                return client.status(), ""
        except RootUnreachable as error:
            return None, str(error)

    def answers(self, observed: Observed, pod: Pod, namespace: str, topology: str) -> bool:
        """Whether a root is alive in a pod that Kubernetes takes for lost."""
        seen = replace(observed, pods={names.root(topology): (replace(pod, going=False),)})
        try:
            with self.root(seen, namespace, topology) as client:
                client.status()
        except RootUnreachable:
            return False
        return True

    def root(self, observed: Observed, namespace: str, topology: str) -> AbstractContextManager[RootClient]:
        """The root, to be entered."""
        files = observed.secrets.get(names.certificate(names.operator(topology)), {})
        material: Material | None = None
        if files.keys() >= {"tls.key", "tls.crt", "ca.crt"}:
            material = files["tls.key"], files["tls.crt"], files["ca.crt"]
        return connected(_reached(observed, topology, namespace), material)


def _reached(observed: Observed, topology: str, namespace: str) -> str:
    """Where the root is: by the address of its pod, which is known at once when it changes, and needs no name
    server that may be on a machine that is lost."""
    pod = observed.pod(names.root(topology))
    if pod is None or not pod.ip:
        return names.root_address(topology, namespace)
    host = f"[{pod.ip}]" if ":" in pod.ip else pod.ip
    return f"{host}:{names.TREE_PORT}"
