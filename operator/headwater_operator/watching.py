"""What happens in the cluster, as keys of topologies to look at.

kopf lists and watches, and nothing more: its handlers of raw events need no finalizer and no annotation. It
runs in a thread and an event loop of its own, because it stops every task that was begun after it in the loop
where it ends. And it does end: by a forbidden watch, a definition that is gone, an answer that it does
not know; then rights are asked for again, and it is begun anew with what is allowed.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import kopf

from headwater_operator import kinds, names
from headwater_operator.access import WATCHED, Access, NotAllowed, Right, review
from headwater_operator.cluster import PAGE, Cluster
from headwater_operator.connection import CONNECT_SECONDS, READ_SECONDS, Connection
from headwater_operator.kinds import Kind
from headwater_operator.metrics import Metrics
from headwater_operator.nodes import Nodes
from headwater_operator.settings import Settings, WatchTiming
from headwater_operator.workqueue import WorkQueue
from headwater_wire.logs import told

log = logging.getLogger(__name__)

# A topology: its namespace and its name.
Key = tuple[str, str]
# Objects that belong to a topology change in bursts; one look at the end of each is enough.
SETTLE = 0.2
# Pauses before watches are begun anew, in seconds, and after which time without an end they count as sound.
FIRST, LONGEST, SOUND = 1.0, 30.0, 60.0
# Pauses of kopf before it makes a request again; then it ends.
KOPF_PAUSES = (0.5, 1.0, 2.0)
# Seconds that kopf has to stop, and then what it leaves.
STOP = 1.0
# How long the first lists may take before everything is looked at without them.
LISTED = 15.0
# What changes with what the author of an object has said.
_SAID = ("uid", "generation", "labels", "annotations", "deletionTimestamp")


class Pulse:
    """When each watch was last heard of: by a list, by a watch that was opened, or by an event of it."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._changed = threading.Condition()
        self._heard: dict[str, float] = {}
        self._silent: set[str] = set()
        self._refused: set[str] = set()

    def expect(self, *paths: str) -> None:
        """These from now on, and no others."""
        with self._changed:
            self._heard = dict.fromkeys(paths, self._clock())
            self._silent = set(paths)

    def beat(self, path: str) -> bool:
        """It is heard of; gives whether it has been before."""
        with self._changed:
            if path not in self._heard:
                return False
            known = path not in self._silent
            self._heard[path] = self._clock()
            self._silent.discard(path)
            self._changed.notify_all()
            return known

    def refuse(self, path: str) -> None:
        """It was forbidden, whatever had been said before."""
        with self._changed:
            self._refused.add(path)

    def refused(self, path: str) -> bool:
        with self._changed:
            return path in self._refused

    def age(self) -> float:
        """Seconds since the one that has been silent for longest was heard of."""
        with self._changed:
            return self._clock() - min(self._heard.values()) if self._heard else 0.0

    def wait(self, seconds: float) -> bool:
        """Until all of them have been heard of."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._silent, seconds)


class Router:
    """Which topologies an event is about. Called in kopf's thread, but for `known`."""

    def __init__(self, queue: WorkQueue[Key], nodes: Nodes) -> None:
        self._queue, self._nodes = queue, nodes
        self._lock = threading.Lock()
        self._seen: dict[Key, object] = {}
        # Of each query, by its uid: what it says, and the topology that it is for.
        self._queries: dict[str, tuple[object, Key]] = {}

    @property
    def known(self) -> set[Key]:
        with self._lock:
            return set(self._seen)

    def heard(self, kind: Kind, type: str | None, document: Mapping[str, Any]) -> None:
        gone = type == "DELETED"
        if kind is kinds.TOPOLOGY:
            self._topology(document, gone)
        elif kind is kinds.QUERY:
            self._query(document, gone)
        elif kind is kinds.NODE:
            name = document["metadata"]["name"]
            if self._nodes.remove(name) if gone else self._nodes.update(document):
                self.wake()
        elif topology := (document["metadata"].get("labels") or {}).get(names.TOPOLOGY):
            self._queue.add_after((document["metadata"]["namespace"], topology), SETTLE)

    def wake(self, others: Iterable[Key] = ()) -> None:
        """All that are known, and others."""
        for key in self.known.union(others):
            self._queue.add(key)

    def resync(self, listed: Iterable[Key]) -> None:
        """Those that are there: they and those that are no longer there are looked at."""
        there = set(listed)
        self.wake(there)
        with self._lock:
            for key in set(self._seen) - there:
                del self._seen[key]

    def _topology(self, document: Mapping[str, Any], gone: bool) -> None:
        key = document["metadata"]["namespace"], document["metadata"]["name"]
        said = _said(document)
        with self._lock:
            # What the operator itself has put into its status is no news.
            changed = self._seen.get(key) != said
            if gone:
                self._seen.pop(key, None)
            else:
                self._seen[key] = said
        if changed or gone:
            self._queue.add(key)

    def _query(self, document: Mapping[str, Any], gone: bool) -> None:
        metadata, spec = document["metadata"], document.get("spec") or {}
        uid, said = metadata["uid"], _said(document)
        key = metadata["namespace"], str(spec.get("topologyRef"))
        before = self._queries.pop(uid, None)
        if not gone:
            self._queries[uid] = said, key
        if gone or before is None or before[0] != said:
            self._queue.add(key)
            # The one that it was for until now has lost it.
            if before is not None and before[1] != key:
                self._queue.add(before[1])


