"""Buckets: one for each partition of Spark, and each key in one of them."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater_spark import buckets
from headwater_spark.buckets import Buckets

# What `SELECT hash(n)` gives for a column of integers.
HASHES = {0: 933211791, 1: -559580957, 2: 1765031574, 42: 29417773, -1: -1604776387}


@pytest.mark.parametrize("number, found", HASHES.items())
def test_the_hash_is_that_of_spark(number: int, found: int) -> None:
    assert buckets._hash(number) == found


@pytest.mark.parametrize("count", [1, 2, 3, 7, 8, 64, 200])
def test_every_partition_has_one_bucket(count: int) -> None:
    ids = buckets.ids(count)
    assert [buckets._hash(id) % count for id in ids] == list(range(count))


@settings(max_examples=200)
@given(st.integers(1, 64), st.integers(0, 5), st.text(max_size=5), st.none() | st.text(max_size=5))
def test_a_key_has_one_bucket(count: int, group: int, site: str, key: str | None) -> None:
    made, again = Buckets(count), Buckets(count)
    assert made.of(group, (site, key)) == again.of(group, (site, key))
    assert made.of(group, (site, key)) in made.ids
    if site or key is not None:
        # Whatever the group, so that one batch has one part for each bucket.
        assert made.of(group + 1, (site, key)) == made.of(group, (site, key))


def test_keys_and_groups_are_spread() -> None:
    made = Buckets(8)
    keys = Counter(made.of(0, ("", f"sensor-{number}")) for number in range(8_000))
    assert set(keys) == set(made.ids)
    assert max(keys.values()) < 1.3 * 1_000
    groups = Counter(made.of(number, ("", None)) for number in range(800))
    assert set(groups) == set(made.ids)
