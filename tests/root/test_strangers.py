"""A root in its own process: what it is told by whoever should not tell it that."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.machines.messages import (
    Ask,
    Challenge,
    Delivery,
    Fenced,
    Hello,
    Leave,
    Message,
    Probe,
    Register,
    Registered,
    Stream,
    Welcome,
)
from headwater.machines.root import RootMachine, Settings
from headwater.node import Node
from headwater.queries import Query
from headwater.windows import Tumbling
from headwater_root.runtime import RootRuntime

QUERIES = [Query("q", Tumbling("1s"), "sum")]


@pytest.fixture
def root(tmp_path: Path) -> Iterator[RootRuntime]:
    runtime = RootRuntime(QUERIES, tmp_path, Settings(expected=1))
    yield runtime
    runtime.log.close()


def told(machine: RootMachine, sender: str, message: Message) -> list[Message]:
    return [each.message for each in machine.step(sender, message, 0)]


def hello(opening: str, *, name: str = "s", echo: str = "", spool: str = "spool") -> Hello:
    return Hello(name, spool, opening, 0, 0, 0, echo=echo, via="c")


def admitted(machine: RootMachine) -> str:
    """A source that came through the child `c`."""
    (asked,) = told(machine, "c", Register("c", "token", True, "address"))
    assert isinstance(asked, Registered)
    told(machine, "c", Register("c", "token", True, "address", 0, asked.nonce))
    assert machine.members.generation("c") == 1
    (challenge,) = told(machine, "c", hello("o"))
    assert isinstance(challenge, Challenge)
    (welcome,) = told(machine, "c", hello("o", echo=challenge.nonce))
    assert isinstance(welcome, Welcome)
    return welcome.source


def test_a_source_that_comes_with_ever_new_openings_keeps_nobody_out(root: RootRuntime) -> None:
    machine = root.machine
    (challenge,) = told(machine, "c", hello("o"))
    assert isinstance(challenge, Challenge)
    for opening in range(5_000):
        told(machine, "c", hello(str(opening), name="hostile", spool="other"))
    (welcome,) = told(machine, "c", hello("o", echo=challenge.nonce))
    assert isinstance(welcome, Welcome)


@pytest.mark.parametrize("sender", ["d", "s", "c"])
def test_batches_and_questions_are_heard_from_members_only(root: RootRuntime, sender: str) -> None:
    machine = root.machine
    source = admitted(machine)
    position = machine.position
    # Who is no member, and who speaks on the stream of another.
    stream = Stream("c" if sender != "c" else "d", 1, 1)
    partial = Node(QUERIES).flush()
    for message in (
        Delivery(stream, "1", 0, partial),
        Probe(stream, "1", 0, {}, (source,)),
        Ask(stream, 0, (source,), 0),
    ):
        assert told(machine, sender, message) == []
    if sender != "c":
        assert told(machine, sender, Leave("c", 1)) == []
        assert told(machine, sender, Register("c", "other", True, "elsewhere")) == []
    assert machine.position == position
    assert machine.members.is_live("c")


def test_a_source_that_is_refused_with_ever_new_openings_is_told_of_once(
    root: RootRuntime, caplog: pytest.LogCaptureFixture
) -> None:
    machine = root.machine
    admitted(machine)
    refused = 0
    for opening in range(50):
        # Somebody else who has its spool: fenced each time.
        other = hello(f"x{opening}", name="thief")
        (challenge,) = [each.message for each in root._take("c", other)]
        assert isinstance(challenge, Challenge)
        answers = root._take("c", hello(f"x{opening}", name="thief", echo=challenge.nonce))
        refused += sum(isinstance(each.message, Fenced) for each in answers)
    assert refused == 50
    assert [record.getMessage() for record in caplog.records].count("a source is fenced") == 1
