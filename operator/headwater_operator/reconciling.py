"""The loop of one topology: observe, plan, render, compare, apply, report.

Every look begins from what is there and ends with what is missing done, so it may be cut off anywhere and
begun again by another process. What is remembered between looks is about time alone.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from headwater.durations import SECOND
from headwater.errors import HeadwaterError, Invalid, InvalidPlan
from headwater.topology import API_VERSION, TOPOLOGY_KIND, Topology, topology_of
from headwater_operator import kinds, leaving, names, queryreports
from headwater_operator.asking import Asked, asked_of
from headwater_operator.certifying import certified
from headwater_operator.cluster import Cluster, Document
from headwater_operator.comparison import Actions, compare
from headwater_operator.layout import Host, Layout, TreeNode, laid_out
from headwater_operator.lookout import Lookout
from headwater_operator.measuring import Measured
from headwater_operator.metrics import Metrics
from headwater_operator.nodes import Nodes
from headwater_operator.observation import OUTSIDE, Observed
from headwater_operator.rendering import Images, Manifest, Owner, parties, render
from headwater_operator.rendering.objects import manifest
from headwater_operator.reporting import Report, is_due, status_of
from headwater_operator.rootclient import RootRefuses, RootUnreachable
from headwater_operator.settings import Settings
from headwater_operator.specification import Specification, specification
from headwater_wire.v1 import control_pb2 as pb

log = logging.getLogger(__name__)
# Seconds until the next look: while the root has to be asked how far it is, while pods are on their way (they are
# watched), and while all is as it should be.
SOON, PODS, LATER = 1.0, 10.0, 30.0
# Seconds that a spec may take to be rolled out before the last good one comes back.
ROLLOUT = 600.0
# A spec that is longer is not kept for later.
KEPT_BYTES = 900_000
# Requests under way at a time, for all topologies together.
REQUESTS = 8
NOTHING = Asked((), (), {}, {})


@dataclass(slots=True)
class Memory:
    """Of one topology, while this process leads; by the clock that never goes back."""

    leaving: dict[str, float] = field(default_factory=dict)
    # Since when a generation is rolled out, and whether it was given up.
    began: tuple[int, float] | None = None
    failed: int = 0
    written: float = float("-inf")
    measured: Measured = field(default_factory=Measured)
    # What was last told as an event.
    told: dict[str, str] = field(default_factory=dict)


class Reconciler:
    """Called with a namespace and a name, by one thread for each; gives in how many seconds to look again."""

    def __init__(
        self,
        cluster: Cluster,
        settings: Settings,
        nodes: Nodes,
        metrics: Metrics,
        *,
        reach: Callable[[str, str], str] = names.root_address,
        clock: Callable[[], float] = time.monotonic,
        rollout: float = ROLLOUT,
    ) -> None:
        self._cluster, self._nodes, self._metrics = cluster, nodes, metrics
        self._images = Images(
            settings.node_image, settings.root_image, settings.pull_policy, settings.pull_secrets
        )
        self._pool = ThreadPoolExecutor(REQUESTS, "requests")
        self._lookout = Lookout(cluster, self._pool, reach)
        self._clock, self._rollout = clock, rollout
        self._memories: dict[tuple[str, str], Memory] = {}

    def __call__(self, namespace: str, name: str) -> float | None:
        document = self._cluster.get(kinds.TOPOLOGY, namespace, name)
        if document is None or document["metadata"].get("deletionTimestamp") is not None:
            # All that there is of it goes with it.
            self._memories.pop((namespace, name), None)
            self._metrics.forget(namespace, name)
            self._tell_orphans(namespace, name)
            return None
        memory = self._memories.setdefault((namespace, name), Memory())
        return _Look(self, document, memory).run()

    def now(self) -> datetime:
        return datetime.fromtimestamp(time.time(), UTC)

    def _tell_orphans(self, namespace: str, name: str) -> None:
        for each in self._cluster.list(kinds.QUERY, namespace):
            if (each.get("spec") or {}).get("topologyRef") == name:
                self.tell_query(each, queryreports.orphaned(each, name, _stamp()))

    def tell_query(self, document: Mapping[str, Any], status: dict[str, Any]) -> None:
        """Have a query with this status, if it has another."""
        metadata = document["metadata"]
        if (document.get("status") or {}) != status:
            self._cluster.set_status(kinds.QUERY, metadata["namespace"], metadata["name"], status)


class _Look:
    """One look at one topology."""

    def __init__(self, of: Reconciler, document: Document, memory: Memory) -> None:
        self._of, self._document, self._memory = of, document, memory
        metadata = document["metadata"]
        self._owner = Owner(metadata["namespace"], metadata["name"], metadata["uid"])
        self._generation = int(metadata["generation"])
        self._annotations: Mapping[str, str] = metadata.get("annotations") or {}
        self._now = of._clock()

    def run(self) -> float | None:
        paused = self._annotations.get(names.PAUSE, "false").lower() not in ("", "false")
        observed = self._of._lookout.objects(self._owner.namespace, self._owner.name)
        status, unreachable = self._of._lookout.ask_root(observed, self._owner.namespace, self._owner.name)
        observed = replace(observed, root=status)
        self._memory.measured.take(self._now, None if status is None else status.totals.accepted)
        report = Report(
            self._owner.namespace,
            self._owner.name,
            self._generation,
            0,
            observed,
            unreachable=unreachable,
            rate=self._memory.measured.rate,
        )
        chosen = self._chosen(observed)
        report = replace(report, problem=chosen.problem, kept=chosen.kept, rolled_back=chosen.rolled_back)
        report = replace(report, good=chosen.good)
        if chosen.topology is None:
            return self._told(report, NOTHING, {})
        topology, asked = chosen.topology, chosen.asked
        report = replace(report, expected=topology.expected, suspended=topology.suspend, paused=paused)
        report = replace(report, layout=chosen.layout, refused=tuple(asked.refused))
        if paused:
            return self._told(report, asked, {})
        if topology.suspend:
            return self._suspended(report, topology, chosen.document, asked)
        assert chosen.layout is not None
        return self._rolled_out(report, topology, chosen.document, asked, chosen.layout)

    # What is asked for

    def _chosen(self, observed: Observed) -> _Chosen:
        """The spec that is to run: as it is, or the last good one where that cannot be."""
        kept = _last_good(self._owner, observed)
        good = 0 if kept is None else kept[0]
        rolled_back = self._rolled_back(good)
        problem: Invalid | None = None
        if rolled_back is None:
            try:
                return self._planned(self._document, observed, good=good)
            except Invalid as error:
                problem = error
        if kept is not None:
            try:
                found = self._planned(kept[1], observed, good=good)
                return replace(found, problem=problem, kept=good, rolled_back=rolled_back)
            except Invalid as error:
                # Neither the one nor the other, such as where machines are missing.
                problem = problem or error
        return _Chosen(problem=problem, rolled_back=rolled_back, good=good)

    def _rolled_back(self, good: int) -> str | None:
        """Why this generation was given up, if it was."""
        if good in (0, self._generation):
            return None
        if self._memory.failed == self._generation:
            return f"generation {self._generation} was not there after {self._of._rollout:g} seconds"
        conditions = (self._document.get("status") or {}).get("conditions") or ()
        for each in conditions:
            # By a process before this one.
            known = (each["type"], each["reason"], each.get("observedGeneration"))
            if known == ("Degraded", "RolledBack", self._generation):
                self._memory.failed = self._generation
                return str(each["message"]).partition(";")[0]
        return None

    def _planned(self, document: Document, observed: Observed, *, good: int) -> _Chosen:
        topology = topology_of(_readable(document))
        objects = self._of._cluster.list(kinds.QUERY, self._owner.namespace)
        asked = asked_of(topology, objects)
        # Queries that are computed at the root forward every event, whoever has asked for them.
        everything = replace(topology, queries=asked.queries)
        if topology.suspend:
            return _Chosen(topology, document, asked, good=good)
        layout = self._laid_out(everything, observed, self._factor(topology))
        return _Chosen(topology, document, asked, layout, good=good)

    def _laid_out(self, topology: Topology, observed: Observed, factor: float) -> Layout:
        named = observed.named(self._owner.name)
        try:
            return laid_out(topology, self._hosts(), observed.running, observed.parents, named, factor)
        except InvalidPlan:
            if factor == 1.0:
                raise
            # There is no tree for as much as they send: the one for as much as they should.
            return laid_out(topology, self._hosts(), observed.running, observed.parents, named)

    def _factor(self, topology: Topology) -> float:
        """How many times as much as declared sources send."""
        margin = 0.0 if topology.node is None else topology.node.margin
        patience = topology.limits.scale_down_after / SECOND
        return self._memory.measured.factor(self._now, topology.rate, margin, patience)

    def _hosts(self) -> Sequence[Host] | None:
        found = self._of._nodes.all()
        if found is None:
            return None
        return [Host(each.name, each.labels, each.ready, not each.unschedulable) for each in found.values()]

    # What is done

    def _rolled_out(
        self, report: Report, topology: Topology, document: Document, asked: Asked, layout: Layout
    ) -> float | None:
        observed = report.observed
        hosts = self._hosts()
        absent = observed.absent(hosts)
        waits = leaving.held_up(layout.nodes, observed)
        going = self._going(layout, observed, topology, waiting=bool(waits))
        # Nobody is sent away before whoever comes in their place is there.
        staying = [node for node in going if waits]
        told = self._apply_spec(observed, topology, asked, [*layout.nodes, *staying], absent)
        conflicts = self._apply(observed, topology, document, [*layout.nodes, *going], replicas=1)
        report = replace(
            report,
            leaving=tuple(going),
            absent=absent,
            applied=told is not None,
            conflicts=conflicts,
        )
        self._of._metrics.planned(self._owner.namespace, self._owner.name, report.widths)
        self._plan_event(report)
        self._watch_rollout(report)
        return self._told(report, asked, told or {})

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
        self,
        observed: Observed,
        topology: Topology,
        asked: Asked,
        nodes: Iterable[TreeNode],
        absent: frozenset[str],
    ) -> dict[str, str] | None:
        """Tell the root, if it was not told all of it; gives why it has not taken queries, None if it was not
        told."""
        if observed.root is None:
            return None
        parents = observed.parents
        placed = [
            node if node.parent else replace(node, parent=parents.get(node.id, names.ROOT)) for node in nodes
        ]
        there = {node.id for node in placed}
        placed = [node if node.parent in there else replace(node, parent=names.ROOT) for node in placed]
        factor = self._factor(topology)
        wanted = specification(topology, self._generation, placed, asked.documents, absent, factor)
        if observed.root.digest == wanted.digest:
            return {}
        return self._tell_root(observed, wanted)

    def _tell_root(self, observed: Observed, wanted: Specification) -> dict[str, str] | None:
        try:
            with self._of._lookout.root(observed, self._owner.namespace, self._owner.name) as client:
                reply = client.apply(wanted)
        except RootUnreachable as error:
            log.warning("the root was not told", extra={**self._who, "problem": str(error)})
            return None
        except RootRefuses as error:
            self._event("RootRefuses", str(error), warning=True)
            return None
        log.info("the root was told", extra={**self._who, "nodes": len(wanted.nodes)})
        return {each.id: _words(each.problems) for each in reply.queries if each.HasField("problems")}

    def _apply(
        self,
        observed: Observed,
        topology: Topology,
        document: Document,
        nodes: Sequence[TreeNode],
        *,
        replicas: int,
    ) -> tuple[Any, ...]:
        """Have the cluster hold what it should."""
        advertised = observed.advertised(topology)
        everybody = parties(self._owner, topology, nodes, advertised)
        material, renewed = certified(
            self._owner.name, everybody, observed.secrets, self._devices(topology), self._of.now()
        )
        for secret, why in renewed.items():
            if secret in observed.secrets:
                extra = {**self._who, "secret": secret, "reason": why}
                log.info("a certificate is renewed", extra=extra)
        wanted = render(
            self._owner,
            topology,
            document,
            nodes,
            self._of._images,
            material,
            replicas=replicas,
            restart=self._annotations.get(names.RESTART),
            advertised=advertised,
            monitored=self._of._lookout.monitored,
        )
        if topology.ingest.expose in OUTSIDE:
            # A child that has no address yet would have to start again to tell it.
            unknown = {node.id for node in nodes if node.role == "child" and node.id not in advertised}
            wanted = [
                each
                for each in wanted
                if each["kind"] != "Deployment" or each["metadata"]["name"] not in unknown
            ]
        wanted += self._kept(observed)
        seen = self._of._lookout.with_taken(observed, self._owner.namespace, wanted)
        actions = compare(self._owner, wanted, seen.objects)
        self._do(actions)
        return actions.conflicts

    def _do(self, actions: Actions) -> None:
        """First what pods need, then pods: objects of one kind side by side."""
        cluster = self._of._cluster
        waiting: list[Manifest] = []
        for each in actions.apply:
            if waiting and waiting[0]["kind"] != each["kind"]:
                list(self._of._pool.map(cluster.apply, waiting))
                waiting = []
            waiting.append(each)
        list(self._of._pool.map(cluster.apply, waiting))
        for key in actions.delete:
            kind = next(kind for kind in kinds.KINDS if (kind.group, kind.name) == (key.group, key.kind))
            cluster.delete(kind, self._owner.namespace, key.name)
        if actions.apply or actions.delete:
            extra = {"applied": len(actions.apply), "deleted": len(actions.delete)}
            log.info("objects were changed", extra={**self._who, **extra})

    def _devices(self, topology: Topology) -> bytes | None:
        """The authority of the devices' certificates."""
        if topology.ingest.ca_secret is None:
            return None
        found = self._of._cluster.get(kinds.SECRET, self._owner.namespace, topology.ingest.ca_secret)
        observed = Observed(() if found is None else (found,), {})
        files = observed.secrets.get(topology.ingest.ca_secret, {})
        if "ca.crt" not in files:
            said = f"the Secret {topology.ingest.ca_secret} has no ca.crt: no device is let in"
            self._event("NoAuthority", said, warning=True)
            return None
        return files["ca.crt"]

    def _suspended(
        self, report: Report, topology: Topology, document: Document, asked: Asked
    ) -> float | None:
        nodes, replicas = leaving.at_rest(report.observed.running, report.observed)
        conflicts = self._apply(report.observed, topology, document, nodes, replicas=replicas)
        return self._told(replace(report, conflicts=conflicts), asked, {})

    # What is kept

    def _kept(self, observed: Observed) -> list[Manifest]:
        """The last good spec, as long as there is one."""
        found = _last_good(self._owner, observed)
        if self._good:
            found = (self._generation, self._document)
        if found is None:
            return []
        spec = json.dumps(found[1]["spec"], sort_keys=True)
        if len(spec) > KEPT_BYTES:
            return []
        data = {"generation": str(found[0]), "spec": spec}
        return [manifest(self._owner, "v1", "ConfigMap", names.last_good(self._owner.name), data=data)]

    @property
    def _good(self) -> bool:
        """Whether this generation was rolled out, as far as was told."""
        conditions = (self._document.get("status") or {}).get("conditions") or ()
        held = {each["type"]: each for each in conditions}
        return all(
            held.get(kind, {}).get("status") == status
            and held[kind].get("observedGeneration") == self._generation
            for kind, status in (("Planned", "True"), ("Ready", "True"), ("Progressing", "False"))
        )

    def _watch_rollout(self, report: Report) -> None:
        """Give a generation up that does not come to be, where there is another one."""
        memory = self._memory
        if report.settled or report.kept is not None:
            memory.began = None
            return
        if memory.began is None or memory.began[0] != self._generation:
            memory.began = (self._generation, self._now)
        if report.good not in (0, self._generation) and self._now - memory.began[1] > self._of._rollout:
            memory.failed = self._generation
            said = f"generation {self._generation} did not come to be; generation {report.good} comes back"
            self._event("RolledBack", said, warning=True)

    # What is told

    def _told(self, report: Report, asked: Asked, refused: Mapping[str, str]) -> float | None:
        before = self._document.get("status") or {}
        after = status_of(report, before, _stamp())
        if is_due(before, after, self._now - self._memory.written):
            self._of._cluster.set_status(kinds.TOPOLOGY, self._owner.namespace, self._owner.name, after)
            self._memory.written = self._now
            self._condition_events(before, after)
        self._tell_queries(report, asked, refused)
        if report.settled or report.resting or report.paused:
            return LATER
        return SOON if report.asks else PODS

    def _tell_queries(self, report: Report, asked: Asked, refused: Mapping[str, str]) -> None:
        now = _stamp()
        for document, problems in asked.refused.values():
            self._of.tell_query(document, queryreports.refused(document, problems, now))
        if not asked.taken:
            return
        found: dict[str, pb.ListedQuery] = {}
        if report.observed.root is not None:
            try:
                with self._of._lookout.root(report.observed, self._owner.namespace, self._owner.name) as root:
                    active = pb.ListedQuery.STATE_ACTIVE
                    found = {each.id: each for each in root.queries() if each.state == active}
            except HeadwaterError as error:
                log.warning("queries are not known", extra={**self._who, "problem": str(error)})
        for name, document in asked.taken.items():
            if name in refused:
                self._of.tell_query(document, queryreports.rejected(document, refused[name], now))
            else:
                self._of.tell_query(document, queryreports.taken(document, found.get(name), now))

    def _plan_event(self, report: Report) -> None:
        widths = " ".join(map(str, report.widths))
        if self._memory.told.get("plan") != widths:
            if "plan" in self._memory.told:
                self._event("Replanned", f"{self._memory.told['plan']} -> {widths}")
            self._memory.told["plan"] = widths

    def _condition_events(self, before: Mapping[str, Any], after: Mapping[str, Any]) -> None:
        """Tell of what has changed, in the words of the conditions."""
        was = {each["type"]: (each["status"], each["reason"]) for each in before.get("conditions") or ()}
        for each in after["conditions"]:
            if was.get(each["type"]) != (each["status"], each["reason"]):
                good = (each["status"] == "True") == (each["type"] in ("Planned", "Ready"))
                warning = (
                    not good
                    and (each["type"], each["reason"]) not in _USUAL
                    and each["type"] != "Progressing"
                )
                if each["type"] != "Progressing" or each["reason"] in ("Paused", "Suspended", "Draining"):
                    self._event(each["reason"], each["message"], warning=warning)

    def _event(self, reason: str, message: str, *, warning: bool = False) -> None:
        self._of._cluster.event(self._document, reason, message, warning=warning)

    @property
    def _who(self) -> dict[str, str]:
        return {"namespace": self._owner.namespace, "topology": self._owner.name}


