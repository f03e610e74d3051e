"""The loop of one topology: observe, plan, render, compare, apply, report.

Every look begins from what is there and ends with what is missing done, so it may be cut off anywhere and
begun again by another process. What is remembered between looks is about time alone.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

from headwater.durations import SECOND
from headwater.errors import Invalid, InvalidPlan, Problem
from headwater.topology import Topology, topology_of
from headwater.topology.tree import RootSpec
from headwater_operator import claims, failover, kinds, leaving, names
from headwater_operator.asking import Computed, asked_of
from headwater_operator.assembling import Assembling, Assembly
from headwater_operator.choosing import Chosen, Planned, Way, after, choose, given_up
from headwater_operator.cluster import Cluster, Document
from headwater_operator.comparison import Key, others, stamped
from headwater_operator.doing import Doing
from headwater_operator.keeping import Kept, kept_of, manifest_of
from headwater_operator.layout import Host, Layout, TreeNode, capacity_of, held, laid_out
from headwater_operator.lookout import Lookout
from headwater_operator.measuring import Measured, largest
from headwater_operator.metrics import Metrics
from headwater_operator.nodes import Nodes
from headwater_operator.observation import Observed, Pod
from headwater_operator.rendering import Images, Manifest, Owner
from headwater_operator.rendering.alerts import ingest_limit
from headwater_operator.reporting import Report
from headwater_operator.rollout import Rolling
from headwater_operator.rootclient import RootRefuses, RootUnreachable
from headwater_operator.settings import Settings
from headwater_operator.specification import Specification, specification
from headwater_operator.standstill import STALL, stall_after
from headwater_operator.telling import Telling, Told, problems_of
from headwater_wire.functions import Functions

log = logging.getLogger(__name__)
# Seconds until the next look: while the root has to be asked how far it is; while pods are on the way, which
# are watched; and while all is as it should be.
SOON, PODS, LATER = 1.0, 10.0, 30.0
# Seconds between glances at the root of a tree that is as it should be; one costs a call to the root.
GLANCE = 2.5
# Requests under way at a time, for all topologies together.
REQUESTS = 8


@dataclass(slots=True)
class Memory:
    """Of one topology, while this process leads; by the clock that never goes back."""

    uid: str
    leaving: dict[str, float] = field(default_factory=dict)
    rolling: Rolling | None = None
    measured: Measured = field(default_factory=Measured)
    # What the root was told by this process, and which queries it has not taken of that.
    digest: str = ""
    refused: Mapping[str, str] = field(default_factory=dict)
    told: Told = field(default_factory=Told)
    lost: failover.Lost | None = None
    # Until when glances at the root are enough, if nothing happens.
    glances_until: float = float("-inf")


class Reconciler:
    """Called with a namespace and a name, by one thread for each; gives in how many seconds to look again."""

    def __init__(
        self,
        cluster: Cluster,
        settings: Settings,
        nodes: Nodes,
        metrics: Metrics,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.cluster, self.nodes, self.metrics = cluster, nodes, metrics
        images = Images(settings.node_image, settings.root_image, settings.pull_policy, settings.pull_secrets)
        pool = ThreadPoolExecutor(REQUESTS, "requests")
        self.lookout = Lookout(cluster, pool)
        self.assembling = Assembling(cluster, self.lookout, Doing(cluster, pool), images)
        self.telling = Telling(cluster, self.lookout)
        self.clock, self.rollout = clock, settings.rollout
        # Those of packages that are installed beside the operator, as beside nodes and root.
        self.functions = Functions()
        self._memories: dict[tuple[str, str], Memory] = {}

    def __call__(self, namespace: str, name: str) -> float | None:
        document = self.cluster.get(kinds.TOPOLOGY, namespace, name)
        if document is None or document["metadata"].get("deletionTimestamp") is not None:
            # All that there is of it goes with it.
            self._memories.pop((namespace, name), None)
            self.metrics.forget(namespace, name)
            self.telling.orphans(namespace, name)
            return None
        uid = document["metadata"]["uid"]
        memory = self._memories.get((namespace, name))
        if memory is None or memory.uid != uid:
            memory = self._memories[namespace, name] = Memory(uid)
        memory.glances_until = float("-inf")
        again = _Look(self, document, memory).run()
        if again == LATER and memory.told.report is not None and memory.told.report.settled:
            memory.glances_until = self.clock() + LATER
            return GLANCE
        return again

    def glance(self, namespace: str, name: str) -> float | None:
        """Ask the root of a settled tree how it stands, so that what the clock alone brings about is reported
        soon; the API server is not asked for all objects as often."""
        memory = self._memories.get((namespace, name))
        now = self.clock()
        if memory is None or memory.told.report is None or now >= memory.glances_until:
            return None
        root, _ = self.lookout.ask_root(memory.told.report.observed, namespace, name)
        if root is None or self.telling.is_overtaken(memory.told, root, now):
            return None
        return GLANCE


class _Look:
    """One look at one topology."""

    def __init__(self, of: Reconciler, document: Document, memory: Memory) -> None:
        self._of, self._document, self._memory = of, document, memory
        metadata = document["metadata"]
        self._owner = Owner(metadata["namespace"], metadata["name"], metadata["uid"])
        self._generation = int(metadata["generation"])
        self._annotations: Mapping[str, str] = metadata.get("annotations") or {}
        self._now = of.clock()
        self._hosts = self._seen_hosts()
        self._kept = Kept()
        # Why there was no plan for a spec with all its queries.
        self._unplanned: tuple[Problem, ...] = ()

    def run(self) -> float | None:
        observed = self._of.lookout.objects(self._owner.namespace, self._owner.name)
        status, unreachable = self._of.lookout.ask_root(observed, self._owner.namespace, self._owner.name)
        observed = replace(observed, root=status)
        self._kept = kept_of(self._owner, observed)
        measured = self._memory.measured
        measured.begin(self._now, self._kept.factor)
        measured.take(self._now, None if status is None else status.totals.accepted)
        chosen = choose(
            self._owner,
            self._document,
            self._generation,
            self._kept,
            lambda document, way: self._planned(document, observed, way),
        )
        report = Report(
            self._owner.namespace,
            self._owner.name,
            self._generation,
            0 if chosen.planned is None else chosen.planned.topology.expected,
            observed,
            layout=None if chosen.planned is None else chosen.planned.layout,
            problem=chosen.problem,
            kept=chosen.instead,
            rolled_back=chosen.rolled_back,
            unreachable=unreachable,
            suspended=chosen.planned is not None and chosen.planned.topology.suspend,
            paused=self._annotations.get(names.PAUSE, "false").lower() not in ("", "false"),
            rate=measured.rate,
            demand=0.0 if chosen.planned is None else chosen.planned.topology.rate * chosen.planned.factor,
            good=self._kept.generation,
            stall_after=STALL if chosen.planned is None else stall_after(chosen.planned.topology),
            limits={} if chosen.planned is None else _limits(chosen.planned),
        )
        return self._acted(report, chosen)

    def _acted(self, report: Report, chosen: Chosen) -> float | None:
        planned = chosen.planned
        if planned is None:
            # Only another spec or another cluster helps, and both are heard of.
            self._told(report, chosen)
            return LATER
        if report.paused:
            self._memory.rolling = None
            self._told(report, chosen)
            return LATER
        if planned.layout is None:
            report = replace(report, absent=report.observed.absent(self._hosts))
            nodes, replicas = leaving.at_rest(report.observed.running, report.observed, report.absent)
            report = self._applied(report, planned, nodes, replicas=replicas)
            self._told(report, chosen)
            return LATER if report.resting else PODS
        report = self._rolled_out(report, planned, planned.layout)
        self._told(report, chosen)
        if report.settled:
            # Nobody tells when the root has found a child for a source, nor what sources send.
            waits = report.unassigned or self._memory.measured.exceeds(report.demand)
            return PODS if waits else LATER
        return SOON if report.asks else PODS

    # What is asked for

    def _planned(self, document: Mapping[str, Any], observed: Observed, way: Way) -> Planned:
        # Status is not the user's.
        functions = self._of.functions
        topology = topology_of(
            {name: value for name, value in document.items() if name != "status"}, functions
        )
        if topology.issuer is not None and (why := self._of.lookout.certifying(self._owner.namespace)):
            said, _, remedy = why.partition("; ")
            problem = Problem("spec.certificates.issuerRef", f"cannot be had: {said}", remedy)
            raise Invalid("cert-manager cannot be asked for certificates", [problem])
        objects = self._of.cluster.list(kinds.QUERY, self._owner.namespace)
        computed = None
        if way is not Way.ASKED:
            computed = Computed(self._unplanned, self._computed(observed), functions)
        asked = asked_of(topology, objects, computed, functions)
        if topology.suspend:
            return Planned(topology, document, asked, None)
        # Queries that are computed at the root forward every event, whoever has asked for them.
        everything = replace(topology, queries=asked.queries)
        if way is Way.HELD:
            if not observed.living:
                raise Invalid("there is nothing to be held", ())
            layout = held(topology, self._hosts, observed.living, observed.parents)
            return Planned(topology, document, asked, layout, self._kept.factor)
        try:
            layout, factor = self._laid_out(everything, observed)
        except InvalidPlan as error:
            self._unplanned = error.problems
            raise
        return Planned(topology, document, asked, layout, factor)

    def _computed(self, observed: Observed) -> Mapping[str, str] | None:
        """The queries that the root computes, as documents by their ids; None if it does not say."""
        if observed.root is None:
            return None
        try:
            with self._of.lookout.root(observed, self._owner.namespace, self._owner.name) as root:
                return {id: each.document for id, each in root.active().items()}
        except (RootRefuses, RootUnreachable):
            return None

    def _laid_out(self, topology: Topology, observed: Observed) -> tuple[Layout, float]:
        """The tree, and how many times as much as declared it is for."""
        named = dict(self._kept.numbers)
        for layer, number in observed.named(self._owner.name).items():
            named[layer] = max(number, named.get(layer, -1))
        margin = 0.0 if topology.node is None else topology.node.margin
        patience = topology.limits.scale_down_after / SECOND
        factor = self._memory.measured.factor(self._now, topology.rate, margin, patience)
        found, factor = largest(
            lambda times: laid_out(topology, self._hosts, observed.begun, observed.parents, named, times),
            factor,
        )
        # Who was never begun has nothing to give away.
        running = {node.id for node in observed.running}
        leaves = tuple(node for node in found.leaving if node.id in running)
        return replace(found, leaving=leaves), factor

    def _seen_hosts(self) -> Sequence[Host] | None:
        found = self._of.nodes.all()
        if found is None:
            return None
        off = ("NoSchedule", "NoExecute")
        return [
            Host(
                each.name,
                each.labels,
                each.ready,
                not each.unschedulable,
                tuple((taint.key, taint.value, taint.effect) for taint in each.taints if taint.effect in off),
            )
            for each in found.values()
        ]

    # What is done

    def _rolled_out(self, report: Report, planned: Planned, layout: Layout) -> Report:
        observed = report.observed
        absent = observed.absent(self._hosts)
        report = self._failed_over(report, planned.topology.root)
        if failover.lost(observed, self._owner.name, self._hosts) is not None:
            absent |= {names.root(self._owner.name)}
        waits = leaving.held_up(layout.nodes, observed)
        going = self._going(layout, observed, planned.topology, waiting=bool(waits))
        # Nobody is sent away before whoever comes in their place is there.
        # They read as much as before until then.
        staying = [
            replace(node, capacity=capacity_of(planned.topology, self._hosts, node))
            for node in (going if waits else ())
        ]
        applied = self._apply_spec(observed, planned, [*layout.nodes, *staying], absent)
        report = replace(report, leaving=tuple(going), absent=absent, applied=applied)
        report = replace(report, refused=(*planned.asked.refused, *self._memory.refused))
        report = self._applied(report, planned, [*layout.nodes, *going], replicas=1)
        self._of.metrics.planned(self._owner.namespace, self._owner.name, report.widths)
        self._keep(report, planned)
        return report

    def _failed_over(self, report: Report, asked: RootSpec) -> Report:
        """Take the root's pod off a machine that has been lost for a while, if it may be; or say why not."""
        observed, memory = report.observed, self._memory
        pod = failover.lost(observed, self._owner.name, self._hosts)
        if pod is None or memory.lost is None or memory.lost.uid != pod.uid:
            memory.lost = None if pod is None else failover.Lost(pod.uid, self._now)
        if asked.failover != "auto":
            return report
        name = failover.claim_name(self._owner.name, asked)
        claim = claims.found(observed.objects, name)
        if claim is None and asked.storage.claim is not None:
            found = self._of.cluster.get(kinds.CLAIM, self._owner.namespace, name)
            claim = None if found is None else claims.claim_of(found)
        if claim is None and asked.storage.claim is None and pod is None:
            # It is about to be made.
            return report
        why = failover.hindrance(name, claim, self._hosts)
        if not why and pod is not None and memory.lost is not None:
            why = memory.lost.spared(self._now, self._answers(pod))
            if not why:
                self._force(pod, name)
        return replace(report, hindrance=why)

    def _answers(self, pod: Pod) -> bool:
        return self._of.lookout.answers(pod, self._owner.namespace, self._owner.name)

    def _force(self, pod: Pod, claim: str) -> None:
        if not self._of.cluster.delete(kinds.POD, self._owner.namespace, pod.name, uid=pod.uid, grace=0):
            return
        said = (
            f"{pod.name} was on {pod.machine}, which has been lost for {failover.GRACE:g} s or more: it is "
        )
        said += f"taken off by force, and made elsewhere with the claim {claim} ({failover.NEEDED})"
        self._event("RootFailover", said, warning=True)
        log.warning("a root is made elsewhere", extra={**self._who, "machine": pod.machine, "pod": pod.name})
        self._of.metrics.failed_over(self._owner.namespace, self._owner.name)

    def _going(
        self, layout: Layout, observed: Observed, topology: Topology, *, waiting: bool
    ) -> list[TreeNode]:
        """Nodes that are to end and still run: until nobody sends to them, or for as long as is waited."""
        since = self._memory.leaving
        ids = {node.id for node in layout.leaving}
        for id in list(since):
            if id not in ids:
                del since[id]
        found = []
        for node in layout.leaving:
            begun = since.setdefault(node.id, self._now)
            if waiting:
                # It is not told to leave yet.
                since[node.id] = self._now
            late = self._now - begun > topology.limits.drain_timeout / SECOND
            if not waiting and (late or leaving.drained(node, observed)):
                how = "is ended although somebody sends to it" if late else "has nobody who sends to it"
                self._event("NodeDrained", f"{node.id} {how}", warning=late)
                continue
            found.append(node)
        return found

    def _apply_spec(
        self, observed: Observed, planned: Planned, nodes: Iterable[TreeNode], absent: frozenset[str]
    ) -> bool:
        """Tell the root, if it was not told all of it by this process; gives whether it was."""
        if observed.root is None:
            return False
        parents = observed.parents
        placed = [
            node if node.parent else replace(node, parent=parents.get(node.id, names.ROOT)) for node in nodes
        ]
        there = {node.id for node in placed}
        placed = [node if node.parent in there else replace(node, parent=names.ROOT) for node in placed]
        wanted = specification(
            planned.topology,
            self._owner.uid,
            self._generation,
            placed,
            planned.asked.documents,
            absent,
            planned.factor,
        )
        # Once by each process, as only the answer says which queries were not taken; and again while there
        # are such: what they lack may come with the root's next life.
        told = observed.root.digest == wanted.digest == self._memory.digest
        if told and not self._memory.refused:
            return True
        return self._of.cluster.connection.leading and self._tell_root(observed, wanted)

    def _tell_root(self, observed: Observed, wanted: Specification) -> bool:
        try:
            with self._of.lookout.root(observed, self._owner.namespace, self._owner.name) as client:
                reply = client.apply(wanted)
        except RootUnreachable as error:
            log.warning("the root was not told", extra={**self._who, "problem": str(error)})
            return False
        except RootRefuses as error:
            self._event("RootRefuses", str(error), warning=True)
            return False
        if wanted.digest != self._memory.digest:
            log.info("the root was told", extra={**self._who, "nodes": len(wanted.nodes)})
        self._memory.digest = wanted.digest
        self._memory.refused = {
            each.id: problems_of(each.problems) for each in reply.queries if each.HasField("problems")
        }
        return True

    def _applied(
        self, report: Report, planned: Planned, nodes: Sequence[TreeNode], *, replicas: int
    ) -> Report:
        restart = self._annotations.get(names.RESTART)
        assembly = Assembly(self._owner, nodes, replicas, restart, self._kept)
        return self._of.assembling.done(report, planned, assembly)

    # What is kept

    def _keep(self, report: Report, planned: Planned) -> None:
        """The spec if it is good, that it is not, numbers and factor; written where they have changed."""
        own = report.kept is None
        kept = after(self._kept, self._generation, self._document, settled=report.settled, own=own)
        numbers = dict(kept.numbers)
        for node in report.nodes:
            numbers[node.layer] = max(node.number, numbers.get(node.layer, -1))
        kept = replace(kept, numbers=numbers, factor=planned.factor, begun=report.kept or self._generation)
        if self._is_stuck(report, own=own):
            kept = given_up(kept, self._generation, self._of.rollout)
            said = f"{kept.why}; generation {kept.generation} comes back"
            self._event("RolledBack", said, warning=True)
        manifest = manifest_of(self._owner, kept)
        if manifest != manifest_of(self._owner, self._kept) and not self._is_taken(manifest, report.observed):
            self._of.cluster.apply(stamped(manifest))

    def _is_taken(self, manifest: Manifest, observed: Observed) -> bool:
        """Whether somebody else has one of that name."""
        key = Key.of(manifest)
        there = next((each for each in observed.objects if Key.of(each) == key), None)
        if there is None:
            there = self._of.cluster.get(kinds.kind_of(manifest), self._owner.namespace, key.name)
        return there is not None and others(self._owner, manifest, there) is not None

    def _is_stuck(self, report: Report, *, own: bool) -> bool:
        """Whether a generation does not come to be, where there is another one. Whoever still drains is no
        reason: all that was asked for is there."""
        memory = self._memory
        if report.arrived or not own:
            memory.rolling = None
            return False
        if memory.rolling is None or memory.rolling.generation != self._generation:
            memory.rolling = Rolling(self._generation, self._now)
        stalled = memory.rolling.stalled(self._now, report.through)
        return self._kept.generation not in (0, self._generation) and stalled > self._of.rollout

    # What is told

    def _told(self, report: Report, chosen: Chosen) -> None:
        asked = chosen.asked if chosen.planned is None else chosen.planned.asked
        self._of.telling.tell(self._document, report, self._memory.told, self._now)
        memory = self._memory
        self._of.telling.tell_queries(report, asked, memory.refused, memory.told, self._now)

    def _event(self, reason: str, message: str, *, warning: bool = False) -> None:
        self._of.cluster.event(self._document, reason, message, warning=warning)

    @property
    def _who(self) -> dict[str, str]:
        return {"namespace": self._owner.namespace, "topology": self._owner.name}


def _limits(planned: Planned) -> dict[str, float]:
    """Items a second that each node of a plan can take, by its id."""
    spec = planned.topology.node
    if spec is None or planned.layout is None:
        return {}
    return {node.id: ingest_limit(spec, node) for node in planned.layout.nodes}
