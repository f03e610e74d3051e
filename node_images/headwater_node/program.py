"""A node from its configuration to its exit code."""

from __future__ import annotations

import asyncio
import json
import logging
import signal
from collections.abc import Mapping
from contextlib import AsyncExitStack

from headwater.durations import SECOND
from headwater.errors import HeadwaterError, Invalid, Problem
from headwater.machines.node import Settings
from headwater_node.configuration import Configuration, read
from headwater_node.metrics import NodeMetrics
from headwater_node.runtime import NodeRuntime
from headwater_wire.functions import Functions
from headwater_wire.messages import Codec
from headwater_wire.monitor import Monitor

log = logging.getLogger(__name__)
# How the program ends; `headwater-node --help` says what they mean.
DONE, WRONG_CONFIGURATION, NOT_DRAINED, HALTED = 0, 2, 3, 4
DRAIN_SECONDS = 10.0


def run(path: str | None, environment: Mapping[str, str]) -> int:
    """Run until a signal comes; gives the exit code, and raises if the configuration cannot be used."""
    functions = Functions()
    return asyncio.run(_run(read(path, environment, functions), functions))


async def _run(given: Configuration, functions: Functions) -> int:
    runtime = NodeRuntime(
        given.name,
        given.parent,
        given.queries,
        child=given.role == "child",
        flush_interval=given.flush_interval / SECOND,
        future=given.future,
        settings=Settings("root"),
        codec=Codec(functions),
        credentials=given.credentials,
    )
    async with AsyncExitStack() as stack:
        shown = None
        if given.metrics is not None:
            monitor = Monitor(runtime.unready)
            monitor.show(NodeMetrics(runtime))
            shown = monitor.start(given.metrics)
            stack.push_async_callback(monitor.stop)
        try:
            port = await runtime.start(given.listen, given.parent_address)
        except RuntimeError as error:
            problem = Problem(
                "listen", f"{given.listen} cannot be listened on ({error})", "give a free address"
            )
            raise Invalid("the node cannot be started", [problem]) from error
        stack.push_async_callback(runtime.stop)
        said = {"node": given.name, "role": given.role, "port": port, "metrics": shown}
        # Whoever started the program reads where it listens from its first line.
        print(json.dumps(said), flush=True)
        tls = given.credentials is not None
        log.info("started", extra={**said, "parent": given.parent, "tls": tls})
        return await _until_ended(runtime)


async def _until_ended(runtime: NodeRuntime) -> int:
    ended = asyncio.Event()
    for name in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(name, ended.set)
    await _first(ended, runtime.halted)
    drained = False
    if runtime.failed is None:
        ended.clear()
        draining = asyncio.create_task(runtime.drain(DRAIN_SECONDS))
        # Whoever asks a second time does not want to wait.
        await _first(ended, draining)
        drained = draining.done() and draining.result()
        draining.cancel()
    print(json.dumps(runtime.figures()), flush=True)
    if runtime.failed is None:
        return DONE if drained else NOT_DRAINED
    known = isinstance(runtime.failed, HeadwaterError)
    log.error("halted", extra={"problem": str(runtime.failed)}, exc_info=None if known else runtime.failed)
    return HALTED


async def _first(*awaited: asyncio.Event | asyncio.Task[bool]) -> None:
    """Until one of them is there."""
    waits = [
        asyncio.ensure_future(each.wait()) if isinstance(each, asyncio.Event) else each for each in awaited
    ]
    await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    for each, wait in zip(awaited, waits, strict=True):
        if isinstance(each, asyncio.Event):
            wait.cancel()
