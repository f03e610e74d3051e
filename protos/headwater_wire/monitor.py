"""A program seen from outside, over HTTP: `/metrics` for Prometheus, `/healthz` and `/readyz` for probes.

Requests come in threads of their own, but every answer is found in the event loop of the program: figures
are read while nothing changes them, and a loop that hangs is no longer healthy. A loop that waits for its
disk does not hang: to be killed for that would not make the disk any faster.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socket import AF_INET, AF_INET6
from urllib.parse import urlsplit

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import CounterMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from headwater.errors import Invalid, Problem
from headwater_wire.offences import Offences

# How long the loop may take before it counts as hanging.
PATIENCE = 5.0
# How often it is looked at meanwhile whether the loop waits for the disk.
GLANCE = 0.1
TEXT = "text/plain; charset=utf-8"


@dataclass(frozen=True, slots=True)
class Answer:
    status: HTTPStatus
    body: bytes
    type: str = TEXT


class Monitor:
    """An HTTP endpoint beside a program. `ready` says why the program is not, or None if it is; `writing`
    whether its loop waits for the disk, and is asked in other threads; `alive` why the program should be
    started anew though its loop answers."""

    def __init__(
        self,
        ready: Callable[[], str | None],
        writing: Callable[[], bool] = lambda: False,
        alive: Callable[[], str | None] = lambda: None,
    ) -> None:
        self._ready, self._writing, self._alive = ready, writing, alive
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)
        self._server: ThreadingHTTPServer | None = None
        self._thread: threading.Thread | None = None

    def show(self, collector: Collector) -> None:
        """Expose what a collector finds when it is asked."""
        self._registry.register(collector)

    def start(self, address: str) -> int:
        """Begin to answer; gives the port. In the loop whose figures are shown."""
        host, port = address_of(address, "metrics")
        loop = asyncio.get_running_loop()

        def ask(path: str, accept: str) -> Answer:
            answer = asyncio.run_coroutine_threadsafe(self._answer(path, accept), loop)
            for _ in range(int(PATIENCE / GLANCE)):
                with suppress(TimeoutError):
                    return answer.result(GLANCE)
                if path == "/healthz" and self._writing():
                    answer.cancel()
                    return Answer(HTTPStatus.OK, b"alive, and waiting for the disk\n")
            raise TimeoutError

        try:
            self._server = _server(host, port, ask)
        except OSError as error:
            problem = Problem("metrics", f"{address} cannot be listened on ({error})", "give a free address")
            raise Invalid("there can be no metrics", [problem]) from error
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()
        return int(self._server.server_address[1])

    async def _answer(self, path: str, accept: str) -> Answer:
        if path == "/metrics":
            encode, kind = choose_encoder(accept)
            return Answer(HTTPStatus.OK, encode(self._registry), kind)
        if path == "/healthz":
            why = self._alive()
            if why is None:
                return Answer(HTTPStatus.OK, b"alive\n")
            return Answer(HTTPStatus.SERVICE_UNAVAILABLE, f"not alive: {why}\n".encode())
        if path == "/readyz":
            why = self._ready()
            if why is None:
                return Answer(HTTPStatus.OK, b"ready\n")
            return Answer(HTTPStatus.SERVICE_UNAVAILABLE, f"not ready: {why}\n".encode())
        return Answer(HTTPStatus.NOT_FOUND, b"there are /metrics, /healthz and /readyz\n")

    async def stop(self) -> None:
        if self._server is not None and self._thread is not None:
            await asyncio.to_thread(self._server.shutdown)
            self._server.server_close()
            self._thread.join()


def offences_of(program: str, offences: Offences) -> Metric:
    """What others have done that they should not, for Prometheus."""
    family = CounterMetricFamily(
        f"headwater_{program}_offences",
        "What others have done that they should not, by kind and by who it was.",
        labels=["kind", "offender"],
    )
    for kind, offender, count in offences.counts():
        family.add_metric([kind, offender], count)
    return family


def address_of(given: str, field: str) -> tuple[str, int]:
    """Host and port of `127.0.0.1:9100`, `[::1]:9100` or `:9100`."""
    try:
        parts = urlsplit(f"//{given}")
        host, port = parts.hostname or "", parts.port
    except ValueError:
        host, port = "", None
    if port is None or parts.path or parts.username:
        problem = Problem(field, f"is {given!r}", "give host and port, such as 127.0.0.1:9100")
        raise Invalid("the address cannot be used", [problem])
    return host, port


def _server(host: str, port: int, ask: Callable[[str, str], Answer]) -> ThreadingHTTPServer:
    class Handler(BaseHTTPRequestHandler):
        # Whoever connects and says nothing is let go.
        timeout = PATIENCE
        server_version, sys_version = "headwater", ""

        def do_GET(self) -> None:
            try:
                answer = ask(urlsplit(self.path).path, self.headers.get("Accept", ""))
            except (TimeoutError, RuntimeError):
                answer = Answer(HTTPStatus.SERVICE_UNAVAILABLE, b"the program does not answer\n")
            self.send_response(answer.status)
            self.send_header("Content-Type", answer.type)
            self.send_header("Content-Length", str(len(answer.body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(answer.body)

        do_HEAD = do_GET  # noqa: N815  # the name that the library looks for

        def log_message(self, format: str, *arguments: object) -> None:
            """A probe every few seconds is no news."""

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        address_family = AF_INET6 if ":" in host else AF_INET

        def handle_error(self, request: object, client_address: object) -> None:
            """Whoever asked is gone."""

    return Server((host, port), Handler)
