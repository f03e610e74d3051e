"""Namespaces for tests, with accounts that may do in them what they are given the right to."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any

from e2e.apiserver import write_kubeconfig
from headwater_operator import kinds
from headwater_operator.cluster import Cluster, Document
from headwater_operator.connection import Connection, Request, configured
from headwater_operator.crds import definitions
from headwater_operator.errors import Conflict, Gone
from headwater_operator.kinds import Kind
from tests.manifests import small

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
ACCOUNT = "operator"
# How long a definition may take to be served, in seconds.
SERVED = 30.0

Rules = Sequence[Mapping[str, Sequence[str]]]


@contextmanager
def whole(kubeconfig: Path) -> Iterator[Cluster]:
    """All of the cluster that a kubeconfig names."""
    connection = Connection(configured({"KUBECONFIG": str(kubeconfig)}))
    yield Cluster(connection)
    connection.close()


class Spaces:
    """Makes the definitions where there are none, and takes away all that it has made."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self._made: list[str] = []
        self._spaces: list[str] = []

    def __enter__(self) -> Spaces:
        for name, definition in definitions().items():
            if not self.cluster.serves(kinds.TOPOLOGY if "topolog" in name else kinds.QUERY):
                self.post(DEFINITIONS, definition)
                self._made.append(f"{DEFINITIONS}/{definition['metadata']['name']}")
        until = time.monotonic() + SERVED
        while not all(self.cluster.serves(kind) for kind in (kinds.TOPOLOGY, kinds.QUERY)):
            assert time.monotonic() < until, "the definitions are not served"
            time.sleep(0.1)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.clear()

    def clear(self) -> None:
        # Whoever has made the definitions may want to remove them, and not while there are objects.
        for space in self._spaces:
            for kind in filter(self.cluster.serves, (kinds.TOPOLOGY, kinds.QUERY)):
                for each in self.cluster.list(kind, space):
                    self.cluster.delete(kind, space, each["metadata"]["name"])
        definitions = [path for path in self._made if path.startswith(DEFINITIONS)]
        for path in [*(path for path in self._made if path not in definitions), *definitions]:
            with suppress(Gone, Conflict):
                self.request("DELETE", path)
        # What is served is said a moment later.
        until = time.monotonic() + SERVED
        while any(map(self._there, definitions)) or (definitions and self.cluster.serves(kinds.TOPOLOGY)):
            assert time.monotonic() < until, "the definitions are still there"
            time.sleep(0.1)
        self._made, self._spaces = [], []

    def _there(self, path: str) -> bool:
        try:
            self.request("GET", path)
        except Gone:
            return False
        return True

    def undefine(self) -> None:
        """Take away the definitions that somebody has left. All topologies would go with them, so there must
        be none."""
        if self.cluster.serves(kinds.TOPOLOGY):
            others = [each["metadata"]["name"] for each in self.cluster.list(kinds.TOPOLOGY)]
            assert not others, f"the topologies {others} would be deleted: take another cluster"
        self._made += [f"{DEFINITIONS}/{each['metadata']['name']}" for each in definitions().values()]
        self.clear()

    def make(self) -> str:
        """A namespace."""
        name = f"operator-{uuid.uuid4().hex[:8]}"
        self.post("/api/v1/namespaces", {"metadata": {"name": name}})
        self._made.append(f"/api/v1/namespaces/{name}")
        self._spaces.append(name)
        return name

    def topology(self, space: str, name: str = "small", **changes: Any) -> Document:
        """A small one, made or changed."""
        document = small(**changes)
        document["metadata"] |= {"name": name, "namespace": space}
        return self.cluster.apply(document)

    def account(self, space: str, rules: Rules, everywhere: Rules = ()) -> str:
        """A token of an account with these rights in its namespace, and others in all of them."""
        path = f"/api/v1/namespaces/{space}/serviceaccounts"
        if self.cluster.get(kinds.SERVICE_ACCOUNT, space, ACCOUNT) is None:
            self.post(path, {"metadata": {"name": ACCOUNT}})
        self.grant(space, rules)
        if everywhere:
            self.grant_everywhere(space, everywhere)
        review = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
        token: str = self.post(f"{path}/{ACCOUNT}/token", review)["status"]["token"]
        return token

    def grant(self, space: str, rules: Rules) -> None:
        """These rights and no others, in a namespace."""
        metadata = {"name": ACCOUNT, "namespace": space}
        self.cluster.apply(_object(kinds.ROLE, metadata, rules=rules))
        reference = {"apiGroup": kinds.ROLE.group, "kind": "Role", "name": ACCOUNT}
        self.cluster.apply(
            _object(kinds.ROLE_BINDING, metadata, roleRef=reference, subjects=[_subject(space)])
        )

    def grant_everywhere(self, space: str, rules: Rules) -> None:
        """Rights in all namespaces, to the account of one."""
        root, metadata = kinds.ROLE.root(), {"name": f"{space}-{ACCOUNT}"}
        self.post(f"{root}/clusterroles", {"metadata": metadata, "rules": rules})
        reference = {"apiGroup": kinds.ROLE.group, "kind": "ClusterRole", "name": metadata["name"]}
        binding = {"metadata": metadata, "roleRef": reference, "subjects": [_subject(space)]}
        self.post(f"{root}/clusterrolebindings", binding)
        self._made += [
            f"{root}/{each}/{metadata['name']}" for each in ("clusterroles", "clusterrolebindings")
        ]

    def revoke_everywhere(self, space: str) -> None:
        """Take those away."""
        path = f"{kinds.ROLE.root()}/clusterrolebindings/{space}-{ACCOUNT}"
        self.request("DELETE", path)
        self._made.remove(path)

    def kubeconfig(self, path: Path, token: str, url: str | None = None) -> Path:
        """For the owner of a token, maybe through a proxy of plain HTTP."""
        given = self.cluster.connection.configuration
        reached: dict[str, Any] = {"server": url or given.host}
        if url is None:
            reached["certificate-authority"] = given.ssl_ca_cert
        return write_kubeconfig(path, reached, {"token": token})

    def post(self, path: str, document: Mapping[str, Any]) -> Document:
        return self.request("POST", path, document)

    def patch(self, path: str, changes: Mapping[str, Any]) -> Document:
        """Some fields of an object, in nobody's name."""
        found: Document = self.cluster.connection.call(
            Request("PATCH", path, "patch", path, body=changes, type="application/merge-patch+json")
        )
        return found

    def request(self, method: str, path: str, document: Any = None) -> Document:
        found: Document = self.cluster.connection.call(
            Request(method, path, method.lower(), path, body=document)
        )
        return found


def rule(kind: Kind, *verbs: str, subresource: str = "") -> Mapping[str, Sequence[str]]:
    resource = f"{kind.plural}/{subresource}" if subresource else kind.plural
    return {"apiGroups": [kind.group], "resources": [resource], "verbs": list(verbs)}


def _subject(space: str) -> Mapping[str, str]:
    return {"kind": "ServiceAccount", "name": ACCOUNT, "namespace": space}


def _object(kind: Kind, metadata: Mapping[str, Any], **fields: Any) -> Document:
    return {"apiVersion": kind.api_version, "kind": kind.name, "metadata": metadata, **fields}
