"""The queries of a node: the number of each, and which of them are computed here."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from headwater.aggregates import Aggregate
from headwater.errors import InvalidQuery, Problem
from headwater.groups.members import Active
from headwater.names import Names
from headwater.queries import Query, same_functions, validate
from headwater.rows import Ints

# Whether a query is computed at a node, by what it is and the how-manieth of its id.
Serves = Callable[[Query, int], bool]


def every(query: Query, incarnation: int) -> bool:
    """A node by itself computes all that is asked."""
    return True


class Catalog:
    """All queries there ever were, by number, and those that are there now, by id."""

    def __init__(self, serves: Serves) -> None:
        self._serves = serves
        self.queries: list[Query] = []
        # By the number of a query: the how-manieth of its id it is, counted in `_times`.
        self.incarnations: list[int] = []
        self._times: dict[str, int] = {}
        # Lists of functions by number, and the number of each query's: what is lowered together.
        self._kinds: Names[tuple[str, ...]] = Names()
        self.kind: Ints = np.empty(0, np.int64)
        self.aggregates: list[tuple[Aggregate, ...]] = []
        self._actives: dict[str, Active] = {}
        # Queries that are there and are computed in another lane.
        self._elsewhere: dict[str, Query] = {}

    @property
    def ids(self) -> tuple[str, ...]:
        """Of the queries that are there, here and in other lanes."""
        return (*self._actives, *self._elsewhere)

    def add(self, query: Query, begin: int) -> Active | None:
        """Give a query its number; None if it is computed elsewhere."""
        self._times[query.id] = self._times.get(query.id, 0) + 1
        if not self._serves(query, self._times[query.id]):
            self._elsewhere[query.id] = query
            return None
        active = Active(len(self.queries), query, begin)
        self.queries.append(query)
        self.incarnations.append(self._times[query.id])
        kind = self._kinds.code(tuple(function.name for function in query.aggregates))
        self.kind = np.append(self.kind, kind)
        if len(self.aggregates) < len(self._kinds):
            self.aggregates.append(query.aggregates)
        self._actives[query.id] = active
        return active

    def remove(self, query_id: str) -> Active | None:
        """Take out a query that is there; None if it is computed elsewhere."""
        if self._elsewhere.pop(query_id, None) is not None:
            return None
        return self._actives.pop(query_id)

    @property
    def key_by(self) -> str:
        """The column by which queries that are there compute; empty if none does. They all name the same."""
        return next((query.key_by for query in self._present if query.key_by), "")

    @property
    def _present(self) -> list[Query]:
        """The queries that are there, here and in other lanes."""
        return [*(active.query for active in self._actives.values()), *self._elsewhere.values()]

    def label(self, index: int) -> str:
        """A query in a decision: one that was added again is another one."""
        incarnation = self.incarnations[index]
        return self.queries[index].id + (f"#{incarnation}" if incarnation > 1 else "")

    def check_addition(self, query: Query) -> None:
        """Raise if a query cannot be there beside the others."""
        validate([query], beside=self._present)
        same_functions([*self.queries, *self._elsewhere.values()], query)

    def find(self, query_id: str) -> Query:
        """A query that is there; raises if there is none that could be removed."""
        held = {id: active.query for id, active in self._actives.items()} | self._elsewhere
        query = held.get(query_id) if isinstance(query_id, str) else None
        if query is None:
            raise InvalidQuery(
                "the query cannot be removed",
                [
                    Problem(
                        "id",
                        f"{query_id!r} is not there",
                        f"give one of {', '.join(held) or 'none'}",
                    )
                ],
            )
        return query
