"""Changes of the queries, and the versions that they make (protocol, rule 18)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import blake2b
from typing import Literal

from headwater.errors import InvalidPartial, OtherQueries, StaleVersion
from headwater.groups.members import Active
from headwater.partials import Partial
from headwater.queries import Query, signature
from headwater.windows import is_count


@dataclass(frozen=True, slots=True)
class Change:
    """A query that is added or removed at a time: events at or behind `edge` see the new set."""

    kind: Literal["add", "remove"]
    query: Query
    edge: int
    version: int
    at_once: bool = False


def first_edge(query: Query, above: int) -> int:
    """The first edge of its windows from a time on; that time itself where they have none of their own."""
    periodic = None if is_count(query.window) else Active(0, query).periodic
    return above if periodic is None else above + (periodic.offset - above) % periodic.slide


class Versions:
    """The changes there were, in their order; the version is how many."""

    def __init__(self, first: Iterable[Query]) -> None:
        self.changes: list[Change] = []
        # What distinguishes this set of queries from others, for each version there was.
        self.signatures = [_digest("", *map(signature, first))]

    @property
    def current(self) -> int:
        return len(self.changes)

    def add(self, change: Change) -> None:
        self.changes.append(change)
        told = f"{self.signatures[-1]}|{change.kind}|{change.edge}|{change.at_once}"
        self.signatures.append(_digest(told, signature(change.query)))

    def check(self, partial: Partial) -> None:
        """Raise if it was made with other queries than hold here for its events."""
        if partial.version < 0:
            raise InvalidPartial("version", f"is {partial.version}", "send how many changes there were")
        if partial.version > self.current:
            raise StaleVersion(partial.version, self.current)
        if partial.signature != self.signatures[partial.version]:
            raise OtherQueries
        behind = [c for c in self.changes[partial.version :] if c.edge <= partial.largest]
        if behind:
            raise StaleVersion(partial.version, self.current)


def _digest(*words: str) -> str:
    return blake2b("|".join(words).encode(), digest_size=16).hexdigest()
