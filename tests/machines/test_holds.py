"""What windows wait for, as the root finds it: reasons, order, and what it costs."""

from __future__ import annotations

from time import perf_counter

import pytest

from headwater.machines.holds import Awaited, Hold, find_holds
from headwater.machines.members import Members
from headwater.machines.messages import Register
from headwater.machines.movement import Movement
from headwater.machines.records import Assigned, Joined, Left
from headwater.machines.stalls import WORST, Reason, Stall
from headwater.machines.vitals import Vitals
from headwater.progress import Source
from headwater.rows import TS_MIN
from headwater.sources import SourceId

SECOND = 1_000_000
START = 1_000 * SECOND


def name(number: int) -> str:
    return str(SourceId(f"s{number}", 1))


class Scene:
    """A root's view of some sources, each read by child `c`; time goes on by `wait`."""

    def __init__(self, sources: int, expected: int | None = None) -> None:
        self.sources = [
            Source(name(n), n, "", 0, position=1, largest=START + n * SECOND) for n in range(sources)
        ]
        self.movement, self.vitals, self.members = Movement(), Vitals(), Members()
        self.members.apply(Joined("c", "token", 1, True, "c:1"))
        for source in self.sources:
            self.members.apply(Assigned(SourceId.of(source.name).name, "c"))
        self.expected, self.now = expected or sources, START
        self.awaited: Awaited | None = None
        self.idle_from: int | None = 0
        self.look()

    def look(self, *stalls: Stall, child: bool = True) -> None:
        if child:
            self.vitals.take(Register("c", "token", True, items=1, stalls=stalls), self.now)
        watermark = min((s.largest for s in self.sources if not s.idle), default=None)
        newest = max((source.largest for source in self.sources), default=TS_MIN)
        self.movement.look(self.sources, watermark, newest, self.expected, self.now)

    def wait(self, seconds: float) -> None:
        self.now += int(seconds * SECOND)

    def move(self, *codes: int) -> None:
        for code in codes:
            self.sources[code].position += 1
            self.sources[code].largest = self.now

    def holds(self) -> tuple[list[Hold], int]:
        largest = max((source.largest for source in self.sources), default=TS_MIN)
        return find_holds(
            self.movement,
            self.vitals,
            self.members,
            self.sources.__getitem__,
            largest,
            START,
            self.now,
            self.awaited,
            self.idle_from,
        )


def test_while_all_move_windows_wait_for_nobody() -> None:
    scene = Scene(3)
    for _ in range(30):
        scene.wait(1)
        scene.move(0, 1, 2)
        scene.look()
    assert scene.holds() == ([], 0)
    assert scene.movement.watermark_moved == scene.now


def test_a_silent_source_is_named_with_its_child_and_when_it_is_declared_idle() -> None:
    scene = Scene(3)
    for second in range(1, 21):
        scene.wait(1)
        scene.move(0, 2)
        scene.look(Stall(name(1), Reason.SILENT, second * SECOND, (60 - second) * SECOND))
    (hold,), count = scene.holds()
    assert (count, hold.reason, hold.source, hold.child) == (1, Reason.SILENT, name(1), "c")
    assert (hold.since, hold.idle_at) == (START, START + 60 * SECOND)
    assert hold.behind == 19 * SECOND


def test_times_of_reports_that_arrive_unevenly_stay_the_same() -> None:
    scene = Scene(1)
    scene.wait(10)
    scene.look(Stall(name(0), Reason.SILENT, 10 * SECOND, 50 * SECOND))
    first = scene.holds()[0][0]
    scene.wait(2.7)
    scene.look(Stall(name(0), Reason.SILENT, 12 * SECOND, 48 * SECOND))
    again = scene.holds()[0][0]
    assert (again.since, again.idle_at) == (first.since, first.idle_at)


@pytest.mark.parametrize("reason", [Reason.HORIZON, Reason.FUTURE, Reason.QUARANTINE, Reason.BACKPRESSURE])
def test_what_the_child_says_is_the_reason(reason: Reason) -> None:
    scene = Scene(1)
    scene.wait(10)
    scene.look(Stall(name(0), reason, 0, node="fog-3"))
    (hold,), _ = scene.holds()
    assert (hold.reason, hold.node, hold.idle_at) == (reason, "fog-3", None)
    assert "fog-3" in hold.message or reason is not Reason.BACKPRESSURE


