"""Lanes at the root: whatever lane 0 decides holds in another one at the same number (protocol, rule 14)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from headwater.changes import Change
from headwater.events import Batch
from headwater.machines import lane as nodelane
from headwater.machines.lane import Lane
from headwater.machines.lanes import Lanes
from headwater.machines.messages import Ack, Barrier, Delivery, Hello, Message, Resync, Welcome
from headwater.machines.records import Admitted, Body, Changed, Idled, Merged, Resumed, Retired
from headwater.machines.root import RootMachine, Settings
from headwater.machines.state import State
from headwater.node import Node
from headwater.partials import Partial
from headwater.queries import Query
from headwater.results import Result
from headwater.root import Root
from headwater.sources import SourceId
from headwater.windows import Tumbling
from tests.harness import joined
from tests.machines.world import Disk, apart

TIMED = Query("t", Tumbling(10), "sum")
COUNTED = Query("n", Tumbling(count=2), "sum")
A, B = str(SourceId("a", 1)), str(SourceId("b", 1))


def read(engines: Mapping[int, Root], lane: int, source: str, *times: int) -> Partial:
    """What a node makes of the next records of a source."""
    numbering = Lanes([TIMED, COUNTED], apart)
    node = Node([TIMED, COUNTED], serves=numbering.serves(lane))
    for change in engines[lane].changes:
        numbering.apply(change)
        node.apply(change)
    known = engines[lane].sources[source]
    node.admit(source, lateness=0, prefix=known.prefix)
    node.push(Batch.from_records(source, known.position + 1, [(ts, None, 1.0, None) for ts in times]))
    return node.flush()


class Decided:
    """What a log comes to."""

    def __init__(self, *queries: Query, expected: int = 1) -> None:
        self.state = State(queries, expected, apart)
        self.results: list[Result] = []

    def log(self, *bodies: Body) -> None:
        for body in bodies:
            self.results += self.state.apply(self.state.position + 1, body)

    def admit(self, *names: str) -> None:
        self.log(*(Admitted(name, "", 0, f"spool-{name}", "o", 0) for name in names))

    def merge(self, source: str, *times: int, lane: int = 0) -> None:
        self.log(Merged(read(self.state.engines, lane, source, *times), lane))


def test_where_a_source_begins_is_decided_in_a_lane_that_has_no_watermark_yet() -> None:
    decided = Decided(TIMED, COUNTED)
    decided.admit(A)
    decided.merge(A, 100)
    decided.admit(B)
    main, other = decided.state.engines.values()
    assert (main.watermark, other.watermark) == (100, None)
    assert main.sources[B].largest == other.sources[B].largest == 100
    assert [d.floor for d in main.decisions] == [d.floor for d in other.decisions] == [None, 100]


def test_a_lane_that_comes_later_has_the_watermark_of_the_first() -> None:
    decided = Decided(TIMED, COUNTED, expected=2)
    decided.admit(A, B)
    decided.merge(A, 100)
    decided.merge(B, 1_000)
    # In this order: the watermark was never that of the second one alone.
    decided.log(Idled(B), Idled(A))
    decided.log(Changed(decided.state.engine.proposed(replace(COUNTED, id="later"))))
    main, _, later = decided.state.engines.values()
    assert (main.watermark, later.watermark) == (100, 100)
    decided.log(Resumed(A))
    assert (main.sources[A].largest, later.sources[A].largest) == (100, 100)
    decided.log(Resumed(B))
    assert (main.watermark, later.watermark) == (100, 100)


def test_a_query_that_is_added_again_is_computed_in_its_new_lane_alone() -> None:
    decided = Decided(TIMED, COUNTED, expected=2)
    decided.admit(A, B)
    for lane in (0, 1):
        decided.merge(A, 100, lane=lane)
        decided.merge(B, 10, lane=lane)
    decided.log(Changed(decided.state.engine.proposed_removal("n")))
    decided.log(Changed(decided.state.engine.proposed(COUNTED)))
    # Of the first one events are still to come: they are no business of the second.
    for lane in (0, 1, 2):
        decided.merge(B, 20, 30, 150, 152, lane=lane)
        decided.merge(A, 140, 160, lane=lane)
    found = [(r.incarnation, r.start, r.values["sum"]) for r in decided.results if r.query == "n"]
    assert found == [(1, 0, 2.0), (1, 2, 2.0), (2, 0, 2.0)]


def test_an_engine_that_is_made_anew_computes_what_it_did(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nodelane, "LEFT", -1)
    numbering = Lanes([TIMED, COUNTED], apart)
    lanes = [Lane(n, [TIMED, COUNTED], numbering.serves(n), lambda: "id", 2**20) for n in (0, 1)]
    change = Change("remove", COUNTED, 100, 1)
    numbering.apply(change)
    for lane in lanes:
        lane.take_changes([change])
        before = lane.engine
        lane.make()
        assert lane.engine is not before
        assert lane.engine.groups().keys() == before.groups().keys() == {0}


def retired_ahead() -> Decided:
    """Lane 1 has come to record 1 of a source when it is retired at record 3."""
    decided = Decided(TIMED, COUNTED, expected=2)
    decided.admit(A, B)
    for lane in (0, 1):
        decided.merge(A, 10, lane=lane)
        decided.merge(B, 50, lane=lane)
    decided.merge(A, 20, 30)
    decided.log(Retired(A))
    return decided


def ends(decided: Decided, source: str) -> list[int | None]:
    """At which number each lane has retired a source."""
    found = []
    for engine in decided.state.engines.values():
        after = [d.after for d in engine.decisions if (d.kind, d.source) == ("retire", source)]
        found.append(after[0] if after else None)
    return found


def test_a_lane_that_is_behind_retires_a_source_at_the_number_where_lane_0_did() -> None:
    decided = retired_ahead()
    main, other = decided.state.engines.values()
    assert ends(decided, A) == [3, None]
    # Nothing is trimmed that the lane has not counted, and its watermark waits for it.
    assert (decided.state.counted(A), decided.state.finishes(A)) == (1, True)
    assert (main.watermark, other.watermark) == (50, 10)
    decided.merge(A, 20, 30, lane=1)
    assert ends(decided, A) == [3, 3]
    assert (decided.state.counted(A), decided.state.finishes(A), other.watermark) == (3, False, 50)


def test_a_source_that_is_retired_again_is_waited_for_in_no_lane() -> None:
    decided = retired_ahead()
    decided.log(Retired(A))
    assert (ends(decided, A), decided.state.finishes(A)) == ([3, 1], False)
    assert [engine.watermark for engine in decided.state.engines.values()] == [50, 50]


@pytest.mark.parametrize("first", ["retired", "present"])
def test_behind_another_incarnation_nobody_is_waited_for(first: str) -> None:
    decided = retired_ahead()
    name = A
    if first == "present":
        decided.merge(B, 60)
        name = B
    decided.admit(str(SourceId(SourceId.of(name).name, 2)))
    if first == "present":
        decided.log(Retired(B))
    assert ends(decided, name) == ([3, 1] if first == "retired" else [2, 1])
    assert not decided.state.finishes(name)


class Rooted:
    """A root with a source of which lane 1 is behind."""

    def __init__(self) -> None:
        self.machine = RootMachine(
            [TIMED, COUNTED], Settings(apart=apart), Disk(), lambda: "nonce", lambda position, found: None
        )
        self.machine.begin()
        self.stream = joined(self.machine)
        self._now = 0
        self.source = self.greet("o", 0)
        self.deliver(0, 10, 20, 30)

    def greet(self, opening: str, opened_at: int, spool: str = "spool") -> str:
        hello = Hello("a", spool, opening, opened_at, 0, 9, echo="nonce")
        # A name gets its next incarnation a second after the one before at the earliest.
        self._now += self.machine.settings.admission
        welcome = self.machine.step("c", hello, self._now)[-1].message
        assert isinstance(welcome, Welcome)
        return welcome.source

    def deliver(self, lane: int, *times: int) -> list[Message]:
        partial = read(self.machine.engines, lane, self.source, *times)
        sends = self.machine.step("c", Delivery(self.stream, f"{lane}/{times}", lane, partial), 0)
        return [send.message for send in [*sends, *self.machine.commit()]]


def test_a_source_that_was_retired_sends_what_a_lane_has_not_counted_and_then_is_another_one() -> None:
    rooted = Rooted()
    rooted.machine.retire(rooted.source)
    assert rooted.greet("o", 0) == rooted.source
    # Also when its spool was opened again.
    assert rooted.greet("o2", 3) == rooted.source
    # What goes beyond the number would wait for lane 0 for ever: the node hears where it ends.
    (answer,) = rooted.deliver(1, 10, 20, 30, 40)
    assert isinstance(answer, Resync)
    standing = answer.standings[rooted.source]
    assert standing is not None
    assert (standing.prefix.position, standing.barrier) == (0, Barrier(3, "o2"))
    (answer,) = rooted.deliver(1, 10, 20, 30)
    assert isinstance(answer, Ack)
    assert rooted.machine.committed == {rooted.source: 3}
    assert rooted.greet("o2", 3) == str(SourceId("a", 2))


@pytest.mark.parametrize("opened_at, spool", [(2, "spool"), (0, "other")])
def test_a_spool_without_those_records_is_another_source_at_once(opened_at: int, spool: str) -> None:
    rooted = Rooted()
    rooted.machine.retire(rooted.source)
    assert rooted.greet("o2", opened_at, spool) == str(SourceId("a", 2))
    assert not rooted.machine.finishes(rooted.source)
