"""Topologies on a cluster, from the devices to the sink: every window is what one computer would compute."""

from __future__ import annotations

import json
import random
import time
from functools import partial
from typing import Any

import pytest

from e2e import helm
from e2e.images import NODE
from e2e.kubectl import kubectl, namespace, said
from e2e.trees import EXEC, QUERIES, WINDOW, Fleet, Tree, planted, tiers, topology
from headwater import oracle
from headwater.verification import differences
from headwater_operator import names

OPERATOR = ("--namespace", helm.NAMESPACE)
# How long a spec is given where it is to be taken back, in seconds.
ROLLOUT = 15


def sources(count: int) -> dict[str, Any]:
    (found,) = topology("x")["spec"]["sources"]
    return {"sources": [{**found, "expected": count}]}


def kill_operator(*, grace: int = 0) -> None:
    """All of its pods, as a machine that fails would."""
    selector = ",".join(f"{label}={value}" for label, value in names.OPERATOR_LABELS.items())
    force = ["--force"] if grace == 0 else []
    kubectl(
        *(*OPERATOR, "delete", "pod", "--selector", selector, "--wait=false", f"--grace-period={grace}"),
        *force,
    )


@pytest.mark.promise(
    "a topology that is applied gives the exact windows, and leaves nothing when it is deleted"
)
def test_a_topology_gives_exact_windows(space: str) -> None:
    with planted(space, topology("small", 12)) as tree:
        tree.settled()
        assert tree.status["widths"] == "6 3 2 1"
        places = {"child": "edge", "intermediate": "fog", "root": "cloud"}
        machines = tiers()
        for pod in tree.pods():
            role = pod["metadata"]["labels"][names.ROLE]
            assert machines[pod["spec"]["nodeName"]] == places[role]
        tree.send(Fleet(12), NODE).done()
        assert tree.assert_exact() > 50
        tree.until(lambda: tree.status.get("sources") == 12, "the status does not say who sends")
        # Deleted, nothing is left but the volume, which is kept.
        kubectl("--namespace", space, "delete", "aggtopo", "small")
        tree.until(lambda: not tree.everything(), "something is left")
        kept = kubectl("--namespace", space, "get", "pvc", "--output=name").split()
        assert kept == [f"persistentvolumeclaim/{names.claim('small')}"]


@pytest.mark.promise("a tree is rescaled while data flow, and nobody who stays is restarted")
def test_a_tree_that_is_widened_and_narrowed_restarts_nobody_who_stays(space: str) -> None:
    with planted(space, topology("wide", 4)) as tree:
        tree.settled()
        assert tree.status["widths"] == "2 1"
        before = tree.uids()
        sending = tree.send(Fleet(4, events=None), NODE)
        tree.until(lambda: tree.status.get("sources") == 4, "nobody sends")
        # All have come: whoever waits for more from now on does not wait for the first window.
        tree.shows()
        # More are expected than come: the tree is as wide as it has to be for them.
        tree.patch(sources(12))
        tree.settled()
        assert tree.status["widths"] == "6 3 2 1"
        wide = tree.uids()
        assert before.items() <= wide.items(), "a pod that stayed was restarted"
        tree.patch(sources(4))
        tree.settled()
        assert tree.status["widths"] == "2 1"
        after = tree.uids()
        assert after.items() <= wide.items(), "a pod that stayed was restarted"
        told = {"Replanned", "NodeDrained"}
        tree.until(lambda: told <= {each["reason"] for each in _events(tree)}, "it is not told")
        sending.enough()
        assert tree.assert_exact() > 50


def test_sources_that_send_more_than_was_said_get_a_wider_tree(space: str) -> None:
    with planted(space, topology("busy", 4)) as tree:
        tree.settled()
        assert tree.status["widths"] == "2 1"
        before = tree.uids()
        # A child takes two sources of what was said, and one of what comes.
        sending = tree.send(Fleet(4, rate=15.0, events=None), NODE)
        tree.until(lambda: tree.status["widths"].startswith("4 "), "it stays as wide as it was said")
        tree.settled()
        assert before.items() <= tree.uids().items(), "a pod that stayed was restarted"
        sending.enough()
        assert tree.assert_exact() > 50


def _events(tree: Tree) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(
        kubectl("--namespace", tree.space, "get", "events", "--output=json")
    )["items"]
    return [each for each in found if each["involvedObject"]["kind"] == "AggregationTopology"]


