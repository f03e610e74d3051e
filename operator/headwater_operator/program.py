"""The operator from its settings to its exit code.

One process leads, by a lease; others of the same kind stand by. Threads do the work: the lease's, one for
kopf, one that looks at everything now and then, and the workers. The event loop of the main thread answers
probes and takes signals.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import threading
import uuid
from collections.abc import Callable, Mapping

from headwater_operator.cluster import Cluster
from headwater_operator.connection import Connection, configured
from headwater_operator.lease import Lease
from headwater_operator.metrics import Metrics
from headwater_operator.nodes import Nodes
from headwater_operator.settings import Settings
from headwater_operator.watching import Key, Watching
from headwater_operator.workers import Reconcile, Workers
from headwater_operator.workqueue import WorkQueue
from headwater_wire.monitor import Monitor

log = logging.getLogger(__name__)
# How the program ends; `headwater-operator --help` says what they mean.
DONE, WRONG_SETTINGS, LOST = 0, 2, 3
# Seconds that work under way has to end after a signal, and the watches after that.
DRAIN, STOP = 20.0, 3.0

# What makes the part that decides; called once, by whoever leads.
Factory = Callable[[Cluster, Settings, Nodes, Metrics], Reconcile]


def run(settings: Settings, environment: Mapping[str, str], factory: Factory) -> int:
    """Run until a signal comes; gives the exit code, and raises if there is no API server to be found."""
    _quieten()
    return asyncio.run(_Program(settings, environment, factory).run())


class _Program:
    def __init__(self, settings: Settings, environment: Mapping[str, str], factory: Factory) -> None:
        self._settings, self._factory = settings, factory
        self._lease = Lease(
            Connection(configured(environment), pauses=()),
            settings.namespace,
            settings.lease_name,
            # Another start of the same pod is another holder.
            f"{settings.pod_name}_{uuid.uuid4().hex[:8]}",
            _lost,
            settings.lease,
        )
        self._cluster = Cluster(Connection(configured(environment), leading=lambda: self._lease.held))
        self._queue, self._nodes, self._metrics = WorkQueue[Key](), Nodes(), Metrics()
        self._watching = Watching(self._cluster, settings, self._queue, self._nodes, self._metrics)
        self._metrics.depth = lambda: self._queue.depth
        self._metrics.calls = self._cluster.connection.calls
        self._metrics.watch_age = self._watching.pulse.age
        self._metrics.leading = lambda: self._lease.held
        self._metrics.missing = lambda: self._watching.missing
        self._leads = False

    async def run(self) -> int:
        ended, given_up = asyncio.Event(), threading.Event()

        def end() -> None:
            ended.set()
            given_up.set()

        for name in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(name, end)
        monitor = Monitor(self._unready, alive=self._watching.silent)
        monitor.show(self._metrics)
        port = monitor.start(self._settings.metrics_address)
        said = {"identity": self._lease.identity, "metrics": port}
        # Whoever started the program reads where it listens from its first line.
        print(json.dumps(said), flush=True)
        log.info("started", extra=said)
        try:
            self._leads = await asyncio.to_thread(self._lease.acquire, given_up)
            try:
                if self._leads:
                    await self._lead(ended)
            finally:
                # Also after an error of our own: another may do better, and should not have to wait.
                await asyncio.to_thread(self._lease.release)
                await asyncio.to_thread(self._watching.stop, STOP)
        finally:
            await monitor.stop()
        log.info("ended")
        return DONE

    async def _lead(self, ended: asyncio.Event) -> None:
        workers = Workers(
            self._queue,
            self._factory(self._cluster, self._settings, self._nodes, self._metrics),
            self._metrics,
            self._settings.workers,
        )
        self._watching.start()
        listed = asyncio.create_task(_until(self._watching.started))
        ending = asyncio.create_task(ended.wait())
        await asyncio.wait([listed, ending], return_when=asyncio.FIRST_COMPLETED)
        if listed.done():
            workers.start()
            log.info("everything is listed, and looked at")
        await ending
        listed.cancel()
        if not await asyncio.to_thread(self._queue.end, DRAIN):
            log.warning("work is left undone: whoever leads next does it")

    def _unready(self) -> str | None:
        # One that stands by is as it should be: an update of the operator waits for it to be ready.
        if not self._leads or self._watching.started.is_set():
            return None
        missing = sorted(map(str, self._watching.missing))
        return f"not everything is listed yet; rights that are missing: {', '.join(missing) or 'none'}"


async def _until(event: threading.Event) -> None:
    # In no thread that would have to be waited for at the end.
    while not event.is_set():
        await asyncio.sleep(0.05)


def _lost(why: str) -> None:
    """At once, and whatever is under way: another may write by now."""
    log.critical("the lease is lost: the process ends", extra={"problem": why})
    os._exit(LOST)


def _quieten() -> None:
    """kopf tells of every request and every handler; what matters of it is told here."""
    if not logging.getLogger().isEnabledFor(logging.DEBUG):
        logging.getLogger("kopf").setLevel(logging.CRITICAL)
    logging.getLogger("kopf.objects").addFilter(_without_settings)


def _without_settings(record: logging.LogRecord) -> bool:
    """All that kopf is set to goes with each of its lines."""
    vars(record).pop("settings", None)
    return True