def _said(document: Mapping[str, Any]) -> object:
    """What its author has said in an object: all but its status."""
    metadata = document["metadata"]
    return [metadata.get(each) for each in _SAID]


class Watching:
    """Runs until it is stopped, whatever the API server does."""

    def __init__(
        self, cluster: Cluster, settings: Settings, queue: WorkQueue[Key], nodes: Nodes, metrics: Metrics
    ) -> None:
        self._cluster, self._settings, self._metrics = cluster, settings, metrics
        self._nodes, self._router = nodes, Router(queue, nodes)
        self.pulse = Pulse()
        # Set once everything there is has been listed: nothing may be planned on half a cluster.
        self.started = threading.Event()
        self._access: Access | None = None
        self._missing = frozenset[Right]()
        self._ended = threading.Event()
        # Everything is to be looked at soon.
        self._due = threading.Event()
        # Ends the present run of kopf, from any thread.
        self._interrupt: Callable[[], None] = lambda: None
        self._threads = [
            threading.Thread(target=target, name=name, daemon=True)
            for name, target in (("watching", self._watching), ("resync", self._resyncing))
        ]

    @property
    def missing(self) -> frozenset[Right]:
        """Rights that the account lacks, as last asked."""
        return self._missing

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self, patience: float) -> None:
        self._ended.set()
        self._due.set()
        self._interrupt()
        until = time.monotonic() + patience
        for thread in filter(threading.Thread.is_alive, self._threads):
            thread.join(max(until - time.monotonic(), 0.0))

    def silent(self) -> str | None:
        """Why the process should be started anew; None if it is sound."""
        age, limit = self.pulse.age(), self._settings.watch.silence
        return f"a watch has been silent for {age:.0f} s" if age > limit else None

    def _watching(self) -> None:
        pause, said = FIRST, ""
        while not self._ended.is_set():
            # A wait for rights is no silence.
            self.pulse.expect("rights")
            began = time.monotonic()
            try:
                self._access = self._reviewed()
                self._run(self._access)
                said = ""
            except Exception as error:
                problem = told("the watches have ended", error)
                if problem != said:
                    log.error("watches are begun anew", extra={"problem": problem})
                    log.debug("how they ended", exc_info=error)
                said = problem
            if time.monotonic() - began > SOUND:
                pause = FIRST
            if self._ended.wait(pause):
                return
            pause = min(2 * pause, LONGEST)
            self._metrics.watches_restarted()

    def _reviewed(self) -> Access:
        try:
            found = review(self._cluster, self._settings.watch_namespaces)
        except NotAllowed as error:
            self._tell(error.missing)
            raise
        self._tell(found.missing)
        # Some authorizers allow by word what they forbid by deed.
        if found.nodes and self.pulse.refused(kinds.NODE.collection()):
            return replace(found, nodes=False)
        return found

    def _tell(self, missing: frozenset[Right]) -> None:
        for right in sorted(missing - self._missing, key=str):
            log.warning("a right is missing", extra={"right": str(right)})
        for right in sorted(self._missing - missing, key=str):
            log.info("a right is there now", extra={"right": str(right)})
        self._missing = missing

    def _run(self, access: Access) -> None:
        """Watch until kopf ends, by an error or because it is told to."""
        watched = [*WATCHED, *([kinds.NODE] if access.nodes else [])]
        scopes = access.namespaces or [None]
        paths = {
            kind.collection(scope): kind
            for kind in watched
            for scope in (scopes if kind.namespaced else [None])
        }
        self.pulse.expect(*paths)
        self._due.set()
        registry = kopf.OperatorRegistry()
        login = _Login(self._cluster.connection, self.pulse, self._due.set)
        kopf.on.login(registry=registry)(login.login)
        for kind in watched:
            listen = kopf.on.event(
                id=kind.plural,
                group=kind.group,
                version=kind.version,
                plural=kind.plural,
                registry=registry,
            )
            listen(self._handler(kind))

        loop = asyncio.new_event_loop()
        loop.set_exception_handler(_aside)
        stop = asyncio.Event()

        def interrupt() -> None:
            try:
                loop.call_soon_threadsafe(stop.set)
            except RuntimeError:
                """That run has ended already."""

        async def run() -> None:
            tasks = await kopf.spawn_tasks(
                registry=registry,
                settings=_kopf_settings(self._settings.watch),
                standalone=True,
                clusterwide=access.namespaces is None,
                namespaces=access.namespaces or (),
                stop_flag=stop,
            )
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            await _end(tasks)
            await login.close()
            for task in done:
                task.result()

        self._interrupt = interrupt
        if self._ended.is_set():
            interrupt()
        try:
            loop.run_until_complete(run())
        finally:
            loop.close()

    def _handler(self, kind: Kind) -> Callable[..., Any]:
        async def heard(event: Any, namespace: str | None, **_: Any) -> None:
            scope = None if self._access is None or self._access.namespaces is None else namespace
            self.pulse.beat(kind.collection(scope))
            self._metrics.heard(kind.resource)
            self._router.heard(kind, event["type"], event["object"])

        return heard

    def _resyncing(self) -> None:
        """Repairs what events have missed: nothing is told of what went away while nobody watched."""
        pause = self._settings.resync
        while True:
            self._due.wait(pause)
            self._due.clear()
            if self._ended.is_set():
                return
            if self._access is None:
                continue
            self.pulse.wait(LISTED)
            pause = self._settings.resync
            try:
                self._resync(self._access)
            except Exception as error:
                log.warning("not everything could be looked at", extra={"problem": str(error)})
                log.debug("what went wrong", exc_info=error)
                pause = min(pause, LONGEST if self.started.is_set() else FIRST)

    def _resync(self, access: Access) -> None:
        if access.nodes:
            self._nodes.replace(self._cluster.list(kinds.NODE))
        else:
            self._nodes.forget()
        self._router.resync(
            (each["metadata"]["namespace"], each["metadata"]["name"])
            for scope in access.namespaces or [None]
            for each in self._cluster.list(kinds.TOPOLOGY, scope)
        )
        self.started.set()
        again = self._reviewed()
        if (again.namespaces, again.nodes) != (access.namespaces, access.nodes):
            log.info("rights have changed: the watches are begun anew")
            self._interrupt()