@pytest.mark.promise("pods of nodes, the operator and the root are killed, and every window stays exact")
@pytest.mark.killing
def test_pods_and_operators_that_are_killed_change_no_window(space: str) -> None:
    rng = random.Random(8)
    document = topology("tough", 8)
    # So that its log is shortened now and then.
    document["spec"]["root"]["snapshotAfter"] = "64KiB"
    with planted(space, document) as tree:
        tree.settled()
        assert tree.status["widths"] == "4 2 2 1"
        sending = tree.send(Fleet(8, events=None), NODE)
        tree.until(lambda: tree.status.get("sources") == 8, "nobody sends")
        for round_ in range(6):
            node, uid = rng.choice(sorted(tree.uids().items()))
            kubectl(
                *("--namespace", space, "delete", "pod", "--selector", f"{names.NODE}={node}"),
                *("--wait=false", "--grace-period=0", "--force"),
            )
            if round_ % 3 == 1:
                kill_operator()
            # The next one is killed while this one's successor starts, or once the tree has recovered.
            if round_ % 2 == 0:
                tree.until(partial(_has_successor, tree, node, uid), f"{node} has no successor")
            else:
                tree.flows()
        tree.until(lambda: _is_shortened(tree), "its log is not shortened", every=EXEC)
        # The root too: it comes back with its volume.
        kubectl("--namespace", space, "delete", "pod", names.root_pod("tough"), "--grace-period=0", "--force")
        sending.enough()
        tree.settled()
        assert tree.assert_exact() > 50
        begun = [line for line in tree.root_said() if line.get("message") == "started"]
        assert begun[-1]["snapshot"] > 0, "it came back by its whole log"


def _has_successor(tree: Tree, node: str, uid: str) -> bool:
    """Whether a node has another pod than the one that was killed."""
    return tree.uids().get(node, uid) != uid


def _is_shortened(tree: Tree) -> bool:
    """Whether the log of the root begins with a snapshot: the segment of its first record is gone."""
    show = "import pathlib; print(*(path.name for path in pathlib.Path('/data/state').rglob('0*.log')))"
    done = said("--namespace", tree.space, "exec", names.root_pod(tree.name), "--", "python3", "-c", show)
    segments = done.stdout.split()
    return bool(segments) and not any(int(each.partition("-")[0]) == 1 for each in segments)


@pytest.mark.promise("an operator that is killed at any moment of its work still rolls a change out")
@pytest.mark.killing
def test_an_operator_that_is_killed_twenty_times_rolls_a_change_out(space: str) -> None:
    with planted(space, topology("stubborn", 4)) as tree:
        tree.settled()
        uids = tree.uids()
        for round_ in range(20):
            tree.patch(sources(8 if round_ % 2 == 0 else 4))
            # At any moment of its work.
            time.sleep(0.1 * (round_ % 10))
            kill_operator()
        tree.patch(sources(8))
        tree.settled(600)
        assert tree.status["widths"] == "4 2 2 1"
        assert uids.items() <= tree.uids().items(), "a pod that stayed was restarted"
        found = [each for each in tree.everything() if each.startswith("deployment")]
        assert len(found) == 8, found
        tree.send(Fleet(8, events=100), NODE).done()
        tree.assert_exact()


@pytest.mark.promise("queries are added to a running tree and removed from it")
def test_queries_come_and_go_without_a_restart(space: str) -> None:
    document = topology("asked", 4)
    with planted(space, document) as tree:
        tree.settled()
        uids, root = tree.uids(), tree.pods(f"{names.ROLE}=root")[0]["metadata"]["uid"]
        sending = tree.send(Fleet(4, events=None), NODE)
        tree.shows()
        late = {"id": "late", "aggregate": ["max"], "window": WINDOW}
        tree.patch({"queries": [*QUERIES, late]})
        for name, spec in (
            ("team", {"aggregate": ["min"], "window": WINDOW}),
            # What is in a list an API server does not look at.
            ("wrong", {"aggregate": ["nonsense"], "window": WINDOW}),
            ("astray", {"aggregate": ["min"], "window": WINDOW, "topologyRef": "nobody"}),
        ):
            tree.apply(
                {
                    "apiVersion": document["apiVersion"],
                    "kind": "AggregationQuery",
                    "metadata": {"name": name},
                    "spec": {"topologyRef": "asked", **spec},
                }
            )
        tree.until(lambda: _accepted(space, "team") == ("True", "Accepted"), "it is not accepted")
        tree.until(lambda: _accepted(space, "wrong") == ("False", "Invalid"), "it is not refused")
        tree.until(lambda: _accepted(space, "astray") == ("False", "NoTopology"), "it has one")
        tree.settled()
        sending.enough()
        total = tree.expected([*QUERIES, late, {**late, "id": "team", "aggregate": ["min"]}])
        rows: list[oracle.Row] = []

        def through() -> bool:
            # Read once, as everywhere.
            rows[:] = tree.results()
            return _last(rows) == _last(total) and all(
                len(_of(rows, id)) >= len(_of(total, id)) for id in ("t", "s", "g")
            )

        tree.until(through, "windows are missing", every=EXEC)
        for id in ("t", "s", "g"):
            assert differences(_of(total, id), _of(rows, id)) == []
        for id in ("late", "team"):
            found = _of(rows, id)
            # From its first window on it is as if it had always been there.
            expected = [row for row in _of(total, id) if row.start >= found[0].start]
            assert differences(expected, found) == []
        assert tree.uids() == uids
        assert tree.pods(f"{names.ROLE}=root")[0]["metadata"]["uid"] == root
        kubectl("--namespace", space, "delete", "aggq", "team")
        tree.settled()


