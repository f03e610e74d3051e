"""An API server that misbehaves: a proxy of plain HTTP in front of a real one, which follows rules.

A rule picks requests by method, path and whether they watch, some of them by number or by chance, and says
what becomes of them: an answer that refuses, a delay, a stream that is cut or that falls silent. Standard
library alone.
"""

from __future__ import annotations

import http.client
import json
import random
import re
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Literal
from urllib.parse import urlsplit

REASONS = {
    401: "Unauthorized",
    403: "Forbidden",
    409: "Conflict",
    410: "Expired",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
}
# Headers of one connection, not of what is sent over it.
_HOP = {"connection", "host", "keep-alive", "transfer-encoding", "te", "trailer", "upgrade"}
# How long a request to the real server may take, in seconds; watches take longer than any test.
_PATIENCE = 600.0

Effect = Literal["answer", "slow", "hang", "cut", "stall", "expire"]


@dataclass(slots=True)
class Rule:
    """`effect` is what becomes of a request:

    - answer: `code`, with `after` as Retry-After
    - slow: the right answer, `seconds` later
    - hang: none, for `seconds`
    - cut: the stream breaks off, `seconds` after it began
    - stall: from `seconds` after it began nothing comes through any more, and it stays open
    - expire: the stream ends with an event of code 410
    """

    effect: Effect
    method: str = ".*"
    path: str = ".*"
    # None: whether it watches or not.
    watch: bool | None = None
    # How many requests it holds for, of those that it picks; None: all.
    times: int | None = None
    probability: float = 1.0
    code: int = 500
    after: int | None = None
    seconds: float = 0.0
    # How often it has held.
    held: int = 0
    # Set when it is removed: what stalls or hangs by it ends.
    over: threading.Event = field(default_factory=threading.Event)

    def picks(self, method: str, path: str, watch: bool) -> bool:
        return (
            re.fullmatch(self.method, method) is not None
            and re.search(self.path, path) is not None
            and (self.watch is None or self.watch == watch)
            and (self.times is None or self.held < self.times)
        )


@dataclass(frozen=True, slots=True)
class Seen:
    """A request that came: when, and what it was answered with; 0 if with nothing."""

    at: float
    method: str
    path: str
    watch: bool
    code: int


