"""Which lane a query stands in: all queries over time share lane 0, others may have one of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from headwater.node import Change
from headwater.queries import Query

# Whether a query has a lane of its own. Every party of a tree asks the same one.
Apart = Callable[[Query], bool]


def shared(query: Query) -> bool:
    """Count windows are made at the root from forwarded events: none needs a position of its own."""
    return False


@dataclass(frozen=True, slots=True)
class _Served:
    """The queries of one lane, by what holds when it is asked: one that is added again has another lane."""

    lanes: dict[str, int]
    lane: int

    def __call__(self, query: Query) -> bool:
        return self.lanes.get(query.id, 0) == self.lane


class Lanes:
    """Lanes are numbered in the order in which the root's log brings them, and never used again."""

    def __init__(self, queries: Iterable[Query], apart: Apart = shared) -> None:
        self._apart = apart
        self._next = 1
        # The lane of each query that has one of its own.
        self._lane: dict[str, int] = {}
        for query in queries:
            self._add(query)

    def _add(self, query: Query) -> int | None:
        if not self._apart(query):
            return None
        lane, self._next = self._next, self._next + 1
        self._lane[query.id] = lane
        return lane

    @property
    def numbers(self) -> tuple[int, ...]:
        return (0, *self._lane.values())

    def serves(self, lane: int) -> Callable[[Query], bool]:
        """Whether a query is computed in a lane."""
        return _Served(self._lane, lane)

    def apply(self, change: Change) -> int | None:
        """Take a change; gives the lane that it brings or ends."""
        return self._add(change.query) if change.kind == "add" else self._lane.pop(change.query.id, None)
