"""Pace: no more than a limit, nothing lost that is said again, and no work for nothing."""

from __future__ import annotations

from headwater.events import Batch
from headwater.machines.messages import Columns, Stream
from headwater_wire.pace import SLACK, WAITING, Pace

SECOND = 1_000_000


def _columns(number: int, size: int = 1) -> Columns:
    batch = Batch("s#1", number, list(range(size)), [1.0] * size)
    return Columns(Stream("s", 0, "1"), f"s/{number}", batch, "o")  # type: ignore[arg-type]  # any stream


def test_a_limit_is_kept_and_what_comes_too_fast_waits_in_its_order() -> None:
    pace, now, taken = Pace(100), 5 * SECOND, list[tuple[int, str]]()
    for number in range(1, 201):
        if pace.takes("s", _columns(number), now):
            taken.append((now, f"s/{number}"))
    assert pace.waiting == 200 - len(taken)
    while pace.waiting:
        now += 20_000
        while (found := pace.due(now)) is not None:
            taken.append((now, found[1].id))
    assert [id for _, id in taken] == [f"s/{number}" for number in range(1, 201)]
    # 200 items at 100 a second, less what it could have taken before.
    assert abs((now - 5 * SECOND) - (2 * SECOND - SLACK)) <= 40_000
    assert pace.dropped == 0


def test_a_large_message_makes_the_next_one_wait() -> None:
    pace = Pace(100)
    assert pace.takes("s", _columns(1, 500), 10 * SECOND)
    assert not pace.takes("s", _columns(2), 10 * SECOND)
    assert pace.due(14 * SECOND) is None
    assert pace.due(15 * SECOND) is not None


def test_what_is_said_again_waits_once_and_too_many_are_dropped() -> None:
    pace = Pace(1)
    assert pace.takes("s", _columns(1), SECOND)
    for _ in range(3):
        assert not pace.takes("s", _columns(2), SECOND)
    assert (pace.waiting, pace.held) == (1, 1)
    for number in range(3, WAITING + 10):
        pace.takes("s", _columns(number), SECOND)
    assert pace.waiting == WAITING
    assert pace.dropped > 0
