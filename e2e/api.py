"""An API server as the tests use it: documents go in, verdicts come out."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from time import monotonic, sleep
from typing import Any

from kubernetes import client, config
from kubernetes.client.exceptions import ApiException
from urllib3.exceptions import HTTPError

from headwater.topology import QUERY_KIND
from headwater_operator.crds.definitions import GROUP, VERSION

# How long a definition may take to be served, in seconds.
SERVED = 120.0
# What a server answers that may have another answer soon; 0: nothing.
BUSY = (0, 429, 500, 503, 504)
# How long an answer may take, in seconds.
ANSWER = 30.0
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What an API server says: its code (0: nothing), what is wrong in words and by field, or the object."""

    code: int
    message: str
    fields: tuple[str, ...] = ()
    answer: dict[str, Any] = field(default_factory=dict)

    @property
    def taken(self) -> bool:
        return 0 < self.code < 300


class Api:
    def __init__(self, connection: client.ApiClient) -> None:
        self._connection = connection

    def knows(self, field: str) -> bool:
        """Whether the topologies that it takes have a field in their spec."""
        found = self.get(f"{DEFINITIONS}/aggregationtopologies.{GROUP}")
        schema = found["spec"]["versions"][0]["schema"]["openAPIV3Schema"] if found else {"properties": {}}
        return field in schema["properties"].get("spec", {}).get("properties", {})

    def get(self, path: str, **query: Any) -> dict[str, Any] | None:
        """An object, or none where there is none. A server that is busy is asked again."""
        until = monotonic() + SERVED
        while (found := self.call("GET", path, **query)).code in BUSY and monotonic() < until:
            sleep(0.5)
        assert found.taken or found.code == 404, found
        return found.answer if found.taken else None

    def until(self, call: Callable[[], Verdict]) -> Verdict:
        """Call until it is taken: a definition is served a moment after it is there."""
        until = monotonic() + SERVED
        while not (found := call()).taken:
            assert monotonic() < until, found
            sleep(0.2)
        return found

    def delete(self, path: str) -> None:
        """An object, and until it is gone."""
        found = self.call("DELETE", path)
        assert found.taken or found.code == 404, found
        until = monotonic() + SERVED
        while self.get(path) is not None:
            assert monotonic() < until, f"{path} is still there"
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
                ),
                _request_timeout=ANSWER,
            )
            response.read()  # type: ignore[no-untyped-call]  # the client's own types
            return _verdict(response.status, response.data or b"")
        except ApiException as error:
            return _verdict(error.status or 0, error.body or b"")
        except HTTPError as error:
            return Verdict(0, str(error))


@cache
def connected() -> Api:
    """That of the cluster which the kubeconfig names."""
    config.load_kube_config()  # type: ignore[no-untyped-call]  # the client's own types
    return Api(client.ApiClient())


def _verdict(code: int, body: bytes | str) -> Verdict:
    try:
        told = json.loads(body)
    except ValueError:
        return Verdict(code, str(body))
    if code < 300:
        return Verdict(code, "", answer=told)
    causes = (told.get("details") or {}).get("causes") or []
    return Verdict(code, told.get("message", ""), tuple(cause.get("field", "") for cause in causes))
