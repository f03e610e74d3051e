"""Workers come and go: whoever has a bucket in memory, has had it once, or never had it, goes on with the
same."""

from __future__ import annotations

import json
from collections.abc import Iterator
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from headwater.topology import query_document
from headwater_root import resultlines
from headwater_spark import finals, merging, pieces
from headwater_spark.buckets import Buckets
from headwater_spark.feed import Feed
from headwater_spark.merging import Job, Merging
from headwater_wire import records as stored
from tests.spark.test_feed import Logged


class MapState:
    """Spark's map state, of one key."""

    def __init__(self) -> None:
        self.held: dict[Any, Any] = {}

    def getValue(self, key: Any) -> Any:  # noqa: N802 - Spark's name
        return self.held.get(key)

    def updateValue(self, key: Any, value: Any) -> None:  # noqa: N802 - Spark's name
        self.held[key] = value

    def removeKey(self, key: Any) -> None:  # noqa: N802 - Spark's name
        del self.held[key]


class Worker:
    """A process with a memory of its own."""

    def __init__(self) -> None:
        self.kept: dict[Any, Any] = {}


@pytest.fixture(autouse=True)
def _no_memory(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(pieces, "LEAST", 2_000)
    yield
    merging._KEPT.clear()


@pytest.mark.parametrize("seed", range(12))
def test_whoever_has_a_bucket_goes_on_with_the_same(seed: int) -> None:
    logged, rng, buckets = Logged(seed, lanes=False), Random(seed), Buckets(3)
    feed = Feed(buckets)
    job = Job("log", json.dumps([query_document(q) for q in logged.queries]), logged.expected, buckets.home)
    states = {id: MapState() for id in buckets.ids}
    workers = [Worker() for _ in range(3)]
    lines, done = b"", 0
    while done < len(logged.records):
        first, last = done + 1, min(done + rng.choice((1, 3, 20)), len(logged.records))
        rows = list(feed.ticks(logged.ticks(first, last)))
        for position in range(first, last + 1):
            rows += feed.rows(position, stored.encode(logged.records[position - 1]))
        found = []
        for id, state in states.items():
            mine = [
                SimpleNamespace(position=row.position, kind=int(row.kind), payload=row.payload)
                for row in rows
                if row.bucket == id
            ]
            rng.shuffle(mine)
            before = dict(state.held)
            # A task that dies, after some have seen what it made of the rows, and is repeated by somebody.
            for attempt in range(rng.choice((1, 1, 2))):
                if attempt:
                    state.held = before
                worker = rng.choice(workers)
                if rng.random() < 0.1:
                    worker.kept.clear()
                merging._KEPT.clear()
                merging._KEPT.update(worker.kept)
                processor = Merging(job)
                processor._store = merging._MapStore(state)
                (row,) = processor.handleInputRows((id,), iter(mine), None)
                worker.kept = dict(merging._KEPT)
            assert (row.first, row.last) == (first, last)
            found.append(row.finals)
        lines += finals.merged(found)
        done = last
    assert lines == b"".join(logged.lines[position] for position in sorted(logged.lines))


def test_lines_of_all_buckets_come_in_the_order_of_one_root() -> None:
    logged = Logged(3, lanes=False)
    assert logged.results
    for results in logged.results.values():
        blocks = [finals.packed([(1, type(results)([block]))]) for block in results.blocks]
        assert finals.merged([b"", *reversed(blocks)]) == resultlines.encode(results)
    assert finals.merged([]) == b""
