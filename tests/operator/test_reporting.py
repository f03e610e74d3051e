"""What is told of a topology, and when it is written."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from headwater.errors import Invalid, InvalidPlan, Problem
from headwater_operator.crds import status as schema
from headwater_operator.layout import Layout
from headwater_operator.observation import Observed
from headwater_operator.reporting import Report, is_due, rounded, status_of
from headwater_operator.standstill import stall_after
from headwater_wire.v1 import control_pb2 as pb
from tests.operator.test_layout import fresh, topology
from tests.operator.test_observation import HOSTS, going
from tests.operator.views import member, observed, pod, root

NOW = "2026-01-01T00:00:00Z"
ROOT_POD = pod("factory-root", role="root")


def layout() -> Layout:
    return fresh(topology(100))


def seen(found: Layout, *, answer: pb.StatusReply | None = None, pods: Any = None) -> Observed:
    shown = [*(pod(node.id, role=node.role) for node in found.nodes), ROOT_POD] if pods is None else pods
    return observed(list(found.nodes), shown, answer)


def settled(**more: Any) -> Report:
    found = layout()
    answer = root(*(member(node.id, parent=node.parent) for node in found.nodes))
    return Report("plant", "factory", 3, 100, seen(found, answer=answer), found, applied=True, good=3, **more)


def told(report: Report) -> dict[str, tuple[str, str]]:
    status = status_of(report, {}, NOW)
    return {each["type"]: (each["status"], each["reason"]) for each in status["conditions"]}


def test_a_tree_that_is_as_it_should_be() -> None:
    report = settled()
    assert report.settled
    assert told(report) == {
        "Planned": ("True", "Planned"),
        "Progressing": ("False", "Settled"),
        "Ready": ("True", "Committing"),
        "Degraded": ("False", "AsPlanned"),
    }
    status = status_of(report, {}, NOW)
    assert (status["widths"], status["nodes"], status["readyNodes"]) == ("3 2 1", 6, 6)
    assert status["layers"][0] == {
        "layer": 1,
        "role": "child",
        "width": 3,
        "ready": 3,
        "rate": 17.0,
        "headroom": 0.15,
    }
    assert status["layers"][-1]["role"] == "root"
    assert (status["root"], status["lastGoodGeneration"]) == ("Ready", 3)


def test_every_field_is_one_of_the_definition() -> None:
    found = layout()
    answer = root(*(member(node.id) for node in found.nodes[1:]), watermark=1_000_000, largest=3_540_000)
    answer.totals.sources, answer.totals.idle = 90, 4
    report = Report(
        "plant", "factory", 3, 100, seen(found, answer=answer), found, applied=True, good=3, rate=1234.5
    )
    status = status_of(report, {}, NOW)
    known = schema.of_topology()["properties"]
    assert set(status) <= set(known)
    assert set(status["worst"][0]) == set(known["worst"]["items"]["properties"])
    assert set(status["layers"][0]) == set(known["layers"]["items"]["properties"])
    assert set(status["conditions"][0]) == set(known["conditions"]["items"]["properties"])
    assert (status["sources"], status["rate"], status["lag"]) == (86, 1200.0, "2.5s")


def test_nodes_that_are_not_there_are_named_with_their_reason() -> None:
    found = layout()
    first, _, *others = found.nodes
    waits = {"state": {"waiting": {"reason": "ImagePullBackOff", "message": "not found"}}}
    pods = [
        pod(first.id, ready=False, containerStatuses=[waits]),
        *(pod(node.id, role=node.role) for node in others),
        ROOT_POD,
    ]
    report = Report("plant", "factory", 1, 100, seen(found, pods=pods, answer=root()), found)
    status = status_of(report, {}, NOW)
    assert told(report)["Progressing"] == ("True", "Starting")
    assert told(report)["Ready"] == ("False", "NodesNotReady")
    assert status["worst"][0] == {"name": first.id, "reason": "ImagePullBackOff", "message": "not found"}
    assert status["worst"][1]["reason"] == "NoPod"
    assert status["worst"][2]["reason"] == "NotRegistered"
    assert status["readyNodes"] == 1


@pytest.mark.parametrize(
    "change, kind, expected",
    [
        ({"problem": Invalid("w", [Problem("spec.x", "is y", "do z")])}, "Planned", ("False", "InvalidSpec")),
        ({"problem": InvalidPlan([Problem("spec.x", "is y", "do z")])}, "Planned", ("False", "NoPlan")),
        (
            {"problem": InvalidPlan([Problem("spec.x", "is y", "do z")]), "kept": 2},
            "Degraded",
            ("True", "NoPlan"),
        ),
        ({"rolled_back": "it did not come", "kept": 2}, "Degraded", ("True", "RolledBack")),
        ({"absent": frozenset({"factory-l1-0"})}, "Degraded", ("True", "MachinesLost")),
        ({"awaited": {"a-tls": "no issuer"}}, "Progressing", ("True", "Certifying")),
        ({"unfit": {"a-tls": "it has no ca.crt"}}, "Degraded", ("True", "CertificateUnfit")),
        ({"refused": ("q",)}, "Degraded", ("True", "QueriesRefused")),
        ({"hindrance": "it is shared"}, "Degraded", ("True", "NoFailover")),
        ({"differing": ("it cannot shrink",), "refused": ("q",)}, "Degraded", ("True", "ClaimDiffers")),
        ({"parting": "it was deleted", "differing": ("",)}, "Degraded", ("True", "ClaimDeleted")),
        ({"paused": True}, "Progressing", ("False", "Paused")),
        ({"suspended": True}, "Progressing", ("True", "Suspending")),
        ({"suspended": True}, "Ready", ("False", "Suspended")),
        ({"applied": False}, "Progressing", ("True", "Applying")),
    ],
)
def test_what_is_the_matter_is_a_reason(change: dict[str, Any], kind: str, expected: tuple[str, str]) -> None:
    assert told(replace(settled(), **change))[kind] == expected


def test_where_the_root_has_halted_that_comes_first() -> None:
    """Without a plan a tree runs on; without a root it does not."""
    problem = InvalidPlan([Problem("spec.x", "is y", "do z")])
    report = settled(problem=problem, absent=frozenset({"factory-root"}))
    assert told(report)["Degraded"] == ("True", "RootNodeLost")
    assert told(report)["Planned"] == ("False", "NoPlan")


def test_without_a_plan_it_says_what_runs() -> None:
    problem = InvalidPlan([Problem("spec.x", "is y", "do z")])

    def says(**change: Any) -> str:
        degraded = status_of(replace(settled(problem=problem), **change), {}, NOW)["conditions"][-1]
        return str(degraded["message"]).partition(":")[0]

    assert says(kept=3) == "generation 3 runs on"
    assert says(kept=None, good=3) == "what runs is left as it is"
    assert says(kept=None, good=0) == "nothing runs"


def test_a_tree_rests_also_where_pods_are_on_machines_that_are_lost() -> None:
    report = settled(suspended=True)
    assert not report.resting
    everybody = frozenset(report.observed.pods)
    assert replace(report, absent=everybody).resting
    assert told(replace(report, absent=everybody))["Progressing"] == ("False", "Suspended")


def test_who_is_through_is_known_with_what_was_asked_of_it() -> None:
    report = settled()
    names_ = {name for name, _ in report.through}
    assert names_ >= {node.id for node in report.nodes}
    assert ("factory-l1-0", 0) not in settled(changing=("factory-l1-0",)).through
    assert ("factory-l1-0", 0) not in settled(later=("factory-l1-0",)).through


def test_what_is_begun_anew_has_not_arrived() -> None:
    """Its pods are ready, and those of before: a spec that is never good must not be kept as one that was."""
    for report in (settled(changing=("factory-root",)), settled(later=("factory-l1-0",))):
        assert not report.arrived
        assert told(report)["Progressing"] == ("True", "RollingOut")
        assert told(report)["Ready"] == ("True", "Committing")


def test_a_source_without_a_child_is_in_the_way_and_one_that_has_not_come_is_not() -> None:
    report = settled(demand=50.0)
    assert report.observed.root is not None
    # 3 of 100 have come, and 2 of these are gone again.
    report.observed.root.totals.sources, report.observed.root.totals.idle = 3, 2
    assert told(report)["Ready"] == ("True", "Committing")
    report.observed.root.totals.unassigned = 1
    assert report.settled
    assert told(report)["Ready"] == ("False", "SourcesNotAssigned")


def test_where_there_is_no_room_for_all_that_are_expected_it_is_not_ready() -> None:
    """A machine is lost, and its pods still say that they are ready: the root has been told to give their
    children no sources, and the others do not take all of them."""
    report = settled(demand=50.0)
    lost = next(node.id for node in report.nodes if node.role == "child")
    around = replace(report, absent=frozenset({lost}))
    assert not around.waiting
    assert told(around)["Ready"] == ("False", "SourcesNotAssigned")
    assert "take 40 items a second, and 50 are expected" in around.unassigned
    # An intermediate reads no sources, and where there is room enough nothing is in the way.
    above = next(node.id for node in report.nodes if node.role == "intermediate")
    assert told(replace(report, absent=frozenset({above})))["Ready"][0] == "True"
    assert told(replace(around, demand=40.0))["Ready"][0] == "True"


def test_a_certificate_that_is_lacking_is_named_with_what_it_says() -> None:
    report = replace(settled(), awaited={"b-tls": "c", "a-tls": "no issuer"}, unfit={"d-tls": "no ca.crt"})
    assert not report.arrived
    messages = {each["type"]: each["message"] for each in status_of(report, {}, NOW)["conditions"]}
    assert messages["Progressing"].endswith(
        "2 of cert-manager's Certificates are waited for: a-tls: no issuer"
    )
    assert messages["Degraded"].endswith("1 of cert-manager's Certificates cannot be used: d-tls: no ca.crt")


def test_a_root_that_does_not_answer() -> None:
    found = layout()
    report = Report("plant", "factory", 1, 100, seen(found), found, unreachable="UNAVAILABLE: no route")
    assert told(report)["Ready"] == ("False", "RootNotReady")
    status = status_of(report, {}, NOW)
    assert status["root"] == "Unreachable"
    assert "no route" in next(c["message"] for c in status["conditions"] if c["type"] == "Ready")
    nothing = Report("plant", "factory", 1, 100, seen(found, pods=[]), found)
    assert status_of(nothing, {}, NOW)["root"] == "NoPod"


@pytest.mark.parametrize(
    "code, reason", [(6, "CheckpointNotShared"), (4, "RootHalted"), (2, "RootHalted"), (1, "PodsFail")]
)
def test_a_root_that_halts_says_why(code: int, reason: str) -> None:
    found = layout()
    state = {"waiting": {"reason": "CrashLoopBackOff"}}
    ended = {"terminated": {"exitCode": code, "message": "what it said last"}}
    stopped = pod(
        "factory-root", role="root", ready=False, containerStatuses=[{"state": state, "lastState": ended}]
    )
    report = Report("plant", "factory", 1, 100, seen(found, pods=[stopped]), found)
    assert told(report)["Degraded"][1] == reason
    message = next(c["message"] for c in status_of(report, {}, NOW)["conditions"] if c["type"] == "Ready")
    assert "what it said last" in message


def test_a_root_on_a_machine_that_is_lost_comes_with_a_command() -> None:
    report = replace(settled(), absent=frozenset({"factory-root"}))
    degraded = next(c for c in status_of(report, {}, NOW)["conditions"] if c["type"] == "Degraded")
    assert degraded["reason"] == "RootNodeLost"
    assert "kubectl delete pod factory-root-0 --namespace plant --force" in degraded["message"]


def test_a_root_that_was_evicted_from_a_lost_machine_still_comes_with_a_command() -> None:
    found = layout()
    pods = [going(pod("factory-root", role="root", ready=False, machine="lost"))]
    report = Report("plant", "factory", 3, 100, seen(found, pods=pods), found)
    report = replace(report, absent=report.observed.absent(HOSTS), hindrance="the claim is shared")
    degraded = next(c for c in status_of(report, {}, NOW)["conditions"] if c["type"] == "Degraded")
    assert degraded["reason"] == "RootNodeLost"
    assert degraded["message"].startswith("failover is auto, but the claim is shared; the root is on lost")
    assert "kubectl delete pod factory-root-0" in degraded["message"]


def test_sinks_and_windows_that_wait_are_told() -> None:
    report = settled()
    assert report.observed.root is not None
    report.observed.root.sinks.add(name="postgres", failure="connection refused")
    assert told(report)["Degraded"] == ("True", "SinkFails")


def test_what_somebody_has_to_see_to_is_degraded() -> None:
    found = layout()
    first = found.nodes[0].id
    waits = {"reason": "ErrImagePull", "message": "headwater/node:1 is nowhere"}
    pods = [pod(first, ready=False, containerStatuses=[{"state": {"waiting": waits}}]), ROOT_POD]
    report = Report("plant", "factory", 1, 100, seen(found, pods=pods), found)
    message = status_of(report, {}, NOW)["conditions"][3]["message"]
    assert message == f"pods that do not start: {first}; the first: ErrImagePull: headwater/node:1 is nowhere"
    assert told(settled(shut_out="no device is let in"))["Degraded"] == ("True", "NoAuthority")
    # Nothing was good before: that nothing runs is no peace.
    never = Report(
        "plant", "factory", 1, 0, seen(found, pods=[]), problem=Invalid("no", [Problem("a", "b", "c")])
    )
    assert told(never)["Degraded"] == ("True", "InvalidSpec")


def test_a_child_without_an_address_waits_for_it() -> None:
    found = layout()
    first = found.nodes[0].id
    report = Report("plant", "factory", 1, 100, seen(found, pods=[]), found, unaddressed=frozenset({first}))
    assert status_of(report, {}, NOW)["worst"][0] == {
        "name": first,
        "reason": "NoAddress",
        "message": f"waits for the address of Service {first}",
    }


def test_a_tree_at_rest() -> None:
    report = replace(settled(), suspended=True)
    assert not report.resting
    rests = replace(report, observed=observed([], []))
    assert rests.resting
    assert told(rests)["Progressing"] == ("False", "Suspended")
    assert status_of(rests, {}, NOW)["root"] == "Suspended"


def test_a_condition_holds_since_it_changed() -> None:
    before = status_of(settled(), {}, NOW)
    after = status_of(replace(settled(), applied=False), before, "2027-01-01T00:00:00Z")
    since = {each["type"]: each["lastTransitionTime"] for each in after["conditions"]}
    assert since["Planned"] == NOW
    assert since["Progressing"] == "2027-01-01T00:00:00Z"


def test_live_numbers_alone_are_written_now_and_then() -> None:
    before = status_of(settled(rate=100.0), {}, NOW)
    same = status_of(settled(rate=100.4), before, NOW)
    assert not is_due(before, same, 1_000.0)
    other = status_of(settled(rate=200.0), before, NOW)
    assert not is_due(before, other, 29.0)
    assert is_due(before, other, 30.0)
    assert is_due(before, status_of(replace(settled(), applied=False), before, NOW), 0.0)


@pytest.mark.parametrize("number, expected", [(0, 0), (123.4, 120), (0.0567, 0.057), (99.6, 100)])
def test_two_digits(number: float, expected: float) -> None:
    assert rounded(number) == expected


SECOND = 1_000_000
AT = 1_700_000_000 * SECOND


def waiting(**more: Any) -> Report:
    """A tree in which everything is as planned, but for what its root says of sources."""
    found = layout()
    members = (member(node.id, parent=node.parent) for node in found.nodes)
    answer = root(*members, **{"started": True, **more})
    answer.totals.sources = 100
    return Report("plant", "factory", 3, 100, seen(found, answer=answer), found, applied=True, good=3)


def silent(name: str = "press", **more: Any) -> pb.Hold:
    hold = pb.Hold(
        reason=pb.Hold.REASON_SILENT,
        message="it sends nothing",
        since=AT,
        child="factory-l1-0",
        ends=AT + 60 * SECOND,
        **more,
    )
    hold.source.name = name
    return hold


def test_lag_grows_with_the_clock_where_nothing_comes() -> None:
    times = {"watermark": AT, "largest": AT + SECOND, "now": AT + 100 * SECOND, "live": 12}
    calm = waiting(**times, still=SECOND)
    assert status_of(calm, {}, NOW)["lag"] == "1s"
    assert told(calm)["Degraded"] == ("False", "AsPlanned")
    stuck = waiting(**times, still=100 * SECOND, holds=[silent()], holding=1)
    status = status_of(stuck, {}, NOW)
    assert (status["lag"], status["reason"]) == ("100s", "WatermarkStalled")
    degraded = status["conditions"][-1]
    assert (degraded["status"], degraded["reason"]) == ("True", "WatermarkStalled")
    assert degraded["message"] == (
        "the watermark has stood still since 2023-11-14T22:13:20Z; windows wait for source press (child "
        "factory-l1-0): silent since 2023-11-14T22:13:20Z, it sends nothing, declared idle at "
        "2023-11-14T22:14:20Z"
    )


def test_while_it_lasts_a_stall_reads_the_same_and_its_lag_is_written_often() -> None:
    times = {"watermark": AT, "largest": AT, "live": 12, "holds": [silent()], "holding": 40}
    first = status_of(waiting(**times, now=AT + 20 * SECOND, still=20 * SECOND), {}, NOW)
    later = status_of(waiting(**times, now=AT + 27 * SECOND, still=27 * SECOND), first, NOW)
    assert first["conditions"] == later["conditions"]
    assert first["conditions"][-1]["message"].endswith("; 39 more")
    assert not is_due(first, later, 2.0)
    assert is_due(first, later, 7.0)


def test_no_source_or_few_of_them_are_told_with_the_count() -> None:
    none = status_of(waiting(live=0, short_for=11 * SECOND), {}, NOW)["conditions"][-1]
    assert (none["status"], none["reason"]) == ("True", "NoSources")
    assert "none of 100 expected sources" in none["message"]
    few = status_of(waiting(live=7, short_for=11 * SECOND), {}, NOW)["conditions"][-1]
    assert (few["reason"], few["message"].split(":")[0]) == (
        "FewSources",
        "7 of 100 expected sources are live",
    )
    assert told(waiting(live=7, short_for=SECOND))["Degraded"] == ("False", "AsPlanned")


def test_a_node_of_which_the_root_hears_nothing_is_told_although_its_pod_seems_ready() -> None:
    """Kubernetes takes a machine that has gone for there for most of a minute."""
    report = waiting(live=100, now=AT)
    assert report.observed.root is not None
    gone = report.observed.root.nodes[0]
    gone.heard_ago = 9 * SECOND
    assert told(report)["Degraded"] == ("False", "AsPlanned")
    gone.heard_ago = 12 * SECOND
    status = status_of(report, {}, NOW)
    since = "the root has heard nothing of it since 2023-11-14T22:13:08Z"
    assert status["worst"] == [{"name": gone.name, "reason": "Silent", "message": since}]
    assert status["reason"] == "NodesSilent"
    assert status["conditions"][-1]["message"] == (
        f"nodes of which the root hears nothing: {gone.name}; {gone.name}: {since}"
    )
    # The time stays the same while it lasts.
    report.observed.root.now, gone.heard_ago = AT + 5 * SECOND, 17 * SECOND
    assert not is_due(status, status_of(report, status, NOW), 5.0)


def test_what_is_not_ready_is_not_said_to_be_well() -> None:
    ready = waiting(live=12)
    assert status_of(ready, {}, NOW)["conditions"][-1]["message"] == "nothing is wrong that is known of"
    degraded = status_of(replace(ready, applied=False), {}, NOW)["conditions"][-1]
    assert degraded["status"] == "False"
    assert degraded["message"].endswith("beside what the condition Ready says: NotApplied")


def test_a_spark_that_merges_nothing_is_told_by_reason_and_lag() -> None:
    times = {"watermark": AT, "largest": AT + SECOND, "now": AT + 100 * SECOND, "live": 12, "still": 0}
    brief = status_of(waiting(**times, unmerged=867, merge_stalled=4 * SECOND), {}, NOW)
    assert (brief["lag"], brief["reason"]) == ("1s", "AsPlanned")
    status = status_of(waiting(**times, unmerged=867, merge_stalled=32 * SECOND), brief, NOW)
    assert (status["lag"], status["reason"]) == ("32s", "ResultsStalled")
    message = status["conditions"][-1]["message"]
    assert "merged nothing since 2023-11-14T22:14:28Z, and 867 records wait" in message
    assert message.endswith("kubectl exec factory-root-0 -- tail /data/state/spark/spark.log")
    # While Spark starts and no source has come, no window is due.
    starting = waiting(now=AT + 100 * SECOND, live=0, unmerged=12, merge_stalled=32 * SECOND)
    assert status_of(starting, {}, NOW).get("lag") is None
    assert status_of(starting, {}, NOW)["reason"] != "ResultsStalled"
    # Lag grows with the clock, and the message does not change without need.
    assert is_due(status, {**status, "lag": "37s"}, 5.0)
    # Where the root knows why, it says so, and another fault does not hide it.
    full = waiting(**times, unmerged=867, merge_stalled=32 * SECOND, merge_obstacle="the outbox is full")
    assert "867 records wait; the outbox is full" in status_of(full, {}, NOW)["conditions"][-1]["message"]
    failed = status_of(replace(full, failed="quota exceeded"), {}, NOW)
    assert failed["reason"] == "ApplyFailed"
    assert "quota exceeded; also: no windows come: Spark" in failed["conditions"][-1]["message"]
    assert is_due(failed, {**failed, "lag": "37s"}, 5.0)
    # The sources have ended, and their last windows are not out.
    ended = waiting(**{**times, "live": 0}, unmerged=867, merge_stalled=32 * SECOND)
    assert status_of(ended, {}, NOW)["lag"] == "32s"


def expected(there: int, of: int, *, since: int = AT) -> pb.Hold:
    said = f"{there} of {of} sources that are expected are there"
    return pb.Hold(reason=pb.Hold.REASON_EXPECTED, message=said, since=since, ends=since + 60 * SECOND)


def test_while_the_start_waits_for_sources_it_is_not_well() -> None:
    holds = {"started": False, "live": 6, "holds": [expected(6, 10)], "holding": 1}
    early = status_of(waiting(**holds, now=AT + 4 * SECOND, still=4 * SECOND), {}, NOW)
    assert early["reason"] == "AsPlanned"
    report = waiting(**holds, now=AT + 20 * SECOND, still=20 * SECOND)
    assert report.stalled
    status = status_of(report, early, NOW)
    assert (status["reason"], status["lag"]) == ("WatermarkStalled", "20s")
    assert status["conditions"][-1]["status"] == "True"
    assert status["conditions"][-1]["message"] == (
        "nothing is final yet; windows wait for the start: expected sources since 2023-11-14T22:13:20Z, "
        "6 of 10 sources that are expected are there, starts without them at 2023-11-14T22:14:20Z"
    )
    # A class that is slower than that may still be on its way.
    assert not replace(report, stall_after=30.0).stalled


@pytest.mark.parametrize(
    "change, reason",
    [
        ({"absent": frozenset({"factory-l1-0"})}, "MachinesLost"),
        ({"shut_out": "no device is let in"}, "NoAuthority"),
        ({"rolled_back": "it did not come", "kept": 2}, "RolledBack"),
        ({"problem": Invalid("w", [Problem("spec.x", "is y" * 2_000, "do z")]), "kept": 3}, "InvalidSpec"),
    ],
)
def test_what_windows_wait_for_is_told_beside_whatever_else_is_wrong(
    change: dict[str, Any], reason: str
) -> None:
    holds = {"holds": [silent(), silent("lathe")], "holding": 40}
    report = waiting(watermark=AT, largest=AT, now=AT + 20 * SECOND, still=20 * SECOND, live=12, **holds)
    degraded = status_of(replace(report, **change), {}, NOW)["conditions"][-1]
    assert degraded["reason"] == reason
    assert degraded["message"].endswith("declared idle at 2023-11-14T22:14:20Z; 39 more")
    assert "; also: the watermark has stood still since 2023-11-14T22:13:20Z" in degraded["message"]
    assert "source press (child factory-l1-0): silent" in degraded["message"]
    assert len(degraded["message"].encode()) <= 4_096


def test_a_sink_that_fails_and_sources_that_are_few_hide_no_wait() -> None:
    times = {"watermark": AT, "largest": AT, "now": AT + 20 * SECOND, "still": 20 * SECOND, "live": 12}
    report = waiting(**times, short_for=20 * SECOND, holds=[silent()], holding=1)
    few = status_of(report, {}, NOW)["conditions"][-1]
    assert few["reason"] == "FewSources"
    assert few["message"].startswith("12 of 100 expected sources are live: 100 came so far")
    assert "; also: the watermark has stood still" in few["message"]
    assert report.observed.root is not None
    report.observed.root.sinks.add(name="postgres", failure="connection refused")
    fails = status_of(report, {}, NOW)["conditions"][-1]
    assert fails["reason"] == "SinkFails"
    assert fails["message"].startswith("postgres: connection refused; also: 12 of 100 expected sources")
    assert "source press" in fails["message"]


def test_where_no_source_is_live_there_is_no_lag() -> None:
    """Nothing is waited for, and what was once measured says nothing any more."""
    times = {"watermark": AT, "largest": AT + SECOND, "now": AT + 900 * SECOND, "still": 900 * SECOND}
    status = status_of(waiting(**times, live=0, short_for=890 * SECOND), {}, NOW)
    assert "lag" not in status
    assert status["reason"] == "NoSources"


@pytest.mark.parametrize("beside", [{}, {"absent": frozenset({"factory-l1-0"})}])
def test_counts_that_move_alone_are_written_no_more_often_than_lag(beside: dict[str, Any]) -> None:
    def at(seconds: int, live: int, more: int) -> Report:
        holds = {"holds": [silent()], "holding": more, "watermark": AT, "largest": AT}
        times = {"now": AT + seconds * SECOND, "still": seconds * SECOND, "short_for": seconds * SECOND}
        return replace(waiting(**holds, **times, live=live), **beside)

    first = status_of(at(20, 12, 40), {}, NOW)
    later = status_of(at(22, 13, 39), first, NOW)
    assert first["conditions"] != later["conditions"]
    assert not is_due(first, later, 2.5)
    assert is_due(first, later, 5.0)
    # Another reason is written at once.
    assert is_due(first, status_of(at(1, 90, 0), first, NOW), 0.0)


def test_slow_sources_may_be_silent_for_longer() -> None:
    declared = topology(100)
    fast, slow = (
        replace(declared, sources=tuple(replace(each, rate=rate) for each in declared.sources))
        for rate in (10.0, 0.1)
    )
    assert stall_after(fast) == 5.0
    assert stall_after(slow) == pytest.approx(30.0)


@pytest.mark.parametrize(
    "change, reason",
    [
        ({"problem": InvalidPlan([Problem("spec.x", "is y", "do z")]), "kept": 2}, "NoPlan"),
        ({"problem": Invalid("w", [Problem("spec.x", "is y", "do z")]), "kept": 2}, "InvalidSpec"),
    ],
)
def test_what_runs_is_not_ready_where_the_spec_asks_for_something_else(
    change: dict[str, Any], reason: str
) -> None:
    report = replace(settled(), **change)
    assert told(report)["Ready"] == ("False", reason)
    assert status_of(report, {}, NOW)["reason"] == reason


def test_a_spec_that_was_good_is_ready_with_the_nodes_that_there_are() -> None:
    problem = InvalidPlan([Problem("spec.x", "is y", "do z")])
    report = replace(settled(), problem=problem, kept=3)
    assert told(report)["Ready"] == ("True", "Committing")
    assert status_of(report, {}, NOW)["reason"] == "NoPlan"


def test_a_tree_that_was_rolled_back_works_and_says_that_it_is_another_one() -> None:
    report = replace(settled(), rolled_back="it did not come", kept=2)
    assert told(report)["Ready"] == ("True", "Committing")
    assert status_of(report, {}, NOW)["reason"] == "RolledBack"


def test_the_busiest_nodes_are_told_as_measured_and_as_planned() -> None:
    report = waiting(live=100)
    assert report.observed.root is not None
    for place, node in enumerate(report.observed.root.nodes):
        node.rate, node.load = 10.0 * place, 17.0
    report = replace(report, limits={node.id: 50.0 for node in report.nodes})
    first, *_, last = status_of(report, {}, NOW)["busiest"]
    assert (first["rate"], first["headroom"]) == (40.0, 0.2)
    assert last == {
        "name": report.nodes[0].id,
        "rate": 0.0,
        "plannedRate": 17.0,
        "headroom": 1.0,
        "plannedHeadroom": 0.66,
    }
    known = schema.of_topology()["properties"]
    assert set(last) == set(known["busiest"]["items"]["properties"])
    # The root is one of them, by what it says of itself.
    answer = report.observed.root
    assert answer is not None
    answer.rate = 49.0
    busiest = {each["name"]: each for each in status_of(report, {}, NOW)["busiest"]}
    assert len(busiest) == len(report.nodes) + 1
    assert busiest["factory-root"]["rate"] == 49.0
    assert busiest["factory-root"]["plannedRate"] == status_of(report, {}, NOW)["layers"][-1]["rate"]
    assert 0 <= busiest["factory-root"]["headroom"] < busiest["factory-root"]["plannedHeadroom"]


def test_a_topology_that_is_paused_is_no_fault_and_says_so() -> None:
    report = replace(settled(paused=True), applied=False)
    assert told(report)["Ready"] == ("True", "Committing")
    assert status_of(report, {}, NOW)["reason"] == "Paused"
    # A node that the spec asks for is not made.
    found = layout()
    answer = root(*(member(node.id, parent=node.parent) for node in found.nodes[:-1]))
    there = [*(pod(node.id, role=node.role) for node in found.nodes[:-1]), ROOT_POD]
    missing = replace(report, observed=seen(found, answer=answer, pods=there))
    ready = {each["type"]: each for each in status_of(missing, {}, NOW)["conditions"]}["Ready"]
    assert (ready["status"], ready["reason"]) == ("False", "NodesNotReady")
    assert ready["message"].endswith("the annotation headwater.dev/pause keeps them from being made")


def test_sources_in_quarantine_are_named() -> None:
    found = layout()
    answer = root(*(member(node.id, parent=node.parent) for node in found.nodes))
    answer.quarantined.add(name="keys-1", reason="it has brought 60 distinct keys")
    report = replace(settled(), observed=seen(found, answer=answer))
    status = status_of(report, {}, NOW)
    assert status["reason"] == "SourcesQuarantined"
    assert status["conditions"][-1]["message"].endswith("keys-1: it has brought 60 distinct keys")


def test_where_no_child_is_there_the_missing_sources_are_not_the_cause() -> None:
    found = layout()
    answer = root(*(member(node.id) for node in found.nodes[1:]), short_for=60 * SECOND, live=0)
    there = [*(pod(node.id, role=node.role) for node in found.nodes[1:]), ROOT_POD]
    report = replace(settled(), observed=seen(found, answer=answer, pods=there))
    status = status_of(report, {}, NOW)
    assert told(report)["Degraded"] == ("True", "NoSources")
    assert status["reason"] == "NodesNotReady"
    assert "; also: 1 of 5 nodes are not ready: factory-l1-0" in status["conditions"][-1]["message"]
