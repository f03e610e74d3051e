"""Which lane a query stands in: all queries over time share lane 0, others may have one of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from headwater.catalog import Serves
from headwater.changes import Change
from headwater.queries import Query

# Whether a query has a lane of its own. Every party of a tree asks the same one.
Apart = Callable[[Query], bool]


def shared(query: Query) -> bool:
    """Count windows are made at the root from forwarded events: none needs a position of its own."""
    return False


@dataclass(frozen=True, slots=True)
class _Served:
    """The queries of one lane. One that is added again has another lane, whoever asks and when: an engine
    that begins later is told of all that there were."""

    lanes: dict[tuple[str, int], int]
    lane: int

    def __call__(self, query: Query, incarnation: int) -> bool:
        return self.lanes.get((query.id, incarnation), 0) == self.lane


class Lanes:
    """Lanes are numbered in the order in which the root's log brings them, and never used again."""

    def __init__(self, queries: Iterable[Query], apart: Apart = shared) -> None:
        self._apart = apart
        self._next = 1
        # How many queries of an id there were, and the lane of each that had one of its own.
        self._times: dict[str, int] = {}
        self._lanes: dict[tuple[str, int], int] = {}
        # The lane of each that is there and has one.
        self._live: dict[str, int] = {}
        for query in queries:
            self._add(query)

    def _add(self, query: Query) -> int | None:
        times = self._times[query.id] = self._times.get(query.id, 0) + 1
        if not self._apart(query):
            return None
        lane, self._next = self._next, self._next + 1
        self._lanes[query.id, times] = self._live[query.id] = lane
        return lane

    @property
    def numbers(self) -> tuple[int, ...]:
        return (0, *self._live.values())

    def serves(self, lane: int) -> Serves:
        """Whether a query is computed in a lane."""
        return _Served(self._lanes, lane)

    def apply(self, change: Change) -> int | None:
        """Take a change; gives the lane that it brings or ends."""
        return self._add(change.query) if change.kind == "add" else self._live.pop(change.query.id, None)
