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
from datetime import UTC, datetime
from typing import Any

from headwater.durations import SECOND
from headwater.errors import Invalid, InvalidPlan, Problem
from headwater.topology import Topology, topology_of
from headwater.topology.tree import RootSpec
from headwater_operator import claims, failover, kinds, leaving, names
from headwater_operator.asking import asked_of
from headwater_operator.choosing import Chosen, Planned, after, choose, given_up
from headwater_operator.cluster import Cluster, Document
from headwater_operator.comparison import Conflict, Key, compare, stamped
from headwater_operator.doing import Doing, words
from headwater_operator.issuance import Issuance, issuance
from headwater_operator.keeping import Kept, kept_of, manifest_of
from headwater_operator.layout import Host, Layout, TreeNode, laid_out
from headwater_operator.lookout import Lookout
from headwater_operator.measuring import Measured
from headwater_operator.metrics import Metrics
from headwater_operator.nodes import Nodes
from headwater_operator.observation import OUTSIDE, Observed, Pod
from headwater_operator.rendering import Images, Owner, parties, render
from headwater_operator.reporting import Report
from headwater_operator.rollout import in_turn, workloads
from headwater_operator.rootclient import RootRefuses, RootUnreachable
from headwater_operator.settings import Settings
from headwater_operator.specification import Specification, specification
from headwater_operator.telling import Telling, Told, problems_of

log = logging.getLogger(__name__)
# Seconds until the next look: while the root has to be asked how far it is; while pods are on the way, which
# are watched; and while all is as it should be.
SOON, PODS, LATER = 1.0, 10.0, 30.0
# Requests under way at a time, for all topologies together.
REQUESTS = 8


