"""The inbox over gRPC: the driver serves it, and Spark's planner and executors, processes of their own, ask.

A channel is made in the process that uses it, never before a fork.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor

import grpc

from headwater_spark.inbox import Inbox
from headwater_wire.credentials import Credentials
from headwater_wire.v1 import inbox_pb2 as pb
from headwater_wire.v1 import inbox_pb2_grpc as pb_grpc

# So many bytes of records go into a message, unless one alone is longer.
PORTION = 1 << 20
THREADS = 16
# The name in the certificate of a root.
ROOT = "root"
# A record may be as long as a message of the tree, and a little is around it.
_OPTIONS = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
# How long a call may take beside what it waits for, in seconds.
_PATIENCE = 60.0


class Service(pb_grpc.InboxServicer):
    """Adapts calls to the inbox."""

    def __init__(self, inbox: Inbox, token: str, finished: Callable[[int], None]) -> None:
        self._inbox, self._finished = inbox, finished
        self._expected = f"Bearer {token}".encode()

    def _check(self, context: grpc.ServicerContext) -> None:
        given = dict(context.invocation_metadata()).get("authorization", "")
        said = given.encode() if isinstance(given, str) else given
        if not hmac.compare_digest(said, self._expected):
            context.abort(grpc.StatusCode.PERMISSION_DENIED, "the inbox is for this root's Spark job alone")

    def Reach(self, request: pb.ReachRequest, context: grpc.ServicerContext) -> pb.Reached:
        self._check(context)
        position, watermark = self._inbox.reach(request.after, request.bytes, request.wait / 1_000)
        return pb.Reached(position=position, watermark=watermark)

    def Plan(self, request: pb.Range, context: grpc.ServicerContext) -> pb.Planned:
        self._check(context)
        lasts, watermarks = self._inbox.plan(request.first, request.last, max(request.parts, 1))
        return pb.Planned(lasts=lasts, watermarks=watermarks.tolist())

    def Read(self, request: pb.Range, context: grpc.ServicerContext) -> Iterator[pb.Records]:
        self._check(context)
        return _portions(request.first, self._inbox.read(request.first, request.last))

    def Finish(self, request: pb.Finished, context: grpc.ServicerContext) -> pb.FinishedReply:
        self._check(context)
        self._finished(request.position)
        return pb.FinishedReply()


def _portions(first: int, records: Iterable[bytes]) -> Iterator[pb.Records]:
    message, size = pb.Records(first=first), 0
    for data in records:
        if message.records and size + len(data) > PORTION:
            yield message
            first += len(message.records)
            message, size = pb.Records(first=first), 0
        message.records.append(data)
        size += len(data)
    if message.records:
        yield message


def served(
    service: Service, host: str, port: int = 0, credentials: Credentials | None = None
) -> tuple[grpc.Server, str]:
    """A server on a port of a host, or on a free one, and its address; with the certificate of the root it is
    nothing that others could read."""
    server = grpc.server(ThreadPoolExecutor(THREADS, "inbox"), options=_OPTIONS)
    pb_grpc.add_InboxServicer_to_server(service, server)  # type: ignore[no-untyped-call]  # generated
    address = f"{_bracketed(host)}:{port}"
    if credentials is None:
        port = server.add_insecure_port(address)
    else:
        # Who asks proves itself by the word.
        port = server.add_secure_port(address, credentials.server(mutual=False))
    server.start()
    return server, f"{_bracketed(host)}:{port}"


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


class Client:
    """The inbox as the planner and the executors have it."""

    def __init__(self, address: str, token: str, ca: str = "") -> None:
        """`ca` is whose certificate the root has, as PEM, if it has one."""
        if ca:
            # Whatever its address is.
            options = [*_OPTIONS, ("grpc.ssl_target_name_override", ROOT)]
            trusted = grpc.ssl_channel_credentials(ca.encode())
            self._channel = grpc.secure_channel(address, trusted, options=options)
        else:
            self._channel = grpc.insecure_channel(address, options=_OPTIONS)
        self._stub = pb_grpc.InboxStub(self._channel)  # type: ignore[no-untyped-call]  # generated
        self._metadata = [("authorization", f"Bearer {token}")]

    def reach(self, after: int, size: int, wait: float) -> tuple[int, int | None]:
        request = pb.ReachRequest(after=after, bytes=size, wait=int(wait * 1_000))
        reached = self._stub.Reach(request, metadata=self._metadata, timeout=wait + _PATIENCE)
        return reached.position, reached.watermark if reached.HasField("watermark") else None

    def plan(self, first: int, last: int, parts: int) -> tuple[list[int], list[int]]:
        request = pb.Range(first=first, last=last, parts=parts)
        planned = self._stub.Plan(request, metadata=self._metadata, timeout=_PATIENCE)
        return list(planned.lasts), list(planned.watermarks)

    def read(self, first: int, last: int) -> Iterator[tuple[int, bytes]]:
        request = pb.Range(first=first, last=last)
        for message in self._stub.Read(request, metadata=self._metadata):
            yield from enumerate(message.records, message.first)

    def finish(self, position: int) -> None:
        self._stub.Finish(pb.Finished(position=position), metadata=self._metadata, timeout=_PATIENCE)

    def close(self) -> None:
        self._channel.close()
