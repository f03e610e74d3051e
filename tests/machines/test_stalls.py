"""What a child says of sources that do not get on: silent, ahead, wrong clock, many keys, held up."""

from __future__ import annotations

from headwater.machines.messages import Columns, Commit, Probe, Register, Registered, Silent, Stream
from headwater.machines.node import NodeMachine, Settings
from headwater.machines.stalls import Reason, Stall
from headwater.sources import SourceId
from tests.machines.test_keys import acked, batch
from tests.machines.test_rules import QUERY, answered, of

NAME = str(SourceId("s", 1))
STREAM = Stream("s", 0, 1)
REPEAT = 2_000_000


def reading(*, keys: int = 0, horizon: int = 1_000, idle_after: int = 60_000_000) -> NodeMachine:
    """A child to which the source is assigned, and that knows where it stands."""
    settings = Settings(repeat=REPEAT, horizon=horizon, silence=idle_after)
    machine = NodeMachine("n", "p", settings, child=True, token="t")
    registered = Registered("n", "t", 1, (QUERY,), assigned=(NAME,), keys_per_source=keys)
    machine.step("root", registered, 1)
    answered(machine, machine.tick(1), 1)
    return machine


def columns(id: str, first: int, keys: str) -> Columns:
    return Columns(STREAM, id, batch(first, keys, source=NAME), "o")


def stall(machine: NodeMachine, now: int) -> Stall:
    """What the next report says of the source."""
    (register,) = of(Register, machine.tick(now))
    (found,) = register.stalls
    assert found.source == NAME
    return found


def test_a_source_of_which_nothing_comes_is_silent() -> None:
    machine = reading()
    machine.step("s", columns("1", 1, "a"), 1)
    acked(machine, 1)
    found = stall(machine, REPEAT + 1)
    assert (found.reason, found.quiet, found.idle_in) == (Reason.SILENT, REPEAT, 60_000_000 - REPEAT)


def test_what_the_node_above_does_not_acknowledge_is_held_up_by_it() -> None:
    machine = reading()
    machine.step("s", columns("1", 1, "a"), 1)
    machine.flush(1)
    found = stall(machine, REPEAT + 1)
    assert (found.reason, found.node, found.idle_in) == (Reason.BACKPRESSURE, "p", None)


def test_a_source_ahead_of_the_others_is_held_by_the_horizon() -> None:
    machine = reading(horizon=1)
    machine.step("p", Commit(machine._upwards.link.stream, {}, 0), 1)
    machine.step("s", columns("1", 50, "a"), 1)
    machine.step("s", columns("1", 1, "aaaaaaaaaa"), 1)
    acked(machine, 1)
    machine.step("s", columns("2", 11, "aaaaaaaaaa"), 1)
    assert stall(machine, REPEAT + 1).reason is Reason.HORIZON


def test_a_clock_that_is_ahead_and_too_many_keys_are_told_apart_from_silence() -> None:
    machine = reading(keys=1)
    machine.step("s", columns("1", 1, "ab"), 1)
    acked(machine, 1)
    assert stall(machine, REPEAT + 1).reason is Reason.QUARANTINE
    other = reading()
    other.beyond_clock = {NAME: 7}
    found = stall(other, REPEAT + 1)
    assert (found.reason, found.record) == (Reason.FUTURE, 7)


def test_a_source_whose_records_wait_is_not_reported_as_silent() -> None:
    """Neither where they wait at the child, nor where they are on their way to it."""
    machine = reading(horizon=1, idle_after=REPEAT)
    machine.step("p", Commit(machine._upwards.link.stream, {}, 0), 1)
    machine.step("s", columns("1", 1, "aaaaaaaaaa"), 1)
    acked(machine, 1)
    machine.step("s", columns("2", 11, "aaaaaaaaaa"), 1)
    assert of(Silent, machine.tick(3 * REPEAT)) == []
    # One that is gone for long is given up all the same.
    assert of(Silent, machine.tick(40 * REPEAT))
    sending = reading(idle_after=REPEAT)
    sending.step("s", columns("1", 1, "a"), 1)
    acked(sending, 1)
    sending.step("s", Probe(STREAM, "2", 0, {}, (NAME,)), 3 * REPEAT)
    assert of(Silent, sending.tick(3 * REPEAT + 1)) == []
    assert of(Silent, sending.tick(5 * REPEAT))


def test_nobody_else_can_keep_a_source_from_being_silent() -> None:
    machine = reading(idle_after=REPEAT)
    machine.step("s", columns("1", 1, "a"), 1)
    acked(machine, 1)
    machine.step("t", Probe(Stream("t", 0, 1), "1", 0, {}, (NAME,)), 3 * REPEAT)
    assert of(Silent, machine.tick(3 * REPEAT + 1))
