"""Services beside the tree are for operators."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from headwater_wire.credentials import Credentials
from headwater_wire.gate import Gate
from headwater_wire.offences import Offences
from tests.certificates import Authority


async def one(request: bytes, context: Any) -> bytes:
    return request


async def many(request: bytes, context: Any) -> AsyncIterator[bytes]:
    yield request
    yield request


async def last(requests: AsyncIterator[bytes], context: Any) -> bytes:
    return [request async for request in requests][-1]


async def each(requests: AsyncIterator[bytes], context: Any) -> AsyncIterator[bytes]:
    async for request in requests:
        yield request


HANDLERS = {
    "One": grpc.unary_unary_rpc_method_handler(one),
    "Many": grpc.unary_stream_rpc_method_handler(many),
    "Last": grpc.stream_unary_rpc_method_handler(last),
    "Each": grpc.stream_stream_rpc_method_handler(each),
}


async def said() -> AsyncIterator[bytes]:
    yield b"a"
    yield b"b"


async def answers(server: Credentials, client: Credentials, service: str) -> list[object]:
    """What each kind of call answers, or the status with which it ends."""
    running = grpc.aio.server(interceptors=[Gate(Offences())])
    running.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, HANDLERS),))
    port = running.add_secure_port("127.0.0.1:0", server.server())
    await running.start()
    options = (("grpc.ssl_target_name_override", "root"),)
    found: list[object] = []
    try:
        async with grpc.aio.secure_channel(f"127.0.0.1:{port}", client.channel(), options) as channel:
            # The stubs ask for serializers, without which bytes stay bytes.
            plain: Any = channel
            calls = [
                plain.unary_unary(f"/{service}/One")(b"a"),
                plain.unary_stream(f"/{service}/Many")(b"a"),
                plain.stream_unary(f"/{service}/Last")(said()),
                plain.stream_stream(f"/{service}/Each")(said()),
            ]
            for call in calls:
                streamed = hasattr(call, "__aiter__")
                try:
                    found.append([reply async for reply in call] if streamed else await call)
                except grpc.aio.AioRpcError as error:
                    found.append(error.code())
    finally:
        await running.stop(0)
    return found


@pytest.mark.parametrize(
    "role, service, allowed",
    [
        ("operator", "x.Control", True),
        ("node", "x.Control", False),
        ("source", "x.Control", False),
        (None, "x.Control", False),
        (None, "headwater.v1.Tree", True),
        (None, "headwater.v1.TreeControl", False),
    ],
)
def test_only_operators_call_other_services(
    tmp_path: Path, role: str | None, service: str, allowed: bool
) -> None:
    authority = Authority(tmp_path)
    found = asyncio.run(answers(authority.issue("root"), authority.issue("s", role=role), service))
    if allowed:
        assert found == [b"a", [b"a", b"a"], b"b", [b"a", b"b"]]
    else:
        assert found[:2] == [grpc.StatusCode.PERMISSION_DENIED] * 2
        # A client that was writing when it was refused sees only that the call is gone.
        assert set(found[2:]) <= {grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.INTERNAL}
