"""A source hears by which column queries compute, so that it can refuse events without a key."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from headwater.machines.messages import Challenge, Hello, Welcome
from headwater.machines.root import RootMachine, Settings
from headwater.machines.source import Settings as SourceSettings
from headwater.machines.source import SourceMachine
from headwater.queries import Query
from headwater.windows import Tumbling
from headwater_source.spool import Spool
from tests.harness import joined
from tests.machines.world import Disk

PLAIN = Query("plain", Tumbling(10), "sum")
KEYED = Query("keyed", Tumbling(10), "sum", key_by="machine")
# Computed in a lane of its own.
COUNTED = Query("counted", Tumbling(count=5), "sum", key_by="machine")


def root(*queries: Query) -> RootMachine:
    machine = RootMachine(queries, Settings(), Disk(), lambda: "nonce", lambda position, found: None)
    machine.begin()
    joined(machine, "c")
    joined(machine, "d")
    return machine


def greet(machine: RootMachine) -> Welcome:
    hello = Hello("s", "spool", "opening", 0, 0, 0, via="c")
    (send,) = machine.step("c", hello, 0)
    if isinstance(send.message, Challenge):
        (send,) = machine.step("c", replace(hello, echo=send.message.nonce), 0)
    assert isinstance(send.message, Welcome)
    return send.message


def test_a_welcome_names_the_column_by_which_queries_compute() -> None:
    assert greet(root(PLAIN)).key_by == ""
    assert greet(root(PLAIN, KEYED)).key_by == "machine"
    assert greet(root(COUNTED, PLAIN)).key_by == "machine"


def test_it_follows_the_queries_that_are_there() -> None:
    machine = root(PLAIN)
    assert greet(machine).key_by == ""
    for query in (KEYED, COUNTED):
        machine.add(query)
        assert greet(machine).key_by == "machine"
        machine.remove(query.id)
        assert greet(machine).key_by == ""


def test_a_source_that_is_assigned_elsewhere_hears_it_too() -> None:
    machine = root(KEYED)
    greet(machine)
    (welcome,) = [send.message for send in machine.assign({"s": "d"}) if isinstance(send.message, Welcome)]
    assert (welcome.child, welcome.key_by) == ("d", "machine")


def test_a_source_knows_what_it_heard_last(tmp_path: Path) -> None:
    with Spool.open(tmp_path, limit_bytes=1 << 20) as spool:
        machine = SourceMachine("s", spool, SourceSettings(), "c")
        assert machine.key_by is None
        for key_by in ("machine", "", None):
            machine.step("c", Welcome(spool.opening, "s#1", 0, "c", "address", key_by), 0)
            assert machine.key_by == key_by
        machine.step("c", Welcome(spool.opening, "s#1", 0, "c", "address", ""), 0)
        # Another opening's is not for this one.
        machine.step("c", Welcome("another", "s#1", 0, "c", "address", "machine"), 0)
        assert machine.key_by == ""