# What is no reason to warn: a tree that starts is not ready, and one that rests is not either.
_USUAL = {
    ("Ready", "RootNotReady"),
    ("Ready", "NodesNotReady"),
    ("Ready", "NotApplied"),
    ("Ready", "Suspended"),
}


@dataclass(frozen=True, slots=True)
class _Chosen:
    """The spec that is to run, if there is one, and what is wrong with the one that was asked for."""

    topology: Topology | None = None
    document: Document = field(default_factory=dict)
    asked: Asked = NOTHING
    layout: Layout | None = None
    problem: Invalid | None = None
    kept: int | None = None
    rolled_back: str | None = None
    good: int = 0


def _last_good(owner: Owner, observed: Observed) -> tuple[int, Document] | None:
    """The generation and the document of the spec that was last rolled out."""
    for each in observed.of_kind("ConfigMap"):
        if each["metadata"]["name"] == names.last_good(owner.name):
            try:
                data = each["data"]
                spec = json.loads(data["spec"])
                metadata = {"name": owner.name, "namespace": owner.namespace, "uid": owner.uid}
                document = {"apiVersion": API_VERSION, "kind": TOPOLOGY_KIND, "metadata": metadata}
                return int(data["generation"]), {**document, "spec": spec}
            except (KeyError, TypeError, ValueError):
                return None
    return None


def _readable(document: Document) -> Document:
    """What the reader judges: status is not the user's."""
    return {name: value for name, value in document.items() if name != "status"}


def _words(problems: pb.Problems) -> str:
    return "; ".join(f"{each.field}: {each.message}; {each.remedy}" for each in problems.problems)


def _stamp() -> str:
    return datetime.fromtimestamp(time.time(), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
