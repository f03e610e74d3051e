"""The lives of queries as the log tells them, in the oracle's words."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from headwater.machines.records import Changed, Record
from headwater.oracle import TS_LIMIT, Spec
from headwater.queries import Query
from headwater.rows import TS_MIN
from headwater.verification import spec_of
from headwater.windows import Punctuation


@dataclass(slots=True)
class _Life:
    query: Query
    begin: int | None
    incarnation: int


class Lives:
    """Every query there ever was, with the events that it sees."""

    def __init__(self, queries: Iterable[Query]) -> None:
        self._present = {query.id: _Life(query, None, 1) for query in queries}
        self._times = dict.fromkeys(self._present, 1)
        self._ended: list[Spec] = []

    def take(self, record: Record) -> None:
        """A record of the log; those that change no query say nothing here."""
        if not isinstance(record.body, Changed):
            return
        change = record.body.change
        edge = None if change.edge == TS_MIN else change.edge
        id = change.query.id
        if change.kind == "add":
            self._times[id] = self._times.get(id, 0) + 1
            self._present[id] = _Life(change.query, edge, self._times[id])
            return
        life = self._present.pop(id)
        until = _emitted_until(life.query, record.watermark) if change.at_once else None
        self._ended.append(spec_of(life.query, life.begin, change.edge, until, life.incarnation))

    def specs(self) -> list[Spec]:
        present = [
            spec_of(life.query, life.begin, incarnation=life.incarnation) for life in self._present.values()
        ]
        return [*self._ended, *present]


def _emitted_until(query: Query, watermark: int | None) -> int:
    """What was final when a query went at once."""
    if watermark is None:
        return -TS_LIMIT - 1
    # A mark window is final behind its end, any other at it.
    return watermark - 1 if isinstance(query.window, Punctuation) else watermark
