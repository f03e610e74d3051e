"""Which topologies an event is about, and when a watch is silent for too long."""

from __future__ import annotations

from typing import Any

import pytest

from headwater_operator import kinds, names
from headwater_operator.kinds import Kind
from headwater_operator.nodes import Nodes
from headwater_operator.watching import SETTLE, Key, Pulse, Router
from headwater_operator.workqueue import Turns, WorkQueue
from tests.operator.test_nodes import document as node


def topology(name: str = "a", generation: int = 1, **metadata: Any) -> dict[str, Any]:
    found = {"name": name, "namespace": "plant", "uid": f"uid-{name}", "generation": generation}
    return {"metadata": {**found, **metadata}, "status": {"nodes": generation}}


def query(ref: str, generation: int = 1) -> dict[str, Any]:
    metadata = {"name": "q", "namespace": "plant", "uid": "uid-q", "generation": generation}
    return {"metadata": metadata, "spec": {"topologyRef": ref}}


def owned(topology: str | None = "a") -> dict[str, Any]:
    labels = {} if topology is None else {names.TOPOLOGY: topology}
    return {"metadata": {"name": "x", "namespace": "plant", "labels": labels}}


class Heard:
    """A router, and what it has put into its queue since it was last asked."""

    def __init__(self) -> None:
        self.now = 0.0
        self.nodes, self._turns = Nodes(), Turns[Key]()
        self.router = Router(WorkQueue(self._turns, clock=lambda: self.now), self.nodes)

    def __call__(self, kind: Kind, type: str | None, document: dict[str, Any]) -> set[str]:
        self.router.heard(kind, type, document)
        return self.woken()

    def woken(self) -> set[str]:
        self.now += SETTLE
        found = set()
        while (turn := self._turns.take(self.now)) is not None:
            assert turn.key[0] == "plant"
            found.add(turn.key[1])
            self._turns.done(turn.key, self.now)
        return found


def test_a_topology_is_looked_at_for_what_its_author_says_and_not_for_its_status() -> None:
    heard = Heard()
    assert heard(kinds.TOPOLOGY, None, topology()) == {"a"}
    assert heard(kinds.TOPOLOGY, "MODIFIED", topology()) == set()
    assert heard(kinds.TOPOLOGY, "MODIFIED", topology(generation=2)) == {"a"}
    assert heard(kinds.TOPOLOGY, "MODIFIED", topology(generation=2, annotations={names.PAUSE: ""})) == {"a"}
    assert heard(kinds.TOPOLOGY, "MODIFIED", topology(generation=2, deletionTimestamp="now")) == {"a"}
    assert heard(kinds.TOPOLOGY, "DELETED", topology(generation=2, deletionTimestamp="now")) == {"a"}
    assert heard.router.known == set()
    assert heard(kinds.TOPOLOGY, "ADDED", topology()) == {"a"}
    # Another of the same name.
    assert heard(kinds.TOPOLOGY, "MODIFIED", topology(uid="other")) == {"a"}


def test_a_query_wakes_its_topology_and_the_one_that_it_leaves() -> None:
    heard = Heard()
    assert heard(kinds.QUERY, None, query("a")) == {"a"}
    assert heard(kinds.QUERY, "MODIFIED", query("a")) == set()
    assert heard(kinds.QUERY, "MODIFIED", query("b", generation=2)) == {"a", "b"}
    assert heard(kinds.QUERY, "DELETED", query("b", generation=2)) == {"b"}


@pytest.mark.parametrize(
    "kind", [kinds.DEPLOYMENT, kinds.STATEFUL_SET, kinds.SERVICE, kinds.POD, kinds.CLAIM]
)
def test_what_belongs_to_a_topology_wakes_it(kind: Kind) -> None:
    heard = Heard()
    for type in (None, "ADDED", "MODIFIED", "DELETED"):
        assert heard(kind, type, owned()) == {"a"}
    assert heard(kind, "MODIFIED", owned(None)) == set()


def test_a_burst_is_looked_at_once() -> None:
    heard = Heard()
    for _ in range(50):
        heard.router.heard(kinds.POD, "MODIFIED", owned())
    assert heard._turns.take(heard.now) is None
    assert heard.woken() == {"a"}
    assert heard.woken() == set()


def test_a_node_wakes_all_topologies_and_its_heartbeat_none() -> None:
    heard = Heard()
    heard(kinds.TOPOLOGY, None, topology("a"))
    heard(kinds.TOPOLOGY, None, topology("b"))
    assert heard(kinds.NODE, "ADDED", node()) == {"a", "b"}
    assert heard(kinds.NODE, "MODIFIED", node(beat="12:01")) == set()
    assert heard(kinds.NODE, "MODIFIED", node(ready="Unknown")) == {"a", "b"}
    assert heard(kinds.NODE, "DELETED", node()) == {"a", "b"}
    assert heard(kinds.NODE, "DELETED", node()) == set()


def test_a_resync_looks_at_all_that_are_there_and_at_those_that_are_gone() -> None:
    heard = Heard()
    heard(kinds.TOPOLOGY, None, topology("gone"))
    heard(kinds.TOPOLOGY, None, topology("there"))
    heard.router.resync([("plant", "there"), ("plant", "missed")])
    assert heard.woken() == {"gone", "there", "missed"}
    heard.router.resync([("plant", "there")])
    assert heard.woken() == {"there"}


def test_the_oldest_silence_counts() -> None:
    now = [0.0]
    pulse = Pulse(lambda: now[0])
    assert pulse.age() == 0.0
    pulse.expect("/a", "/b")
    assert not pulse.wait(0.0)
    now[0] = 10.0
    assert not pulse.beat("/a")
    assert pulse.age() == 10.0
    assert not pulse.beat("/b")
    assert pulse.wait(0.0)
    now[0] = 30.0
    assert pulse.beat("/a")
    assert pulse.age() == 20.0
    # One that is not expected says nothing about those that are.
    assert not pulse.beat("/c")
    assert pulse.age() == 20.0
    pulse.expect("/c")
    assert pulse.age() == 0.0
    now[0] = 31.0
    pulse.beat("/a")
    assert pulse.age() == 1.0


def test_what_was_forbidden_is_remembered() -> None:
    pulse = Pulse()
    pulse.refuse("/nodes")
    pulse.expect("/nodes")
    assert pulse.refused("/nodes")
    assert not pulse.refused("/pods")
