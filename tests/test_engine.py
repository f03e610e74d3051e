"""The engine against the oracle: any queries, any streams, any batches, any tree of merges."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headwater import oracle
from headwater.queries import Query
from headwater.verification import spec_of
from tests.harness import Network, assert_exact, assert_in_order, batch_of, expected_rows
from tests.strategies import (
    COUNT_WINDOWS,
    MARK_WINDOWS,
    SESSIONS,
    TIME_WINDOWS,
    Stream,
    Tree,
    batches,
    cases,
    schedules,
    splits,
    trees,
)


def run(
    data: st.DataObject,
    case: tuple[list[Query], list[Stream]],
    tree: Tree,
    kind: type[Network] = Network,
) -> Network:
    """Push the streams in drawn batches and order through a tree, and compare all that comes out."""
    queries, streams = case
    pieces = [
        [batch for batch in batches(events, data.draw(splits(len(events)))) if batch] for _, events in streams
    ]
    network = kind(queries, streams, tree)
    for number, flush in data.draw(schedules([len(p) for p in pieces])):
        network.push(batch_of(pieces[number].pop(0)))
        if flush:
            network.flush(network.home[streams[number][0].name])
            network.take()
    found = network.finish()
    assert_exact(queries, expected_rows(queries, streams), found)
    assert_in_order(queries, found)
    for source, events in streams:
        account = network.root.account(source.name)
        _, late, rejected = oracle.judge(events, source)
        assert (account.accepted, account.late, account.rejected) == (len(events), len(late), len(rejected))
        assert account.accepted == account.counted + account.late + account.rejected
    return network


@given(st.data(), cases())
def test_one_process(data: st.DataObject, case: tuple[list[Query], list[Stream]]) -> None:
    run(data, case, tuple(range(len(case[1]))))


@given(st.data(), cases())
def test_what_is_final_is_out(data: st.DataObject, case: tuple[list[Query], list[Stream]]) -> None:
    """At every moment exactly the windows that the watermark has made final have been given out."""
    queries, streams = case
    pieces = [[b for b in batches(events, data.draw(splits(len(events)))) if b] for _, events in streams]
    network = Network(queries, streams, tuple(range(len(streams))))
    sent: list[oracle.Event] = []
    order = data.draw(schedules([len(p) for p in pieces]))
    for number, look in order[:12]:
        piece = pieces[number].pop(0)
        network.push(batch_of(piece))
        sent += piece
        watermark = network.root.watermark
        if look and watermark is not None:
            network.take()
            expected = oracle.windows(
                sent, [source for source, _ in streams], [spec_of(q) for q in queries], watermark=watermark
            )
            assert_exact(queries, expected, network.taken)


@given(st.data(), cases())
def test_any_tree_of_merges(data: st.DataObject, case: tuple[list[Query], list[Stream]]) -> None:
    run(data, case, data.draw(trees(len(case[1]))))


@given(st.data(), cases(windows=TIME_WINDOWS))
def test_time_windows(data: st.DataObject, case: tuple[list[Query], list[Stream]]) -> None:
    run(data, case, data.draw(trees(len(case[1]))))


@given(st.data(), cases(windows=SESSIONS))
def test_sessions(data: st.DataObject, case: tuple[list[Query], list[Stream]]) -> None:
    run(data, case, data.draw(trees(len(case[1]))))


@given(st.data(), cases(windows=MARK_WINDOWS))
def test_marks(data: st.DataObject, case: tuple[list[Query], list[Stream]]) -> None:
    run(data, case, data.draw(trees(len(case[1]))))


@given(st.data(), cases(windows=COUNT_WINDOWS))
def test_count_windows(data: st.DataObject, case: tuple[list[Query], list[Stream]]) -> None:
    run(data, case, data.draw(trees(len(case[1]))))
