"""When a stream to the parent is given up."""

from __future__ import annotations

from headwater.machines.link import Link
from headwater.machines.messages import Stream

SECOND = 1_000_000


def test_a_stream_is_given_up_later_where_answers_have_come_too_late() -> None:
    link = Link("c", "root", patience=3 * SECOND)
    assert link.open("root", 0)
    first = link.stream
    assert link.open("root", 4 * SECOND)
    # The way is slow: the answer to the stream before comes now, one of this stream soon behind it.
    assert not link.mine(first, 5 * SECOND)
    assert link.mine(link.stream, 6 * SECOND)
    # What takes as long again is waited for.
    assert not link.open("root", 11 * SECOND)
    assert link.open("root", 13 * SECOND)


def test_each_stream_that_was_given_up_counts_once_and_not_for_ever() -> None:
    link = Link("c", "root", patience=3 * SECOND)
    assert link.open("root", 0)
    first = link.stream
    assert link.open("root", 4 * SECOND)
    for _ in range(5):
        assert not link.mine(first, 5 * SECOND)
    assert not link.mine(Stream("d", 0, 1), 5 * SECOND)
    assert link.slow == 1
    # Long after, it is as patient as at first.
    assert link.open("root", 1_000 * SECOND)
    assert link.slow == 0
