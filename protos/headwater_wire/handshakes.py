"""Connections that come to nothing: plain text where TLS is spoken, certificates that are not valid here.

gRPC's core ends them by itself, and Python hears nothing of it. But the core can be made to write, for every
handshake, lines with the peer and the problem to the standard error. Here they are read instead, from a pipe
that stands in its place; what else comes there is passed on. Should a later release write other lines, the
connections are refused as before and nothing is counted.

gRPC looks at its settings when it is imported: `watch` comes before that, and imports nothing of it.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import re
import sys
import threading
from collections.abc import Callable, MutableMapping
from contextlib import suppress
from typing import BinaryIO

from headwater_wire.hosts import host_of

SETTINGS = {"GRPC_VERBOSITY": "INFO", "GRPC_TRACE": "handshaker"}
# Room for the lines of some hundred handshakes.
PIPE_BYTES = 1 << 20
# Takes host and problem.
Hear = Callable[[str, str], None]
# How the core's own lines begin and go on; those of an error that ends the program are passed on.
_CORE = re.compile(
    rb"[IWE]\d{4} [\d:.]+ +\d+ [\w.]+:\d+\] |WARNING: All log messages before absl|=== Source Location Trace"
    rb"|src/core/| shutdown=|\s*$"
)
_FAILED = re.compile(rb"CallNextHandshakerLocked: error=(?!OK)(.*)")
_PEER = re.compile(rb"endpoint_peer_address=([^,}\s]+)")
# What the arguments of a server's handshakes have, and those of a client's have not.
_SERVER = b"grpc.internal.server_credentials="
_REASON = re.compile(r".*OPENSSL_internal:(.*?)(?:: OK)?")
# What to do about it, by what OpenSSL says.
_REMEDIES = {
    "WRONG_VERSION_NUMBER": "it speaks no TLS here: give it certificates",
    "HTTP_REQUEST": "it speaks no TLS here: give it certificates",
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "it has no certificate: give it one of this CA",
    "CERTIFICATE_VERIFY_FAILED": "its certificate is not valid here: give it a new one of this CA",
}


def watch(environment: MutableMapping[str, str]) -> Handshakes | None:
    """Read what the core writes from now on; None for whoever has set it up otherwise and wants to see it."""
    if not environment.keys().isdisjoint(SETTINGS) or sys.stderr is None:
        return None
    environment.update(SETTINGS)
    shown = os.dup(sys.stderr.fileno())
    readable, writable = os.pipe()
    # Lines that nobody has read yet are lost when there are too many: the core must not wait for that.
    os.set_blocking(writable, False)
    with suppress(OSError, AttributeError):
        fcntl.fcntl(writable, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
    os.dup2(writable, sys.stderr.fileno())
    os.close(writable)
    # What Python has to say goes where it always went, and does not wait for anybody to read.
    sys.stderr = os.fdopen(shown, "w", 1, encoding="utf-8", errors="backslashreplace", closefd=False)
    found = Handshakes()
    lines = os.fdopen(readable, "rb")
    threading.Thread(target=found.read, args=(lines, shown), daemon=True).start()
    return found


class Handshakes:
    """Those of this process that have failed."""

    def __init__(self) -> None:
        self._hear: Hear = lambda host, problem: None
        self._problem: str | None = None

    def tell(self, hear: Hear) -> None:
        """Let somebody know, in the loop that runs now."""
        loop = asyncio.get_running_loop()

        def said(host: str, problem: str) -> None:
            # Nobody is left to hear it while the program ends.
            if not loop.is_closed():
                loop.call_soon_threadsafe(hear, host, problem)

        self._hear = said

    def read(self, lines: BinaryIO, shown: int) -> None:
        """Until there are no more."""
        for line in lines:
            if not _CORE.match(line):
                os.write(shown, line)
            elif found := self.take(line):
                self._hear(*found)

    def take(self, line: bytes) -> tuple[str, str] | None:
        """A line of the core's; gives host and problem once both are known."""
        if failed := _FAILED.search(line):
            self._problem = _problem(failed[1].decode(errors="replace").strip())
        peer = _PEER.search(line)
        if peer is None or self._problem is None:
            return None
        problem, self._problem = self._problem, None
        return (host_of(peer[1].decode(errors="replace")), problem) if _SERVER in line else None


def _problem(said: str) -> str:
    reason = _REASON.fullmatch(said)
    short = said if reason is None else reason[1]
    name = short.partition(":")[0]
    return f"{short}; {_REMEDIES.get(name, 'see docs/security.md')}"
