"""Sources are dealt out to the children that are planned, as much to each as it takes (rule 8)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.machines.dealing import INTERVAL, STAY
from headwater.machines.messages import Challenge, Hello, Leave, Register, Registered, Silent, Welcome
from headwater.machines.records import Planned, Rate, Specified
from headwater.machines.root import RootMachine, Settings
from headwater.queries import Query
from headwater.sources import SourceId
from headwater.windows import Tumbling
from tests.harness import joined
from tests.machines.world import Disk

RATES = (Rate("hall", 0, 1.0), Rate("yard", 0, 3.0))


class Dealt:
    """A root that is managed, its children and sources."""

    def __init__(self, children: Mapping[str, float], *, planned: bool = True) -> None:
        draws = iter(range(1_000_000))
        self.machine = RootMachine(
            [Query("q", Tumbling(10), "sum")],
            Settings(expected=10_000, managed=True),
            Disk(),
            lambda: f"nonce-{next(draws)}",
            lambda position, results: None,
        )
        self.machine.begin()
        self.generation, self.now = 0, 0
        for child in children:
            joined(self.machine, child)
        if planned:
            self.plan(children)

    def plan(self, children: Mapping[str, float], parent: str = "root") -> None:
        self.generation += 1
        nodes = tuple(Planned(child, parent, capacity) for child, capacity in children.items())
        self.machine.specify(Specified(self.generation, "d", nodes, RATES))

    def greet(self, name: str, via: str, site: str = "hall", avoid: str = "") -> Welcome | None:
        """A source says hello until it is welcome."""
        hello = Hello(name, f"spool of {name}", f"opening of {name}", 0, 0, 0, site, 0, via=via, avoid=avoid)
        for _ in range(3):
            self.now += 2_000_000
            sends = self.machine.step(via, hello, self.now)
            for send in sends:
                if isinstance(send.message, Welcome):
                    return send.message
                if isinstance(send.message, Challenge):
                    hello = replace(hello, echo=send.message.nonce)
        return None

    def settled(self) -> int:
        """Let time pass until nobody moves; gives how many have."""
        moved = quiet = 0
        while quiet < 2 * STAY // INTERVAL and moved < 10_000:
            self.now += INTERVAL
            told = self.machine.tick(self.now)
            quiet = 0 if told else quiet + 1
            moved += len(told)
        return moved

    @property
    def loads(self) -> dict[str, float]:
        return {child: self.machine.load(child) for child in self.machine.members.readers}

    def counted(self) -> dict[str, float]:
        """The same, added up by itself."""
        members = self.machine.members
        rates = {"hall": 1.0, "yard": 3.0}
        return {
            child: sum(rates[self._site(name)] for name in members.sources_of(child))
            for child in members.readers
        }

    def _site(self, name: str) -> str:
        return next(s.site for id, s in self.machine.engine.sources.items() if id.startswith(f"{name}"))


def test_nobody_is_admitted_before_there_is_a_plan() -> None:
    dealt = Dealt({"a": 4.0}, planned=False)
    assert dealt.greet("s0", "a") is None
    assert not dealt.machine.engine.sources
    dealt.plan({"a": 4.0})
    welcome = dealt.greet("s0", "a")
    assert welcome is not None
    assert welcome.child == "a"


def test_sources_are_dealt_out_by_what_children_take() -> None:
    dealt = Dealt({"a": 8.0, "b": 4.0})
    for n in range(6):
        assert dealt.greet(f"s{n}", "a") is not None
    assert dealt.loads == {"a": 4.0, "b": 2.0}
    # One that sends three times as much counts for three.
    dealt.greet("y0", "a", "yard")
    assert dealt.loads == {"a": 7.0, "b": 2.0} or dealt.loads == {"a": 4.0, "b": 5.0}
    assert dealt.settled() in (0, 1)
    assert dealt.loads == dealt.counted()


def test_one_that_cannot_reach_its_child_gets_another() -> None:
    dealt = Dealt({"a": 8.0, "b": 4.0})
    first = dealt.greet("s0", "a")
    assert first is not None
    other = {"a": "b", "b": "a"}[first.child]
    again = dealt.greet("s0", other, avoid=first.child)
    assert again is not None
    assert again.child == other


def test_a_child_that_is_to_end_loses_its_sources_one_at_a_time() -> None:
    dealt = Dealt({"a": 9.0, "b": 9.0})
    for n in range(8):
        dealt.greet(f"s{n}", "a")
    assert dealt.loads == {"a": 4.0, "b": 4.0}
    dealt.plan({"a": 9.0})
    dealt.now += INTERVAL
    assert len(dealt.machine.tick(dealt.now)) == 1
    # Not before the next time.
    assert dealt.machine.tick(dealt.now + INTERVAL // 2) == []
    assert dealt.settled() == 3
    assert dealt.loads == {"a": 8.0}
    # A child that has left or reads none, such as one whose machine is lost, gets nobody.
    dealt.plan({"a": 0.0, "b": 9.0})
    dealt.settled()
    assert dealt.loads == {"b": 8.0}
    dealt.machine.step("b", Leave("b", dealt.machine.members.generation("b")), dealt.now)
    dealt.plan({"a": 9.0, "b": 9.0})
    dealt.greet("s9", "a")
    assert dealt.loads["a"] >= 1.0


def test_where_there_is_no_room_sources_stay_where_they_are() -> None:
    dealt = Dealt({"a": 2.0, "b": 2.0})
    for n in range(8):
        dealt.greet(f"s{n}", "a")
    before = dealt.loads
    assert dealt.settled() == 0
    assert dealt.loads == before == {"a": 4.0, "b": 4.0}


def test_a_node_is_told_its_parent_once_that_is_there() -> None:
    dealt = Dealt({"a": 2.0}, planned=False)
    stream = joined(dealt.machine, "a")

    def told() -> tuple[str, str]:
        asked = Register("a", "token", True, generation=stream.generation, parent="root")
        (send,) = dealt.machine.step("a", asked, 0)
        assert isinstance(send.message, Registered)
        return send.message.parent, send.message.address

    assert told() == ("", "")
    nodes = (Planned("m", "root"), Planned("a", "m", 2.0))
    dealt.machine.specify(Specified(1, "d", nodes, RATES))
    assert told() == ("", ""), "its parent is not there yet"
    joined(dealt.machine, "m")
    assert told()[0] == "m"
    dealt.machine.specify(Specified(2, "d", (Planned("a", "root", 2.0),), RATES))
    assert told() == ("root", "")
    assert dealt.machine.senders["a"] == "root"


@given(
    plans=st.lists(
        st.dictionaries(st.sampled_from("abcd"), st.sampled_from([0.0, 3.0, 6.0, 20.0]), min_size=1),
        min_size=1,
        max_size=4,
    ),
    sites=st.lists(st.sampled_from(["hall", "yard"]), min_size=1, max_size=12),
)
def test_whatever_is_planned_nobody_stays_with_a_child_that_is_to_have_none(
    plans: list[dict[str, float]], sites: list[str]
) -> None:
    dealt = Dealt(dict.fromkeys("abcd", 1.0))
    greeted = 0
    for plan in plans:
        dealt.plan(plan)
        for site in sites[greeted : greeted + 4]:
            dealt.greet(f"{site}-{greeted}", "a", site)
            greeted += 1
        assert dealt.settled() <= 4 * len(sites)
        assert dealt.loads == pytest.approx(dealt.counted())
        takers = {child for child, capacity in plan.items() if capacity > 0}
        if takers:
            assert set(dealt.machine.members.readers) <= takers
        # Whoever has too much has nothing that another one had room for.
        rates = {"hall": 1.0, "yard": 3.0}
        for child in takers:
            load = dealt.loads.get(child, 0.0)
            if load > plan[child] * (1 + 1e-9):
                smallest = min(rates[dealt._site(name)] for name in dealt.machine.members.sources_of(child))
                for other in takers - {child}:
                    assert plan[other] - dealt.loads.get(other, 0.0) < smallest + 1e-6


def test_a_source_that_cannot_reach_its_child_is_read_where_it_is_and_stays_there() -> None:
    """Also where its child takes more than it should: to assign it again would be in vain."""
    dealt = Dealt({"a": 2.0, "b": 2.0, "c": 2.0})
    for n in range(3):
        welcome = dealt.greet(f"s{n}", "a")
        assert welcome is not None
        while welcome.child != "a":
            welcome = dealt.greet(f"s{n}", "a", avoid=welcome.child)
            assert welcome is not None
    assert dealt.loads == {"a": 3.0}
    moved = 0
    for _ in range(10):
        dealt.now += STAY
        for send in dealt.machine.tick(dealt.now):
            moved += 1
            assert isinstance(send.message, Welcome)
            welcome = dealt.greet(SourceId.of(send.message.source).name, "a", avoid=send.message.child)
            assert welcome is not None
            assert welcome.child == "a"
    # Each has found out once that neither of the others can be reached.
    assert moved <= 6
    assert dealt.settled() == 0
    # A child that comes back may be reached by now.
    joined(dealt.machine, "b", token="another")
    dealt.now += STAY
    assert len(dealt.machine.tick(dealt.now)) == 1


def test_a_root_that_comes_back_gives_nobody_up_for_some_time() -> None:
    disk = Disk()

    def rooted() -> RootMachine:
        draws = iter(range(1_000_000))
        return RootMachine(
            [Query("q", Tumbling(10), "sum")],
            Settings(expected=1, return_timeout=5_000_000),
            disk,
            lambda: f"nonce-{disk.term}-{next(draws)}",
            lambda position, results: None,
        )

    machine = rooted()
    machine.begin()
    joined(machine, "a")
    hello = Hello("s", "spool", "opening", 0, 0, 0, via="a")
    (asked,) = machine.step("a", hello, 0)
    assert isinstance(asked.message, Challenge)
    machine.step("a", replace(hello, echo=asked.message.nonce), 0)
    (source,) = machine.engine.sources.values()
    silent = Silent("a", 1, source.name, source.prefix)
    records = disk.open()
    back = rooted()
    for position, record in enumerate(records, start=1):
        back.replay(position, record)
    back.begin()
    back.tick(1_000)
    back.step("a", silent, 5_000_999)
    assert not back.engine.sources[source.name].idle
    back.step("a", silent, 5_001_000)
    assert back.engine.sources[source.name].idle
    # One that has not been away decides at once.
    machine.step("a", silent, 1)
    assert source.idle
