"""What is told of a topology: conditions with reasons, the plan, counts and the nodes that are worst off.

Live numbers are rounded, and written now and then: whoever wants more of them reads metrics.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from heapq import nsmallest
from importlib.metadata import version
from typing import Any

from headwater.durations import SECOND
from headwater.errors import Invalid, InvalidPlan, Problem
from headwater.planning.amounts import UNIT
from headwater_operator import names
from headwater_operator.comparison import Conflict
from headwater_operator.layout import Layout, TreeNode
from headwater_operator.observation import Observed
from headwater_operator.standstill import STALL
from headwater_wire.v1 import control_pb2 as pb

Status = dict[str, Any]
# Nodes that are told of, and bytes of a message.
WORST, MESSAGE = 10, 4_096
# Fields that change all the time: they alone are no reason to write.
LIVE = ("sources", "rate", "lag", "busiest")
# Seconds from one writing of live numbers to the next, and while the watermark stands still.
SPACING, STALLED_SPACING = 30.0, 5.0
# Reasons with which lag grows with the clock.
STALLED = ("NoSources", "ResultsStalled", "WatermarkStalled")
# In the root's pod.
SPARK_LOG = "/data/state/spark/spark.log"
# Too few sources, which may be because there is no tree that they could come to.
SHORTAGES = ("NoSources", "FewSources")
# Reasons whose messages are made of counts, which change all the time as well.
REASONS_WITH_COUNTS = (
    "FewSources",
    "NoSources",
    "ResultsStalled",
    "SourcesNotAssigned",
    "WatermarkStalled",
    "WindowsWait",
)
# Stands between the message of the worst fault and what else is wrong with sources or the watermark.
SECONDARY_SEPARATOR = "; also: "
# Seconds after which far fewer live sources than expected are a fault.
FEW_SOURCES_AFTER = 10.0
# A node of which the root has heard nothing for so many seconds is told of; they speak every two seconds.
SILENT = 10.0
# Sums of rates that are equal may differ by so much.
SLACK = 1e-6
# Exit codes of the root: executors do not see its checkpoint; it cannot start as it is, or has halted.
NOT_SHARED, HALTED = 6, (2, 4)
# What Kubernetes says of containers that somebody has to see to.
FAILING = (
    "CrashLoopBackOff",
    "CreateContainerConfigError",
    "CreateContainerError",
    "ErrImageNeverPull",
    "ErrImagePull",
    "ImagePullBackOff",
    "InvalidImageName",
    "RunContainerError",
)


@dataclass(frozen=True, slots=True)
class Report:
    """What a look at a topology has come to."""

    namespace: str
    topology: str
    generation: int
    expected: int
    observed: Observed
    layout: Layout | None = None
    leaving: Sequence[TreeNode] = ()
    absent: frozenset[str] = frozenset()
    # Why the spec as it is cannot be had, and the generation that is kept instead.
    problem: Invalid | None = None
    kept: int | None = None
    rolled_back: str | None = None
    # Whether the root has been told all of it.
    applied: bool = False
    unreachable: str = ""
    suspended: bool = False
    paused: bool = False
    conflicts: Sequence[Conflict] = ()
    # What the API server has not taken.
    failed: str = ""
    # Nodes and the root that run as they were before, until they are begun anew; and those whose turn it is
    # not yet.
    changing: Sequence[str] = ()
    later: Sequence[str] = ()
    refused: Sequence[str] = ()
    # Why no device is let in; empty: they are.
    shut_out: str = ""
    # Nodes that wait for the address of their Service.
    unaddressed: frozenset[str] = frozenset()
    # What is asked for of the root's claim and cannot be had.
    differing: Sequence[str] = ()
    # What is to be done about a claim that is about to go.
    parting: str = ""
    # Of a root that is to be made elsewhere by itself: why it is not, or would not be.
    hindrance: str = ""
    # Certificates that cert-manager has not issued yet, and those that cannot be used: each with why.
    awaited: Mapping[str, str] = field(default_factory=dict)
    unfit: Mapping[str, str] = field(default_factory=dict)
    # Certificates, and workloads, that are still of the authority before, each with why.
    replaced_later: Mapping[str, str] = field(default_factory=dict)
    rate: float | None = None
    # Items a second of all sources that are expected, as they are planned for.
    demand: float = 0.0
    # Of the last spec that was rolled out.
    good: int = 0
    # Seconds for which the watermark may stand still.
    stall_after: float = STALL
    # Items a second that each node can take, by its id.
    limits: Mapping[str, float] = field(default_factory=dict)

    @property
    def nodes(self) -> Sequence[TreeNode]:
        return () if self.layout is None else self.layout.nodes

    @property
    def widths(self) -> list[int]:
        """Of the pods that there are to be, with the root."""
        counts = Counter(node.layer for node in self.nodes)
        return [*(counts[layer] for layer in sorted(counts)), 1] if counts else []

    @property
    def waiting(self) -> list[TreeNode]:
        """Nodes that are not ready, or of which the root knows nothing yet."""
        members = self.observed.members
        return [node for node in self.nodes if not self._ready(node) or node.id not in members]

    @property
    def silent(self) -> list[TreeNode]:
        """Nodes that are ready and have registered, and of which the root hears nothing any more."""
        members, waiting = self.observed.members, {node.id for node in self.waiting}
        nodes = (node for node in self.nodes if node.id not in waiting)
        return [node for node in nodes if members[node.id].heard_ago / SECOND > SILENT]

    def _ready(self, node: TreeNode) -> bool:
        pod = self.observed.pod(node.id)
        return pod is not None and pod.ready

    @property
    def arrived(self) -> bool:
        """Whether all that was asked for is there."""
        there = self.layout is not None and self.observed.root is not None and self.applied
        changes = self.changing or self.later
        lacking = self.awaited or self.unfit or self.replaced_later
        return there and not (self.waiting or changes or self.failed or self.conflicts or lacking)

    @property
    def through(self) -> frozenset[tuple[str, int]]:
        """Deployments, and the root's StatefulSet, that are as they were last asked to be, each with the
        generation of that."""
        waiting = {*self.changing, *self.later, *(node.id for node in self.waiting)}
        found = (*self.observed.of_kind("Deployment"), *self.observed.of_kind("StatefulSet"))
        named = ((each["metadata"]["name"], each["metadata"].get("generation", 0)) for each in found)
        return frozenset((name, generation) for name, generation in named if name not in waiting)

    @property
    def settled(self) -> bool:
        """Whether all is as it was asked for, and nothing else is there."""
        return self.arrived and not self.leaving

    @property
    def asks(self) -> bool:
        """Whether the root alone can say when it goes on: nobody watches what it knows."""
        if self.observed.root is None or self.layout is None:
            return False
        registering = any(self._ready(node) for node in self.waiting)
        return not self.applied or bool(self.leaving) or registering

    @property
    def unassigned(self) -> str:
        """Why not every source that is expected has a child to read it; empty: each has. Those that have not
        come yet have one where there is room for them."""
        root = self.observed.root
        if root is not None and root.totals.unassigned:
            return f"sources that have no child to read them: {root.totals.unassigned}"
        # As the root was told: those that are absent read none.
        room = sum(
            node.capacity for node in self.nodes if node.role == "child" and node.id not in self.absent
        )
        if room < self.demand * (1 - SLACK):
            said = f"the children that are there take {rounded(room):g} items a second, and "
            return said + f"{rounded(self.demand):g} are expected"
        return ""

    @property
    def stalled(self) -> bool:
        """Whether sources are waited for, and the watermark has stood still for longer than it may."""
        return self.still >= self.stall_after

    @property
    def merge_stalled(self) -> float:
        """For how many seconds Spark has merged nothing though records wait for it, if that is too long."""
        root = self.observed.root
        # Without a watermark no window is due, whatever else the log holds.
        has_windows = root is not None and root.HasField("watermark")
        still = root.merge_stalled / SECOND if root is not None and has_windows else 0.0
        return still if still >= STALL else 0.0

    @property
    def still(self) -> float:
        """For how many seconds windows have waited for sources; 0: no source is live.

        Before the root has started there is no watermark: then it is how long the first sources have waited
        for the others that are expected.
        """
        root = self.observed.root
        if root is None or not root.live:
            return 0.0
        if root.started:
            return root.still / SECOND
        expected = (hold.since for hold in root.holds if hold.reason == pb.Hold.REASON_EXPECTED)
        return max((root.now - since for since in expected), default=0) / SECOND

    @property
    def resting(self) -> bool:
        """Whether a tree that is suspended has come to rest."""
        there = (id for id, pods in self.observed.pods.items() if pods)
        return self.suspended and all(id in self.absent for id in there)


def status_of(report: Report, before: Mapping[str, Any], now: str) -> Status:
    """The status of a topology; `before` is the one that it has, `now` a time as the API writes it."""
    found: Status = {"observedGeneration": report.generation}
    if report.widths:
        ready = [node for node in report.nodes if node not in report.waiting]
        found |= {
            "widths": " ".join(map(str, report.widths)),
            "nodes": sum(report.widths),
            "readyNodes": len(ready) + int(report.observed.root is not None),
            "layers": _layers(report),
        }
    found["root"] = _root(report)
    worst = [_worst(report, node) for node in (*report.waiting, *report.silent)[:WORST]]
    if worst and not report.suspended:
        found["worst"] = worst
    if report.good:
        found["lastGoodGeneration"] = report.good
    found |= _live(report)
    found["conditions"] = conditions(report, before.get("conditions") or (), now)
    found["reason"] = _reason(found["conditions"])
    found["version"] = version("headwater")
    return found


def _reason(found: Iterable[Mapping[str, Any]]) -> str:
    """In a word, what somebody who looks at the list of topologies should know."""
    known = {each["type"]: each for each in found}
    is_degraded, is_ready = (known[kind]["status"] == "True" for kind in ("Degraded", "Ready"))
    # Sources cannot come where there is no tree yet: that is the cause.
    if is_degraded and (is_ready or known["Degraded"]["reason"] not in SHORTAGES):
        return str(known["Degraded"]["reason"])
    if not is_ready:
        return str(known["Ready"]["reason"])
    if known["Progressing"]["reason"] == "Paused":
        return "Paused"
    return str(known["Progressing" if known["Progressing"]["status"] == "True" else "Degraded"]["reason"])


def is_due(before: Mapping[str, Any], after: Mapping[str, Any], seconds: float) -> bool:
    """Whether a status is to be written, so many seconds behind the last one."""
    if _lasting(before) != _lasting(after):
        return True
    if seconds >= STALLED_SPACING and before.get("conditions") != after["conditions"]:
        return True
    stalled = any(
        each["reason"] in STALLED or SECONDARY_SEPARATOR in each["message"] for each in after["conditions"]
    )
    spacing = STALLED_SPACING if stalled else SPACING
    return seconds >= spacing and any(before.get(name) != after.get(name) for name in LIVE)


def _lasting(status: Mapping[str, Any]) -> Status:
    """What is written as soon as it changes: all but live numbers and messages that are made of them."""
    found = {name: value for name, value in status.items() if name not in LIVE}
    found["conditions"] = [
        {**each, "message": _lasting_part(each)} for each in status.get("conditions") or ()
    ]
    return found


def _lasting_part(condition: Mapping[str, Any]) -> str:
    """The message of a condition up to where counts and times begin that change all the time."""
    if condition["reason"] in REASONS_WITH_COUNTS:
        return ""
    lasting, separator, _ = condition["message"].partition(SECONDARY_SEPARATOR)
    return str(lasting + separator)


def conditions(report: Report, before: Iterable[Mapping[str, Any]], now: str) -> list[Status]:
    """Each since it last changed."""
    known = {each["type"]: each for each in before}
    found = []
    for kind, (holds, reason, message) in (
        ("Planned", _planned(report)),
        ("Progressing", _progressing(report)),
        ("Ready", _is_ready(report)),
        ("Degraded", _degraded(report)),
    ):
        status = "True" if holds else "False"
        held = known.get(kind, {})
        found.append(
            {
                "type": kind,
                "status": status,
                "reason": reason,
                "message": cut(message, MESSAGE),
                "observedGeneration": report.generation,
                "lastTransitionTime": held.get("lastTransitionTime", now)
                if held.get("status") == status
                else now,
            }
        )
    return found


# Whether a condition holds, its reason and its message.
Finding = tuple[bool, str, str]


def _planned(report: Report) -> Finding:
    if report.problem is not None:
        reason = "NoPlan" if isinstance(report.problem, InvalidPlan) else "InvalidSpec"
        return False, reason, listed(report.problem.problems)
    if report.suspended:
        return True, "Suspended", "it is planned again when spec.suspend goes"
    if report.layout is None:
        return False, "NotYet", "it was not planned yet"
    plan = report.layout.plan
    notes = "" if plan is None else "".join(f"; {note}" for note in plan.notes)
    widths = " ".join(map(str, report.widths))
    return True, "Planned", f"{widths}: {sum(report.widths)} nodes for {report.expected} sources{notes}"


def _progressing(report: Report) -> Finding:
    if report.paused:
        return False, "Paused", f"the annotation {names.PAUSE} is there: nothing is changed until it goes"
    if report.suspended:
        if report.resting:
            said = "all pods are gone, the root's volume is kept"
            if report.absent:
                said += f"; those on machines that are lost are not counted: {_named(sorted(report.absent))}"
            return False, "Suspended", said
        return True, "Suspending", "what nodes hold goes to the root, layer by layer"
    if report.layout is None:
        return False, "NotPlanned", "there is nothing to be rolled out"
    if report.awaited:
        count = len(report.awaited)
        said = f"{count} of cert-manager's Certificates are waited for: {_first(report.awaited)}"
        return True, "Certifying", said
    if report.waiting:
        first = report.waiting[0]
        said = f"{len(report.waiting)} of {len(report.nodes)} nodes are not ready: {first.id} "
        return True, "Starting", said + _why(report, first)[1]
    if report.observed.root is None:
        return True, "Starting", f"the root does not answer: {_root_why(report)}"
    if not report.applied:
        return True, "Applying", "the root is not told all of it yet"
    if report.changing or report.later:
        pods = {"give way to new ones": report.changing, "wait for their turn": report.later}
        clauses = [f"pods that {what}: {_named(ids)}" for what, ids in pods.items() if ids]
        return True, "RollingOut", "; ".join(clauses)
    if report.replaced_later:
        count = len(report.replaced_later)
        return (
            True,
            "Certifying",
            f"{count} are still of the authority before: {_first(report.replaced_later)}",
        )
    if report.leaving:
        ids = _named([node.id for node in report.leaving])
        return True, "Draining", f"nodes that end when nobody sends to them any more: {ids}"
    return False, "Settled", "all nodes are there, and the root has told them who sends to whom"


def _is_ready(report: Report) -> Finding:
    root = report.observed.root
    if report.suspended:
        return False, "Suspended", "spec.suspend is set"
    if report.layout is None:
        return False, "NotPlanned", "there is no plan"
    if report.problem is not None and report.kept not in (None, report.generation):
        reason = "NoPlan" if isinstance(report.problem, InvalidPlan) else "InvalidSpec"
        said = f"generation {report.kept} runs, not what the spec asks for: {listed(report.problem.problems)}"
        return False, reason, said
    if root is None:
        return False, "RootNotReady", _root_why(report)
    if report.waiting:
        paused = f"; the annotation {names.PAUSE} keeps them from being made" if report.paused else ""
        return False, "NodesNotReady", f"{_count_waiting(report)}{paused}"
    if not report.applied and not report.paused:
        return False, "NotApplied", "the root has not been told of all queries and nodes yet"
    if report.unassigned:
        return False, "SourcesNotAssigned", report.unassigned
    said = "the root commits, every node that is planned has registered, and every source has a child"
    return True, "Committing", said


def _count_waiting(report: Report) -> str:
    return f"{len(report.waiting)} of {len(report.nodes)} nodes are not ready"


def _degraded(report: Report) -> Finding:
    """The worst fault. Its message also says what windows wait for, whatever the fault is."""
    shortage, stall = _find_source_shortage(report), "" if report.suspended else _format_stall(report, 1)
    worst = _find_urgent_fault(report) or shortage
    if worst is None and stall:
        return True, "WatermarkStalled", _format_stall(report, WORST)
    if worst is None:
        is_ready, reason, _ = _is_ready(report)
        said = "nothing is wrong that is known of"
        if not is_ready and not report.suspended:
            said = f"nothing is known to be wrong beside what the condition Ready says: {reason}"
        return _find_minor_fault(report) or (False, "AsPlanned", said)
    _, reason, message = worst
    others = [each for each in (_find_merge_stall(report), shortage) if each is not None]
    secondary = [said for _, other, said in others if other != reason]
    if reason in SHORTAGES and report.waiting:
        first = report.waiting[0]
        secondary.append(f"{_count_waiting(report)}: {first.id} {_why(report, first)[1]}")
    secondary += [stall] if stall else []
    suffix = SECONDARY_SEPARATOR + "; ".join(secondary) if secondary else ""
    return True, reason, cut(message, MESSAGE - len(suffix.encode())) + suffix


def _find_urgent_fault(report: Report) -> Finding | None:
    """The first fault that somebody has to repair, before sources and the watermark are looked at."""
    if report.parting:
        # Whatever else is wrong, this cannot be made good when the root's pod has ended.
        return True, "ClaimDeleted", report.parting
    if report.rolled_back is not None:
        kept = f"generation {report.kept} runs instead" if report.kept else "nothing else is known to run"
        return True, "RolledBack", f"{report.rolled_back}; {kept}"
    if (halted := _halted(report)) is not None:
        return halted
    if report.problem is not None:
        reason = "NoPlan" if isinstance(report.problem, InvalidPlan) else "InvalidSpec"
        runs = "what runs is left as it is" if report.good else "nothing runs"
        runs = f"generation {report.kept} runs on" if report.kept else runs
        return True, reason, f"{runs}: {listed(report.problem.problems)}"
    if report.failed:
        return True, "ApplyFailed", report.failed
    if report.conflicts:
        return True, "NameTaken", "; ".join(map(str, report.conflicts))
    if report.unfit:
        count = len(report.unfit)
        said = f"{count} of cert-manager's Certificates cannot be used: {_first(report.unfit)}"
        return True, "CertificateUnfit", said
    if report.absent:
        return True, "MachinesLost", f"nodes on machines that are lost: {_named(sorted(report.absent))}"
    if failing_pods := _failing(report):
        _, reason, said = failing_pods[0]
        ids = _named([id for id, _, _ in failing_pods])
        return True, "PodsFail", f"pods that do not start: {ids}; the first: {reason}: {said}"
    if report.shut_out:
        return True, "NoAuthority", report.shut_out
    if report.silent and not report.suspended:
        first = report.silent[0]
        ids = _named([node.id for node in report.silent])
        said = f"nodes of which the root hears nothing: {ids}; {first.id}: {_why(report, first)[1]}"
        return True, "NodesSilent", said
    root = report.observed.root
    if root is not None and (failing := [sink for sink in root.sinks if sink.failure]):
        return True, "SinkFails", "; ".join(f"{sink.name}: {sink.failure}" for sink in failing)
    if (merge_stall := _find_merge_stall(report)) is not None:
        return merge_stall
    if root is not None and root.degraded:
        return True, "WindowsWait", "; ".join(f"{each.query}: {each.reason}" for each in root.degraded)
    if root is not None and root.quarantined:
        named = "; ".join(f"{each.name}: {each.reason}" for each in root.quarantined[:WORST])
        return True, "SourcesQuarantined", f"{len(root.quarantined)} sources are in quarantine: {named}"
    return None


def _find_merge_stall(report: Report) -> Finding | None:
    """Spark merges nothing although records wait."""
    root = report.observed.root
    if root is None or not report.merge_stalled or report.suspended:
        return None
    since = moment(root.now - root.merge_stalled)
    obstacle = f"{root.merge_obstacle}; " if root.merge_obstacle else ""
    said = f"no windows come: Spark has merged nothing since {since}, and {root.unmerged} records wait"
    log = f"kubectl exec {names.root_pod(report.topology)} -- tail {SPARK_LOG}"
    return True, "ResultsStalled", f"{said}; {obstacle}Spark's log: {log}"


def _find_minor_fault(report: Report) -> Finding | None:
    """A fault that is reported only where nothing is worse and no window waits."""
    if report.differing:
        return True, "ClaimDiffers", "; ".join(report.differing)
    if report.hindrance:
        said = f"spec.root.failover is auto, but a root whose machine is lost would wait: {report.hindrance}"
        return True, "NoFailover", said
    if report.refused:
        return True, "QueriesRefused", f"queries that are not computed: {_named(report.refused)}"
    return None


def _find_source_shortage(report: Report) -> Finding | None:
    """NoSources or FewSources, once too few sources have been live for `FEW_SOURCES_AFTER`."""
    root = report.observed.root
    if root is None or report.suspended:
        return None
    if not root.HasField("short_for") or root.short_for / SECOND < FEW_SOURCES_AFTER:
        return None
    totals = root.totals
    came = f"{totals.sources} came so far, {totals.idle} are idle, {totals.retired} are retired"
    if not root.live:
        return True, "NoSources", f"none of {report.expected} expected sources sends: {came}"
    return True, "FewSources", f"{root.live} of {report.expected} expected sources are live: {came}"


def _format_stall(report: Report, count: int) -> str:
    """Says that the watermark stands still and names at most `count` holds; empty if it is not stalled."""
    root = report.observed.root
    if root is None or not report.stalled:
        return ""
    shown = root.holds[:count]
    found = "; ".join(map(hold_text, shown)) or "the root names nothing that it waits for"
    more = f"; {root.holding - len(shown)} more" if root.holding > len(shown) else ""
    still = "nothing is final yet"
    if root.started:
        still = f"the watermark has stood still since {moment(root.now - root.still)}"
    return f"{still}; windows wait for {found}{more}"


_HOLDS = {
    pb.Hold.REASON_EXPECTED: "expected sources",
    pb.Hold.REASON_SILENT: "silent",
    pb.Hold.REASON_CHILD_SILENT: "child silent",
    pb.Hold.REASON_NO_CHILD: "no child",
    pb.Hold.REASON_HORIZON: "held by the horizon",
    pb.Hold.REASON_FUTURE: "timestamp in the future",
    pb.Hold.REASON_QUARANTINE: "quarantined",
    pb.Hold.REASON_BACKPRESSURE: "backpressure",
    pb.Hold.REASON_BEHIND: "behind",
    pb.Hold.REASON_REFUSED: "refused",
}


def hold_text(hold: pb.Hold) -> str:
    """One thing that windows wait for; with times of day, which stay the same while it lasts."""
    who = f"source {hold.source.name}" if hold.source.name else "the start"
    who += f" (child {hold.child})" if hold.child else ""
    said = f"{who}: {_HOLDS.get(hold.reason, 'unknown')} since {moment(hold.since)}, {hold.message}"
    if hold.HasField("ends"):
        what = "starts without them" if hold.reason == pb.Hold.REASON_EXPECTED else "declared idle"
        said += f", {what} at {moment(hold.ends)}"
    return said


def cut(text: str, size: int) -> str:
    """The beginning of a text, in at most so many bytes of UTF-8."""
    return text.encode()[:size].decode(errors="ignore")


def moment(microseconds: int) -> str:
    """A time since the epoch as the API writes it, to the second."""
    return datetime.fromtimestamp(microseconds // SECOND, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _failing(report: Report) -> list[tuple[str, str, str]]:
    """Pods that time alone does not help: who, and why in a word and a sentence."""
    ids = (names.root(report.topology), *(node.id for node in report.nodes))
    pods = ((id, report.observed.pod(id)) for id in ids)
    return [(id, *pod.why) for id, pod in pods if pod is not None and pod.why[0] in FAILING]


def _halted(report: Report) -> Finding | None:
    """Why the root cannot go on, if it cannot."""
    root = names.root(report.topology)
    # On a machine that is lost it goes after five minutes, and stays so.
    pod = next(iter(report.observed.pods.get(root, ())), None)
    if pod is None:
        return None
    if root in report.absent:
        command = f"kubectl delete pod {pod.name} --namespace {report.namespace} --force --grace-period=0"
        said = f"the root is on {pod.machine}, which is lost: bring it back; or, if it never comes back and "
        said += f"the volume can be had elsewhere, run: {command}"
        if report.hindrance:
            said = f"failover is auto, but {report.hindrance}; {said}"
        return True, "RootNodeLost", said
    if pod.code == NOT_SHARED:
        return True, "CheckpointNotShared", pod.why[1]
    if pod.code in HALTED:
        return True, "RootHalted", pod.why[1]
    return None


def _named(ids: Sequence[str]) -> str:
    more = f" and {len(ids) - WORST} more" if len(ids) > WORST else ""
    return ", ".join(ids[:WORST]) + more


def _first(told: Mapping[str, str]) -> str:
    name = min(told)
    return f"{name}: {told[name]}"


def listed(problems: Iterable[Problem]) -> str:
    return "; ".join(map(str, problems))


def _layers(report: Report) -> list[Status]:
    assert report.layout is not None
    plan, waiting = report.layout.plan, Counter(node.layer for node in report.waiting)
    if plan is None:
        return []
    found = []
    for number, width in enumerate(report.widths, start=1):
        role = "root" if number == len(report.widths) else "child" if number == 1 else "intermediate"
        # A plan of one layer is a child under a root that gets as much.
        layer = plan.layers[min(number, len(plan.layers)) - 1]
        ready = width - waiting[number]
        if role == "root":
            ready = int(report.observed.root is not None)
        rate, headroom = float(layer.rates.max()) / UNIT, float(layer.headroom.min())
        found.append(
            {
                "layer": number,
                "role": role,
                "width": width,
                "ready": ready,
                "rate": rounded(rate),
                "headroom": rounded(max(headroom, 0.0)),
            }
        )
    return found


def _worst(report: Report, node: TreeNode) -> Status:
    reason, message = _why(report, node)
    return {"name": node.id, "reason": reason, "message": cut(message, 512)}


def _why(report: Report, node: TreeNode) -> tuple[str, str]:
    pod = report.observed.pod(node.id)
    if pod is None and node.id in report.unaddressed:
        return "NoAddress", f"waits for the address of Service {node.id}"
    if pod is None:
        return "NoPod", "has no pod yet"
    if pod.ready and (seen := report.observed.members.get(node.id)) is not None:
        assert report.observed.root is not None
        since = moment(report.observed.root.now - seen.heard_ago)
        return "Silent", f"the root has heard nothing of it since {since}"
    if pod.ready:
        return "NotRegistered", "is ready, but the root does not know it yet"
    return pod.why


def _root(report: Report) -> str:
    if report.suspended:
        return "Suspended" if report.resting else "Suspending"
    if report.observed.root is not None:
        return "Ready"
    pod = report.observed.pod(names.root(report.topology))
    if pod is None:
        return "NoPod"
    return "Unreachable" if pod.ready else pod.why[0][:63]


def _root_why(report: Report) -> str:
    pod = report.observed.pod(names.root(report.topology))
    if pod is None:
        return "it has no pod yet"
    if not pod.ready:
        return f"{pod.why[0]}: {pod.why[1]}"
    return report.unreachable or "it was not asked yet"


def _live(report: Report) -> Status:
    root = report.observed.root
    if root is None:
        return {}
    totals = root.totals
    found: Status = {"sources": totals.sources - totals.idle - totals.retired}
    if report.rate is not None:
        found["rate"] = rounded(report.rate)
    if (lag := _lag(report)) is not None:
        found["lag"] = f"{rounded(lag):g}s"
    if busiest := _busiest(report):
        found["busiest"] = busiest
    return found


def _lag(report: Report) -> float | None:
    """How many seconds results are behind; None: not known, or no source is live and none is waited for."""
    root = report.observed.root
    if root is None:
        return None
    # Where nothing comes any more the events say nothing: the clock does.
    still = max(report.still if report.stalled else 0.0, report.merge_stalled) or None
    if root.HasField("live") and not root.live:
        return report.merge_stalled or None
    if not (root.HasField("watermark") and root.HasField("largest")):
        return still
    return max((root.largest - root.watermark) / SECOND, still or 0.0)


def _busiest(report: Report) -> list[Status]:
    """The nodes with the least headroom as measured, beside what is planned for them."""
    members, found = report.observed.members, []
    plan = None if report.layout is None else report.layout.plan
    for node in report.nodes:
        seen, limit = members.get(node.id), report.limits.get(node.id, 0.0)
        if seen is None or not seen.HasField("rate") or limit <= 0:
            continue
        planned = seen.load
        if node.role != "child" and plan is not None:
            planned = float(plan.layers[min(node.layer, len(plan.layers)) - 1].rates.max()) / UNIT
        found.append(_busy(node.id, seen.rate, planned, limit))
    root = report.observed.root
    if plan is not None and root is not None and root.HasField("rate"):
        layer = plan.layers[-1]
        planned = float(layer.rates.max()) / UNIT
        found.append(_busy(names.root(report.topology), root.rate, planned, float(layer.limits.min())))
    return nsmallest(WORST, found, key=lambda each: (each["headroom"], each["name"]))


def _busy(name: str, rate: float, planned: float, limit: float) -> Status:
    return {
        "name": name,
        "rate": rounded(rate),
        "plannedRate": rounded(planned),
        "headroom": rounded(max(1 - rate / limit, 0.0)),
        "plannedHeadroom": rounded(max(1 - planned / limit, 0.0)),
    }


def rounded(number: float) -> float:
    """To two digits."""
    return float(f"{number:.2g}")
