"""Turns by a clock of the test's, against a naive list; then with threads."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater_operator.workqueue import Turn, Turns, WorkQueue


def test_a_key_that_is_added_often_has_one_turn() -> None:
    turns = Turns[str]()
    for now in (1.0, 2.0, 3.0):
        turns.add("a", now)
    assert turns.take(5.0) == Turn("a", 4.0)
    assert turns.take(5.0) is None


def test_a_key_is_worked_on_by_one_and_comes_again_if_it_was_added_meanwhile() -> None:
    turns = Turns[str]()
    turns.add("a", 0.0)
    assert turns.take(0.0) == Turn("a", 0.0)
    turns.add("a", 1.0)
    assert turns.take(2.0) is None
    assert turns.pause(2.0) is None
    turns.done("a", 3.0)
    assert turns.take(3.0) == Turn("a", 2.0)
    turns.done("a", 4.0)
    assert turns.take(9.0) is None


def test_the_key_that_has_waited_longest_is_next() -> None:
    turns = Turns[str]()
    turns.add("later", 0.0, 5.0)
    turns.add("second", 2.0)
    turns.add("first", 1.0)
    assert [turns.take(10.0), turns.take(10.0), turns.take(10.0)] == [
        Turn("first", 9.0),
        Turn("second", 8.0),
        Turn("later", 5.0),
    ]


def test_the_earlier_of_two_times_holds() -> None:
    turns = Turns[str]()
    turns.add("a", 0.0, 100.0)
    turns.add("a", 0.0, 10.0)
    turns.add("a", 0.0, 50.0)
    assert turns.pause(4.0) == 6.0
    assert turns.take(9.9) is None
    assert turns.take(10.0) == Turn("a", 0.0)
    turns.done("a", 10.0)
    # The later ones are no turns of their own.
    assert turns.take(1000.0) is None


def test_pauses_double_up_to_the_longest_and_begin_anew_once_it_succeeds() -> None:
    turns = Turns[str](first=1.0, longest=10.0)
    now, pauses = 0.0, []
    turns.add("a", now)
    for _ in range(6):
        assert turns.take(now) is not None
        pauses.append(turns.failed("a", now))
        now += pauses[-1]
    assert pauses == [1.0, 2.0, 4.0, 8.0, 10.0, 10.0]
    assert turns.take(now) is not None
    turns.forget("a")
    turns.done("a", now)
    turns.add("a", now)
    assert turns.take(now) is not None
    assert turns.failed("a", now) == 1.0


def test_failures_of_one_key_do_not_delay_another() -> None:
    turns = Turns[str]()
    turns.add("bad", 0.0)
    assert turns.take(0.0) is not None
    turns.failed("bad", 0.0)
    turns.add("good", 0.0)
    assert turns.take(0.0) == Turn("good", 0.0)


def test_an_event_cuts_a_pause_short_but_not_to_nothing() -> None:
    turns = Turns[str](first=1.0, longest=100.0)
    turns.add("a", 0.0)
    for now in (0.0, 1.0, 3.0):
        assert turns.take(now) is not None
        turns.failed("a", now)
    # It would be tried again at 7.
    turns.add("a", 3.1)
    assert turns.pause(3.1) == pytest.approx(0.9)
    assert turns.take(4.0) == Turn("a", 0.0)
    # Added by what the attempt itself has written, before it failed.
    turns.add("a", 4.5)
    turns.failed("a", 5.0)
    assert turns.take(5.9) is None
    assert turns.take(6.0) is not None


def test_pauses_stay_finite() -> None:
    turns = Turns[str]()
    now = 0.0
    turns.add("a", now)
    for _ in range(3000):
        assert turns.take(now) is not None
        now += turns.failed("a", now)
    assert turns.pause(now) == 0.0


def test_depth_counts_what_waits() -> None:
    turns = Turns[str]()
    turns.add("a", 0.0)
    turns.add("b", 0.0)
    turns.add("later", 0.0, 5.0)
    assert turns.depth(0.0) == 2
    turns.take(0.0)
    assert (turns.depth(0.0), turns.working) == (1, 1)


@dataclass
class Naive:
    """The same as a plain table that is looked through."""

    due: dict[int, float] = field(default_factory=dict)
    working: set[int] = field(default_factory=set)
    failures: dict[int, tuple[int, float]] = field(default_factory=dict)

    def add(self, key: int, now: float, after: float) -> None:
        due = max(now + after, self.failures.get(key, (0, 0.0))[1])
        self.due[key] = min(due, self.due.get(key, due))

    def ready(self, now: float) -> dict[int, float]:
        return {k: due for k, due in self.due.items() if due <= now and k not in self.working}

    def failed(self, key: int, now: float) -> float:
        times = self.failures.get(key, (0, 0.0))[0] + 1
        pause = min(2.0 ** (times - 1), 300.0)
        self.failures[key] = times, now + 1.0
        if key in self.due:
            self.due[key] = max(self.due[key], now + 1.0)
        self.add(key, now, pause)
        self.working.remove(key)
        return pause


steps = st.lists(
    st.tuples(
        st.sampled_from(["add", "after", "take", "done", "failed", "forget", "wait"]),
        st.integers(0, 3),
        st.integers(0, 12),
    ),
    max_size=60,
)


@given(steps)
def test_turns_are_those_of_a_plain_table(steps: list[tuple[str, int, int]]) -> None:
    turns, naive, now = Turns[int](), Naive(), 0.0
    for step, key, amount in steps:
        if step in ("add", "after"):
            after = amount / 2 if step == "after" else 0.0
            turns.add(key, now, after)
            naive.add(key, now, after)
        elif step == "take":
            ready, turn = naive.ready(now), turns.take(now)
            assert (turn is None) == (not ready)
            if turn is not None:
                assert turn.waited == now - min(ready.values())
                assert ready[turn.key] == min(ready.values())
                del naive.due[turn.key]
                naive.working.add(turn.key)
        elif step == "done" and key in naive.working:
            turns.done(key, now)
            naive.working.remove(key)
        elif step == "failed" and key in naive.working:
            assert turns.failed(key, now) == naive.failed(key, now)
        elif step == "forget":
            turns.forget(key)
            naive.failures.pop(key, None)
        elif step == "wait":
            now += amount / 2
        waiting = [due for k, due in naive.due.items() if k not in naive.working]
        assert turns.pause(now) == (max(min(waiting) - now, 0.0) if waiting else None)
        assert turns.depth(now) == len(naive.ready(now))
        assert turns.working == len(naive.working)


def test_threads_never_share_a_key_and_every_event_is_seen() -> None:
    queue = WorkQueue[int]()
    versions, seen, busy = [0] * 5, [0] * 5, [threading.Lock() for _ in range(5)]

    def work() -> None:
        while (turn := queue.take()) is not None:
            assert busy[turn.key].acquire(blocking=False), "two workers have one key"
            seen[turn.key] = versions[turn.key]
            time.sleep(0.0005)
            busy[turn.key].release()
            queue.done(turn.key)

    workers = [threading.Thread(target=work) for _ in range(4)]
    for worker in workers:
        worker.start()
    for n in range(2000):
        versions[n % 5] = n
        queue.add(n % 5)
    until = time.monotonic() + 10
    while (queue.depth or seen != versions) and time.monotonic() < until:
        time.sleep(0.01)
    assert queue.end(5)
    for worker in workers:
        worker.join(5)
        assert not worker.is_alive()
    assert seen == versions


def test_a_worker_wakes_when_a_key_is_due() -> None:
    queue = WorkQueue[str]()
    began = time.monotonic()
    queue.add_after("late", 30.0)
    queue.add_after("soon", 0.05)
    turn = queue.take()
    assert turn is not None
    assert turn.key == "soon"
    assert 0.04 < time.monotonic() - began < 5


def test_the_end_waits_for_what_is_worked_on_and_hands_out_nothing_more() -> None:
    queue = WorkQueue[str]()
    queue.add("a")
    queue.add("b")
    turn = queue.take()
    assert turn is not None
    assert not queue.end(0.01)
    assert queue.take() is None
    threading.Timer(0.05, queue.done, [turn.key]).start()
    assert queue.end(5)
    queue.add("c")
    assert queue.take() is None


def test_the_end_wakes_those_who_wait() -> None:
    queue = WorkQueue[str]()
    taken: list[Turn[str] | None] = []
    waiting = threading.Thread(target=lambda: taken.append(queue.take()))
    waiting.start()
    assert queue.end(1)
    waiting.join(5)
    assert taken == [None]


def test_a_failure_is_tried_again() -> None:
    queue = WorkQueue(Turns[str](first=0.02))
    queue.add("a")
    assert queue.take() is not None
    assert queue.failed("a") == 0.02
    turn = queue.take()
    assert turn is not None
    queue.forget("a")
    queue.done("a")
    assert queue.depth == 0


def test_a_turn_says_whether_something_happened_or_time_alone_has_passed() -> None:
    turns = Turns[str]()
    turns.add("a", 0.0, 5.0)
    timed = turns.take(5.0)
    assert timed is not None
    assert not timed.prompted
    # An event while it is worked on, and a later look that is asked for at its end.
    turns.add("a", 5.0)
    turns.add("a", 5.0, 5.0)
    turns.done("a", 5.0)
    prompted = turns.take(5.0)
    assert prompted is not None
    assert prompted.prompted
    turns.failed("a", 6.0)
    again = turns.take(100.0)
    assert again is not None
    assert again.prompted
