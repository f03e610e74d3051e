"""A receiver of webhooks: a real HTTP server that minds the idempotency key, and fails as it is told."""

from __future__ import annotations

import json
import socket
import ssl
import struct
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal

# What comes of the next request: a status, with headers if there are any; no answer until the end; the
# connection cut before anything is taken, or after all of it is; an answer that closes the connection.
Fault = int | tuple[int, dict[str, str]] | Literal["hang", "reset", "lost", "close"]


@dataclass
class Receiver:
    """`rows` is what it has taken, `requests` every request with its key and headers, in order."""

    port: int = 0
    faults: deque[Fault] = field(default_factory=deque)
    rows: list[dict[str, Any]] = field(default_factory=list)
    taken: dict[str, bytes] = field(default_factory=dict)
    requests: list[tuple[str, dict[str, str], bytes]] = field(default_factory=list)
    connections: int = 0
    over: threading.Event = field(default_factory=threading.Event)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def take(self, key: str, body: bytes) -> None:
        """Each key counts once, and always means the same."""
        assert self.taken.setdefault(key, body) == body
        self.rows = [json.loads(line) for each in self.taken.values() for line in each.splitlines()]


@contextmanager
def receiving(port: int = 0, tls: ssl.SSLContext | None = None) -> Iterator[Receiver]:
    receiver = Receiver()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def setup(self) -> None:
            super().setup()
            receiver.connections += 1

        def do_POST(self) -> None:
            length = int(self.headers["Content-Length"])
            body = self.rfile.read(length)
            if len(body) < length:
                # Whoever sent it was killed in its midst: this is no request.
                self.close_connection = True
                return
            key = self.headers["Idempotency-Key"]
            with receiver.lock:
                receiver.requests.append((key, dict(self.headers), body))
                fault = receiver.faults.popleft() if receiver.faults else 200
                if fault in (200, "lost", "close"):
                    receiver.take(key, body)
            if fault == "hang":
                receiver.over.wait()
                self.close_connection = True
            elif fault in ("reset", "lost"):
                # Not closed but reset: what lies in between is thrown away.
                linger = struct.pack("ii", 1, 0)
                self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                self.close_connection = True
            else:
                status, headers = fault if isinstance(fault, tuple) else (fault, {})
                self.send_response(status if isinstance(status, int) else 200)
                for name, value in headers.items():
                    self.send_header(name, value)
                if fault == "close":
                    # Without a word: the client learns it with the next request.
                    self.close_connection = True
                self.send_header("Content-Length", "2")
                self.end_headers()
                self.wfile.write(b"{}")

        def log_message(self, format: str, *arguments: Any) -> None:
            """Nothing is printed."""

    class Server(ThreadingHTTPServer):
        def handle_error(self, request: Any, client_address: Any) -> None:
            """Connections that break are what is tested."""

    server = Server(("127.0.0.1", port), Handler)
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    receiver.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield receiver
    finally:
        receiver.over.set()
        server.shutdown()
        thread.join()
        server.server_close()
