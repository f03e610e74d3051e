"""The operator as a process, on a real API server and with the rights of an account."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from e2e.operator.running import BRIEF, NODES, WATCH, Operator, rights
from e2e.operator.spaces import Spaces
from headwater_operator import kinds, names
from headwater_operator.cluster import Cluster

Start = Callable[..., Operator]
# What others than its own heartbeats change of a Node that is new.
SPOKEN_OF = (("spec", "taints"), ("metadata", "labels"))


@pytest.fixture
def start(spaces: Spaces, space: str, tmp_path: Path) -> Iterator[Start]:
    """Operators with all rights in the namespace, and those for Nodes."""
    token = spaces.account(space, rights(), NODES)
    kubeconfig = spaces.kubeconfig(tmp_path / "kubeconfig", token)
    with ExitStack() as stack:

        def started(**options: Any) -> Operator:
            return stack.enter_context(Operator(tmp_path, kubeconfig, space, **options))

        yield started


def test_it_is_called_for_what_is_there_and_for_what_comes(
    start: Start, spaces: Spaces, space: str, capsys: pytest.CaptureFixture[str]
) -> None:
    spaces.topology(space, "there")
    operator = start()
    first = operator.called(f"{space}/there") - operator.began
    created = time.time()
    spaces.topology(space, "comes")
    later = operator.called(f"{space}/comes") - created
    with capsys.disabled():
        print(f"\nfrom start to the first topology {first:.2f} s, from an event to its look {later:.3f} s")
    # By the event: a resync comes after minutes.
    assert later < 60
    assert operator.get("/readyz") == (200, "ready\n")
    assert operator.get("/healthz") == (200, "alive\n")
    assert operator.figure("leading") == 1.0
    assert operator.figure('events_total{resource="aggregationtopologies.headwater.dev"}') == 2.0
    # A look is told of a moment before it is counted.
    done = 'reconciles_total{outcome="done"}'
    operator.until(lambda: operator.figure(done) == len(operator.calls()))


def test_it_leaves_no_trace_on_what_it_watches(start: Start, spaces: Spaces, space: str) -> None:
    spaces.topology(space, "there")
    operator = start()
    operator.called(f"{space}/there")
    changed = time.time()
    spaces.topology(space, "there", metadata__annotations={names.PAUSE: "true"})
    operator.called(f"{space}/there", since=changed)
    time.sleep(0.5)
    found = spaces.cluster.get(kinds.TOPOLOGY, space, "there")
    assert found is not None
    assert "finalizers" not in found["metadata"]
    assert found["metadata"]["annotations"] == {names.PAUSE: "true"}
    assert "status" not in found
    # So deleting it waits for nobody.
    deleted = time.time()
    assert spaces.cluster.delete(kinds.TOPOLOGY, space, "there")
    assert spaces.cluster.get(kinds.TOPOLOGY, space, "there") is None
    operator.called(f"{space}/there", since=deleted)
    assert spaces.cluster.list(kinds.EVENT, space) == []


def test_what_belongs_to_a_topology_and_its_queries_are_heard_of(
    start: Start, spaces: Spaces, space: str
) -> None:
    operator = start()
    operator.until(lambda: operator.get("/readyz")[0] == 200 and operator.leads)
    spec = {"topologyRef": "a", "aggregate": "avg", "window": {"type": "tumbling", "length": "1s"}}
    for name, document in {
        "a": {"apiVersion": kinds.QUERY.api_version, "kind": "AggregationQuery", "spec": spec},
        "b": {
            "apiVersion": "v1",
            "kind": "Service",
            "spec": {"clusterIP": "None", "ports": [{"port": 1}]},
        },
        "c": {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "spec": {
                "accessModes": ["ReadWriteOnce"],
                "storageClassName": "none",
                "resources": {"requests": {"storage": "1Mi"}},
            },
        },
    }.items():
        metadata = {"name": f"x-{name}", "namespace": space, "labels": names.labels(name)}
        made = time.time()
        spaces.cluster.apply({**document, "metadata": metadata})
        operator.called(f"{space}/{name}", since=made)
    # Of nobody's.
    before = len(operator.calls())
    metadata = {"name": "strange", "namespace": space}
    spaces.cluster.apply(
        {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": {"ports": [{"port": 1}]}}
    )
    time.sleep(1)
    assert len(operator.calls()) == before
    # It is not even told of it.
    assert operator.figure('events_total{resource="services"}') == 1.0


def test_nodes_wake_topologies_and_their_heartbeats_do_not(start: Start, spaces: Spaces, space: str) -> None:
    spaces.topology(space, "a")
    operator = start()
    operator.called(f"{space}/a")
    name = f"{space}-node"
    path = kinds.NODE.object(None, name)
    joined = time.time()
    spaces.post(kinds.NODE.collection(), {"metadata": {"name": name}, "spec": {"unschedulable": True}})
    try:
        operator.called(f"{space}/a", since=joined)
        operator.until(lambda: name in (operator.calls()[-1]["nodes"] or []))
        # Controllers may have more to say of a node that is new; then it is tried once more.
        for _ in range(10):
            operator.quiet(1.0)
            before, quiet = spaces.request("GET", path), time.time()
            for n in range(3):
                at = f"2026-01-01T00:00:0{n}Z"
                condition = {"type": "Test", "status": "False", "lastHeartbeatTime": at}
                spaces.patch(f"{path}/status", {"status": {"conditions": [condition]}})
            time.sleep(1)
            called, after = operator.calls(since=quiet), spaces.request("GET", path)
            if all(before[part].get(of) == after[part].get(of) for part, of in SPOKEN_OF):
                break
        assert called == []
        labelled = time.time()
        spaces.patch(path, {"metadata": {"labels": {"headwater.dev/tier": "edge"}}})
        operator.called(f"{space}/a", since=labelled)
    finally:
        gone = time.time()
        spaces.request("DELETE", path)
    operator.called(f"{space}/a", since=gone)
    operator.until(lambda: name not in (operator.calls()[-1]["nodes"] or []))


def test_an_idle_operator_stays_alive_for_longer_than_its_watches(start: Start, space: str) -> None:
    operator = start(watch={"server": 1, "client": 2, "silence": 20.0})
    operator.until(lambda: operator.leads and operator.get("/readyz")[0] == 200)
    worst, until = 0.0, time.monotonic() + 25
    while time.monotonic() < until:
        assert operator.get("/healthz") == (200, "alive\n")
        worst = max(worst, operator.figure("watch_age_seconds") or 0.0)
        time.sleep(0.1)
    assert worst < 20.0
    assert operator.calls() == []
    assert operator.figure("watch_restarts_total") == 0.0


def test_a_resync_repairs_without_an_event(start: Start, spaces: Spaces, space: str) -> None:
    spaces.topology(space, "a")
    operator = start(RESYNC_SECONDS="1")
    operator.until(lambda: len(operator.calls(f"{space}/a")) >= 4)
    times = [each["at"] for each in operator.calls(f"{space}/a")]
    # Nodes that come and go beside this test wake it too.
    assert median(later - at for at, later in pairwise(times)) > 0.8


def test_one_leads_and_sigterm_hands_over_at_once(start: Start, spaces: Spaces, space: str) -> None:
    spaces.topology(space, "a")
    lease = {"duration": 25, "deadline": 18.0, "retry": 0.5}
    first = start(name="first", lease=lease)
    first.called(f"{space}/a")
    second = start(name="second", lease=lease)
    second.until(lambda: second.said("another process leads"))
    assert second.get("/readyz") == (200, "ready\n")
    assert second.get("/healthz") == (200, "alive\n")
    assert second.figure("leading") == 0.0
    # For longer than the lease lasts.
    time.sleep(lease["duration"] + 1)
    assert not second.leads
    assert second.calls() == []
    asked = time.time()
    first.signal(signal.SIGTERM)
    assert first.ended() == 0
    ended = time.time() - asked
    over = second.called(f"{space}/a") - asked
    print(f"ended after {ended:.2f} s, the other at work after {over:.2f} s")
    # Long before the lease would have ended.
    assert over < 20
    assert first.said("the lease is released")


def test_one_that_is_killed_is_followed_when_its_lease_ends(start: Start, spaces: Spaces, space: str) -> None:
    spaces.topology(space, "a")
    first = start(name="first", lease=BRIEF)
    first.called(f"{space}/a")
    second = start(name="second", lease=BRIEF)
    second.until(lambda: second.said("another process leads"))
    killed = time.time()
    first.signal(signal.SIGKILL)
    first.ended()
    found = spaces.cluster.get(kinds.LEASE, space, "headwater-operator")
    assert found is not None
    renewed = datetime.fromisoformat(found["spec"]["renewTime"])
    over = second.called(f"{space}/a") - killed
    [leads] = second.said("this process leads")
    print(f"the other at work after {over:.2f} s")
    # Not before, and soon.
    waited = (datetime.fromisoformat(leads["time"]) - renewed).total_seconds()
    assert BRIEF["duration"] <= waited < 3 * BRIEF["duration"]


def test_one_that_was_stopped_for_long_ends_when_it_goes_on(start: Start, spaces: Spaces, space: str) -> None:
    spaces.topology(space, "a")
    first = start(name="first", lease=BRIEF)
    first.called(f"{space}/a")
    second = start(name="second", lease=BRIEF)
    first.signal(signal.SIGSTOP)
    second.called(f"{space}/a")
    first.signal(signal.SIGCONT)
    assert first.ended() == 3
    assert first.said("the lease is lost: the process ends")


def test_a_standby_ends_cleanly(start: Start, spaces: Spaces, space: str, cluster: Cluster) -> None:
    first = start(name="first")
    first.until(lambda: first.leads)
    second = start(name="second")
    second.until(lambda: second.said("another process leads"))
    second.signal(signal.SIGTERM)
    assert second.ended() == 0
    found = cluster.get(kinds.LEASE, space, "headwater-operator")
    assert found is not None
    assert found["spec"]["holderIdentity"].startswith("first_")


def test_without_rights_it_says_which_and_goes_on_once_they_are_there(
    spaces: Spaces, space: str, tmp_path: Path
) -> None:
    spaces.topology(space, "a")
    token = spaces.account(space, rights(kinds.POD))
    kubeconfig = spaces.kubeconfig(tmp_path / "kubeconfig", token)
    with Operator(tmp_path, kubeconfig, space) as operator:
        refused = f"list pods in namespace {space}: is not allowed; bind a Role"

        def begun_anew() -> int:
            return sum(refused in each["problem"] for each in operator.said("watches are begun anew"))

        operator.until(begun_anew)
        status, why = operator.get("/readyz")
        assert status == 503
        assert f"watch pods in namespace {space}" in why
        assert operator.get("/healthz")[0] == 200
        missing = f'rights_missing{{namespace="{space}",resource="pods",verb="watch"}}'
        assert operator.figure(missing) == 1.0
        spaces.grant(space, rights())
        operator.called(f"{space}/a")
        operator.until(lambda: operator.get("/readyz")[0] == 200)
        assert operator.figure(missing) is None
        # It is said once, however often it is tried.
        assert begun_anew() == 1


def test_rights_to_nodes_may_come_and_go(spaces: Spaces, space: str, tmp_path: Path) -> None:
    spaces.topology(space, "a")
    token = spaces.account(space, rights())
    kubeconfig = spaces.kubeconfig(tmp_path / "kubeconfig", token)
    with Operator(tmp_path, kubeconfig, space, RESYNC_SECONDS="1") as operator:
        operator.called(f"{space}/a")
        assert operator.calls()[-1]["nodes"] is None
        assert {line["right"] for line in operator.said("a right is missing")} == {
            "list nodes everywhere",
            "watch nodes everywhere",
        }
        spaces.grant_everywhere(space, NODES)
        operator.until(lambda: operator.calls()[-1]["nodes"] is not None)
        spaces.revoke_everywhere(space)
        operator.until(lambda: operator.calls()[-1]["nodes"] is None)
        assert operator.runs
        changed = time.time()
        spaces.topology(space, "b")
        operator.called(f"{space}/b", since=changed)
        assert operator.get("/healthz")[0] == 200


def test_all_namespaces_are_served_by_choice(spaces: Spaces, space: str, tmp_path: Path) -> None:
    other = spaces.make()
    spaces.topology(space, "a")
    spaces.topology(other, "b")
    token = spaces.account(space, [], [*rights(), *NODES])
    kubeconfig = spaces.kubeconfig(tmp_path / "kubeconfig", token)
    with Operator(tmp_path, kubeconfig, "", POD_NAMESPACE=space, watch=WATCH) as operator:
        operator.called(f"{space}/a")
        operator.called(f"{other}/b")
        changed = time.time()
        spaces.topology(other, "c")
        operator.called(f"{other}/c", since=changed)
        assert operator.get("/readyz")[0] == 200
