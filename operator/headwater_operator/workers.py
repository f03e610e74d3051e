"""Threads that look at topologies, one at a time each."""

from __future__ import annotations

import logging
import threading
import time
from typing import Protocol, runtime_checkable

from headwater.errors import HeadwaterError, RetryableError
from headwater_operator.metrics import Metrics
from headwater_operator.workqueue import Turn, WorkQueue
from headwater_wire.logs import told

log = logging.getLogger(__name__)


class Reconcile(Protocol):
    """Has the cluster as a topology says, whatever has happened: one that is gone included.

    Never called for one topology twice at a time. What it raises is told, and it is called again, later each
    time.
    """

    def __call__(self, namespace: str, name: str) -> float | None:
        """Seconds after which it is to be called again if nothing happens; None: when all are."""


@runtime_checkable
class Glancing(Protocol):
    """Can tell by a glance whether a topology has to be looked at when time alone has passed."""

    def glance(self, namespace: str, name: str) -> float | None:
        """Seconds until the next glance; None: it has to be looked at now."""


class Workers:
    def __init__(
        self, queue: WorkQueue[tuple[str, str]], reconcile: Reconcile, metrics: Metrics, number: int
    ) -> None:
        self._queue, self._reconcile, self._metrics = queue, reconcile, metrics
        self._threads = [
            threading.Thread(target=self._work, name=f"worker-{n}", daemon=True) for n in range(number)
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def _work(self) -> None:
        while (turn := self._queue.take()) is not None:
            began = time.monotonic()
            outcome = self._one(turn)
            self._metrics.reconciled(outcome, time.monotonic() - began, turn.waited)

    def _one(self, turn: Turn[tuple[str, str]]) -> str:
        namespace, name = turn.key
        try:
            again = None
            if not turn.prompted and isinstance(self._reconcile, Glancing):
                again = self._reconcile.glance(namespace, name)
            if again is None:
                again = self._reconcile(namespace, name)
        except Exception as error:
            pause = self._queue.failed(turn.key)
            said = {"namespace": namespace, "topology": name, "again_in_seconds": pause}
            problem = told("it failed", error)
            if isinstance(error, RetryableError):
                log.warning("a topology is to be looked at again", extra={**said, "problem": problem})
            elif isinstance(error, HeadwaterError):
                log.error("a topology cannot be had as it says", extra={**said, "problem": problem})
            else:
                log.exception("an error of the operator itself", extra=said)
            self._metrics.failed(type(error).__name__)
            return "failed"
        self._queue.forget(turn.key)
        if again is not None:
            self._queue.add_after(turn.key, again)
        self._queue.done(turn.key)
        return "done" if again is None else "again"
