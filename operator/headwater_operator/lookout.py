"""One look at a topology and all that is there of it: everything that is asked of API server and root."""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

from headwater_operator import kinds, names
from headwater_operator.access import CERTIFYING
from headwater_operator.certificates import hosts_of
from headwater_operator.cluster import Cluster, Document
from headwater_operator.errors import Forbidden, Gone
from headwater_operator.kinds import Kind
from headwater_operator.observation import Observed, Pod, pods_of
from headwater_operator.rendering import Identity
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
OPTIONAL = (kinds.SERVICE_ACCOUNT, kinds.ROLE, kinds.ROLE_BINDING, *MONITORS, kinds.CERTIFICATE)
# Seconds after which it is asked again what kinds there are.
AGAIN = 600.0
# The same of cert-manager, which a topology may wait for.
SOON = 30.0
# Seconds in which a machine takes a connection, if it is there at all.
ANSWER = 2.0


class Lookout:
    """Called from any thread."""

    def __init__(self, cluster: Cluster, pool: ThreadPoolExecutor) -> None:
        self._cluster, self._pool = cluster, pool
        # When that was found out, in each namespace.
        self._monitored: dict[str, tuple[float, bool]] = {}
        # The same of cert-manager.
        self._certifying: dict[str, tuple[float, str]] = {}

    def monitored(self, namespace: str) -> bool:
        """Whether the cluster has the kinds of the Prometheus operator, and we may use them there."""
        found = self._monitored.get(namespace)
        if found is None or time.monotonic() - found[0] > AGAIN:
            may = all(
                self._cluster.serves(kind) and self._cluster.allows("patch", kind, namespace)
                for kind in MONITORS
            )
            found = self._monitored[namespace] = time.monotonic(), may
        return found[1]

    def certifying(self, namespace: str, within: float = SOON) -> str:
        """Why cert-manager cannot be asked for certificates in a namespace, as what is wrong and what helps,
        parted by a semicolon; empty if it can. Asked again after `within` seconds."""
        found = self._certifying.get(namespace)
        if found is None or time.monotonic() - found[0] > within:
            found = self._certifying[namespace] = time.monotonic(), self._not_certifying(namespace)
        return found[1]

    def _not_certifying(self, namespace: str) -> str:
        kind = kinds.CERTIFICATE
        if not self._cluster.serves(kind):
            return (
                f"{kind.resource} is not served by the API server; install cert-manager, or drop certificates"
            )
        verbs = CERTIFYING[kind, ""]
        missing = [verb for verb in verbs if not self._cluster.allows(verb, kind, namespace)]
        if missing:
            said = f"the operator may not {', '.join(missing)} {kind.resource} in namespace {namespace}"
            return f"{said}; install the chart with certManager.rbac=true"
        return ""

    def objects(self, namespace: str, topology: str) -> Observed:
        """What there is in the cluster."""
        selector = names.selector(topology)
        certificates = () if self.certifying(namespace, AGAIN) else (kinds.CERTIFICATE,)
        asked = (*OWNED, *(MONITORS if self.monitored(namespace) else ()), *certificates, kinds.POD)

        def listed(kind: Kind) -> list[Document]:
            try:
                return self._cluster.list(kind, namespace, selector)
            except Forbidden:
                # Without the right to give rights there are no executors, and all else goes on.
                if kind not in OPTIONAL:
                    raise
                return []
            except Gone:
                # Its definition was removed: it is asked anew what kinds there are.
                if kind not in (*MONITORS, kinds.CERTIFICATE):
                    raise
                self._monitored.pop(namespace, None)
                self._certifying.pop(namespace, None)
                return []

        *found, pods = self._pool.map(listed, asked)
        return Observed(tuple(each for part in found for each in part), pods_of(pods))

    def with_taken(self, observed: Observed, namespace: str, wanted: Iterable[Mapping[str, Any]]) -> Observed:
        """With the objects of others that have the name of one that is wanted."""
        known = {(each["kind"], each["metadata"]["name"]) for each in observed.objects}
        missing = [each for each in wanted if (each["kind"], each["metadata"]["name"]) not in known]

        def got(manifest: Mapping[str, Any]) -> Document | None:
            kind = kinds.kind_of(manifest)
            try:
                return self._cluster.get(kind, namespace, manifest["metadata"]["name"])
            except Forbidden:
                # That it cannot be made either is told when that is tried.
                if kind not in OPTIONAL:
                    raise
                return None

        taken = [each for each in self._pool.map(got, missing) if each is not None]
        return replace(observed, objects=(*observed.objects, *taken)) if taken else observed

    def is_taken(self, observed: Observed, namespace: str, secret: str) -> bool:
        """Whether somebody else has a Secret of a name that is not the topology's yet."""
        if any(each["metadata"]["name"] == secret for each in observed.of_kind("Secret")):
            return False
        return self._cluster.get(kinds.SECRET, namespace, secret) is not None

    def taken_secrets(self, observed: Observed, namespace: str, parties: Iterable[Identity]) -> list[str]:
        """Secrets of others that cert-manager would overwrite, because they have the name of a party's."""
        known = {
            each["metadata"]["name"] for kind in ("Secret", "Certificate") for each in observed.of_kind(kind)
        }
        new = [party.secret for party in parties if party.secret not in known]
        found = self._pool.map(lambda name: self._cluster.get(kinds.SECRET, namespace, name), new)
        return [name for name, there in zip(new, found, strict=True) if there is not None]

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

    def answers(self, pod: Pod, namespace: str, topology: str) -> bool:
        """Whether a root is alive in a pod that Kubernetes takes for lost: somebody takes the connection.
        What is said over it is no matter here: one that is busy, or that does not trust us any more, is alive
        as well. Only who shows a certificate with other names is somebody else, with an address that was
        given out again."""
        if not pod.ip:
            return False
        try:
            connection = socket.create_connection((pod.ip, names.TREE_PORT), ANSWER)
        except OSError:
            return False
        with connection:
            shown = _shown(connection)
        return shown is None or names.root_host(topology, namespace) in shown

    def root(self, observed: Observed, namespace: str, topology: str) -> AbstractContextManager[RootClient]:
        """The root, to be entered."""
        files = observed.secrets.get(names.certificate(names.operator(topology)), {})
        material: Material | None = None
        if files.keys() >= {"tls.key", "tls.crt", "ca.crt"}:
            authorities = observed.trusted(topology) or files["ca.crt"]
            material = files["tls.key"], files["tls.crt"], authorities
        return connected(_reached(observed, topology, namespace), material)


def _shown(connection: socket.socket) -> Sequence[str] | None:
    """The names in the certificate of whoever is there, by whomever it was signed; None: it shows none."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        with context.wrap_socket(connection) as talking:
            found = talking.getpeercert(binary_form=True)
    except OSError:
        return None
    return None if found is None else hosts_of(found)


def _reached(observed: Observed, topology: str, namespace: str) -> str:
    """Where the root is: by the address of its pod, which is known at once when it changes, and needs no name
    server that may be on a machine that is lost."""
    pod = observed.pod(names.root(topology))
    if pod is None or not pod.ip:
        return names.root_address(topology, namespace)
    host = f"[{pod.ip}]" if ":" in pod.ip else pod.ip
    return f"{host}:{names.TREE_PORT}"
