"""Namespaces for tests, with accounts that may do in them what they are given the right to."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any

from e2e import helm
from e2e.apiserver import write_kubeconfig
from headwater_operator import kinds
from headwater_operator.cluster import Cluster, Document
from headwater_operator.connection import Connection, Request, configured
from headwater_operator.crds import definitions
from headwater_operator.errors import Conflict, Gone, Unavailable
from headwater_operator.kinds import Kind
from tests.manifests import small

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
KINDS = (kinds.TOPOLOGY, kinds.QUERY)
ACCOUNT = "operator"
# How long a definition may take to be served, in seconds.
SERVED = 120.0

Rules = Sequence[Mapping[str, Sequence[str]]]


class Patient(Connection):
    """Asks an API server that is busy again and again: a test has more time than an operator."""

    def call(self, request: Request) -> Any:
        until = time.monotonic() + SERVED
        while True:
            try:
                return super().call(request)
            except Unavailable:
                if time.monotonic() > until:
                    raise


@contextmanager
def whole(kubeconfig: Path) -> Iterator[Cluster]:
    """All of the cluster that a kubeconfig names."""
    connection = Patient(configured({"KUBECONFIG": str(kubeconfig)}))
    yield Cluster(connection)
    connection.close()


class Spaces:
    """Takes away all that it has made, but for the definitions of both kinds: others may use them too."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self._made: list[str] = []
        self._spaces: list[str] = []

    def __enter__(self) -> Spaces:
        self.define()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.clear()

    def clear(self) -> None:
        # The definitions may be removed next, and not while there are objects.
        for space in self._spaces:
            for kind in filter(self.cluster.serves, KINDS):
                for each in self.cluster.list(kind, space):
                    self.cluster.delete(kind, space, each["metadata"]["name"])
        for path in self._made:
            with suppress(Gone, Conflict):
                self.request("DELETE", path)
        self._made, self._spaces = [], []

    def define(self) -> None:
        """Have the definitions, as a release leaves them behind: the next one takes them over."""
        for definition in definitions().values():
            metadata = definition["metadata"]
            annotations = {**metadata["annotations"], **helm.OWNER}
            labels = {"app.kubernetes.io/managed-by": "Helm"}
            made = {**definition, "metadata": {**metadata, "annotations": annotations, "labels": labels}}
            try:
                self.post(DEFINITIONS, made)
            except Conflict:
                # Of who runs beside this one, or of an earlier run and its checkout.
                self.patch(f"{DEFINITIONS}/{metadata['name']}", {"spec": definition["spec"]})
        self._until(lambda: all(map(self.cluster.serves, KINDS)), "the definitions are not served")

    def undefine(self) -> None:
        """Take the definitions away. All topologies would go with them, so there must be none."""
        if self.cluster.serves(kinds.TOPOLOGY):
            others = [each["metadata"]["name"] for each in self.cluster.list(kinds.TOPOLOGY)]
            assert not others, f"the topologies {others} would be deleted: take another cluster"
        paths = [f"{DEFINITIONS}/{each['metadata']['name']}" for each in definitions().values()]
        for path in paths:
            with suppress(Gone, Conflict):
                self.request("DELETE", path)
        # What is served is said a moment later.
        self._until(
            lambda: not any(map(self._there, paths)) and not any(map(self.cluster.serves, KINDS)),
            "the definitions are still there",
        )

    def _there(self, path: str) -> bool:
        try:
            self.request("GET", path)
        except Gone:
            return False
        return True

    def _until(self, reached: Callable[[], bool], otherwise: str) -> None:
        end = time.monotonic() + SERVED
        while not reached():
            assert time.monotonic() < end, otherwise
            time.sleep(0.1)

    def make(self) -> str:
        """A namespace."""
        name = f"operator-{uuid.uuid4().hex[:8]}"
        # The name is new: if it is there, an answer came too late and it was asked for twice.
        with suppress(Conflict):
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
            with suppress(Conflict):
                self.post(path, {"metadata": {"name": ACCOUNT}})
        self.grant(space, rules)
        if everywhere:
            self.grant_everywhere(space, everywhere)
        # What is bound counts a moment later.
        for found, where in ((rules, space), (everywhere, "")):
            if found:
                self._until(partial(self._allowed, space, found[-1], where), "the rights are not there")
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
        with suppress(Conflict):
            self.post(f"{root}/clusterroles", {"metadata": metadata, "rules": rules})
        reference = {"apiGroup": kinds.ROLE.group, "kind": "ClusterRole", "name": metadata["name"]}
        binding = {"metadata": metadata, "roleRef": reference, "subjects": [_subject(space)]}
        with suppress(Conflict):
            self.post(f"{root}/clusterrolebindings", binding)
        self._made += [
            f"{root}/{each}/{metadata['name']}" for each in ("clusterroles", "clusterrolebindings")
        ]

    def _allowed(self, space: str, rule: Mapping[str, Sequence[str]], where: str) -> bool:
        """Whether the account of a namespace may do what a rule says, there or everywhere."""
        resource, _, subresource = rule["resources"][0].partition("/")
        asked = {"group": rule["apiGroups"][0], "resource": resource, "subresource": subresource}
        spec = {
            "user": f"system:serviceaccount:{space}:{ACCOUNT}",
            "resourceAttributes": {**asked, "verb": rule["verbs"][-1], "namespace": where},
        }
        found = self.post("/apis/authorization.k8s.io/v1/subjectaccessreviews", {"spec": spec})
        return bool(found["status"]["allowed"])

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
