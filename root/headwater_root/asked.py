"""What a topology asks for, from one start to the next: a manifest may have other queries than the last one.

`queries.json` holds the queries with which the log began, of which all that follows is counted, and those of
the manifest of the last start. Only what has changed between two manifests is changed: a query that was added
while the root ran stays.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from headwater.aggregates import UserDefined
from headwater.queries import Query, signature
from headwater.topology import Functions, queries_of, query_document
from headwater_root import files

NAME = "queries.json"


@dataclass(frozen=True, slots=True)
class Asked:
    """The queries at first, at the last start and now."""

    first: tuple[Query, ...]
    before: tuple[Query, ...]
    now: tuple[Query, ...]

    @property
    def removed(self) -> list[str]:
        """Ids that are no longer asked for as they were."""
        kept = {signature(query) for query in self.now}
        return [query.id for query in self.before if signature(query) not in kept]

    @property
    def added(self) -> list[Query]:
        known = {signature(query) for query in self.before}
        return [query for query in self.now if signature(query) not in known]


def read(directory: Path, queries: Sequence[Query], functions: Functions) -> Asked:
    """What is asked for now, behind what was; at first they are the same."""
    now = tuple(queries)
    path = directory / NAME
    try:
        told = json.loads(path.read_bytes())
        first, before = told["first"], told["before"]
    except FileNotFoundError:
        return Asked(now, now, now)
    except (ValueError, LookupError, TypeError) as error:
        raise files.Damaged(path, 0, f"is not what this program wrote ({error})", "put it back") from error
    given = {function.name: function for query in now for function in query.custom}

    def found(name: str) -> UserDefined | None:
        return given.get(name) or functions(name)

    return Asked(queries_of(first, found), queries_of(before, found), now)


def write(directory: Path, asked: Asked) -> None:
    """From now on these are those of before."""
    told = {name: [query_document(query) for query in held] for name, held in _held(asked)}
    data = json.dumps(told).encode() + b"\n"
    path = directory / NAME
    if not path.exists() or path.read_bytes() != data:
        files.replace(path, data)


def _held(asked: Asked) -> tuple[tuple[str, tuple[Query, ...]], ...]:
    return ("first", asked.first), ("before", asked.now)
