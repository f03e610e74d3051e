"""The objects of a tree, brought to the cluster: certified, rendered, compared and applied."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from headwater.topology import Topology
from headwater_operator import claims, kinds, names
from headwater_operator.choosing import Planned
from headwater_operator.cluster import Cluster
from headwater_operator.comparison import Conflict, Key, compare
from headwater_operator.doing import Doing, words
from headwater_operator.issuance import Issuance, issuance
from headwater_operator.keeping import Kept, manifest_of
from headwater_operator.layout import TreeNode
from headwater_operator.lookout import Lookout
from headwater_operator.observation import OUTSIDE, Observed
from headwater_operator.rendering import Images, Owner, parties, render
from headwater_operator.reporting import Report
from headwater_operator.rollout import in_turn, workloads

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Assembly:
    """What is to be there of a topology: its nodes, with so many pods of the root, begun anew since somebody
    asked for that; and what is kept of it."""

    owner: Owner
    nodes: Sequence[TreeNode]
    replicas: int
    restart: str | None
    kept: Kept


class Assembling:
    def __init__(self, cluster: Cluster, lookout: Lookout, doing: Doing, images: Images) -> None:
        self._cluster, self._lookout, self._doing, self._images = cluster, lookout, doing, images

    def done(self, report: Report, planned: Planned, assembly: Assembly) -> Report:
        """Have the cluster hold what it should, and say what it does not."""
        observed, topology = report.observed, planned.topology
        owner, nodes = assembly.owner, assembly.nodes
        who = {"namespace": owner.namespace, "topology": owner.name}
        advertised = observed.advertised(topology)
        everybody = parties(owner, topology, nodes, advertised)
        now = datetime.fromtimestamp(time.time(), UTC)
        authority = names.authority(owner.name)
        if topology.issuer is None and self._lookout.is_taken(observed, owner.namespace, authority):
            # Whatever were signed would be signed by another one at the next look.
            return replace(report, conflicts=(_not_ours(authority),))
        devices, shut_out = self._devices(owner, topology)
        has = issuance(owner.name, topology.issuer, everybody, observed, devices, now)
        for secret, why in has.renewed.items():
            if secret in observed.secrets:
                extra = {**who, "secret": secret, "reason": why}
                log.info("a certificate is renewed", extra=extra)
        wanted = render(
            owner,
            topology,
            planned.document,
            nodes,
            self._images,
            has.material,
            replicas=assembly.replicas,
            restart=assembly.restart,
            advertised=advertised,
            monitored=self._lookout.monitored(owner.namespace),
        )
        unaddressed = _unaddressed(topology, nodes, observed, advertised)
        later_on = _not_yet(owner, nodes, observed, unaddressed, has)
        taken = self._lookout.taken_secrets(observed, owner.namespace, has.material.requested)
        wanted = [
            each
            for each in wanted
            if (each["kind"], each["metadata"]["name"]) not in later_on
            and (each["kind"] != kinds.CERTIFICATE.name or each["metadata"]["name"] not in taken)
        ]
        held = claims.found(observed.objects, names.claim(owner.name))
        wanted = [
            claims.fitted(each, held) if each["kind"] == "PersistentVolumeClaim" else each for each in wanted
        ]
        wanted.append(manifest_of(owner, assembly.kept))
        seen = self._lookout.with_taken(observed, owner.namespace, wanted)
        objects = (
            each for each in seen.objects if (each["kind"], each["metadata"]["name"]) not in has.untouched
        )
        actions = compare(owner, wanted, objects)
        now_due, later = in_turn(actions.apply, observed)
        failed = self._doing.done(replace(actions, apply=tuple(now_due)), owner.namespace)
        if now_due or actions.delete:
            changed = {"applied": len(now_due), "deleted": len(actions.delete), "later": len(later)}
            log.info("objects were changed", extra={**who, **changed})
        others = map(_not_ours, taken)
        return replace(
            report,
            conflicts=(*actions.conflicts, *others),
            changing=sorted(observed.outdated | workloads(now_due)),
            later=tuple(later),
            failed=words(failed) if failed else "",
            differing=claims.differences(topology.root, held),
            parting=claims.parting(topology.root, held),
            shut_out=shut_out,
            unaddressed=unaddressed,
            awaited=has.awaited,
            replaced_later=has.replaced_later,
            unfit=has.unfit,
        )

    def _devices(self, owner: Owner, topology: Topology) -> tuple[bytes | None, str]:
        """The authority of the devices' certificates, and why none of them is let in."""
        if topology.ingest.ca_secret is None:
            return None, ""
        found = self._cluster.get(kinds.SECRET, owner.namespace, topology.ingest.ca_secret)
        observed = Observed(() if found is None else (found,), {})
        files = observed.secrets.get(topology.ingest.ca_secret, {})
        if "ca.crt" in files:
            return files["ca.crt"], ""
        lacks = "does not exist" if found is None else "has no ca.crt"
        return None, f"the Secret {topology.ingest.ca_secret} {lacks}: no device is let in"


def _not_yet(
    owner: Owner,
    nodes: Sequence[TreeNode],
    observed: Observed,
    unaddressed: frozenset[str],
    has: Issuance,
) -> set[tuple[str, str]]:
    """What is not begun yet, by kind and name: who has no certificate, and children without an address.
    What runs goes on."""
    begun = {each["metadata"]["name"] for each in observed.of_kind("Deployment")}
    found = {("Deployment", node.id) for node in nodes if has.lacks(node.id) and node.id not in begun}
    found |= {("Deployment", id) for id in unaddressed}
    root = names.root(owner.name)
    if has.lacks(root) and not observed.of_kind("StatefulSet"):
        found.add(("StatefulSet", root))
    return found


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