async def _end(tasks: Collection[asyncio.Task[Any]]) -> None:
    """All that kopf has begun, within a time of our own.

    After an error it would cancel its watches together with the tasks by which they tell a pause from an end:
    they take it for a pause and go on, and it waits for them for ever. Those tasks are left to the watches.
    """
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks, timeout=STOP)
    left = [
        task
        for task in asyncio.all_tasks() - {asyncio.current_task()}
        if not task.get_name().startswith("pause-waiter")
    ]
    for task in left:
        task.cancel()
    if left:
        await asyncio.wait(left, timeout=STOP)


def _aside(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """What goes wrong while kopf is stopped, when nobody waits for it any more."""
    log.debug("beside the watches", extra={"problem": context.get("message")})


class _Login:
    """Sessions for kopf with the credentials of the operator's own connection, which also feel the pulse.

    `relisted` is called when kopf lists again what it has watched already: its stream was broken for so long
    that it could not be taken up.
    """

    def __init__(self, connection: Connection, pulse: Pulse, relisted: Callable[[], None]) -> None:
        self._connection, self._pulse, self._relisted = connection, pulse, relisted
        self._last = float("-inf")
        self._sessions: list[aiohttp.ClientSession] = []
        # What stands before each path where a server is reached through another.
        self._prefix = ""

    async def login(self, **_: Any) -> kopf.AiohttpSession:
        # kopf asks again whenever the API server does not know a token, without a pause of its own.
        await asyncio.sleep(self._last + 1.0 - time.monotonic())
        self._last = time.monotonic()
        found = await asyncio.to_thread(self._connection.credentials)
        self._prefix = urlsplit(found.server).path
        trace = aiohttp.TraceConfig()
        trace.on_request_end.append(self._answered)
        session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, ssl=found.tls),
            headers={"User-Agent": names.MANAGER, **found.headers},
            trace_configs=[trace],
        )
        self._sessions = [*(each for each in self._sessions if not each.closed), session]
        return kopf.AiohttpSession(server=found.server, aiohttp_session=session)

    async def close(self) -> None:
        for session in self._sessions:
            await session.close()

    async def _answered(
        self, session: aiohttp.ClientSession, context: object, params: aiohttp.TraceRequestEndParams
    ) -> None:
        path = params.url.path.removeprefix(self._prefix)
        if params.response.status < 400:
            known = self._pulse.beat(path)
            if known and not {"watch", "continue"} & set(params.url.query):
                self._relisted()
        elif params.response.status == 403:
            self._pulse.refuse(path)