def _of(rows: list[oracle.Row], query: str) -> list[oracle.Row]:
    return [row for row in rows if row.query == query]


def _last(rows: list[oracle.Row]) -> dict[str, int]:
    """Where the last window of each query ends."""
    found: dict[str, int] = {}
    for row in rows:
        found[row.query] = max(found.get(row.query, row.end), row.end)
    return found


def _accepted(space: str, name: str) -> tuple[str, str]:
    found = json.loads(kubectl("--namespace", space, "get", "aggq", name, "--output=json"))
    (condition,) = (found.get("status") or {}).get("conditions") or [{"status": "", "reason": ""}]
    return condition["status"], condition["reason"]


def test_a_tree_rests_and_wakes_beside_another(space: str) -> None:
    with planted(space, topology("first", 4)) as tree, planted(space, topology("second", 2)) as other:
        tree.settled()
        other.settled()
        sending = tree.send(Fleet(4, events=None), NODE)
        beside = other.send(Fleet(2, first=50, events=None), NODE)
        tree.shows()
        tree.patch({"suspend": True})
        tree.until(lambda: not tree.pods(), "pods are left")
        tree.until(lambda: tree.status["root"] == "Suspended", "it is not said that it rests")
        assert tree.condition("Progressing")["reason"] == "Suspended"
        kept = kubectl("--namespace", space, "get", "pvc", "--output=name").split()
        assert f"persistentvolumeclaim/{names.claim('first')}" in kept
        tree.patch({"suspend": False})
        tree.settled()
        sending.enough()
        beside.enough()
        tree.assert_exact()
        other.assert_exact()


def test_a_spec_that_cannot_be_had_leaves_what_runs(space: str) -> None:
    with planted(space, topology("careful", 4)) as tree:
        tree.settled()
        uids = tree.uids()
        # An API server does not know that it is too little.
        tree.patch({"limits": {"maxNodes": 2}, **sources(400)})
        tree.until(lambda: tree.condition("Planned").get("status") == "False", "it is planned")
        planned, degraded = tree.condition("Planned"), tree.condition("Degraded")
        assert planned["reason"] == "NoPlan"
        assert "spec.limits.maxNodes" in planned["message"]
        assert degraded["reason"] == "NoPlan"
        assert "runs on" in degraded["message"]
        assert tree.uids() == uids
        tree.send(Fleet(4, events=50), NODE).done()
        tree.assert_exact()
        # And a topology that never had a plan says so.
        with planted(space, topology("never", 4, node=None)) as other:
            other.until(lambda: other.condition("Planned").get("reason") == "NoPlan", "it is planned")
            assert "spec.node.ingestLimit" in other.condition("Planned")["message"]
            assert other.pods() == []


def test_paused_nothing_is_changed(space: str) -> None:
    with planted(space, topology("paused", 2)) as tree:
        tree.settled()
        kubectl("--namespace", space, "annotate", "aggtopo", "paused", f"{names.PAUSE}=true")
        tree.patch(sources(8))
        tree.until(lambda: tree.condition("Progressing").get("reason") == "Paused", "it is not paused")
        kubectl("--namespace", space, "annotate", "aggtopo", "paused", f"{names.PAUSE}-")
        tree.settled()
        assert tree.status["widths"] == "4 2 2 1"
        uids = tree.uids()
        kubectl("--namespace", space, "annotate", "aggtopo", "paused", f"{names.RESTART}=now")
        tree.until(lambda: not set(uids.values()) & set(tree.uids().values()), "a pod is as it was", 600)
        tree.settled()


