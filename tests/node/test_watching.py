"""What a node sees of itself: records in all, batches made again, sources from the future."""

from __future__ import annotations

import logging
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.events import Batch
from headwater.ledger import Account
from headwater.node import Node
from headwater.progress import Source
from headwater.queries import Query
from headwater.windows import Tumbling
from headwater_node.ahead import PATIENCE, Ahead
from headwater_node.future import Future
from headwater_node.storm import Storm
from headwater_node.tally import Tally
from headwater_wire.offences import Offences

# What happens to one of three sources between two looks: it reads records (counted, late, rejected), or goes.
STEPS = st.lists(
    st.tuples(
        st.sampled_from("abc"), st.none() | st.tuples(st.integers(0, 9), st.integers(0, 9), st.integers(0, 9))
    )
)


@given(STEPS)
def test_a_tally_has_everything_whoever_leaves(
    steps: Iterable[tuple[str, tuple[int, int, int] | None]],
) -> None:
    tally, sources = Tally(), dict[str, Source]()
    read = late = rejected = 0
    for name, happens in steps:
        if happens is None:
            sources.pop(name, None)
        else:
            _, behind, wrong = happens
            source = sources.setdefault(name, Source(name, 0, "", 0))
            refused = {"late": behind, "value not finite": wrong}
            source.account = source.account.plus(sum(happens), refused, ())
            read, late, rejected = read + sum(happens), late + behind, rejected + wrong
        tally.look(sources)
    assert (tally.read, tally.late, sum(tally.rejected.values())) == (read, late, rejected)


def test_a_source_that_returns_is_counted_anew() -> None:
    tally = Tally()
    for accepted in (10, 4):
        source = Source("a", 0, "", 0, account=Account(accepted))
        tally.look({"a": source})
    assert tally.read == 14


def test_a_storm_begins_once_and_ends_once() -> None:
    storm = Storm(many=3, span=10)
    assert [storm.look(count, now) for now, count in enumerate([0, 1, 1, 2, 3, 4])] == [None] * 4 + [
        True,
        None,
    ]
    assert [storm.look(4, now) for now in (10, 15, 16, 30)] == [None, None, False, None]


def test_what_is_made_again_now_and_then_is_no_storm() -> None:
    storm = Storm(many=3, span=10)
    assert [storm.look(now // 6, now) for now in range(100)] == [None] * 100


def test_a_source_from_the_future_waits_and_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    node, future = Node([Query("q", Tumbling("1s"), "sum")]), Future(1_000, Offences())
    node.admit("s", lateness=0)
    batch = Batch("s", 1, ts=[10, 20, 5_000, 30], value=[1.0] * 4)

    def push(batch: Batch, wall: int) -> int:
        node.read_until(future.until(wall))
        read = node.push(batch)
        future.look(batch, node.sources)
        return read

    assert push(batch, 100) == 2
    rest = Batch("s", 3, ts=[5_000, 30], value=[1.0] * 2)
    assert [push(rest, 100), push(rest, 3_999)] == [0, 0]
    # What was read before and comes again says nothing about whoever waits.
    future.look(Batch("s", 1, ts=[10, 20], value=[1.0] * 2), node.sources)
    assert future.waiting == {"s": 3}
    assert push(rest, 4_000) == 2
    assert future.waiting == {}
    said = [(record.levelname, vars(record)["source"]) for record in caplog.records]
    assert said == [("WARNING", "s"), ("INFO", "s")]
    assert (vars(caplog.records[0])["seq"], vars(caplog.records[0])["ts"]) == (3, 5_000)


def test_a_source_whose_record_was_passed_over_waits_no_longer() -> None:
    node, future = Node([Query("q", Tumbling("1s"), "sum")]), Future(0, Offences())
    node.admit("s", lateness=0)
    batch = Batch("s", 1, ts=[5_000], value=[1.0])
    node.read_until(future.until(0))
    node.push(batch)
    future.look(batch, node.sources)
    future.settle(node.sources)
    assert future.waiting == {"s": 1}
    node.skip("s", 1)
    node.push(batch)
    future.settle(node.sources)
    assert future.waiting == {}


def test_a_source_that_leaves_waits_no_longer() -> None:
    node, future = Node([Query("q", Tumbling("1s"), "sum")]), Future(0, Offences())
    for name in ("a", "b"):
        node.admit(name, lateness=0)
        future.until(0)
        future.look(Batch(name, 1, ts=[5], value=[1.0]), node.sources)
    assert set(future.waiting) == {"a", "b"}
    node.release("a")
    future.look(Batch("b", 1, ts=[5], value=[1.0]), node.sources)
    assert set(future.waiting) == {"b"}


def test_a_source_that_is_ahead_of_the_others_is_told_of_when_it_waits_for_long(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    node, ahead = Node([Query("q", Tumbling("1s"), "sum")]), Ahead(100)
    for name in ("s", "t"):
        node.admit(name, lateness=10)
    first, second, third = (Batch("s", 1 + n, ts=[ts], value=[1.0]) for n, ts in enumerate((150, 211, 300)))
    node.push(first)
    # What was read waits for nothing; nor does a source within the horizon, or one without a watermark.
    for batch, watermark in ((first, 10), (second, 40), (second, None)):
        ahead.look(batch, node.sources, watermark, 0)
        assert len(ahead) == 0
    for now in (0, PATIENCE - 1):
        ahead.look(second, node.sources, 39, now)
        assert (len(ahead), caplog.records) == (1, [])
    for now in (PATIENCE, 2 * PATIENCE):
        ahead.look(second, node.sources, 39, now)
        (told,) = caplog.records
    assert (told.levelname, vars(told)["source"], vars(told)["seq"]) == ("WARNING", "s", 2)
    assert (vars(told)["largest"], vars(told)["watermark"], vars(told)["horizon"]) == (150, 39, 100)
    node.push(second)
    ahead.settle(node.sources)
    assert (len(ahead), caplog.records[1].message, len(caplog.records)) == (0, "a source goes on", 2)
    # It waits for a moment, is read on, and waits for a moment again: that is as it should be.
    ahead.look(third, node.sources, 39, 3 * PATIENCE)
    node.push(third)
    ahead.look(Batch("s", 4, ts=[400], value=[1.0]), node.sources, 39, 4 * PATIENCE)
    assert (len(ahead), len(caplog.records)) == (1, 2)
    node.flush()
    node.release("s")
    ahead.settle(node.sources)
    assert (len(ahead), len(caplog.records)) == (0, 2)
