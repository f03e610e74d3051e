"""The proxy that misbehaves, in front of a server that ends its streams when a test says so."""

from __future__ import annotations

import http.client
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from e2e.faultproxy import FaultProxy, Rule

Watch = Callable[[], http.client.HTTPResponse]


@pytest.fixture
def ending() -> threading.Event:
    """Set: the server's streams end."""
    return threading.Event()


@pytest.fixture
def proxy(ending: threading.Event) -> Iterator[FaultProxy]:
    class Handler(BaseHTTPRequestHandler):
        # Of this version every answer is the last of its connection.
        protocol_version = "HTTP/1.0"

        def do_GET(self) -> None:  # the library's name
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"first\n")
            ending.wait(30)

        def log_message(self, format: str, *arguments: object) -> None:
            """The tests ask the proxy."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            with FaultProxy(
                f"http://127.0.0.1:{server.server_address[1]}", ssl.create_default_context()
            ) as found:
                yield found
        finally:
            ending.set()
            server.shutdown()
            thread.join()


@pytest.fixture
def watch(proxy: FaultProxy) -> Iterator[Watch]:
    opened: list[http.client.HTTPConnection] = []

    def one() -> http.client.HTTPResponse:
        connection = http.client.HTTPConnection(proxy.url.removeprefix("http://"), timeout=30)
        opened.append(connection)
        connection.request("GET", "/things?watch=true")
        answer = connection.getresponse()
        assert answer.read1() == b"first\n"
        return answer

    yield one
    for each in opened:
        each.close()


def until(reached: Callable[[], bool]) -> None:
    end = time.monotonic() + 30
    while not reached():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_a_watch_that_is_cut_breaks_off(proxy: FaultProxy, watch: Watch) -> None:
    one, other = watch(), watch()
    until(lambda: proxy.watches("things") == 2)
    assert proxy.cut("^/nothing") == 0
    assert proxy.cut("things") == 2
    for each in (one, other):
        with pytest.raises((http.client.IncompleteRead, ConnectionError)):
            each.read()
    until(lambda: proxy.watches() == 0)


def test_a_watch_that_ends_by_itself_just_then_is_cut_in_vain(
    proxy: FaultProxy, watch: Watch, ending: threading.Event
) -> None:
    one = watch()
    until(lambda: proxy.watches() == 1)
    ends = proxy._ends(".*")
    ending.set()
    assert one.read() == b""
    until(lambda: proxy.watches() == 0)
    for end in ends:
        end()


def test_one_that_is_cut_by_a_rule_breaks_off(proxy: FaultProxy, watch: Watch) -> None:
    proxy.add(Rule("cut", watch=True, seconds=0.2))
    with pytest.raises((http.client.IncompleteRead, ConnectionError)):
        watch().read()