def _kopf_settings(watch: WatchTiming) -> kopf.OperatorSettings:
    found = kopf.OperatorSettings()
    found.posting.enabled = False
    # Else the first event comes after a minute where namespaces and definitions may not be listed.
    found.scanning.disabled = True
    found.watching.server_timeout = watch.server
    found.watching.client_timeout = watch.client
    # A bookmark comes every minute; a stream without any is dead before the client's own time is over.
    found.watching.inactivity_timeout = (watch.server + watch.client) / 2
    found.watching.connect_timeout = CONNECT_SECONDS
    found.watching.chunk_size = PAGE
    found.watching.label_selectors[_owned] = f"{names.MANAGED_BY}={names.MANAGED},{names.TOPOLOGY}"
    found.networking.connect_timeout = CONNECT_SECONDS
    found.networking.request_timeout = CONNECT_SECONDS + READ_SECONDS
    found.networking.error_backoffs = KOPF_PAUSES
    # kopf takes away what it takes for its own: no object has a finalizer of this name.
    found.persistence.finalizer = f"{names.GROUP}/no-finalizer"
    # The program ends by itself.
    found.process.ultimate_exiting_timeout = None
    return found


def _owned(resource: Any) -> bool:
    return bool(resource.group != names.GROUP and resource.plural != kinds.NODE.plural)