@dataclass(slots=True)
class Memory:
    """Of one topology, while this process leads; by the clock that never goes back."""

    uid: str
    leaving: dict[str, float] = field(default_factory=dict)
    # Since when a generation is rolled out.
    began: tuple[int, float] | None = None
    measured: Measured = field(default_factory=Measured)
    # What the root was told by this process, and which queries it has not taken of that.
    digest: str = ""
    refused: Mapping[str, str] = field(default_factory=dict)
    told: Told = field(default_factory=Told)
    # The pod of a root on a machine that is lost, and since when.
    lost: tuple[str, float] | None = None


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
        self.images = Images(
            settings.node_image, settings.root_image, settings.pull_policy, settings.pull_secrets
        )
        pool = ThreadPoolExecutor(REQUESTS, "requests")
        self.lookout, self.doing = Lookout(cluster, pool), Doing(cluster, pool)
        self.telling = Telling(cluster, self.lookout)
        self.clock, self.rollout = clock, settings.rollout
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
        return _Look(self, document, memory).run()


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
            lambda document: self._planned(document, observed),
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
        )
        return self._acted(report, chosen)

    def _acted(self, report: Report, chosen: Chosen) -> float | None:
        planned = chosen.planned
        if planned is None:
            # Only another spec or another cluster helps, and both are heard of.
            self._told(report, chosen)
            return LATER
        if report.paused:
            self._memory.began = None
            self._told(report, chosen)
            return LATER
        if planned.layout is None:
            nodes, replicas = leaving.at_rest(report.observed.running, report.observed)
            report = self._applied(report, planned, nodes, replicas=replicas)
            self._told(report, chosen)
            return LATER if report.resting else PODS
        report = self._rolled_out(report, planned, planned.layout)
        self._told(report, chosen)
        if report.settled:
            # Nobody tells when the root has found a child for a source.
            return PODS if report.unassigned else LATER
        return SOON if report.asks else PODS

    # What is asked for

    def _planned(self, document: Mapping[str, Any], observed: Observed) -> Planned:
        # Status is not the user's.
        topology = topology_of({name: value for name, value in document.items() if name != "status"})
        if topology.issuer is not None and (why := self._of.lookout.certifying(self._owner.namespace)):
            said, _, remedy = why.partition("; ")
            problem = Problem("spec.certificates.issuerRef", f"cannot be had: {said}", remedy)
            raise Invalid("cert-manager cannot be asked for certificates", [problem])
        objects = self._of.cluster.list(kinds.QUERY, self._owner.namespace)
        asked = asked_of(topology, objects)
        if topology.suspend:
            return Planned(topology, document, asked, None)
        # Queries that are computed at the root forward every event, whoever has asked for them.
        everything = replace(topology, queries=asked.queries)
        layout, factor = self._laid_out(everything, observed)
        return Planned(topology, document, asked, layout, factor)

    def _laid_out(self, topology: Topology, observed: Observed) -> tuple[Layout, float]:
        """The tree, and how many times as much as declared it is for."""
        named = dict(self._kept.numbers)
        for layer, number in observed.named(self._owner.name).items():
            named[layer] = max(number, named.get(layer, -1))
        margin = 0.0 if topology.node is None else topology.node.margin
        patience = topology.limits.scale_down_after / SECOND
        factor = self._memory.measured.factor(self._now, topology.rate, margin, patience)
        try:
            found = laid_out(topology, self._hosts, observed.begun, observed.parents, named, factor)
        except InvalidPlan:
            if factor == 1.0:
                raise
            # There is no tree for as much as they send: the one for as much as they should.
            found, factor = laid_out(topology, self._hosts, observed.begun, observed.parents, named), 1.0
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
        staying = going if waits else []
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
        if pod is None or memory.lost is None or memory.lost[0] != pod.uid:
            memory.lost = None if pod is None else (pod.uid, self._now)
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
            if self._now - memory.lost[1] < failover.GRACE:
                why = f"it is made elsewhere only when that has lasted {failover.GRACE:g} s"
            elif self._of.lookout.answers(observed, pod, self._owner.namespace, self._owner.name):
                why = "it still answers there, and there must never be two: it is left alone"
            else:
                self._force(pod, name)
        return replace(report, hindrance=why)

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
        # Once by each process: only the answer says which queries were not taken.
        if observed.root.digest == wanted.digest == self._memory.digest:
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
        log.info("the root was told", extra={**self._who, "nodes": len(wanted.nodes)})
        self._memory.digest = wanted.digest
        self._memory.refused = {
            each.id: problems_of(each.problems) for each in reply.queries if each.HasField("problems")
        }
        return True

    def _applied(
        self, report: Report, planned: Planned, nodes: Sequence[TreeNode], *, replicas: int
    ) -> Report:
        """Have the cluster hold what it should, and say what it does not."""
        observed, topology = report.observed, planned.topology
        advertised = observed.advertised(topology)
        everybody = parties(self._owner, topology, nodes, advertised)
        now = datetime.fromtimestamp(time.time(), UTC)
        authority = names.authority(self._owner.name)
        if self._of.lookout.is_taken(observed, self._owner.namespace, authority):
            # Whatever were signed would be signed by another one at the next look.
            return replace(report, conflicts=(_not_ours(authority),))
        devices, shut_out = self._devices(topology)
        has = issuance(self._owner.name, topology.issuer, everybody, observed, devices, now)
        for secret, why in has.renewed.items():
            if secret in observed.secrets:
                extra = {**self._who, "secret": secret, "reason": why}
                log.info("a certificate is renewed", extra=extra)
        wanted = render(
            self._owner,
            topology,
            planned.document,
            nodes,
            self._of.images,
            has.material,
            replicas=replicas,
            restart=self._annotations.get(names.RESTART),
            advertised=advertised,
            monitored=self._of.lookout.monitored,
        )
        unaddressed = _unaddressed(topology, nodes, observed, advertised)
        later_on = self._not_yet(nodes, observed, unaddressed, has)
        taken = self._of.lookout.taken_secrets(observed, self._owner.namespace, has.material.requested)
        wanted = [
            each
            for each in wanted
            if (each["kind"], each["metadata"]["name"]) not in later_on
            and (each["kind"] != kinds.CERTIFICATE.name or each["metadata"]["name"] not in taken)
        ]
        held = claims.found(observed.objects, names.claim(self._owner.name))
        wanted = [
            claims.fitted(each, held) if each["kind"] == "PersistentVolumeClaim" else each for each in wanted
        ]
        wanted.append(manifest_of(self._owner, self._kept))
        seen = self._of.lookout.with_taken(observed, self._owner.namespace, wanted)
        objects = (
            each for each in seen.objects if (each["kind"], each["metadata"]["name"]) not in has.untouched
        )
        actions = compare(self._owner, wanted, objects)
        now_due, later = in_turn(actions.apply, observed)
        failed = self._of.doing.done(replace(actions, apply=tuple(now_due)), self._owner.namespace)
        if now_due or actions.delete:
            changed = {"applied": len(now_due), "deleted": len(actions.delete), "later": len(later)}
            log.info("objects were changed", extra={**self._who, **changed})
        others = map(_not_ours, taken)
        return replace(
            report,
            conflicts=(*actions.conflicts, *others),
            changing=sorted(observed.outdated | workloads(now_due)),
            later=tuple(later),
            failed=words(failed) if failed else "",
            differing=claims.differences(topology.root, held),
            shut_out=shut_out,
            unaddressed=unaddressed,
            awaited=has.awaited,
            unfit=has.unfit,
        )

    def _not_yet(
        self, nodes: Sequence[TreeNode], observed: Observed, unaddressed: frozenset[str], has: Issuance
    ) -> set[tuple[str, str]]:
        """What is not begun yet, by kind and name: who has no certificate, and children without an address.
        What runs goes on."""
        begun = {each["metadata"]["name"] for each in observed.of_kind("Deployment")}
        found = {("Deployment", node.id) for node in nodes if has.lacks(node.id) and node.id not in begun}
        found |= {("Deployment", id) for id in unaddressed}
        root = names.root(self._owner.name)
        if has.lacks(root) and not observed.of_kind("StatefulSet"):
            found.add(("StatefulSet", root))
        return found

    def _devices(self, topology: Topology) -> tuple[bytes | None, str]:
        """The authority of the devices' certificates, and why none of them is let in."""
        if topology.ingest.ca_secret is None:
            return None, ""
        found = self._of.cluster.get(kinds.SECRET, self._owner.namespace, topology.ingest.ca_secret)
        observed = Observed(() if found is None else (found,), {})
        files = observed.secrets.get(topology.ingest.ca_secret, {})
        if "ca.crt" in files:
            return files["ca.crt"], ""
        lacks = "does not exist" if found is None else "has no ca.crt"
        return None, f"the Secret {topology.ingest.ca_secret} {lacks}: no device is let in"

    # What is kept

    def _keep(self, report: Report, planned: Planned) -> None:
        """The spec if it is good, that it is not, numbers and factor; written where they have changed."""
        own = report.kept is None
        kept = after(self._kept, self._generation, self._document, settled=report.settled, own=own)
        numbers = dict(kept.numbers)
        for node in report.nodes:
            numbers[node.layer] = max(node.number, numbers.get(node.layer, -1))
        kept = replace(kept, numbers=numbers, factor=planned.factor)
        if self._takes_too_long(report, own=own):
            kept = given_up(kept, self._generation, self._of.rollout)
            said = f"{kept.why}; generation {kept.generation} comes back"
            self._event("RolledBack", said, warning=True)
        if kept != self._kept:
            self._of.cluster.apply(stamped(manifest_of(self._owner, kept)))

    def _takes_too_long(self, report: Report, *, own: bool) -> bool:
        """Whether a generation does not come to be, where there is another one. Whoever still drains is no
        reason: all that was asked for is there."""
        memory = self._memory
        if report.arrived or not own:
            memory.began = None
            return False
        if memory.began is None or memory.began[0] != self._generation:
            memory.began = (self._generation, self._now)
        if self._kept.generation in (0, self._generation):
            return False
        return self._now - memory.began[1] > self._of.rollout

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


def _unaddressed(
    topology: Topology, nodes: Iterable[TreeNode], observed: Observed, advertised: Mapping[str, str]
) -> frozenset[str]:
    """Children that are reached from outside, and have no address yet: those that began now would have to
    start again to tell it."""
    if topology.ingest.expose not in OUTSIDE:
        return frozenset()
    children = {node.id for node in nodes if node.role == "child"}
    return frozenset(children - advertised.keys() - {node.id for node in observed.running})


def _not_ours(secret: str) -> Conflict:
    return Conflict(Key("", "Secret", secret), "was not made by this topology")
