"""A node from its configuration to its exit code."""

from __future__ import annotations

import asyncio
import json
import logging
import signal
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack

import numpy as np

from headwater.durations import SECOND
from headwater.errors import HeadwaterError, Invalid, Problem
from headwater.machines.bounds import Settings
from headwater_node.archive import Archive
from headwater_node.configuration import Configuration, read
from headwater_node.metrics import NodeMetrics
from headwater_node.runtime import NodeRuntime
from headwater_wire.functions import Functions
from headwater_wire.handshakes import Handshakes
from headwater_wire.messages import Codec
from headwater_wire.monitor import Monitor

log = logging.getLogger(__name__)
# How the program ends; `headwater-node --help` says what they mean.
DONE, WRONG_CONFIGURATION, NOT_DRAINED, HALTED, REPLACED = 0, 2, 3, 4, 5
STATUS_SECONDS = 0.5
DRAIN_SECONDS = 10.0


def run(
    path: str | None, environment: Mapping[str, str], handshakes: Handshakes | None = None, *, status: bool
) -> int:
    """Run until a signal comes; gives the exit code, and raises if the configuration cannot be used."""
    # Sums beyond float64 are infinite, as results say: no lines of numpy's beside them.
    np.seterr(over="ignore", invalid="ignore")
    given = read(path, environment)
    return asyncio.run(_run(given, lambda: read(path, environment), handshakes, status))


async def _run(
    given: Configuration, again: Callable[[], Configuration], handshakes: Handshakes | None, status: bool
) -> int:
    runtime = NodeRuntime(
        given.name,
        given.parent,
        child=given.role == "child",
        flush_interval=given.flush_interval / SECOND,
        future=given.future,
        settings=Settings(silence=given.idle_after, horizon=given.horizon),
        codec=Codec(Functions()),
        address=given.advertise,
        credentials=given.credentials,
        archive=None if given.archive is None else Archive(given.name, given.archive),
        limit=given.ingest_limit,
        follows=given.follows,
        plain_below=given.plain_below,
    )
    if handshakes is not None:
        handshakes.tell(runtime.exchange.refuse_connection)
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
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, _turn, runtime, again)
        said = {"node": given.name, "role": given.role, "port": port, "metrics": shown}
        # Whoever started the program reads where it listens from its first line.
        print(json.dumps(said), flush=True)
        tls = given.credentials is not None
        log.info("started", extra={**said, "parent": given.parent, "tls": tls})
        return await _until_ended(runtime, status)


def _turn(runtime: NodeRuntime, again: Callable[[], Configuration]) -> None:
    """Read the configuration again: another parent holds at once, all else when the node is started anew."""
    try:
        given = again()
    except Invalid as error:
        log.error("the configuration is not taken", extra={"problem": str(error)})
        return
    if not given.follows:
        runtime.turn(given.parent, given.parent_address)


async def _until_ended(runtime: NodeRuntime, status: bool) -> int:
    ended = asyncio.Event()
    for name in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(name, ended.set)
    showing = asyncio.create_task(_show(runtime)) if status else None
    await _first(ended, runtime.halted)
    if showing is not None:
        showing.cancel()
    drained = False
    if runtime.failed is None and not runtime.machine.stale:
        ended.clear()
        draining = asyncio.create_task(runtime.drain(DRAIN_SECONDS))
        # Whoever asks a second time does not want to wait.
        await _first(ended, draining)
        drained = draining.done() and draining.result()
        draining.cancel()
    print(json.dumps(runtime.figures()), flush=True)
    if runtime.machine.stale:
        log.error("ended: another process has this node's name since", extra={"node": runtime.machine.name})
        return REPLACED
    if runtime.failed is None:
        return DONE if drained else NOT_DRAINED
    known = isinstance(runtime.failed, HeadwaterError)
    log.error("halted", extra={"problem": str(runtime.failed)}, exc_info=None if known else runtime.failed)
    return HALTED


async def _show(runtime: NodeRuntime) -> None:
    while True:
        await asyncio.sleep(STATUS_SECONDS)
        print(json.dumps(runtime.figures()), flush=True)


async def _first(*awaited: asyncio.Event | asyncio.Task[bool]) -> None:
    """Until one of them is there."""
    waits = [
        asyncio.ensure_future(each.wait()) if isinstance(each, asyncio.Event) else each for each in awaited
    ]
    await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    for each, wait in zip(awaited, waits, strict=True):
        if isinstance(each, asyncio.Event):
            wait.cancel()