@pytest.mark.alone
def test_a_spec_that_does_not_come_to_be_is_taken_back(space: str) -> None:
    every = ("--set-json", "watchNamespaces=[]", *helm.WAIT)
    helm.install(helm.CHART, *every, "--set", f"rolloutSeconds={ROLLOUT}")
    try:
        with planted(space, topology("hasty", 4)) as tree:
            tree.settled()
            uids = tree.uids()
            # No machine is so: the new children wait for one for ever.
            nowhere = {"nodeSelector": {"headwater.dev/tier": "nowhere"}}
            tree.patch({"placement": {"child": {**topology("x")["spec"]["placement"]["child"], **nowhere}}})
            tree.until(lambda: tree.condition("Degraded").get("reason") == "RolledBack", "it goes on")
            tree.until(lambda: tree.condition("Ready").get("status") == "True", "it is not ready")
            # Whoever comes next does not try it again, and the tree is the one of before.
            before = _leader()
            kill_operator()
            tree.until(lambda: _leader() != before and _has_begun(_leader()), "nobody leads")
            # Nothing happens, for longer than a spec is given.
            time.sleep(ROLLOUT + 5)
            tree.until(lambda: tree.condition("Ready").get("status") == "True", "it is not ready")
            assert tree.condition("Degraded")["reason"] == "RolledBack"
            assert uids.keys() == tree.uids().keys()
            assert uids.items() & tree.uids().items(), "every pod was restarted"
            tree.send(Fleet(4, events=50), NODE).done()
            tree.assert_exact()
            # Another spec is another try.
            tree.patch({"placement": topology("x")["spec"]["placement"]})
            tree.settled()
            # Its sources have sent all that they had by now: that is the only thing that may be wrong.
            nobody_sends = ("NoSources", "FewSources", "WatermarkStalled")
            assert tree.condition("Degraded")["reason"] in ("AsPlanned", *nobody_sends)
    finally:
        helm.install(helm.CHART, *every)


@pytest.mark.promise("an upgrade of the chart leaves running trees alone")
@pytest.mark.alone
def test_an_upgrade_of_the_chart_leaves_trees_as_they_are(space: str) -> None:
    with planted(space, topology("steady", 4)) as tree:
        tree.settled()
        uids = tree.uids()
        sending = tree.send(Fleet(4, events=None), NODE)
        tree.shows()
        operators = _operators()
        # Other pods of the operator, with other rights: those of one namespace.
        watched = json.dumps([space])
        values = ["--set-json", f"watchNamespaces={watched}", "--set", "logLevel=debug"]
        helm.install(helm.CHART, *values, *helm.WAIT)
        try:
            tree.until(lambda: not operators & _operators(), "an operator is left")
            # What is elsewhere is nobody's, and what is here goes on.
            with namespace(f"{space}-2") as outside, planted(outside, topology("unseen", 2)) as other:
                tree.patch(sources(8))
                tree.settled()
                assert other.status == {}
                assert other.everything() == []
            assert uids.items() <= tree.uids().items()
            sending.enough()
            tree.assert_exact()
        finally:
            helm.install(helm.CHART, "--set-json", "watchNamespaces=[]", *helm.WAIT)


def _leader() -> str:
    """Who has the lease, as its pod and what tells its lives apart."""
    found = json.loads(kubectl("get", "lease", helm.RELEASE, *OPERATOR, "--output=json"))
    holder: str = found["spec"].get("holderIdentity") or ""
    return holder


def _has_begun(leader: str) -> bool:
    """To look at everything that it has listed."""
    done = said("logs", leader.rpartition("_")[0], *OPERATOR)
    return "everything is listed, and looked at" in done.stdout


def _operators() -> set[str]:
    """The pods that are not about to end."""
    selector = ",".join(f"{label}={value}" for label, value in names.OPERATOR_LABELS.items())
    found = json.loads(kubectl(*OPERATOR, "get", "pods", "--selector", selector, "--output=json"))["items"]
    return {each["metadata"]["uid"] for each in found if "deletionTimestamp" not in each["metadata"]}


@pytest.mark.promise("a release is uninstalled while data flow, and its trees can still be deleted")
@pytest.mark.alone
def test_uninstalled_the_chart_leaves_what_runs_and_lets_it_be_deleted(space: str) -> None:
    with planted(space, topology("orphan", 2)) as tree:
        tree.settled()
        sending = tree.send(Fleet(2, events=None), NODE)
        tree.shows()
        helm.uninstall()
        try:
            # Nobody operates, and data flow.
            sending.enough()
            tree.assert_exact()
            kubectl("--namespace", space, "delete", "aggtopo", "orphan", "--timeout=60s")
            tree.until(lambda: not tree.everything(), "something is left")
        finally:
            helm.install(helm.CHART, "--set-json", "watchNamespaces=[]", *helm.WAIT)
