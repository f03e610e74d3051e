"""What is served beside the tree is for operators: a device's certificate lets records in, not commands."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import grpc
import grpc.aio

from headwater_wire.hosts import host_of
from headwater_wire.identity import ROLE, Peer
from headwater_wire.offences import Offence, Offences

OPERATOR = "operator"
# Who may say what on the tree's streams is looked at there; health and reflection tell no secrets.
OPEN = ("/headwater.v1.Tree/", "/grpc.health.v1.Health/", "/grpc.reflection.v1alpha.ServerReflection/")


class Gate(grpc.aio.ServerInterceptor):  # type: ignore[type-arg]  # generic in the stubs alone
    """Lets nobody without the role call other services; for servers that ask for certificates."""

    def __init__(self, offences: Offences) -> None:
        self._offences = offences

    async def intercept_service(
        self, continuation: Callable[[Any], Awaitable[Any]], handler_call_details: Any
    ) -> Any:
        handler = await continuation(handler_call_details)
        if handler is None or handler_call_details.method.startswith(OPEN):
            return handler
        return _guarded(handler, self._check)

    async def _check(self, context: Any) -> None:
        peer = Peer.of(context.auth_context())
        if OPERATOR not in peer.roles:
            who = ", ".join(sorted(peer.names)) or "somebody without a name"
            sentence = f"{who} is no operator; use a certificate with the URI {ROLE}{OPERATOR}"
            who = peer.label or host_of(context.peer())
            self._offences.note(Offence.PERMISSION, who, sentence)
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, sentence)


def _guarded(handler: Any, check: Callable[[Any], Awaitable[None]]) -> Any:
    serve = handler.unary_unary or handler.unary_stream or handler.stream_unary or handler.stream_stream

    async def one(request: Any, context: Any) -> Any:
        await check(context)
        return await serve(request, context)

    async def many(request: Any, context: Any) -> AsyncIterator[Any]:
        await check(context)
        async for reply in serve(request, context):
            yield reply

    if handler.response_streaming:
        made = (
            grpc.stream_stream_rpc_method_handler
            if handler.request_streaming
            else grpc.unary_stream_rpc_method_handler
        )
        return made(many, handler.request_deserializer, handler.response_serializer)
    single = (
        grpc.stream_unary_rpc_method_handler
        if handler.request_streaming
        else grpc.unary_unary_rpc_method_handler
    )
    return single(one, handler.request_deserializer, handler.response_serializer)
