"""Who leads: a Lease that one process holds and renews, and others wait for.

As client-go does it, so that clocks may differ: nobody compares the times that another has written. A lease
is taken over when it has not been seen to change for as long as its holder asked for, by the own clock. Its
holder counts from before each renewal was sent, and gives up some seconds before others may take it.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from headwater_operator import kinds
from headwater_operator.connection import Connection, Request
from headwater_operator.errors import ApiError, Conflict, Gone

log = logging.getLogger(__name__)

Document = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds: how long others wait for the holder, how long the holder counts on it, and how often it
    is renewed or looked at."""

    duration: int = 15
    deadline: float = 10.0
    retry: float = 2.0

    def __post_init__(self) -> None:
        if not 0 < self.retry < self.deadline < self.duration:
            raise ValueError("a lease is renewed often before its deadline, and that is before its end")


class Sight:
    """The lease as one who waits for it sees it."""

    def __init__(self) -> None:
        self._version, self._holder = "", ""
        self._until = 0.0

    def look(self, lease: Document, now: float) -> str:
        """Who holds it now; empty if it may be taken."""
        version = lease["metadata"]["resourceVersion"]
        spec = lease.get("spec") or {}
        if version != self._version:
            self._version, self._holder = version, spec.get("holderIdentity") or ""
            self._until = now + (spec.get("leaseDurationSeconds") or 0)
        return self._holder if now < self._until else ""


