"""What is to be looked at, and when: each key once, whatever happened to it, and by one worker at a time."""

from __future__ import annotations

import heapq
import threading
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from itertools import count
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)

# Seconds: the pause after a first failure, and the longest; each is twice the one before.
FIRST, LONGEST = 1.0, 300.0


@dataclass(frozen=True, slots=True)
class Turn(Generic[K]):
    """A key to work on, and for how long it has waited since it was due, in seconds.

    `prompted` says whether something happened to it, and not time alone has passed.
    """

    key: K
    waited: float
    prompted: bool = field(default=True, compare=False)


class Turns(Generic[K]):
    """Which key is next, as plain values: every method is told the time."""

    def __init__(self, first: float = FIRST, longest: float = LONGEST) -> None:
        self._first, self._longest = first, longest
        self._due: dict[K, float] = {}
        # With entries that no longer hold; `_due` tells.
        self._heap: list[tuple[float, int, K]] = []
        self._order = count()
        self._working: set[K] = set()
        self._prompted: set[K] = set()
        # How often a key has failed, and before when it is not tried again.
        self._failures: dict[K, tuple[int, float]] = {}

    @property
    def working(self) -> int:
        return len(self._working)

    def depth(self, now: float) -> int:
        """How many keys are due and not worked on."""
        return sum(due <= now and key not in self._working for key, due in self._due.items())

    def add(self, key: K, now: float, after: float = 0.0) -> None:
        """Due no later than that; one that is worked on comes again."""
        due = now + max(after, 0.0)
        if after <= 0.0:
            self._prompted.add(key)
        # An event may follow from what a failing attempt has written itself.
        if key in self._failures:
            due = max(due, self._failures[key][1])
        if due < self._due.get(key, float("inf")):
            self._due[key] = due
            if key not in self._working:
                heapq.heappush(self._heap, (due, next(self._order), key))

    def take(self, now: float) -> Turn[K] | None:
        """The key that has waited longest; it is worked on until `done` or `failed`."""
        if not self._clean() or self._heap[0][0] > now:
            return None
        due, _, key = heapq.heappop(self._heap)
        del self._due[key]
        self._working.add(key)
        prompted = key in self._prompted
        self._prompted.discard(key)
        return Turn(key, now - due, prompted)

    def done(self, key: K, now: float) -> None:
        """Worked on; what was added meanwhile is next."""
        self._working.remove(key)
        if key in self._due:
            heapq.heappush(self._heap, (self._due[key], next(self._order), key))

    def failed(self, key: K, now: float) -> float:
        """Worked on in vain: gives the seconds after which it is tried again."""
        failures = self._failures.get(key, (0, 0.0))[0] + 1
        # Beyond this the float would end before the pauses do.
        pause = min(self._first * 2.0 ** min(failures - 1, 64), self._longest)
        soonest = now + min(self._first, pause)
        self._failures[key] = failures, soonest
        self._prompted.add(key)
        if key in self._due:
            self._due[key] = max(self._due[key], soonest)
        self.add(key, now, pause)
        self.done(key, now)
        return pause

    def forget(self, key: K) -> None:
        """Its failures: the next one is a first."""
        self._failures.pop(key, None)

    def pause(self, now: float) -> float | None:
        """Seconds until a key is due; None if none is to come."""
        return max(self._heap[0][0] - now, 0.0) if self._clean() else None

    def _clean(self) -> bool:
        """Drop what no longer holds from the top; gives whether anything is left."""
        while self._heap:
            due, _, key = self._heap[0]
            if key not in self._working and self._due.get(key) == due:
                return True
            heapq.heappop(self._heap)
        return False


class WorkQueue(Generic[K]):
    """Turns for threads."""

    def __init__(self, turns: Turns[K] | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._turns, self._clock = turns or Turns[K](), clock
        self._changed = threading.Condition()
        self._ended = False

    @property
    def depth(self) -> int:
        with self._changed:
            return self._turns.depth(self._clock())

    def add(self, key: K) -> None:
        self.add_after(key, 0.0)

    def add_after(self, key: K, seconds: float) -> None:
        with self._changed:
            if not self._ended:
                self._turns.add(key, self._clock(), seconds)
                self._changed.notify_all()

    def forget(self, key: K) -> None:
        with self._changed:
            self._turns.forget(key)

    def take(self) -> Turn[K] | None:
        """Wait for a key; None once the queue has ended."""
        with self._changed:
            while not self._ended:
                if (turn := self._turns.take(self._clock())) is not None:
                    return turn
                self._changed.wait(self._turns.pause(self._clock()))
            return None

    def done(self, key: K) -> None:
        with self._changed:
            self._turns.done(key, self._clock())
            self._changed.notify_all()

    def failed(self, key: K) -> float:
        with self._changed:
            pause = self._turns.failed(key, self._clock())
            self._changed.notify_all()
            return pause

    def end(self, patience: float) -> bool:
        """Hand out nothing more, and wait for what is worked on; gives whether all of it has ended."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()
            return self._changed.wait_for(lambda: not self._turns.working, patience)
