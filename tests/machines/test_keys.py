"""A source that brings too many keys: a child reads no more of it, and the root decides (rule 15)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.events import Batch
from headwater.machines import root
from headwater.machines.keys import Keys
from headwater.machines.lanes import Lanes
from headwater.machines.messages import (
    Ack,
    Challenge,
    Columns,
    Crowded,
    Delivery,
    Fenced,
    Hello,
    Leave,
    Outbox,
    Probe,
    Register,
    Registered,
    Resync,
    Send,
    Silent,
    Standing,
    Stream,
    Welcome,
)
from headwater.machines.node import NodeMachine, Settings
from headwater.machines.quarantine import Quarantine
from headwater.machines.records import Body, Quarantined, Released
from headwater.node import Node
from headwater.prefix import Prefix
from headwater.queries import Query
from headwater.sources import SourceId
from headwater.windows import Tumbling
from tests.harness import joined
from tests.machines.test_rules import answered, node, of
from tests.machines.world import Disk, apart

QUERY = Query("q", Tumbling(10), "sum", key_by="key")
COUNTED = Query("n", Tumbling(count=4), "sum")
STREAM = Stream("s", 0, 1)
NAME = str(SourceId("s", 1))


def batch(first: int, keys: Sequence[str], *, source: str = "s") -> Batch:
    return Batch.from_records(source, first, [(first + n, key, 1.0, None) for n, key in enumerate(keys)])


# What a child counts


@given(
    st.integers(1, 6),
    st.lists(st.lists(st.sampled_from("abcdefgh"), min_size=1, max_size=6), max_size=8),
)
def test_as_many_keys_are_read_as_the_cap_says(cap: int, batches: list[list[str]]) -> None:
    keys, known = Keys(1_000), set[str]()
    keys.cap = cap
    for names in batches:
        found = keys.fitting(batch(1, names), 0)
        expected = len(names)
        for place, name in enumerate(names):
            if name not in known and len(known) == cap:
                expected = place
                break
            known.add(name)
        assert found == expected
        assert ("s" in keys.over) == (expected < len(names))
        keys.read(batch(1, names), 0, found, 0)


def test_no_key_is_no_key() -> None:
    keys = Keys(1_000)
    keys.cap = 2
    bare = Batch.from_records("s", 1, [(1, "a", 1.0, None), (2, None, None, None), (3, "b", 1.0, None)])
    assert keys.fitting(bare, 0) == 3
    keys.read(bare, 0, 3, 0)
    assert keys.fitting(batch(4, ["", "c"]), 0) == 1


def test_names_without_a_row_are_no_keys() -> None:
    keys = Keys(1_000)
    keys.cap = 2
    many = tuple("abcdef")
    given = Batch("s", 1, np.arange(3), np.ones(3), key=np.array([4, 1, 4]), keys=many)
    assert keys.fitting(given, 0) == 3
    keys.read(given, 0, 3, 0)
    # One name that stands in a dictionary twice is one key.
    twice = Batch("s", 4, np.arange(3), np.ones(3), key=np.array([0, 1, 2]), keys=("b", "b", "e"))
    assert keys.fitting(twice, 0) == 3
    assert keys.fitting(Batch("s", 4, np.arange(1), np.ones(1), key=np.array([0]), keys=many), 0) == 0


@given(st.lists(st.integers(0, 5), max_size=8), st.sets(st.integers(0, 9), max_size=4))
def test_a_lean_batch_has_the_same_records_and_no_other_names(codes: list[int], more: set[int]) -> None:
    names = tuple("abcdef") + tuple(f"x{n}" for n in sorted(more))
    given = Batch(
        "s", 1, np.arange(len(codes)), np.ones(len(codes)), key=np.array(codes, np.int32), keys=names
    )
    lean = given.lean()
    assert lean.key is not None
    assert [lean.keys[code] for code in lean.key] == [names[code] for code in codes]
    assert sorted(lean.keys) == sorted({names[code] for code in codes})
    assert given.keys == names


def test_names_that_no_record_uses_are_remembered_by_nobody() -> None:
    machine = reading(3)
    seen = machine._holding
    for turn in range(5):
        names = ("a", *(f"unused-{turn}-{n}" for n in range(50)))
        given = Batch("s", turn + 1, np.array([turn]), np.ones(1), key=np.array([0], np.int32), keys=names)
        taken(machine, Columns(STREAM, str(turn), given, "o"))
    assert not machine.keys.over
    assert seen.lanes[0].engine.sources["s"].position == 5
    assert len(seen.lanes[0].engine._central.keys.listed) <= 2


def test_what_lane_0_has_counted_may_be_read_by_the_others() -> None:
    keys = Keys(1_000)
    keys.cap = 2
    given = batch(1, "abcdefg")
    assert keys.fitting(given, 7) == 7
    assert keys.fitting(given, 4) == 6
    keys.read(given, 4, 6, 0)
    # Those are no keys that this child has read for lane 0.
    assert remembered(keys, "s") == {hash("e"), hash("f")}


def test_a_cap_that_falls_takes_nothing_back() -> None:
    keys = Keys(1_000)
    keys.cap = 5
    keys.read(batch(1, "abcde"), 0, 5, 0)
    keys.cap = 2
    assert keys.fitting(batch(6, "edcba"), 0) == 5
    assert keys.fitting(batch(6, "edxba"), 0) == 2
    # It rises: what has waited fits, and nobody is told of any more.
    keys.cap = 6
    assert keys.fitting(batch(6, "edxba"), 0) == 5
    assert not keys.over


def test_no_more_is_remembered_than_the_cap() -> None:
    keys = Keys(1_000)
    keys.cap = 100
    for n in range(50):
        given = batch(1, [f"{n}/{place}" for place in range(30)], source=f"s{n % 2}")
        keys.read(given, 0, keys.fitting(given, 0), 0)
    assert [len(remembered(keys, name)) for name in ("s0", "s1")] == [100, 100]
    assert keys.refused == 50 - 6
    assert [source for source, _ in keys.news()] == ["s0", "s1"]
    assert keys.news() == []
    keys.forget({"s1": None})
    assert list(keys.over) == ["s1"]
    # Of the one nothing comes any more.
    for now in range(0, 5_000, 500):
        keys.read(batch(1, "a", source="s1"), 0, 1, now)
    assert [len(remembered(keys, name)) for name in ("s0", "s1")] == [0, 101]


def remembered(keys: Keys, name: str) -> set[int]:
    held = keys._brought.get(name)
    return held.keys - {hash("")} if held is not None else set()


def test_another_spool_is_no_other_device() -> None:
    keys = Keys(1_000)
    keys.cap = 3
    for incarnation, names in ((1, "ab"), (2, "bc"), (3, "ad")):
        given = batch(1, names, source=str(SourceId("s", incarnation)))
        found = keys.fitting(given, 0)
        keys.read(given, 0, found, 0)
    assert (found, list(keys.over)) == (1, [str(SourceId("s", 3))])
    # What the root has decided is over when it lets it come again.
    keys.decided("s")
    assert keys.fitting(given, 0) == 2


# What a child does


def reading(cap: int, *queries: Query) -> NodeMachine:
    machine = NodeMachine("n", "p", Settings(apart=apart), child=True, token="t")
    machine.step("root", Registered("n", "t", 1, queries or (QUERY,), keys_per_source=cap), 0)
    return machine


def taken(machine: NodeMachine, columns: Columns) -> list[Send]:
    """What comes of columns of a source that begins here."""
    sends = machine.step("s", columns, 0)
    return sends + answered(machine, sends)


def acked(machine: NodeMachine, now: int) -> None:
    """The parent takes all batches."""
    for delivery in of(Delivery, machine.flush(now)):
        machine.step("p", Ack(delivery.stream, delivery.id), now)


def test_a_child_reads_up_to_the_cap_and_reports() -> None:
    machine = reading(3)
    assert of(Ack, taken(machine, Columns(STREAM, "1", batch(1, "aab"), "o")))
    sends = taken(machine, Columns(STREAM, "2", batch(4, "bcadbe"), "o"))
    # Three of these: then comes the fourth key.
    (resync,) = of(Resync, sends)
    standing = resync.standings["s"]
    assert standing is not None
    assert standing.prefix.position == 6
    # Nothing is read, answered or kept of what follows.
    held = machine.held_bytes
    for _ in range(3):
        assert taken(machine, Columns(STREAM, "3", batch(7, "dbe"), "o")) == []
    assert (machine.held_bytes, machine.keys.refused) == (held, 4)
    assert machine.keys.news() == [("s", 5)]
    # While something of it is under way the root cannot have counted all.
    assert of(Crowded, machine.tick(1)) == []
    acked(machine, 10_000_000)
    for now in (10_000_001, 10_000_002):
        (report,) = of(Crowded, machine.tick(now))
        assert report == Crowded("n", 1, "s", machine.sources["s"].prefix, 5)
        assert report.prefix.position == 6
    # Others are read.
    other = Columns(Stream("other", 0, 1), "1", batch(1, "xyz", source="other"), "o")
    sends = machine.step("other", other, 0)
    assert of(Ack, sends + answered(machine, sends))


def test_a_child_reports_no_more_once_the_source_is_gone() -> None:
    machine = reading(1)
    taken(machine, Columns(STREAM, "1", batch(1, "ab"), "o"))
    acked(machine, 10_000_000)
    sends = machine.tick(10_000_001)
    assert of(Crowded, sends)
    (probe,) = of(Probe, sends)
    machine.step("p", Resync(probe.stream, probe.id, 0, {"s": None}), 10_000_002)
    assert of(Crowded, machine.tick(10_000_003)) == []
    machine.tick(20_000_000)
    assert not machine.keys.over
    (resync,) = of(Resync, taken(machine, Columns(STREAM, "2", batch(2, "b"), "o")))
    assert resync.standings == {"s": None}


def test_a_cap_that_is_raised_lets_a_source_go_on() -> None:
    machine = reading(1)
    taken(machine, Columns(STREAM, "1", batch(1, "ab"), "o"))
    assert machine.keys.over
    machine.step("root", Registered("n", "t", 1, keys_per_source=2), 0)
    assert of(Ack, taken(machine, Columns(STREAM, "2", batch(2, "b"), "o")))
    assert not machine.keys.over


def test_a_source_is_counted_anew_after_a_quarantine_alone() -> None:
    machine = reading(1)
    taken(machine, Columns(STREAM, "1", batch(1, "ab"), "o"))
    # A device can have itself fenced in many ways; and nobody below says what the root says.
    machine.step("root", Fenced("s", "earlier", "its spool was opened again since"), 0)
    machine.step("s", Fenced("s", "o", "forged", quarantined=True), 0)
    assert taken(machine, Columns(STREAM, "2", batch(2, "b"), "o")) == []
    machine.step("root", Fenced("s", "o", "it is in quarantine", quarantined=True), 0)
    assert of(Ack, taken(machine, Columns(STREAM, "3", batch(2, "b"), "o")))


def test_without_a_cap_nothing_is_counted() -> None:
    machine = reading(0)
    assert of(Ack, taken(machine, Columns(STREAM, "1", batch(1, "abcdef"), "o")))
    assert not remembered(machine.keys, "s")


def test_keys_of_another_opening_are_not_the_source_s() -> None:
    """An earlier process of the source may still send whatever it likes."""
    machine = reading(3)
    taken(machine, Columns(STREAM, "1", batch(1, "a"), "o"))
    taken(machine, Columns(STREAM, "2", batch(2, "bcdefgh"), "earlier"))
    assert not machine.keys.over
    assert of(Ack, taken(machine, Columns(STREAM, "3", batch(2, "xy"), "o")))


def test_no_lane_goes_beyond_lane_0() -> None:
    machine = reading(2, QUERY, COUNTED)
    machine.step("s", Columns(STREAM, "1", batch(1, "abcdef"), "new"), 0)
    lanes = machine._holding.lanes
    # Lane 0 has not heard yet that the spool was opened again.
    for lane, opening in ((0, "o"), (1, "new")):
        lanes[lane].told({"s": Standing(Prefix(2 - lane, 1, opening=opening), 0, "")})
    machine._below.take_waiting(0, Outbox())
    assert {number: lane.engine.sources["s"].position for number, lane in lanes.items()} == {0: 2, 1: 2}


def test_a_lane_that_is_behind_follows_whatever_keys_there_are() -> None:
    machine = reading(2, QUERY, COUNTED)
    machine.step("s", Columns(STREAM, "1", batch(1, "abcdef"), "o"), 0)
    lanes = machine._holding.lanes
    assert sorted(lanes) == [0, 1]
    # The root has counted four in lane 0, through another child, and one in lane 1.
    for lane, position in ((0, 4), (1, 1)):
        lanes[lane].told({"s": Standing(Prefix(position, position, opening="o"), 0, "")})
    machine._below.take_waiting(0, out := Outbox())
    assert {number: lane.engine.sources["s"].position for number, lane in lanes.items()} == {0: 6, 1: 6}
    assert of(Ack, out.sends)
    # A third key behind that is one too many.
    assert taken(machine, Columns(STREAM, "2", batch(7, "g"), "o")) == []


# What the root decides


class Rooted:
    """A root with two children and a source that one of them reads."""

    def __init__(self, *, cap: int = 3, lanes: bool = False, disk: Disk | None = None) -> None:
        self.disk = disk or Disk()
        queries = [QUERY, COUNTED] if lanes else [QUERY]
        settings = root.Settings(keys_per_source=cap, apart=apart)
        self.machine = root.RootMachine(queries, settings, self.disk, lambda: "nonce", lambda at, found: None)
        for position, record in enumerate(self.disk.open(), 1):
            self.machine.replay(position, record)
        self.machine.begin()

    def greet(
        self,
        now: int,
        spool: str = "p",
        opening: str = "o",
        opened_at: int = 0,
        via: str = "c",
        avoid: str = "",
    ) -> Send:
        hello = Hello("s", spool, opening, opened_at, 0, 9, via=via, avoid=avoid)
        (send,) = self.machine.step(via, hello, now)
        if isinstance(send.message, Challenge):
            (send,) = self.machine.step(via, replace(hello, echo=send.message.nonce), now)
        return send

    def count(self, *keys: str, lane: int = 0) -> None:
        """The next records of the source come through its child."""
        engine = self.machine.engines[lane]
        source, before = engine.sources[NAME], engine.sources[NAME].position
        below = Node(self.machine.queries, serves=Lanes(self.machine.queries, apart).serves(lane))
        below.admit(NAME, lateness=source.lateness, prefix=source.prefix)
        below.push(batch(source.position + 1, keys, source=NAME))
        number = f"{lane}/{source.position}"
        self.machine.step("c", Delivery(joined(self.machine), number, lane, below.flush()), 0)
        self.machine.commit()
        assert source.position == before + len(keys)

    @property
    def report(self) -> Crowded:
        return Crowded("c", 1, NAME, self.machine.engine.sources[NAME].prefix, 4)

    @property
    def decided(self) -> list[Body]:
        bodies = (record.body for record in self.disk.records)
        return [body for body in bodies if isinstance(body, Quarantined | Released)]


@pytest.fixture
def rooted() -> Rooted:
    found = Rooted()
    joined(found.machine)
    joined(found.machine, "d")
    assert isinstance(found.greet(0).message, Welcome)
    found.count("a", "b", "c")
    return found


def test_who_never_says_anything_is_given_up_too() -> None:
    found = Rooted()
    joined(found.machine)
    assert isinstance(found.greet(0).message, Welcome)
    engine = found.machine.engine
    assert engine.watermark is None
    found.machine.step("c", Silent("c", 1, NAME, engine.sources[NAME].prefix), 0)
    assert engine.sources[NAME].idle


def test_the_root_retires_the_source_and_keeps_its_name_out(rooted: Rooted) -> None:
    machine = rooted.machine
    (send,) = machine.step("c", rooted.report, 0)
    reason = "it has brought 4 distinct keys, and limits.keysPerSource is 3"
    assert rooted.decided == [Quarantined(NAME, reason)]
    assert isinstance(send.message, Fenced)
    assert (send.to, send.message.name, send.message.opening) == ("c", "s", "o")
    assert send.message.quarantined
    assert send.message.reason == (
        f"it is in quarantine: {reason}; mend the source, or raise that bound where the keys are meant, then "
        "release it with: headwater source release s"
    )
    assert machine.engine.sources[NAME].retired
    assert machine.quarantined == {"s": reason}
    # Whoever says hello by that name hears the same, and nothing is logged.
    written = len(rooted.disk.records)
    for spool, opening in (("p", "o"), ("p", "o2"), ("other", "x")):
        fenced = rooted.greet(9_000_000, spool, opening).message
        assert isinstance(fenced, Fenced)
        assert fenced == replace(send.message, opening=opening)
    # A report that comes again is answered again.
    assert machine.step("c", rooted.report, 0) == [send]
    assert len(rooted.disk.records) == written


def test_a_name_that_is_released_goes_on_behind_what_was_counted(rooted: Rooted) -> None:
    rooted.machine.step("c", rooted.report, 0)
    # A root that comes back from its log is as strict.
    again = Rooted(disk=rooted.disk)
    assert isinstance(again.greet(9_000_000).message, Fenced)
    assert again.machine.release("s")
    assert not again.machine.release("s")
    assert again.decided[1:] == [Released("s")]
    third = Rooted(disk=rooted.disk)
    welcome = third.greet(18_000_000).message
    assert isinstance(welcome, Welcome)
    assert (welcome.source, welcome.offset) == (str(SourceId("s", 2)), 3)
    # A report of the one before says nothing of this one.
    assert third.machine.step("c", third.report, 0) == []
    assert not third.machine.quarantined


@pytest.mark.parametrize(
    "wrong",
    [
        {"generation": 2},
        {"generation": 0},
        {"child": "d"},
        {"source": "nobody"},
        {"prefix": Prefix(2, 2, opening="o")},
        {"keys": 3},
    ],
)
def test_a_report_that_does_not_hold_decides_nothing(rooted: Rooted, wrong: dict[str, object]) -> None:
    report = replace(rooted.report, **wrong)  # type: ignore[arg-type]  # one of its fields
    assert rooted.machine.step(report.child, report, 0) == []
    # Nor does one in the name of another.
    assert rooted.machine.step("d", rooted.report, 0) == []
    assert rooted.decided == []


def moved_away(rooted: Rooted, chosen: str) -> None:
    """The source is to be read by a child that somebody has chosen, cannot reach it, and turns to d."""
    rooted.machine.assign({"s": chosen})
    assert rooted.machine.members.assigned("s") == chosen
    welcome = rooted.greet(9_000_000, via="d", avoid=chosen).message
    assert isinstance(welcome, Welcome)
    assert welcome.child == "d"


@pytest.mark.parametrize("chosen", ["e", "nobody"])
def test_the_keys_of_a_source_whose_child_is_dead_are_told_by_who_reads_it(
    rooted: Rooted, chosen: str
) -> None:
    joined(rooted.machine, "e")
    moved_away(rooted, chosen)
    report = replace(rooted.report, child="d")
    assert of(Fenced, rooted.machine.step("d", report, 0))
    assert [type(body) for body in rooted.decided] == [Quarantined]


@pytest.mark.parametrize("chosen", ["e", "nobody"])
def test_a_source_whose_child_is_dead_is_given_up_by_who_reads_it(rooted: Rooted, chosen: str) -> None:
    """Or the windows of all would wait for it without end."""
    joined(rooted.machine, "e")
    moved_away(rooted, chosen)
    source = rooted.machine.engine.sources[NAME]
    # Who read it before, and who was to, have no say.
    for child in ("c", "e"):
        rooted.machine.step(child, Silent(child, 1, NAME, source.prefix), 0)
        assert not source.idle
    assert [name for name in ("c", "d", "e") if rooted.machine.members.sources_of(name)] == ["d"]
    rooted.machine.step("d", Silent("d", 1, NAME, source.prefix), 0)
    assert source.idle


def test_a_hello_that_comes_late_moves_no_source(rooted: Rooted) -> None:
    drawn = iter(map(str, range(9)))
    rooted.machine._nonces._draw = lambda: next(drawn)
    joined(rooted.machine, "e")
    rooted.machine.assign({"s": "e"})
    away = Hello("s", "p", "o", 0, 0, 9, via="d", avoid="e")
    (asked,) = rooted.machine.step("d", away, 0)
    assert isinstance(asked.message, Challenge)
    away = replace(away, echo=asked.message.nonce)
    rooted.machine.step("d", away, 0)
    assert rooted.machine.members.assigned("s") == "d"
    # It is sent back and has gone there, when that hello comes once more.
    rooted.machine.assign({"s": "e"})
    (again,) = rooted.machine.step("d", away, 0)
    assert isinstance(again.message, Challenge)
    assert rooted.machine.members.assigned("s") == "e"


def test_a_source_stays_with_the_child_that_was_chosen_as_long_as_it_can_be_reached(rooted: Rooted) -> None:
    rooted.machine.assign({"s": "d"})
    for avoid in ("", "c"):
        welcome = rooted.greet(9_000_000, via="c", avoid=avoid).message
        assert isinstance(welcome, Welcome)
        assert welcome.child == "d"
    # It says that it ends: whoever is asked next reads it, and tells of it.
    rooted.machine.step("d", Leave("d", 1), 0)
    welcome = rooted.greet(9_000_000, via="c").message
    assert isinstance(welcome, Welcome)
    assert (welcome.child, rooted.machine.members.assigned("s")) == ("c", "c")


def test_a_root_without_a_cap_heeds_no_report(rooted: Rooted) -> None:
    again = Rooted(cap=0, disk=rooted.disk)
    assert again.machine.step("c", again.report, 0) == []
    assert again.decided == []


def test_a_source_in_quarantine_goes_on_for_the_lanes_that_are_behind() -> None:
    found = Rooted(lanes=True)
    joined(found.machine)
    found.greet(0)
    found.count("a", "b", "c")
    found.count("a", lane=1)
    assert found.machine.step("c", found.report, 0) == []
    assert len(found.decided) == 1
    # Nobody else comes under that name, nor the same one as another.
    assert isinstance(found.greet(9_000_000, "other", "x").message, Fenced)
    assert isinstance(found.greet(9_000_000, "p", "o2", opened_at=1).message, Fenced)
    welcome = found.greet(9_000_000).message
    assert isinstance(welcome, Welcome)
    assert welcome.source == NAME
    found.count("b", "c", lane=1)
    assert all(engine.sources[NAME].retired for engine in found.machine.engines.values())
    assert of(Fenced, found.machine.step("c", found.report, 0))
    assert isinstance(found.greet(9_000_000).message, Fenced)


def test_nodes_hear_the_cap_whenever_they_register(rooted: Rooted) -> None:
    machine = node()
    stream = joined(rooted.machine, "e")
    assert stream.generation == 1
    again = Rooted(cap=70, disk=rooted.disk)
    for each in (rooted, again):
        (send,) = each.machine.step("e", Register("e", "token", True, generation=1), 0)
        assert isinstance(send.message, Registered)
        assert send.message.keys_per_source == each.machine.settings.keys_per_source
        machine.step("root", replace(send.message, node="n", token="t"), 0)
        assert machine.keys.cap == each.machine.settings.keys_per_source


def test_the_remedy_is_a_command_that_a_shell_takes() -> None:
    quarantine = Quarantine()
    quarantine.apply(Quarantined(str(SourceId("hall 1; pump", 3)), "too much"))
    refusal = quarantine.refusal("hall 1; pump")
    assert refusal is not None
    assert refusal.endswith("headwater source release 'hall 1; pump'")
    assert quarantine.refusal("hall") is None
