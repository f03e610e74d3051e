"""The windows of a run, as they come out; another process writes them."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from headwater.queries import Query
from headwater.windows import Sliding, Tumbling, is_count, length_and_slide
from headwater_cli.latency import Latency
from headwater_cli.windowlines import WindowLines
from headwater_root import resultlines

# How many windows are remembered.
LATEST = 12


class Results:
    """What is seen in an outbox, and how long each window took."""

    def __init__(self, outbox: Path, queries: Iterable[Query], latency: Latency) -> None:
        self._outbox, self._latency = outbox, latency
        queries = list(queries)
        self._lines = WindowLines.of(queries)
        # Of the queries that were there from the beginning those with an end in time: a count window ends
        # at a rank.
        self._timed = {query.id for query in queries if not is_count(query.window)}
        # Of the queries that report empty windows, how far apart these begin, and where the last one began.
        self._slides = {
            query.id: length_and_slide(query.window)[1]
            for query in queries
            if query.emit_empty and isinstance(query.window, Tumbling | Sliding)
        }
        self._last: dict[str, int] = {}
        # How many empty windows such a query has left out: there is a limit to those in a row.
        self.left_out: dict[str, int] = {}
        self._seen = ""
        # By query, each with the number of the window: one query with many keys leaves room for others.
        self._by_query: dict[str, deque[tuple[int, dict[str, Any]]]] = {}
        self._count = 0
        self._known = {query.id for query in queries}

    def mixed(self, limit: int = LATEST, newest: int | None = None) -> list[str]:
        """The latest windows, as many of each query as there is room for, in the order in which they came.

        `limit` is how many lines are given, `newest` of how many windows that came last (None: of all).
        """
        after = 0 if newest is None else self._count - newest
        by_query = [[each for each in rows if each[0] > after] for rows in self._by_query.values()]
        found: list[tuple[int, dict[str, Any]]] = []
        for turn in range(1, LATEST + 1):
            of_turn = [rows[-turn] for rows in by_query if len(rows) >= turn]
            found += sorted(of_turn, key=_number, reverse=True)[: limit - len(found)]
        return [self._lines.format(row) for _, row in sorted(found, key=_number)]

    def look(self) -> int:
        """See which windows have come out since the last look, and how many."""
        fresh = (path.name for path in self._outbox.glob("*-*") if path.suffix == "")
        names, found = sorted(name for name in fresh if name > self._seen), 0
        for name in names:
            path = self._outbox / name
            # It got its name, the last thing that was changed of it, when its rows were durable.
            at = path.stat().st_ctime
            for row in resultlines.decode(path.read_bytes()):
                self._look_for_gap(row)
                self._count += 1
                of_query = self._by_query.setdefault(row["query"], deque(maxlen=LATEST))
                of_query.append((self._count, row))
                if row["query"] in self._timed and row["incarnation"] == 1:
                    self._latency.came_out(row["end"], at)
                found += 1
        self._seen = names[-1] if names else self._seen
        return found

    @property
    def has_unknown(self) -> bool:
        """Whether windows came out of a query that was added to the run and is not known here."""
        return not self._by_query.keys() <= self._known

    def add(self, queries: Iterable[Query]) -> None:
        """Know queries that were added to the run."""
        listed = list(queries)
        self._lines.add(listed)
        self._known |= {query.id for query in listed}

    def _look_for_gap(self, row: Mapping[str, Any]) -> None:
        """Count the windows that are missing between this one and the one before it of its query."""
        query, start = row["query"], row["start"]
        if query not in self._slides or row["incarnation"] != 1:
            return
        missing = (start - self._last.get(query, start)) // self._slides[query] - 1
        if missing > 0:
            self.left_out[query] = self.left_out.get(query, 0) + missing
        self._last[query] = start


def _number(numbered: tuple[int, dict[str, Any]]) -> int:
    return numbered[0]
