"""What the machines remember: sources come and go under new names for months, and memory stays bounded."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.catalog import every
from headwater.changes import Change
from headwater.events import Batch
from headwater.machines import lane
from headwater.machines.members import Members
from headwater.machines.messages import Challenge, Hello, Standing, Welcome
from headwater.machines.node import NodeMachine
from headwater.machines.openings import Openings
from headwater.machines.recent import Recent
from headwater.machines.records import Admitted, Assigned, Opened
from headwater.machines.root import RootMachine, Settings
from headwater.machines.source import SourceMachine
from headwater.prefix import Prefix
from headwater.queries import Query
from headwater.root import Root
from headwater.windows import Tumbling
from tests.machines.test_delivery import QUERIES
from tests.machines.world import Disk, World


@pytest.mark.parametrize("lanes", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_whoever_has_left_is_forgotten(seed: int, lanes: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lane, "LEFT", 8)
    world = World(seed, QUERIES, faults=8, lanes=lanes, snapshots=seed % 2 == 1, comings=60)
    world.run()
    world.check()
    assert len(world.spools) > 2 * len(world.sources)
    world.rest(500)
    present = [world.machines[name] for name in world.sources]
    names = {machine.source for machine in present if isinstance(machine, SourceMachine)}
    for machine in world.machines.values():
        if isinstance(machine, NodeMachine):
            holding = machine._holding
            assert {*machine.sources, *machine.committed, *holding._spoken} <= names
            assert len(machine._below._listeners) <= len(world.machines)
            for each in holding.lanes.values():
                assert each.gone <= names
                # Of those who came and went: as many as there were at a time, and some more.
                assert len(each.engine.order.names) < 2 * 8 + lane.LEFT
    root = world.machines["root"]
    assert isinstance(root, RootMachine)
    assert {name for child in world.children for name in root.members.sources_of(child)} <= set(world.sources)
    # Each that ever was keeps its account; the watermark looks at those that are there.
    assert len(root.engine.sources) >= len(world.spools)
    assert {source.name for source in root.engine._roster.present} == names


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 60)), max_size=60), st.integers(1, 50))
def test_what_is_renewed_is_kept_and_the_rest_goes(steps: list[tuple[int, int]], memory: int) -> None:
    recent: Recent[int, int] = Recent(memory)
    now, put = 0, dict[int, int]()
    for key, wait in steps:
        now += wait
        recent.put(key, now, now)
        put[key] = now
        for each, then in put.items():
            if now - then < memory:
                assert recent.get(each) == then
            if now - then >= 3 * memory:
                assert recent.get(each) is None
        assert len(recent) <= len(put)


def test_every_opening_that_ever_was_is_known_in_few_bytes() -> None:
    openings = Openings()
    root = Root([Query("q", Tumbling(10))])
    root.admit("s\0" + "1".zfill(10), lateness=0)
    said = Hello("s", "spool", "o0", 0, 0, 0)
    assert not openings.is_known(said)
    openings.admitted(Admitted("s\0" + "1".zfill(10), "", 0, "spool", "o0", 0))
    for number in range(1, 2_000):
        openings.opened(Opened("s\0" + "1".zfill(10), f"o{number}", 0))
    assert all(openings.is_known(replace(said, opening=f"o{number}")) for number in range(2_000))
    assert not any(openings.is_known(replace(said, opening=f"o{number}")) for number in range(2_000, 4_000))
    assert not openings.is_known(replace(said, spool="another"))
    # A process from long ago would send again what was counted of it.
    assert "opened again since" in str(openings.place(replace(said, opening="o3"), root.sources))
    assert len(openings._spools["spool"].openings) == 8 * 2_000


def test_a_child_is_told_of_the_sources_that_it_is_to_read() -> None:
    members = Members()
    for source, child in [("a", "c"), ("b", "c"), ("a", "d"), ("e", "c"), ("b", "c")]:
        members.apply(Assigned(source, child))
    assert (sorted(members.sources_of("c")), members.sources_of("d")) == (["b", "e"], ["a"])
    members.release("b")
    members.release("b")
    assert (members.sources_of("c"), members.assigned("b")) == (["e"], None)
    members.release("a")
    assert (members.sources_of("d"), list(members._read_by)) == ([], ["c"])


def test_a_late_hello_does_not_bring_back_who_is_retired() -> None:
    disk = Disk()
    root = RootMachine(QUERIES, Settings(), disk, lambda: "nonce", lambda position, results: None)
    root.begin()
    hello = Hello("s", "spool", "o", 0, 0, 0)
    (challenge,) = root.step("c", hello, 0)
    assert isinstance(challenge.message, Challenge)
    (welcome,) = root.step("c", replace(hello, echo=challenge.message.nonce), 0)
    assert isinstance(welcome.message, Welcome)
    # Who is known need not be asked again.
    assert root.step("c", hello, 0) == [welcome]
    root.retire(welcome.message.source)
    (send,) = root.step("c", hello, 0)
    assert isinstance(send.message, Challenge)
    assert [source.retired for source in root.engine.sources.values()] == [True]
    # Somebody who lives comes back as another one.
    echoed = replace(hello, echo=send.message.nonce)
    # Not at once: one who does nothing else would fill the log.
    assert root.step("c", echoed, 500_000) == []
    (send,) = root.step("c", echoed, 1_000_000)
    assert isinstance(send.message, Welcome)
    assert send.message.source > welcome.message.source


def test_a_lane_is_told_how_far_lane_0_has_raised_a_newcomer() -> None:
    """Its own watermark is behind; what it says of the newcomer is what it does with its events."""
    root = Root([Query("q", Tumbling(count=2))])
    root.admit("a", lateness=0)
    root.push(Batch.from_records("a", 1, [(10, None, 1.0, None)]))
    root.admit("b", lateness=0, prefix=Prefix(largest=25))
    assert root.decisions[-1].floor == root.sources["b"].largest == 25


def test_an_engine_that_takes_the_place_of_another_goes_on_where_it_stood(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lane, "LEFT", 2)
    held = lane.Lane(0, [Query("q", Tumbling(10))], every, lambda: "id", 2**20)
    held.take_changes([Change("add", Query("r", Tumbling(10)), 0, 1)])
    held.read_until(50)
    held.told({"s": Standing(Prefix(opening="o"), 3, "hall")})
    before = held.engine
    for number in range(8):
        held.told({f"other {number}": Standing(Prefix(opening="o"), 0, "")})
        held.forget(f"other {number}")
        held.read(lane.Read(Batch.from_records("s", number + 1, [(number, None, 1.0, None)]), "o"))
        assert held.make() is not None
        assert len(held.engine.order.names) <= 2 + lane.LEFT
    assert held.engine is not before
    assert (held.engine.version, held.engine.active) == (before.version, before.active)
    source = held.engine.sources["s"]
    assert (source.position, source.lateness, source.site, source.opening) == (8, 3, "hall", "o")
    assert source.account.accepted == 8
    # What lies too far ahead still waits.
    held.read(lane.Read(Batch.from_records("s", 9, [(51, None, 1.0, None)]), "o"))
    assert source.position == 8


def test_a_query_that_is_gone_is_let_go_though_nothing_comes_to_be_sent() -> None:
    gone = Query("gone", Tumbling(10), "median")
    held = lane.Lane(0, [gone, Query("q", Tumbling(20))], every, lambda: "id", 2**20)
    held.told({"s": Standing(Prefix(opening="o"), 0, "")})
    held.take_changes([Change("remove", gone, 20, 1)])
    (group,) = held.engine._grouping.sliced
    held.read(lane.Read(Batch("s", 1, [40], [1.0]), "o"))
    held.let_go(100)
    assert len(group.members) == 2, "only behind a flush"
    held.make()
    held.let_go(19)
    assert len(group.members) == 2, "a window of it may be open"
    held.let_go(100)
    assert [member.query.id for member in group.members] == ["q"]
