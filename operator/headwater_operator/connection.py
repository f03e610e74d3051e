"""Requests to the API server: every one with time-outs, counted, repeated where that may help.

The client library brings the credentials and the connections. Its objects are not used: to make them of the
JSON of a list takes many times as long as the request.
"""

from __future__ import annotations

import json
import os
import random
import ssl
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

import urllib3
from kubernetes import config
from kubernetes.client import Configuration
from kubernetes.client.exceptions import ApiException
from kubernetes.client.rest import RESTClientObject

from headwater.errors import Invalid, Problem
from headwater_operator import names
from headwater_operator.errors import ApiError, Unavailable, error_of, unanswered

# Seconds to connect and to wait for an answer; no call takes longer than both, also if it is made again. That
# is below the deadline for renewing the lease: whoever may have lost it no longer waits for an answer.
CONNECT_SECONDS, READ_SECONDS = 3.0, 5.0
PATIENCE = CONNECT_SECONDS + READ_SECONDS
# Pauses before a request is made again, in seconds, and what has to be left for it to be worth it.
PAUSES = (0.1, 0.4, 1.0, 2.0)
LEAST = 0.5
# Connections that are kept: one for each worker, and a few.
CONNECTIONS = 16

JSON = "application/json"
APPLY = "application/apply-patch+yaml"
# Everything else changes something.
READS = frozenset({"get", "list", "review"})


@dataclass(frozen=True, slots=True)
class Request:
    """`verb` and `resource` are said as in roles: they are what is counted."""

    method: str
    path: str
    verb: str
    resource: str
    query: Mapping[str, str | int] | None = None
    body: Any = None
    type: str = JSON

    @property
    def what(self) -> str:
        return f"{self.verb} {self.path}"


@dataclass(frozen=True, slots=True)
class Credentials:
    """What another client needs to reach the same server in the same name."""

    server: str
    headers: Mapping[str, str]
    tls: ssl.SSLContext


class Connection:
    """To one API server, from any thread. `leading` is asked before everything that writes."""

    def __init__(
        self,
        configuration: Configuration,
        *,
        pauses: tuple[float, ...] = PAUSES,
        leading: Callable[[], bool] = lambda: True,
    ) -> None:
        self.configuration, self._pauses, self._leading = configuration, pauses, leading
        self._server = configuration.host.rstrip("/")
        # The library would try again by itself, each time for as long as a time-out takes.
        configuration.retries = False
        configuration.connection_pool_maxsize = CONNECTIONS
        self._client = RESTClientObject(configuration)
        self._lock = threading.Lock()
        self._calls = Counter[tuple[str, str, str]]()

    def call(self, request: Request) -> Any:
        """The answer, or an `ApiError`."""
        until = time.monotonic() + PATIENCE
        for pause in self._pauses:
            try:
                return self._once(request, until)
            except Unavailable as error:
                wait = pause * random.uniform(0.7, 1.3) if error.after is None else error.after
                if time.monotonic() + wait + LEAST > until:
                    raise
                time.sleep(wait)
        return self._once(request, until)

    @property
    def leading(self) -> bool:
        """Whether this process may write, here or elsewhere."""
        return self._leading()

    def calls(self) -> Mapping[tuple[str, str, str], int]:
        """Requests so far by verb, resource and outcome: a code, or `unanswered`. Repeated ones count."""
        with self._lock:
            return dict(self._calls)

    def counted(self, *, reads: bool) -> int:
        """How many have read, or have written."""
        return sum(count for (verb, _, _), count in self.calls().items() if (verb in READS) == reads)

    def credentials(self) -> Credentials:
        """As they are now: tokens are renewed while the program runs."""
        given = self.configuration
        tls = ssl.create_default_context(cafile=given.ssl_ca_cert)
        if given.cert_file:
            tls.load_cert_chain(given.cert_file, given.key_file)
        if not given.verify_ssl:
            tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
        return Credentials(self._server, self._authorization(), tls)

    def close(self) -> None:
        self._client.close()

    def _once(self, request: Request, until: float) -> Any:
        if request.verb not in READS and not self._leading():
            raise Unavailable(request.what, 0, "", "another process may lead by now, so nothing is written")
        url = self._server + request.path
        if request.query:
            url += "?" + urlencode(request.query)
        headers = {"Accept": JSON, "User-Agent": names.MANAGER, **self._authorization()}
        if request.body is not None:
            headers["Content-Type"] = request.type
        left = max(until - time.monotonic(), LEAST)
        outcome = "unanswered"
        try:
            answer = self._client.request(  # type: ignore[no-untyped-call]  # the client's own types
                request.method,
                url,
                headers=headers,
                body=request.body,
                # One number is for both together.
                _request_timeout=(CONNECT_SECONDS, READ_SECONDS) if left > READ_SECONDS else left,
            )
            found: bytes = answer.read()
            outcome = str(answer.status)
        except (urllib3.exceptions.HTTPError, ApiException, OSError) as error:
            raise unanswered(request.what, error) from error
        finally:
            with self._lock:
                self._calls[request.verb, request.resource, outcome] += 1
        if answer.status >= 300:
            raise error_of(request.what, answer.status, found, answer.headers)
        return _read(request, found)

    def _authorization(self) -> dict[str, str]:
        token = self.configuration.get_api_key_with_prefix("BearerToken", alias="authorization")
        if token:
            return {"Authorization": token}
        if self.configuration.username:
            return {"Authorization": self.configuration.get_basic_auth_token() or ""}
        return {}


def configured(environment: Mapping[str, str] = os.environ) -> Configuration:
    """The server of KUBECONFIG if that is set, else that of the cluster around, else the user's."""
    found = Configuration()
    given = environment.get("KUBECONFIG")
    try:
        if not given and environment.get("KUBERNETES_SERVICE_HOST"):
            config.load_incluster_config(found)  # type: ignore[no-untyped-call]  # the client's own types
        else:
            config.load_kube_config(given, client_configuration=found)  # type: ignore[no-untyped-call]  # as above
    except (config.ConfigException, OSError) as error:
        remedy = "run in a pod with a service account, or name the file of a cluster in KUBECONFIG"
        raise Invalid("there is no API server", [Problem("KUBECONFIG", str(error), remedy)]) from error
    return found


def _read(request: Request, body: bytes) -> Any:
    try:
        return json.loads(body)
    except ValueError as error:
        raise ApiError(request.what, 200, "", "the answer is no JSON") from error
