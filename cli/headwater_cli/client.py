"""The root that a command speaks to, and what goes wrong on the way, in sentences."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import wraps
from typing import Any, TypeVar

import click
import grpc

from headwater.errors import Problem
from headwater_cli import addresses, certificates, handshakes, runs
from headwater_wire.credentials import Credentials
from headwater_wire.v1 import control_pb2 as pb
from headwater_wire.v1 import control_pb2_grpc, tree_pb2

SECONDS = 10.0
# How many sources are assigned by one request: with the longest names they are below its 65,536 bytes.
ASSIGNED = 100
# So many sources the root is asked about: all that there are.
EVERY = 1_000_000_000
_PROBLEMS = "headwater-problems-bin"
# By this name the root is known, wherever it runs.
_ROOT = "root"
Reply = TypeVar("Reply")


@dataclass(frozen=True, slots=True)
class At:
    """The root that a command asks for: its address if one was given, and with which certificate."""

    given: str | None
    credentials: Credentials | None = None


def at_root(command: Callable[..., Any]) -> Callable[..., Any]:
    """Options that say which root; the command gets them as `root`."""

    @click.option(
        "--root",
        metavar="ADDRESS",
        callback=addresses.taken,
        envvar="HEADWATER_ROOT",
        show_envvar=True,
        help="Where the root listens, such as 127.0.0.1:7600; without it the one run of yours here.",
    )
    @certificates.taken
    @wraps(command)
    def called(*arguments: Any, root: str | None, credentials: Credentials | None, **options: Any) -> Any:
        return command(*arguments, root=At(root, credentials), **options)

    return called


def address(given: str | None) -> str:
    """What was given, or where the one local run listens."""
    if given:
        return given
    running = runs.found()
    if not running:
        raise click.ClickException(
            "no run of yours was found on this machine; start one with headwater run, or name its root "
            "with --root ADDRESS"
        )
    if len(running) > 1:
        listed = ", ".join(f"{run.address} ({run.topology})" for run in running)
        raise click.ClickException(
            f"{len(running)} runs are on this machine: {listed}; name one with --root ADDRESS"
        )
    return running[0].address


class Root:
    """Control of a root; every call either answers or ends the command with a sentence."""

    def __init__(self, where: str, channel: grpc.Channel, *, tls: bool) -> None:
        self.where, self._tls = where, tls
        stub = control_pb2_grpc.ControlStub(channel)  # type: ignore[no-untyped-call]  # generated
        self._add: Callable[..., pb.AddQueryReply] = stub.AddQuery
        self._remove: Callable[..., pb.RemoveQueryReply] = stub.RemoveQuery
        self._list: Callable[..., pb.ListQueriesReply] = stub.ListQueries
        self._status: Callable[..., pb.StatusReply] = stub.Status
        self._skip: Callable[..., pb.SkipReply] = stub.Skip
        self._retire: Callable[..., pb.RetireReply] = stub.Retire
        self._release: Callable[..., pb.ReleaseReply] = stub.Release
        self._assign: Callable[..., pb.AssignReply] = stub.Assign

    def add(self, document: str) -> pb.AddQueryReply:
        return self._call(self._add, pb.AddQueryRequest(document=document))

    def remove(self, id: str, *, at_once: bool) -> pb.RemoveQueryReply:
        return self._call(self._remove, pb.RemoveQueryRequest(id=id, at_once=at_once))

    def queries(self) -> list[pb.ListedQuery]:
        """All of them, page after page."""
        listed: list[pb.ListedQuery] = []
        after = 0
        while True:
            reply = self._call(self._list, pb.ListQueriesRequest(after=after))
            listed += reply.queries
            if not reply.next:
                return listed
            after = reply.next

    def status(self, sources: int) -> pb.StatusReply:
        """How it stands, with that many sources at most; `next` says whether there are more."""
        reply = self._call(self._status, pb.StatusRequest(limit=min(sources, 1_000)))
        while reply.next and len(reply.sources) < sources:
            limit = min(sources - len(reply.sources), 1_000)
            more = self._call(self._status, pb.StatusRequest(after=reply.next, limit=limit))
            reply.sources.extend(more.sources)
            reply.next = more.next
        return reply

    def knows(self, name: str) -> bool:
        """Whether a source of that name has said hello."""
        return any(each.name == name for each in self.status(EVERY).sources)

    def skip(self, name: str, incarnation: int | None, seq: int) -> pb.SkipReply:
        return self._call(self._skip, pb.SkipRequest(source=_named(name, incarnation), seq=seq))

    def retire(self, name: str, incarnation: int | None) -> pb.RetireReply:
        return self._call(self._retire, pb.RetireRequest(source=_named(name, incarnation)))

    def release(self, name: str) -> pb.ReleaseReply:
        return self._call(self._release, pb.ReleaseRequest(name=name))

    def assign(self, assignment: Mapping[str, str]) -> int:
        """By which child sources are to be read; gives how many of them move."""
        listed = [pb.Assignment(source=source, child=child) for source, child in assignment.items()]
        moved = 0
        for first in range(0, len(listed), ASSIGNED):
            request = pb.AssignRequest(assignments=listed[first : first + ASSIGNED])
            moved += self._call(self._assign, request).moved
        return moved

    def _call(self, method: Callable[..., Reply], request: Any) -> Reply:
        try:
            return method(request, timeout=SECONDS)
        except grpc.RpcError as error:
            raise click.ClickException(_sentence(self.where, error, tls=self._tls)) from error


@contextmanager
def connected(root: At) -> Iterator[Root]:
    where = address(root.given)
    with _channel(where, root.credentials) as channel:
        yield Root(where, channel, tls=root.credentials is not None)


def _channel(where: str, credentials: Credentials | None) -> AbstractContextManager[grpc.Channel]:
    if credentials is None:
        return grpc.insecure_channel(where)
    options = [("grpc.ssl_target_name_override", _ROOT)]
    return grpc.secure_channel(where, credentials.channel(), options)


def _named(name: str, incarnation: int | None) -> tree_pb2.Named:
    return tree_pb2.Named(name=name, incarnation=incarnation or 0)


def _sentence(where: str, error: Any, *, tls: bool) -> str:
    code, said = error.code(), error.details() or ""
    if code in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED):
        naming = f"see that --root names the root, whose certificate bears the name {_ROOT}"
        if remedy := handshakes.remedy(said, tls=tls, option="--root", naming=naming):
            return f"no root answers at {where}: {remedy} ({said})"
        told = f"no root answers at {where}; see that it runs and that --root names where it listens, "
        if tls:
            return told + f"and that it has a certificate of the same CA ({said})"
        return told + "and give --tls-certificate, --tls-key and --tls-ca if it asks for certificates"
    if code is grpc.StatusCode.UNIMPLEMENTED:
        return f"what listens at {where} is no root, or an older one; name the root's own address with --root"
    if code is grpc.StatusCode.INVALID_ARGUMENT and (problems := _problems(error)):
        return "\n  - ".join([said.partition("\n")[0], *problems])
    return said or str(code)


def _problems(error: Any) -> list[str]:
    for name, value in error.trailing_metadata() or ():
        if name == _PROBLEMS:
            told = pb.Problems.FromString(value)
            listed = [str(Problem(each.field, each.message, each.remedy)) for each in told.problems]
            return [*listed, f"and {told.left_out} more"] if told.left_out else listed
    return []
