"""The root from its manifest to its exit code."""

from __future__ import annotations

import asyncio
import errno
import json
import logging
import signal
from collections.abc import Callable, Coroutine, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import numpy as np

from headwater.durations import human
from headwater.errors import Invalid, Problem
from headwater.machines.root import Settings
from headwater.topology import Topology, topology_of
from headwater_root.metrics import RootMetrics
from headwater_root.outbox import OutboxStopped
from headwater_root.runtime import RootRuntime
from headwater_wire.credentials import Credentials
from headwater_wire.functions import Functions
from headwater_wire.handshakes import Handshakes
from headwater_wire.messages import Codec
from headwater_wire.monitor import Monitor
from headwater_wire.pace import Pace

log = logging.getLogger(__name__)
DONE = 0
STATUS_SECONDS = 0.5
# A kind of root, with the arguments of the embedded one.
Make = Callable[..., RootRuntime]


def run(
    manifest: Path,
    directory: Path,
    listen: str,
    *,
    status: bool,
    keep_results: bool,
    snapshot_bytes: int | None,
    metrics: str | None,
    tls: Mapping[str, str | None],
    handshakes: Handshakes | None = None,
    make: Make = RootRuntime,
    ingest_limit: float | None = None,
    managed: bool = False,
) -> int:
    """Run until a signal comes; gives the exit code, and raises if it cannot start or go on. `make` is the
    kind of root."""
    # Sums beyond float64 are infinite, as results say: no lines of numpy's beside them.
    np.seterr(over="ignore", invalid="ignore")
    functions = Functions()
    topology = topology_of(_document(manifest), functions)
    credentials = Credentials.of(tls)
    program = _Program(
        topology,
        directory,
        functions,
        credentials,
        handshakes,
        make,
        status=status,
        keep_results=keep_results,
        snapshot_bytes=snapshot_bytes,
        ingest_limit=ingest_limit,
        managed=managed,
    )
    return asyncio.run(program.run(listen, metrics))


def _document(path: Path) -> dict[str, Any]:
    try:
        document = _loaded(path.read_text(encoding="utf-8"))
    except OSError as error:
        problem = Problem(
            "--topology", f"{path} cannot be read ({error.strerror})", "give a manifest as JSON"
        )
        raise Invalid("the root cannot be started", [problem]) from error
    except ValueError as error:
        problem = Problem("--topology", f"{path} is no manifest ({error})", "give one as JSON or YAML")
        raise Invalid("the root cannot be started", [problem]) from error
    if not isinstance(document, dict):
        problem = Problem("--topology", f"{path} holds no object", "give an AggregationTopology as JSON")
        raise Invalid("the root cannot be started", [problem])
    return document


def _loaded(text: str) -> Any:
    """JSON, or YAML where there is something to read it with."""
    try:
        return json.loads(text)
    except ValueError:
        try:
            import yaml
        except ImportError:
            raise
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(error) from error