class FaultProxy:
    """In front of one server, maybe below a path. The callers bring their own tokens."""

    def __init__(self, server: str, tls: ssl.SSLContext, prefix: str = "", seed: int = 0) -> None:
        self._server, self._tls, self._prefix = urlsplit(server), tls, prefix
        self._chance = random.Random(seed)
        self._lock = threading.Lock()
        self._rules: list[Rule] = []
        self._seen: list[Seen] = []
        # Of watches that are open: what breaks them off.
        self._open: dict[int, tuple[str, Callable[[], None]]] = {}
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_any(self) -> None:
                proxy._handle(self)

            do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = handle_any  # noqa: N815  # the library's names

            def log_message(self, format: str, *arguments: object) -> None:
                """The tests ask what was seen."""

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            # As many may come at once as watches are cut; without room a connection takes a second.
            request_queue_size = 128

            def handle_error(self, request: object, client_address: object) -> None:
                """Whoever asked is gone, or was cut off on purpose."""

        self._http = Server(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.05,), daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._http.server_address[1]}{self._prefix}"

    def __enter__(self) -> FaultProxy:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        for rule in list(self._rules):
            self.remove(rule)
        self.cut(".*")
        self._http.shutdown()
        self._http.server_close()

    def add(self, rule: Rule) -> Rule:
        with self._lock:
            self._rules.append(rule)
        return rule

    def remove(self, rule: Rule) -> None:
        with self._lock:
            if rule in self._rules:
                self._rules.remove(rule)
        rule.over.set()

    @contextmanager
    def holding(self, rule: Rule) -> Iterator[Rule]:
        """A rule for as long as a block takes."""
        self.add(rule)
        try:
            yield rule
        finally:
            self.remove(rule)

    def watches(self, path: str = ".*") -> int:
        """How many are open now."""
        return len(self._ends(path))

    def cut(self, path: str) -> int:
        """Break off watches that are open now; gives how many."""
        found = self._ends(path)
        for end in found:
            end()
        return len(found)

    def _ends(self, path: str) -> list[Callable[[], None]]:
        with self._lock:
            return [end for where, end in self._open.values() if re.search(path, where)]

    def seen(self, path: str = ".*", watch: bool | None = None, since: float = 0.0) -> list[Seen]:
        with self._lock:
            return [
                each
                for each in self._seen
                if re.search(path, each.path) and watch in (None, each.watch) and each.at >= since
            ]

    def _handle(self, request: BaseHTTPRequestHandler) -> None:
        request.path = request.path.removeprefix(self._prefix)
        parts = urlsplit(request.path)
        watch = "watch=true" in parts.query.split("&")
        body = request.rfile.read(int(request.headers.get("Content-Length") or 0))
        rule, came = self._rule(request.command, parts.path, watch), time.monotonic()

        def note(code: int) -> None:
            with self._lock:
                self._seen.append(Seen(came, request.command, parts.path, watch, code))

        if rule is not None and rule.effect == "hang":
            note(0)
            rule.over.wait(rule.seconds)
            request.close_connection = True
        elif rule is not None and rule.effect == "answer":
            note(rule.code)
            self._refuse(request, rule)
        else:
            if rule is not None and rule.effect == "slow":
                rule.over.wait(rule.seconds)
            self._pass_on(request, body, watch, rule, note)

    def _rule(self, method: str, path: str, watch: bool) -> Rule | None:
        with self._lock:
            for rule in self._rules:
                if rule.picks(method, path, watch) and self._chance.random() < rule.probability:
                    rule.held += 1
                    return rule
        return None

    def _refuse(self, request: BaseHTTPRequestHandler, rule: Rule) -> None:
        status = {
            "kind": "Status",
            "apiVersion": "v1",
            "status": "Failure",
            "message": "so says the proxy",
            "reason": REASONS.get(rule.code, ""),
            "code": rule.code,
        }
        body = json.dumps(status).encode()
        request.send_response(rule.code)
        request.send_header("Content-Type", "application/json")
        request.send_header("Content-Length", str(len(body)))
        if rule.after is not None:
            request.send_header("Retry-After", str(rule.after))
        request.end_headers()
        request.wfile.write(body)

    def _pass_on(
        self,
        request: BaseHTTPRequestHandler,
        body: bytes,
        watch: bool,
        rule: Rule | None,
        note: Callable[[int], None],
    ) -> None:
        host, port = self._server.hostname or "", self._server.port
        real: http.client.HTTPConnection
        if self._server.scheme == "https":
            real = http.client.HTTPSConnection(host, port, timeout=_PATIENCE, context=self._tls)
        else:
            real = http.client.HTTPConnection(host, port, timeout=_PATIENCE)
        headers = {name: value for name, value in request.headers.items() if name.lower() not in _HOP}
        try:
            real.request(request.command, request.path, body or None, headers)
            # Taken now: the library forgets it with an answer that is the last, and when it is closed.
            beneath = real.sock
            answer = real.getresponse()
            note(answer.status)
            request.send_response(answer.status)
            for name, value in answer.getheaders():
                if name.lower() not in _HOP | {"content-length"}:
                    request.send_header(name, value)
            if watch and answer.status == 200:
                request.send_header("Transfer-Encoding", "chunked")
                request.end_headers()
                self._stream(request, beneath, answer, rule)
            else:
                content = answer.read()
                request.send_header("Content-Length", str(len(content)))
                request.end_headers()
                request.wfile.write(content)
        finally:
            real.close()

    def _stream(
        self,
        request: BaseHTTPRequestHandler,
        beneath: socket.socket,
        answer: http.client.HTTPResponse,
        rule: Rule | None,
    ) -> None:
        """Events as they come, until one side ends it or the rule does."""
        connection, began = request.connection, time.monotonic()

        def end() -> None:
            # From another thread: what it waits for is broken off on both sides.
            for each in (connection, beneath):
                try:
                    each.shutdown(socket.SHUT_RDWR)
                except OSError:
                    """It has ended already."""

        # Nothing may come for long; what a rule does in time is done by a timer.
        timer = threading.Timer(rule.seconds, end) if rule is not None and rule.effect == "cut" else None
        if timer is not None:
            timer.daemon = True
            timer.start()
        with self._lock:
            self._open[id(request)] = urlsplit(request.path).path, end
        try:
            if rule is not None and rule.effect == "expire":
                status = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}
                self._chunk(request, json.dumps({"type": "ERROR", "object": status}).encode() + b"\n")
            else:
                stalls = rule if rule is not None and rule.effect == "stall" else None
                while data := answer.read1(65536):
                    if stalls is not None and time.monotonic() - began >= stalls.seconds:
                        break
                    self._chunk(request, data)
                if stalls is not None:
                    # Also the end of the real one does not come through.
                    stalls.over.wait(_PATIENCE)
            self._chunk(request, b"")
        except OSError:
            """One side is gone."""
        finally:
            with self._lock:
                self._open.pop(id(request), None)
            if timer is not None:
                timer.cancel()
            request.close_connection = True

    def _chunk(self, request: BaseHTTPRequestHandler, data: bytes) -> None:
        request.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        request.wfile.flush()