def test_a_record_too_far_in_the_future_is_named_with_the_command_that_skips_it() -> None:
    scene = Scene(1)
    scene.wait(10)
    scene.look(Stall(name(0), Reason.FUTURE, 0, record=1204))
    (hold,), _ = scene.holds()
    assert "record 1204 lies too far in the future" in hold.message
    assert hold.message.endswith("headwater source skip s0 1204")


def test_a_child_that_has_died_is_named_as_silent_and_not_by_what_it_reported_before() -> None:
    scene = Scene(1)
    scene.wait(10)
    scene.look(Stall(name(0), Reason.BACKPRESSURE, 0, node="fog-3"))
    assert scene.holds()[0][0].reason is Reason.BACKPRESSURE
    scene.wait(6)
    scene.look(child=False)
    assert scene.holds()[0][0].reason is Reason.CHILD_SILENT


def test_a_child_that_is_silent_is_told_of_and_not_its_sources() -> None:
    scene = Scene(2)
    scene.wait(30)
    scene.look(child=False)
    holds, count = scene.holds()
    assert count == 2
    assert {hold.reason for hold in holds} == {Reason.CHILD_SILENT}
    assert holds[0].since == START


def test_a_child_that_left_reads_nobody() -> None:
    scene = Scene(1)
    scene.members.apply(Left("c"))
    scene.wait(10)
    scene.look()
    assert scene.holds()[0][0].reason is Reason.NO_CHILD


def test_a_source_that_sends_old_events_is_behind() -> None:
    scene = Scene(2)
    for _ in range(20):
        scene.wait(1)
        scene.move(1)
        scene.sources[0].position += 1
        scene.sources[0].largest += SECOND // 10
        scene.look()
    (hold,), _ = scene.holds()
    assert (hold.reason, hold.source) == (Reason.BEHIND, name(0))


def test_expected_sources_come_first_with_when_they_are_waited_for_no_longer() -> None:
    scene = Scene(1, expected=4)
    scene.awaited = Awaited(1, 4, START, START + 30 * SECOND)
    scene.wait(10)
    scene.look()
    first, second = scene.holds()[0]
    assert (first.reason, first.idle_at) == (Reason.EXPECTED, START + 30 * SECOND)
    assert "1 of 4" in first.message
    assert second.source == name(0)


def test_far_fewer_than_expected_is_known_since_when() -> None:
    scene = Scene(4)
    assert not scene.movement.short_since
    scene.wait(5)
    for source in scene.sources[:3]:
        source.idle = True
    scene.look()
    scene.wait(5)
    scene.look()
    assert (scene.movement.live, scene.movement.short_since) == (1, START + 5 * SECOND)
    scene.sources[0].idle = False
    scene.look()
    assert not scene.movement.short_since


def test_a_source_that_comes_later_has_moved_when_it_came() -> None:
    scene = Scene(1)
    scene.wait(100)
    scene.sources.append(Source(name(1), 1, "", 0))
    scene.look()
    assert scene.movement.moved(1) == scene.now


def test_the_worst_ten_of_20000_sources_cost_milliseconds(capsys: pytest.CaptureFixture[str]) -> None:
    scene = Scene(20_000)
    scene.wait(30)
    looks, finds = [], []
    for _ in range(20):
        begin = perf_counter()
        scene.look()
        middle = perf_counter()
        holds, count = scene.holds()
        looks.append(middle - begin)
        finds.append(perf_counter() - middle)
    assert count == 20_000
    assert [hold.source for hold in holds] == [name(n) for n in range(WORST)]
    with capsys.disabled():
        said = f"look {sorted(looks)[10] * 1e3:.1f} ms, find {sorted(finds)[10] * 1e3:.2f} ms (median)"
        print(f"\n20,000 sources: {said}")
    # One look a second: a bound far above what it takes, and far below what would be felt.
    assert sorted(looks)[10] + sorted(finds)[10] < 0.25


@pytest.mark.parametrize("idle_from, idle_at", [(0, 60), (90, 90), (None, None)])
def test_nobody_is_said_to_be_declared_idle_before_the_root_does_so(
    idle_from: int | None, idle_at: int | None
) -> None:
    """A root that has come back gives nobody up for some time, and none does before all are there."""
    scene = Scene(1)
    scene.idle_from = None if idle_from is None else START + idle_from * SECOND
    scene.wait(20)
    scene.look(Stall(name(0), Reason.SILENT, 20 * SECOND, 40 * SECOND))
    ((hold,), _) = scene.holds()
    assert hold.idle_at == (None if idle_at is None else START + idle_at * SECOND)