class Lease:
    """One Lease object. `lost` is told why, once, in a thread of the lease's own: nothing may go on then.

    Its connection is its own and repeats nothing: a late renewal is worth nothing, the next one is.
    """

    def __init__(
        self,
        connection: Connection,
        namespace: str,
        name: str,
        identity: str,
        lost: Callable[[str], None],
        timing: Timing | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.identity = identity
        self._connection, self._namespace, self._name = connection, namespace, name
        self._lost, self._timing, self._clock = lost, timing or Timing(), clock
        self._sight = Sight()
        self._changed = threading.Condition()
        # The lease as it was last written here, and when that was asked for; None: not held.
        self._written: Document | None = None
        self._renewed = 0.0
        self._ended = False
        self._threads: list[threading.Thread] = []

    @property
    def held(self) -> bool:
        """Whether nobody else can hold it at this moment."""
        with self._changed:
            return self._holds()

    def acquire(self, given_up: threading.Event) -> bool:
        """Wait for it and keep it from then on; gives whether it came before `given_up` did."""
        said = ""
        while not given_up.is_set():
            try:
                holder = self._take()
            except ApiError as error:
                holder, problem = "", str(error)
                if problem != said:
                    log.warning("the lease cannot be had yet", extra={"problem": problem})
                said = problem
            else:
                if self.held:
                    log.info("this process leads", extra={"lease": self._name, "identity": self.identity})
                    self._keep()
                    return True
                if holder != said:
                    log.info("another process leads", extra={"lease": self._name, "holder": holder})
                said = holder
            given_up.wait(self._timing.retry * random.uniform(1.0, 1.2))
        return False

    def release(self) -> None:
        """Let another have it at once. Nothing may be under way any more that relies on it."""
        with self._changed:
            held = self._holds()
            self._ended, self._written = True, None
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()
        if not held:
            return
        try:
            # The last renewal may have come through after all.
            found = self._read()
            if found is not None and found["spec"].get("holderIdentity") == self.identity:
                freed = {"holderIdentity": "", "leaseDurationSeconds": 1, "renewTime": _stamp()}
                self._write(found, {**found["spec"], **freed})
                log.info("the lease is released", extra={"lease": self._name})
        except ApiError as error:
            log.warning("the lease is not released: it ends by itself", extra={"problem": str(error)})

    def _holds(self) -> bool:
        return self._written is not None and self._clock() < self._renewed + self._timing.deadline

    def _take(self) -> str:
        """Take it if it is free; gives who has it."""
        asked = self._clock()
        found = self._read()
        if found is None:
            self._note(self._create(), asked)
            return self.identity
        if holder := self._sight.look(found, self._clock()):
            return holder
        try:
            self._note(self._write(found, self._spec(found)), asked)
        except Conflict:
            # Another was quicker; the next look shows who.
            return ""
        return self.identity

    def _keep(self) -> None:
        for target in (self._renewing, self._watching):
            thread = threading.Thread(target=target, name=f"lease-{target.__name__.strip('_')}", daemon=True)
            thread.start()
            self._threads.append(thread)

    def _renewing(self) -> None:
        failing = False
        while not self._pause(self._timing.retry):
            asked = self._clock()
            try:
                if holder := self._renew(asked):
                    self._lose(f"{holder} has taken it")
                    return
            except ApiError as error:
                if not failing:
                    log.warning("the lease could not be renewed yet", extra={"problem": str(error)})
                failing = True
            else:
                if failing:
                    log.info("the lease is renewed again")
                failing = False

    def _renew(self, asked: float) -> str:
        """Write it again; gives who has it if that is another."""
        with self._changed:
            written = self._written
        if written is None:
            return ""
        try:
            self._note(self._write(written, self._spec(written)), asked)
            return ""
        except (Conflict, Gone):
            found = self._read()
        if found is None:
            # Somebody has deleted it; if another makes it first, that is a conflict, and the next look tells.
            self._note(self._create(), asked)
            return ""
        holder: str = (found.get("spec") or {}).get("holderIdentity") or ""
        if holder != self.identity:
            return holder or "nobody"
        self._note(self._write(found, self._spec(found)), asked)
        return ""

    def _watching(self) -> None:
        """Apart from the renewals: one of them may hang."""
        with self._changed:
            while not self._ended:
                left = self._renewed + self._timing.deadline - self._clock()
                if left <= 0:
                    break
                self._changed.wait(left)
        self._lose(f"it was not renewed for {self._timing.deadline:g} s")

    def _lose(self, why: str) -> None:
        with self._changed:
            if self._ended:
                return
            self._ended, self._written = True, None
            self._changed.notify_all()
        self._lost(why)

    def _pause(self, seconds: float) -> bool:
        """Wait; gives whether it has ended."""
        with self._changed:
            self._changed.wait_for(lambda: self._ended, seconds)
            return self._ended

    def _note(self, written: Document, asked: float) -> None:
        with self._changed:
            if not self._ended:
                self._written, self._renewed = written, asked
                self._changed.notify_all()

    def _spec(self, before: Document) -> Document:
        """As its holder, after what it was before."""
        spec, now = before.get("spec") or {}, _stamp()
        same = spec.get("holderIdentity") == self.identity
        return {
            **spec,
            "holderIdentity": self.identity,
            "leaseDurationSeconds": self._timing.duration,
            "acquireTime": spec.get("acquireTime", now) if same else now,
            "renewTime": now,
            "leaseTransitions": (spec.get("leaseTransitions") or 0) + (not same),
        }

    def _read(self) -> Document | None:
        path = kinds.LEASE.object(self._namespace, self._name)
        try:
            found: Document = self._connection.call(Request("GET", path, "get", kinds.LEASE.resource))
        except Gone:
            return None
        return found

    def _create(self) -> Document:
        metadata = {"name": self._name, "namespace": self._namespace}
        path = kinds.LEASE.collection(self._namespace)
        return self._send("POST", path, "create", {"metadata": metadata, "spec": self._spec({})})

    def _write(self, before: Document, spec: Document) -> Document:
        """Only if it still is as it was before."""
        path = kinds.LEASE.object(self._namespace, self._name)
        return self._send("PUT", path, "update", {"metadata": before["metadata"], "spec": spec})

    def _send(self, method: str, path: str, verb: str, lease: Document) -> Document:
        said = {"apiVersion": kinds.LEASE.api_version, "kind": kinds.LEASE.name}
        found: Document = self._connection.call(
            Request(method, path, verb, kinds.LEASE.resource, body={**said, **lease})
        )
        return found


def _stamp() -> str:
    """For people who look at it."""
    return datetime.fromtimestamp(time.time(), UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
