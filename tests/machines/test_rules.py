"""Single rules of the machines, each of which was once broken."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import count
from typing import TypeVar

import pytest

from headwater.catalog import every
from headwater.changes import Change
from headwater.events import Batch
from headwater.machines import below, root, source
from headwater.machines.lane import Lane, Read
from headwater.machines.messages import (
    Ack,
    Ask,
    Challenge,
    Columns,
    Commit,
    Delivery,
    Echo,
    Fenced,
    Hello,
    Leave,
    Probe,
    Register,
    Registered,
    Resync,
    Send,
    Stale,
    Standing,
    Stream,
    Tell,
    Welcome,
)
from headwater.machines.node import NodeMachine, Settings
from headwater.machines.sizes import of_columns, of_partial
from headwater.machines.terms import BehindTheTree
from headwater.machines.waiting import OF_ONE, Waiting
from headwater.node import Node
from headwater.prefix import Prefix
from headwater.queries import Query
from headwater.rows import TS_MIN
from headwater.sources import SourceId
from headwater.windows import Tumbling
from tests.harness import joined
from tests.machines.world import Disk, Spool, apart

QUERY = Query("q", Tumbling(10), "sum")
M = TypeVar("M")
START = Standing(Prefix(opening="o"), 0, "")


def node(
    settings: Settings | None = None, *, child: bool = False, first: Sequence[Query] = (QUERY,)
) -> NodeMachine:
    machine = NodeMachine("n", "p", settings or Settings(), child=child, token="t")
    machine.step("root", Registered("n", "t", 1, tuple(first)), 0)
    return machine


def answered(machine: NodeMachine, sends: Sequence[Send], now: int = 0) -> list[Send]:
    """Tell a node where the sources stand that it asks for: at their beginning."""
    out: list[Send] = []
    for send in sends:
        if isinstance(send.message, Ask):
            ask = send.message
            tell = Tell(ask.stream, ask.lane, dict.fromkeys(ask.sources, START))
            out += machine.step("p", tell, now)
    return out


def of(kind: type[M], sends: Sequence[Send]) -> list[M]:
    return [send.message for send in sends if isinstance(send.message, kind)]


class Sender:
    """What a node below sends of a source."""

    def __init__(self, name: str) -> None:
        self.source, self._sent = name, 0
        self._node = Node([QUERY])
        self._node.admit(name, lateness=0, prefix=START.prefix)

    def send(self, *times: int) -> Delivery:
        self._node.push(
            Batch.from_records(
                self.source,
                self._node.sources[self.source].position + 1,
                [(ts, None, 1.0, None) for ts in times],
            )
        )
        self._sent += 1
        stream = Stream(f"below {self.source}", 1, 1)
        return Delivery(stream, f"{self.source}/{self._sent}", 0, self._node.flush())


# Room


def test_an_intermediate_that_is_full_lets_batches_wait() -> None:
    machine = node(Settings(under_way=1, batch_bytes=1))
    sender = Sender("s")
    batches = [sender.send(100 + n) for n in range(5)]
    sends: list[Send] = []
    for batch in batches:
        # Whoever is waited for may have one more under way: this source is not.
        machine.step("p", Commit(Stream("n", 1, 1), {}, 5), 0)
        sends += (found := machine.step("below s", batch, 0))
        sends += answered(machine, found)
    taken = [send.message.id for send in sends if send.to == "below s" and isinstance(send.message, Ack)]
    assert taken == ["s/1", "s/2"]
    # Nothing is sent again by the sender: what waits is taken as soon as there is room.
    for _ in range(3):
        (under_way,) = of(Delivery, sends)
        sends = machine.step("p", Ack(under_way.stream, under_way.id), 0)
        taken += [message.id for message in of(Ack, sends)]
    assert taken == [f"s/{n}" for n in range(1, 6)]


def test_what_nobody_ever_knows_does_not_keep_others_out() -> None:
    stray = Batch.from_records("stray", 1, [(n, None, 1.0, None) for n in range(100)])
    settings = Settings(held_bytes=of_columns(stray), memory=100, thorough=10)
    machine = node(settings, child=True)
    machine.step("stray", Columns(Stream("stray", 0, 1), "1", stray, "o"), 0)
    later = 2 * settings.memory
    machine.tick(later)
    good = Batch.from_records("s", 1, [(n, None, 1.0, None) for n in range(50)])
    sends = machine.step("s", Columns(Stream("s", 0, 1), "1", good, "o"), later)
    found = answered(machine, sends, later)
    assert [send.to for send in found if isinstance(send.message, Ack)] == ["s"]


def test_questions_that_nobody_answers_do_not_keep_others_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(below, "ASKED", 10)
    machine = node()
    machine.step("x", Ask(Stream("x", 1, 1), 0, tuple(f"nobody {n}" for n in range(50)), 0), 0)
    asked = Ask(Stream("y", 1, 1), 0, ("s",), 0)
    sends = answered(machine, [send for send in machine.step("y", asked, 0) if send.to == "p"])
    assert [(send.to, send.message) for send in sends] == [("y", Tell(asked.stream, 0, {"s": START}))]


def test_a_source_that_was_given_up_holds_no_batch_back() -> None:
    lane = Lane(0, [QUERY], every, lambda: "id", 2**20)
    lane.told({"s": START, "idle": START})
    lane.read(Read(Batch.from_records("idle", 1, [(1, None, 1.0, None)]), "o"))
    lane.read(Read(Batch.from_records("s", 1, [(25, None, 1.0, None)]), "o"))
    lane.make(None)
    lane.read(Read(Batch.from_records("s", 2, [(47, None, 1.0, None)]), "o"))
    # Nobody knows yet that it is idle; then the watermark has gone beyond it.
    assert not lane.is_due(None)
    assert lane.is_due(25)


# Echoes


def test_what_was_heard_of_one_term_does_not_hide_another() -> None:
    machine = node()
    echoes = (Echo(3, "copy", 10), Echo(3, "first", 90), Echo(4, "later", 95))
    for echo in (*echoes, Echo(3, "first", 40)):
        machine.step("x", Probe(Stream("x", 1, 1), "1", 0, {}, (), 0, (echo,)), 0)
    (probe,) = of(Probe, machine.tick(10_000_000))
    assert set(probe.echoes) == set(echoes)


def test_a_root_that_knows_one_of_two_terms_alone_halts() -> None:
    machine = root.RootMachine([QUERY], root.Settings(), Disk(), lambda: "mine", lambda position, found: None)
    machine.begin()
    stream = joined(machine)
    known = Echo(1, "mine", machine.position)
    machine.step("c", Probe(stream, "1", 0, {}, (), 0, (known,)), 0)
    with pytest.raises(BehindTheTree, match="has heard of record 1 of term 0"):
        machine.step("c", Probe(stream, "2", 0, {}, (), 0, (known, Echo(0, "other", 1))), 0)
    with pytest.raises(BehindTheTree):
        machine.step("c", Probe(stream, "3", 0, {}, (), 0, (known._replace(position=99),)), 0)


# Sources


def opened(base: int, records: int, opening: str) -> source.SourceMachine:
    spool = Spool("spool", [(n, None, 1.0, None) for n in range(records)], base=base)
    spool.open(opening)
    machine = source.SourceMachine("s", spool, source.Settings(rows=4), "c")
    machine.tick(0)
    machine.step("c", Welcome(opening, "s", 0, "c"), 0)
    return machine


def test_a_resync_below_the_base_does_not_read_what_is_trimmed() -> None:
    machine = opened(6, 10, "o")
    (columns,) = of(Columns, machine.send(0))
    standings = {"s": replace(START, prefix=Prefix(2, opening="o"))}
    machine.step("c", Resync(columns.stream, columns.id, 0, standings), 0)
    # A node that lags behind; it will hear that those are counted.
    (again,) = of(Columns, machine.send(0))
    assert again.batch.first == 7


def test_an_answer_to_an_earlier_process_is_not_for_a_later_one() -> None:
    first, second = opened(0, 3, "o1"), opened(0, 9, "o2")
    (before,) = of(Columns, first.send(0))
    sent = of(Columns, second.send(0))
    second.step("c", Ack(before.stream, before.id), 0)
    second.step("c", Commit(before.stream, {"s": 9}, 0), 0)
    second.step("c", Resync(before.stream, before.id, 0, {"s": None}), 0)
    assert (second.source, second.spool.base, second.done) == ("s", 0, False)
    assert all(each.stream != before.stream for each in sent)


# Queries


def test_two_changes_in_one_resync_reach_every_lane() -> None:
    machine = node(Settings(apart=apart))
    found = machine.step("below s", Sender("s").send(5), 0)
    answered(machine, found)
    (delivery,) = of(Delivery, machine.flush(10_000_000))
    changes = tuple(Change("add", Query(f"n{version}", Tumbling(count=3)), 20, version) for version in (1, 2))
    resync = Resync(delivery.stream, delivery.id, 0, {"s": START}, changes)
    sends = machine.step("p", resync, 10_000_000)
    lanes = machine._holding.lanes
    assert {number: lane.engine.version for number, lane in lanes.items()} == {0: 2, 1: 2, 2: 2}
    assert [sorted(query.id for query in lane.engine.queries) for lane in lanes.values()] == [
        ["q"],
        ["n1"],
        ["n2"],
    ]
    # What was under way is made again, with both.
    (again,) = of(Delivery, sends)
    assert (again.partial.version, again.partial.vector["s"].high.position) == (2, 1)


# Devices that say what they please


def test_a_source_cannot_make_the_root_halt() -> None:
    machine = node(child=True)
    machine.step("s", Probe(Stream("s", 0, 1), "1", 0, {}, ("s",), 0, (Echo(9, "forged", 10**9),)), 0)
    machine.step("s", Probe(Stream("n", 9, 1), "1", 0, {}, ("s",), 0), 0)
    (probe,) = of(Probe, machine.tick(10_000_000))
    assert probe.echoes == ()


def test_nobody_speaks_for_another() -> None:
    disk = Disk()
    machine = root.RootMachine([QUERY], root.Settings(), disk, lambda: "nonce", lambda position, found: None)
    machine.begin()
    stream, other = joined(machine), joined(machine, "d")
    written = len(disk.records)
    # In the name of another node: on its stream, with a registration, and with its leave.
    assert stream.generation == other.generation
    assert machine.step("d", Probe(stream, "1", 0, {}), 0) == []
    assert machine.step("d", Register("c", "forged", True, echo="nonce"), 0) == []
    assert machine.step("d", Leave("c", stream.generation), 0) == []
    # Who is no node has no stream.
    assert (
        machine.step("s", Delivery(stream._replace(opener="s"), "1", 0, Sender("s").send(5).partial), 0) == []
    )
    assert machine.members.is_live("c")
    # A hello with a nonce that was not drawn for it is asked for the right one, and nothing is logged.
    (send,) = machine.step("c", Hello("s", "p", "o", 0, 0, 0, echo="guessed"), 0)
    assert isinstance(send.message, Challenge)
    assert len(disk.records) == written
    # Through a child, a source says hello in its own name alone.
    child = node(child=True)
    assert child.step("x", Hello("s", "p", "o", 0, 0, 0), 0) == []
    assert [send.to for send in child.step("s", Hello("s", "p", "o", 0, 0, 0), 0)] == ["root"]


def test_a_batch_that_cannot_be_applied_is_not_logged() -> None:
    disk = Disk()
    machine = root.RootMachine([QUERY], root.Settings(), disk, lambda: "nonce", lambda position, found: None)
    machine.begin()
    stream, hello = joined(machine), Hello("s", "p", "o", 0, 0, 0)
    (send,) = machine.step("c", replace(hello, echo="nonce"), 0)
    assert isinstance(send.message, Welcome)
    name = send.message.source
    partial = Sender(name).send(5).partial
    written = len(disk.records)
    for wrong in (
        replace(partial, signature="another"),
        replace(partial, vector={name: replace(partial.vector[name], low=Prefix(3, TS_MIN, opening="o"))}),
        replace(partial, vector={"nobody": partial.vector[name]}),
    ):
        (send,) = machine.step("c", Delivery(stream, "1", 0, wrong), 0)
        assert isinstance(send.message, Resync)
    machine.commit()
    assert (len(disk.records), machine.refused) == (written, 3)
    machine.step("c", Delivery(stream, "2", 0, partial), 0)
    machine.commit()
    assert machine.committed == {name: 1}


def test_a_full_child_does_not_wait_for_the_edge_of_a_window() -> None:
    """Columns are kept until their batch is acknowledged: a long window must not hold that back."""
    long = Query("q", Tumbling(10**9), "sum")
    machine = node(Settings(held_bytes=40_000, linger=10**9), child=True, first=(long,))
    stream = Stream("s", 0, 1)
    # The clock stands still, and the parent answers at once.
    for number in range(100):
        batch = Batch("s", 1 + 100 * number, list(range(100 * number, 100 * number + 100)), [1.0] * 100)
        sends = machine.step("s", Columns(stream, f"s/{number}", batch, "o"), 0)
        sends += answered(machine, sends, 0)
        for delivery in of(Delivery, sends):
            sends += machine.step("p", Ack(delivery.stream, delivery.id), 0)
        assert of(Ack, sends)[0].id == f"s/{number}"
        assert machine.held_bytes <= 20_000
    assert machine.remade == 0


def test_only_those_above_say_what_they_alone_can_know() -> None:
    machine = node()
    stream = Stream("n", 1, 1)
    for message in (
        Commit(stream, {"s": 99}, 10**9),
        Stale(stream),
        Tell(stream, 0, {"s": START}),
        Welcome("o", "s", 0, "n"),
        Registered("n", "t", 7),
    ):
        assert machine.step("c", message, 0) == []
    assert (machine.stale, machine.watermark, dict(machine.committed)) == (False, None, {})
    assert not machine.sources
    machine.step("p", Commit(stream, {"s": 99}, 10**9), 0)
    assert machine.watermark == 10**9


def test_a_source_asks_of_itself_alone() -> None:
    machine = node(child=True)
    heads = {str(SourceId("s", n)): Prefix(1) for n in range(1, 1_001)}
    sends = machine.step("s", Probe(Stream("s", 0, 1), "1", 0, heads, ()), 0)
    assert len(of(Ask, sends)) == 1
    # Columns of incarnations that nobody knows: a few wait, and leave room for others.
    for n in range(1, 1_001):
        batch = Batch.from_records(str(SourceId("s", n)), 1, [(1, None, 1.0, None)])
        machine.step("s", Columns(Stream("s", 0, 1), f"{n}", batch, "o"), 0)
    assert len(machine._below._waiting._columns) == OF_ONE


def test_batches_that_wait_are_bounded_in_bytes() -> None:
    batches = [Sender(f"s{n}").send(*range(20)) for n in range(9)]
    waiting = Waiting(3 * of_partial(batches[0].partial), 100)
    for _ in range(2):
        for batch in batches:
            waiting.add("c", batch, 0)
    assert len(waiting.take(lambda lane, name: True)) == 3
    # There is room again.
    waiting.add("c", batches[8], 0)
    assert len(waiting.take(lambda lane, name: True)) == 1
    # One alone waits, however large.
    tight = Waiting(1, 100)
    tight.add("c", batches[0], 0)
    tight.forget(200)
    assert not tight


# A log that was lost


def begun(disk: Disk | None = None, expected: int = 1) -> root.RootMachine:
    disk, settings = disk or Disk(), root.Settings(expected=expected)
    machine = root.RootMachine([QUERY], settings, disk, lambda: "nonce", lambda position, found: None)
    for position, record in enumerate(disk.open(), 1):
        machine.replay(position, record)
    machine.begin()
    return machine


def test_a_root_that_does_not_know_a_node_that_was_registered_halts() -> None:
    machine = root.RootMachine(
        [QUERY], root.Settings(), Disk(), lambda: "nonce", lambda position, found: None
    )
    machine.begin()
    with pytest.raises(BehindTheTree, match="c is of generation 3, but the log here ends at record 1"):
        machine.step("c", Register("c", "t", True, generation=3), 0)


def test_a_source_goes_on_behind_the_number_that_another_root_begins_with() -> None:
    machine = opened(6, 10, "o")
    (columns,) = of(Columns, machine.send(0))
    assert columns.batch.first == 7
    machine.step("c", Commit(columns.stream, {"s": 8}, 0), 0)
    # That root has counted nothing: its record 1 is the first that the spool still has.
    machine.step("c", Welcome("o", "s", 8, "c"), 0)
    (again,) = of(Columns, machine.send(0))
    assert (again.batch.first, again.batch.ts.tolist()) == (1, [8, 9])


def hello(machine: root.RootMachine, spool: str, opening: str, opened_at: int, head: int, now: int) -> Send:
    said = Hello("s", spool, opening, opened_at, 0, head)
    (send,) = machine.step("c", said, now)
    if isinstance(send.message, Challenge):
        (send,) = machine.step("c", replace(said, echo=send.message.nonce), now)
    return send


def test_an_echo_that_others_have_overtaken_is_asked_for_again() -> None:
    drawn = count()
    machine = root.RootMachine(
        [QUERY], root.Settings(), Disk(), lambda: str(next(drawn)), lambda position, found: None
    )
    machine.begin()
    hellos = [Hello("s", "p", opening, 0, 0, 0) for opening in ("earlier", "later")]
    echoed = []
    for hello in hellos:
        (send,) = machine.step("c", hello, 0)
        assert isinstance(send.message, Challenge)
        echoed.append(replace(hello, echo=send.message.nonce))
    earlier, later = echoed
    assert isinstance(machine.step("c", later, 0)[-1].message, Welcome)
    # Its process has ended by now: if it were logged, the one that lives would have to end too.
    assert isinstance(machine.step("c", earlier, 0)[-1].message, Challenge)
    assert isinstance(machine.step("c", later, 0)[-1].message, Welcome)


def test_a_registration_that_others_have_overtaken_is_asked_for_again() -> None:
    drawn = count()
    machine = root.RootMachine(
        [QUERY], root.Settings(), Disk(), lambda: str(next(drawn)), lambda position, found: None
    )
    machine.begin()
    echoed = []
    for token in ("earlier", "later"):
        (asked,) = of(Registered, machine.step("n", Register("n", token, False), 0))
        echoed.append(Register("n", token, False, echo=asked.nonce))
    given = [of(Registered, machine.step("n", register, 0))[0].generation for register in reversed(echoed)]
    assert given == [1, 0]


def test_an_older_opening_of_a_spool_that_was_fenced_stays_out() -> None:
    machine = root.RootMachine(
        [QUERY], root.Settings(), Disk(), lambda: "nonce", lambda position, found: None
    )
    machine.begin()
    hello(machine, "a", "a1", 0, 0, 0)
    hello(machine, "a", "a2", 0, 100, 0)
    welcome = hello(machine, "b", "b1", 0, 0, 2_000_000).message
    assert isinstance(welcome, Welcome)
    machine.retire(welcome.source)
    fenced = hello(machine, "a", "a1", 0, 100, 4_000_000).message
    assert isinstance(fenced, Fenced)
    assert "opened again since" in fenced.reason
    # The one that was opened last may come back.
    assert isinstance(hello(machine, "a", "a2", 0, 100, 4_000_000).message, Welcome)


def test_how_many_sources_are_expected_is_in_the_log() -> None:
    disk = Disk()
    machine = begun(disk)
    welcome = hello(machine, "a", "a1", 0, 5, 0).message
    assert isinstance(welcome, Welcome)
    prefix = machine.engine.sources[welcome.source].prefix
    given = Node([QUERY])
    given.admit(welcome.source, lateness=0, prefix=prefix)
    given.push(Batch.from_records(welcome.source, 1, [(5, None, 1.0, None), (15, None, 1.0, None)]))
    machine.step("c", Delivery(joined(machine), "1", 0, given.flush()), 0)
    machine.commit()
    assert machine.engine.watermark == 15
    # Another manifest: what was final stays so, and the log is read as it was written.
    again = begun(disk, 3)
    assert (again.engine.watermark, again.engine.started) == (15, True)


def test_a_manifest_that_expects_more_holds_from_the_next_start_on() -> None:
    disk = Disk()
    for expected, started in ((1, True), (2, False), (1, True)):
        machine = begun(disk, expected)
        if not machine.engine.sources:
            hello(machine, "a", "a1", 0, 5, 0)
        assert machine.engine.started == started


def test_the_start_timeout_counts_from_the_first_source_on() -> None:
    machine = begun(expected=2)
    late = machine.settings.start_timeout
    # A root that stands there for long has waited for nobody.
    machine.tick(0)
    machine.tick(10 * late)
    hello(machine, "a", "a1", 0, 5, 10 * late)
    machine.tick(10 * late)
    machine.tick(11 * late - 1)
    assert not machine.engine.started
    machine.tick(11 * late)
    assert machine.engine.started


def test_a_hello_that_changes_nothing_makes_nothing_durable(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = Disk()
    machine = begun(disk)
    hello(machine, "a", "a1", 0, 5, 0)
    synced: list[int] = []
    monkeypatch.setattr(disk, "sync", lambda: synced.append(len(disk.records)))
    assert isinstance(hello(machine, "a", "a1", 0, 5, 9_000_000).message, Welcome)
    assert synced == []
