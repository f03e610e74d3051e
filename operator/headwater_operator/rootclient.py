"""The service Control of a root, as the operator calls it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import grpc

from headwater.errors import PermanentError, RetryableError
from headwater_operator.names import ROOT
from headwater_operator.specification import Specification
from headwater_wire.v1 import control_pb2 as pb
from headwater_wire.v1 import control_pb2_grpc

# A root that replays a long log does not answer yet: it is asked again later, and nothing waits here for it.
SECONDS = 2.0
Reply = TypeVar("Reply")
# Key, certificate and authority: PEM.
Material = tuple[bytes, bytes, bytes]


class RootUnreachable(RetryableError):
    """No answer: the root starts, or is gone, or cannot be reached from here."""


class RootRefuses(PermanentError):
    """The root does not take what it was told."""


class RootClient:
    """A root; every call answers soon or raises."""

    def __init__(self, channel: grpc.Channel) -> None:
        stub = control_pb2_grpc.ControlStub(channel)  # type: ignore[no-untyped-call]  # generated
        self._apply: Callable[..., pb.ApplySpecReply] = stub.ApplySpec
        self._status: Callable[..., pb.StatusReply] = stub.Status
        self._list: Callable[..., pb.ListQueriesReply] = stub.ListQueries

    def status(self) -> pb.StatusReply:
        """How it stands, with all its nodes."""
        found = _answered(self._status, pb.StatusRequest(limit=1))
        while found.next_nodes:
            more = _answered(self._status, pb.StatusRequest(limit=1, nodes_after=found.next_nodes))
            found.nodes.extend(more.nodes)
            found.next_nodes = more.next_nodes
        return found

    def apply(self, given: Specification) -> pb.ApplySpecReply:
        return _answered(self._apply, given.parts())

    def queries(self) -> list[pb.ListedQuery]:
        """All of them, page after page."""
        listed: list[pb.ListedQuery] = []
        after = 0
        while True:
            reply = _answered(self._list, pb.ListQueriesRequest(after=after))
            listed += reply.queries
            if not reply.next:
                return listed
            after = reply.next

    def active(self) -> dict[str, pb.ListedQuery]:
        """The queries that are computed, by id."""
        return {each.id: each for each in self.queries() if each.state == pb.ListedQuery.STATE_ACTIVE}


@contextmanager
def connected(address: str, material: Material | None) -> Iterator[RootClient]:
    """A root at an address; it must prove that it is one where there is `material`."""
    if material is None:
        channel = grpc.insecure_channel(address)
    else:
        key, certificate, authority = material
        credentials = grpc.ssl_channel_credentials(authority, key, certificate)
        channel = grpc.secure_channel(address, credentials, [("grpc.ssl_target_name_override", ROOT)])
    with channel:
        yield RootClient(channel)


def _answered(method: Callable[..., Reply], request: Any) -> Reply:
    """The one place where states of gRPC become errors."""
    try:
        return method(request, timeout=SECONDS)
    except grpc.RpcError as error:
        code, said = error.code(), error.details() or ""
        if code in (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.FAILED_PRECONDITION):
            raise RootRefuses(said) from error
        raise RootUnreachable(f"{code.name}: {said}") from error
