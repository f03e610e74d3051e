"""The windows of the root in buckets: whatever a run has logged, all buckets together make of it what one
root makes, record by record and byte by byte, however the log is cut into micro-batches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from random import Random

import numpy as np
import pytest

from headwater.degraded import Degraded
from headwater.errors import PermanentError
from headwater.machines.lanes import Apart
from headwater.machines.records import Record
from headwater.machines.state import State
from headwater.queries import Query
from headwater.results import Results
from headwater.windowless import Windowless
from headwater.windows import Punctuation, Tumbling
from headwater_root import resultlines
from headwater_simulator.catalogue import QUERIES
from headwater_simulator.plans import draw
from headwater_simulator.world import World
from headwater_spark.bucket import Bucket
from headwater_spark.buckets import Buckets
from headwater_spark.feed import UNSET, Feed, Ticks, decoded, encoded
from headwater_spark.pieces import OtherState
from headwater_wire import records as stored
from headwater_wire.messages import Codec

CODEC = Codec()
Lines = dict[int, bytes]


@contextmanager
def _impatient() -> Iterator[None]:
    """Some queries are degraded as soon as two windows wait: nothing else depends on it."""
    with pytest.MonkeyPatch.context() as patch:
        for name, query in QUERIES.items():
            if isinstance(query.window, Punctuation):
                patch.setitem(QUERIES, name, replace(query, window=replace(query.window, max_open=1)))
        yield


class Logged:
    """The log of a simulated run, and what one root makes of it."""

    def __init__(self, seed: int, *, lanes: bool = True) -> None:
        """With `lanes` some queries may stand apart, as in no release yet."""
        plan = draw(seed)
        if not lanes:
            plan = replace(plan, lanes=False)
        with _impatient():
            world = World(plan)
            # A run that ends with a root that halts has a log all the same.
            with suppress(PermanentError):
                world.run()
        self.records: Sequence[Record] = world.disk.records[: world.disk.durable]
        self.queries: Sequence[Query] = world.queries
        self.apart: Apart = world._apart
        self.expected = plan.expected
        self.results: dict[int, Results] = {}
        self.watermarks: list[int] = []
        self.degraded: list[list[Degraded]] = []
        state, steering = self._state(), self._state(Windowless)
        for position, record in enumerate(self.records, start=1):
            results = state.apply(position, record.body)
            assert not steering.apply(position, record.body).blocks
            if results.blocks:
                self.results[position] = results
            self.watermarks.append(UNSET if state.engine.watermark is None else state.engine.watermark)
            self.degraded.append([each for engine in state.engines.values() for each in engine.degraded])
            assert steering.engine.watermark == state.engine.watermark
            assert steering.engine.version == state.engine.version
            assert steering.engine.largest == state.engine.largest
            for number, lane in state.engines.items():
                held = steering.engines[number].sources
                assert {n: s.prefix for n, s in lane.sources.items()} == {
                    n: s.prefix for n, s in held.items()
                }

        self.lines: Lines = {at: resultlines.encode(results) for at, results in self.results.items()}

    def _state(self, *engine: type[Windowless]) -> State:
        return State(self.queries, self.expected, self.apart, *engine)

    def ticks(self, first: int, last: int) -> Ticks:
        return Ticks(first, np.array(self.watermarks[first - 1 : last], np.int64))

    def in_buckets(self, count: int, rng: Random) -> Lines:
        """What buckets make of it, in micro-batches of any size."""
        buckets = Buckets(count)
        feed = Feed(buckets)
        held = {
            id: Bucket(self.queries, self.expected, self.apart, home=id == buckets.home) for id in buckets.ids
        }
        found: dict[int, list[Results]] = {}
        done = 0
        while done < len(self.records):
            first, last = done + 1, min(done + rng.choice((1, 2, 7, 40)), len(self.records))
            rows = list(feed.ticks(self.ticks(first, last)))
            for position in range(first, last + 1):
                rows += feed.rows(position, stored.encode(self.records[position - 1]))
            rng.shuffle(rows)
            for id, bucket in held.items():
                mine = [row for row in rows if row.bucket == id]
                assert list(decoded(id, encoded(mine))) == mine
                for position, results in bucket.take(mine, CODEC):
                    found.setdefault(position, []).append(results)
                assert bucket.position == last
            told = [each for bucket in held.values() for each in bucket.degraded]
            assert told == self.degraded[last - 1]
            done = last
        together = {
            position: Results([block for each in results for block in each.blocks])
            for position, results in found.items()
        }
        return {position: resultlines.encode(results) for position, results in sorted(together.items())}


@pytest.mark.parametrize("seed", range(40))
def test_buckets_make_what_one_root_makes(seed: int) -> None:
    logged, rng = Logged(seed), Random(seed)
    for count in (1, 3, 8):
        assert logged.in_buckets(count, rng) == logged.lines


def test_a_bucket_whose_state_is_gone_does_not_begin_anew() -> None:
    bucket = Bucket([Query("q", Tumbling(10))], 1, lambda query: False, home=False)
    (row,) = Feed(Buckets(1)).ticks(Ticks(5, np.array([0], np.int64)))
    with pytest.raises(OtherState, match="stands at record 0, and is to go on with 5"):
        bucket.take([row], CODEC)
