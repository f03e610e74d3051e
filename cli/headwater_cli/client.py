"""The root that a command speaks to, and what goes wrong on the way, in sentences."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import click
import grpc

from headwater.errors import Problem
from headwater_cli import runs
from headwater_wire.v1 import control_pb2 as pb
from headwater_wire.v1 import control_pb2_grpc

SECONDS = 10.0
_PROBLEMS = "headwater-problems-bin"
Reply = TypeVar("Reply")

at_root = click.option(
    "--root",
    metavar="ADDRESS",
    envvar="HEADWATER_ROOT",
    show_envvar=True,
    help="Where the root listens, such as 127.0.0.1:7600; without it the one run of yours on this machine.",
)


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

    def __init__(self, where: str, channel: grpc.Channel) -> None:
        self.where = where
        stub = control_pb2_grpc.ControlStub(channel)  # type: ignore[no-untyped-call]  # generated
        self._add: Callable[..., pb.AddQueryReply] = stub.AddQuery
        self._remove: Callable[..., pb.RemoveQueryReply] = stub.RemoveQuery
        self._list: Callable[..., pb.ListQueriesReply] = stub.ListQueries
        self._status: Callable[..., pb.StatusReply] = stub.Status

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

    def _call(self, method: Callable[..., Reply], request: Any) -> Reply:
        try:
            return method(request, timeout=SECONDS)
        except grpc.RpcError as error:
            raise click.ClickException(_sentence(self.where, error)) from error


@contextmanager
def connected(given: str | None) -> Iterator[Root]:
    where = address(given)
    with grpc.insecure_channel(where) as channel:
        yield Root(where, channel)


def _sentence(where: str, error: Any) -> str:
    code, said = error.code(), error.details() or ""
    if code in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED):
        return f"no root answers at {where}; see that it runs and that --root names where it listens"
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
