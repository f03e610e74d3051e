"""An API server as the tests use it: documents go in, verdicts come out."""

from __future__ import annotations

import json
from dataclasses import dataclass
from time import monotonic, sleep
from typing import Any

from kubernetes import client
from kubernetes.client.exceptions import ApiException

from headwater.topology import QUERY_KIND
from headwater_operator.crds import definitions
from headwater_operator.crds.definitions import GROUP, VERSION

# How long a definition may take to be served, in seconds.
SERVED = 30.0
_KINDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What an API server says to a document: its code, in a sentence, and by field."""

    code: int
    message: str
    fields: tuple[str, ...] = ()

    @property
    def taken(self) -> bool:
        return self.code < 300


class Api:
    def __init__(self, connection: client.ApiClient) -> None:
        self._connection = connection

    def define(self) -> None:
        """Have the definitions of this checkout, and wait until they are served."""
        for name, document in definitions().items():
            path = f"{_KINDS}/{document['metadata']['name']}"
            found = self.call("PATCH", path, document, fieldManager="e2e", force=True)
            assert found.taken, found
            until = monotonic() + SERVED
            while not self.call("GET", f"/apis/{GROUP}/{VERSION}/namespaces/default/{name}").taken:
                assert monotonic() < until, f"{name} is not served"
                sleep(0.1)

    def judge(self, document: dict[str, Any]) -> Verdict:
        """What would become of a document that is created, with unknown fields refused as kubectl does."""
        is_query = document.get("kind") == QUERY_KIND
        plural = "aggregationqueries" if is_query else "aggregationtopologies"
        if isinstance(metadata := document.get("metadata"), dict):
            document = {**document, "metadata": {**metadata, "namespace": "default"}}
        path = f"/apis/{GROUP}/{VERSION}/namespaces/default/{plural}"
        return self.call("POST", path, document, dryRun="All", fieldValidation="Strict")

    def call(self, method: str, path: str, body: Any = None, **query: Any) -> Verdict:
        """One request as it is; a document is sent as JSON."""
        kind = "application/apply-patch+yaml" if method == "PATCH" else "application/json"
        parameters = [(name, str(value).lower() if value is True else value) for name, value in query.items()]
        try:
            response = self._connection.call_api(
                *self._connection.param_serialize(
                    method,
                    path,
                    query_params=parameters,
                    header_params={"Content-Type": kind, "Accept": "application/json"},
                    body=body,
                    auth_settings=["BearerToken"],
                )
            )
            response.read()  # type: ignore[no-untyped-call]  # the client's own types
            return _verdict(response.status, response.data or b"")
        except ApiException as error:
            return _verdict(error.status or 0, error.body or b"")


def _verdict(code: int, body: bytes | str) -> Verdict:
    try:
        told = json.loads(body)
    except ValueError:
        return Verdict(code, str(body))
    if code < 300:
        return Verdict(code, "")
    causes = (told.get("details") or {}).get("causes") or []
    return Verdict(code, told.get("message", ""), tuple(cause.get("field", "") for cause in causes))
