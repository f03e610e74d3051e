"""The machines together: whatever the network and the nodes do, every event is counted once."""

from __future__ import annotations

import pytest

from headwater.machines.records import Quarantined, Released
from headwater.queries import Query
from headwater.windows import Punctuation, Session, Sliding, Tumbling
from tests.machines.world import World

QUERIES = [
    Query("t", Tumbling(10), ["sum", "median"]),
    Query("k", Sliding(15, 5), ["max", "first"], key_by="key"),
    Query("s", Session(6), "count"),
    Query("o", Punctuation("S", "E", merge="order"), "sum"),
    Query("l", Punctuation("S", "E"), "sum"),
    Query("n", Tumbling(count=7), ["sum", "last"]),
]


# Long runs with all queries at once; tests/simulation has many short ones.
@pytest.mark.parametrize("seed", range(5, 20))
def test_every_event_is_counted_once(seed: int) -> None:
    world = World(seed, QUERIES, faults=0 if seed < 10 else 12, snapshots=seed % 2 == 1)
    world.run()
    world.check()


@pytest.mark.parametrize("seed", range(15))
def test_lanes_stand_where_they_stand(seed: int) -> None:
    world = World(seed, QUERIES, faults=0 if seed < 5 else 12, lanes=True, snapshots=seed % 2 == 1)
    world.run()
    world.check()


@pytest.mark.parametrize("seed", range(12))
def test_sources_that_are_retired_are_counted_up_to_there(seed: int) -> None:
    world = World(seed, QUERIES, lanes=seed % 4 > 0, snapshots=seed % 2 == 1, retires=5)
    world.run()
    world.check()


@pytest.mark.parametrize("seed", range(24))
def test_a_source_with_too_many_keys_is_counted_once_all_the_same(seed: int) -> None:
    world = World(
        seed,
        QUERIES,
        faults=0 if seed < 8 else 12,
        lanes=seed % 4 > 1,
        snapshots=seed % 2 == 1,
        retires=seed % 3,
        keys_per_source=8,
    )
    world.run()
    world.check()
    decided = [entry.body for entry in world.disk.records]
    quarantined = [body for body in decided if isinstance(body, Quarantined)]
    assert len(quarantined) > 0
    assert len([body for body in decided if isinstance(body, Released)]) == len(quarantined)
