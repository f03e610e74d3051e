"""How the stream to the parent fares: told once for every change, not for every attempt."""

from __future__ import annotations

import logging

import grpc
import grpc.aio

from headwater_wire.clock import now

log = logging.getLogger(__name__)
# Codes with which a parent says that it will have nothing to do with this party.
REFUSALS = (
    grpc.StatusCode.FAILED_PRECONDITION,
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
    grpc.StatusCode.UNAUTHENTICATED,
    grpc.StatusCode.PERMISSION_DENIED,
)


class Uplink:
    """The state of the stream of `name` to its parent."""

    def __init__(self, name: str) -> None:
        self.name, self.parent, self.address = name, "", ""
        self.connected = False
        # Who has answered, and the number of the connection on which that was.
        self.peer, self.connections = "", 0
        # Since when it is there or not, by the clock that never goes back.
        self.since = 0
        # What was last said to be wrong; None at first and while all is well.
        self.problem: str | None = None

    def turn(self, parent: str, address: str) -> None:
        """Another parent, or the same elsewhere; without a name, whoever is there."""
        self.parent, self.address = parent, address
        self.connected, self.peer, self.since, self.problem = False, "", now(), None

    def came(self, sender: str) -> None:
        """The parent has said something."""
        if not self.connected:
            # The first envelope of a stream is its owner's.
            self.peer = sender
            self.connections += 1
            self.connected, self.since, self.problem = True, now(), None
            log.info("parent connected", extra=self._who())

    def lost(self, error: Exception | None) -> bool:
        """The stream has ended or could not be opened; gives whether the parent has refused it."""
        refused = isinstance(error, grpc.aio.AioRpcError) and error.code() in REFUSALS
        if isinstance(error, grpc.aio.AioRpcError):
            problem = f"{error.code().name}: {error.details()}"
        else:
            problem = "the parent has ended the stream" if error is None else str(error)
        was, self.connected, self.peer = self.connected, False, ""
        if was:
            self.since = now()
        if refused and problem != self.problem:
            log.error("the parent refuses", extra={**self._who(), "problem": problem})
        elif was:
            log.warning("parent lost", extra={**self._who(), "problem": problem})
        elif self.problem is None:
            log.warning("cannot reach the parent", extra={**self._who(), "problem": problem})
        self.problem = problem
        return refused

    def _who(self) -> dict[str, str]:
        return {"node": self.name, "parent": self.parent, "address": self.address}