class _Program:
    def __init__(
        self,
        topology: Topology,
        directory: Path,
        functions: Functions,
        credentials: Credentials | None,
        handshakes: Handshakes | None,
        make: Make,
        *,
        status: bool,
        keep_results: bool,
        snapshot_bytes: int | None,
        ingest_limit: float | None,
        managed: bool,
    ) -> None:
        self._topology, self._directory, self._status = topology, directory, status
        self._keep_results = keep_results
        # Of the log, before it begins anew.
        self._segment_bytes = topology.root.snapshot_after if snapshot_bytes is None else snapshot_bytes
        self._functions, self._credentials, self._handshakes = functions, credentials, handshakes
        self._make, self._ingest_limit, self._managed = make, ingest_limit, managed
        self._runtime: RootRuntime | None = None

    def _unready(self) -> str | None:
        return "the log is being replayed" if self._runtime is None else self._runtime.unready()

    def _writing(self) -> bool:
        return self._runtime is not None and self._runtime.volume.busy

    def _open(self) -> RootRuntime:
        # Whoever reads the status shows results in their own way.
        asked = self._topology.root.sinks
        runtime = self._make(
            self._topology.queries,
            self._directory,
            Settings(
                expected=self._topology.expected,
                start_timeout=self._topology.start_timeout,
                return_timeout=self._topology.start_timeout,
                keys_per_source=self._topology.limits.keys_per_source,
                managed=self._managed,
            ),
            [sink for sink in asked if not (self._status and sink.type == "console")],
            Codec(self._functions),
            self._credentials,
            name=self._topology.name,
            functions=self._functions,
            keep_results=self._keep_results,
            segment_bytes=self._segment_bytes,
        )
        if self._ingest_limit is not None:
            runtime.pace = Pace(self._ingest_limit)
        return runtime

    def _warn_of_node_settings(self) -> None:
        """Nodes that an operator or `headwater run` starts have the manifest's settings; others do not."""
        given = self._topology.node_settings
        if given and not self._managed and not self._status:
            log.warning(
                "nodes do not read the manifest: give each of them these settings in its own file",
                extra={"settings": {name: human(value) for name, value in given.items()}},
            )

    async def run(self, listen: str, metrics: str | None) -> int:
        async with AsyncExitStack() as stack:
            monitor, shown = Monitor(self._unready, self._writing), None
            if metrics is not None:
                shown = monitor.start(metrics)
                stack.push_async_callback(monitor.stop)
            # In a thread: a replay may take long, and whoever asks meanwhile hears that the root lives.
            try:
                runtime = await asyncio.to_thread(self._open)
            except OSError as error:
                if error.errno in (errno.ENOSPC, errno.EDQUOT):
                    raise OutboxStopped(self._directory, error) from error
                problem = Problem("--directory", f"cannot be used ({error})", "give one that can be written")
                raise Invalid("the root cannot be started", [problem]) from error
            stack.push_async_callback(runtime.stop)
            self._runtime = runtime
            if self._handshakes is not None:
                self._handshakes.tell(runtime.exchange.refuse_connection)
            ended = _ending()
            try:
                port = await _unless(ended, runtime.start(listen))
            except RuntimeError as error:
                problem = Problem(
                    "--listen", f"{listen} cannot be listened on ({error})", "give a free address"
                )
                raise Invalid("the root cannot be started", [problem]) from error
            if port is None:
                log.info("ended before it had started")
                return DONE
            monitor.show(RootMetrics(runtime, self._topology.name))
            # Whoever started the program reads where it listens from its first line.
            print(json.dumps({"node": "root", "port": port, "metrics": shown}), flush=True)
            extra = {"topology": self._topology.name, "port": port, "metrics": shown}
            extra |= {"records": runtime.replayed, "snapshot": runtime.restored}
            extra |= {"replay_seconds": round(runtime.replay_seconds, 3)}
            log.info("started", extra={**extra, "tls": self._credentials is not None})
            self._warn_of_node_settings()
            await self._until_ended(runtime, ended)
        log.info("ended", extra={"position": runtime.machine.position})
        return DONE

    async def _until_ended(self, runtime: RootRuntime, ended: asyncio.Event) -> None:
        while not ended.is_set():
            if runtime.failed is not None:
                raise runtime.failed
            if self._status:
                print(json.dumps(runtime.figures()), flush=True)
            try:
                await asyncio.wait_for(ended.wait(), STATUS_SECONDS)
            except TimeoutError:
                continue
        await runtime.settle()
        if self._status:
            print(json.dumps(runtime.figures()), flush=True)
        if runtime.failed is not None:
            raise runtime.failed


def _ending() -> asyncio.Event:
    """Set when the program is told to end."""
    ended = asyncio.Event()
    for name in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(name, ended.set)
    return ended


async def _unless(ended: asyncio.Event, start: Coroutine[Any, Any, int]) -> int | None:
    """What a start comes to, which may take minutes; None if the end comes first."""
    starting, ending = asyncio.create_task(start), asyncio.create_task(ended.wait())
    await asyncio.wait((starting, ending), return_when=asyncio.FIRST_COMPLETED)
    ending.cancel()
    if starting.done():
        return starting.result()
    starting.cancel()
    return None
