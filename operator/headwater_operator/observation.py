"""What was seen of a topology in a cluster, as values; nothing here asks anybody."""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from headwater.sources import NAME_LIMIT
from headwater.topology import Topology
from headwater_operator import names
from headwater_operator.layout import Host, TreeNode, role_of
from headwater_wire.v1 import control_pb2 as pb

Document = Mapping[str, Any]
# How children may be reached from outside by a Service each.
OUTSIDE = ("nodePort", "loadBalancer")
_WAITS = ("waiting", "terminated")


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod of a node or of the root; `why` says in a word and a sentence why it is not ready."""

    name: str
    uid: str
    # The machine that it is on, by the name of its Node; empty: none yet.
    machine: str
    ready: bool
    going: bool
    why: tuple[str, str] = ("", "")
    # Its address in the cluster; empty: none yet.
    ip: str = ""
    # With what code its program ended last, if it is not ready; None: it has not ended.
    code: int | None = None


@dataclass(frozen=True, slots=True)
class Observed:
    """The objects of one topology, and how its root stands as far as that says so."""

    objects: tuple[Document, ...]
    # Of nodes by their ids, and of the root by the name of its StatefulSet; those that go are last.
    pods: Mapping[str, tuple[Pod, ...]]
    root: pb.StatusReply | None = None

    def pod(self, id: str) -> Pod | None:
        """The one that runs, if there is one."""
        return next((pod for pod in self.pods.get(id, ()) if not pod.going), None)

    def of_kind(self, kind: str) -> list[Document]:
        return [each for each in self.objects if each["kind"] == kind]

    @property
    def running(self) -> list[TreeNode]:
        """The nodes that have a Deployment which is not about to go."""
        return _nodes(self.of_kind("Deployment"))

    @property
    def begun(self) -> list[TreeNode]:
        """Those, and the ones that have a Service, a Certificate or its Secret of their own: they wait for an
        address or a certificate with which they are to run, or the API server does not take them. Another
        number each time, and none would ever have one."""
        # Of a Secret the least is believed: the others say for sure which machines a node is for.
        waiting = [each for kind in ("Secret", "Certificate", "Service") for each in self.of_kind(kind)]
        found = {node.id: node for node in _nodes(waiting)}
        return _in_order((found | {node.id: node for node in self.running}).values())

    @property
    def living(self) -> list[TreeNode]:
        """Those that have begun and not ended: the Secret of one may be there for a while behind it."""
        left = pb.NodeStatus.STATE_LEFT
        ended = {node.name for node in self.root.nodes if node.state == left} if self.root else set()
        running = {node.id for node in self.running}
        return [node for node in self.begun if node.id in running or node.id not in ended]

    @property
    def outdated(self) -> frozenset[str]:
        """Deployments, and the root's StatefulSet, with pods that are not yet what they are to be."""
        found = (*self.of_kind("Deployment"), *self.of_kind("StatefulSet"))
        return frozenset(each["metadata"]["name"] for each in found if _is_outdated(each))

    @property
    def secrets(self) -> dict[str, dict[str, bytes]]:
        return {
            each["metadata"]["name"]: {
                file: b64decode(content) for file, content in (each.get("data") or {}).items()
            }
            for each in self.of_kind("Secret")
        }

    def trusted(self, topology: str) -> bytes | None:
        """Whom the tree trusts, where that is no matter of each Secret."""
        for each in self.of_kind("ConfigMap"):
            if each["metadata"]["name"] == names.trust(topology):
                found = (each.get("data") or {}).get(names.TREE_FILE)
                return None if found is None else str(found).encode()
        return None

    @property
    def parents(self) -> dict[str, str]:
        """To whom nodes are to send by the plan that was applied last."""
        if self.root is None:
            return {}
        return {node.name: node.planned_parent for node in self.root.nodes if node.planned}

    @property
    def members(self) -> dict[str, pb.NodeStatus]:
        """The nodes that have registered and not ended."""
        if self.root is None:
            return {}
        member = pb.NodeStatus.STATE_MEMBER
        return {node.name: node for node in self.root.nodes if node.state == member}

    def named(self, topology: str) -> dict[int, int]:
        """The largest number that is known to have been given in each layer."""
        ids = [each["metadata"]["name"] for each in self.of_kind("Deployment")]
        ids += [] if self.root is None else [node.name for node in self.root.nodes]
        found: dict[int, int] = {}
        for id in ids:
            known = names.parts(id)
            if known is not None and known[0] == topology:
                found[known[1]] = max(found.get(known[1], -1), known[2])
        return found

    def advertised(self, topology: Topology) -> dict[str, str]:
        """Where devices reach children from outside, by what the API server has given them so far."""
        expose = topology.ingest.expose
        if expose not in OUTSIDE:
            return {}
        found = {}
        for each in self.of_kind("Service"):
            id, spec = each["metadata"]["name"], each.get("spec") or {}
            port: Document = next(iter(spec.get("ports") or ()), {})
            if names.parts(id) is None:
                continue
            if expose == "nodePort" and port.get("nodePort"):
                # On the machine that the child is on, as that says itself.
                found[id] = f"$({names.HOST_IP}):{port['nodePort']}"
            given = ((each.get("status") or {}).get("loadBalancer") or {}).get("ingress") or ()
            host = next((one.get("ip") or one.get("hostname") for one in given), None)
            if expose == "loadBalancer" and host:
                found[id] = f"{host}:{port.get('port', names.TREE_PORT)}"
        return found

    def absent(self, hosts: Iterable[Host] | None) -> frozenset[str]:
        """Nodes, and the root, whose pods are on machines that are lost, or were and have none yet. Where
        machines cannot be seen none is known to be."""
        there = None if hosts is None else {host.name for host in hosts if host.ready}
        return frozenset(id for id in self.pods if self._is_absent(id, there))

    def _is_absent(self, id: str, there: Container[str] | None) -> bool:
        pod, going = self.pod(id), [pod for pod in self.pods[id] if pod.going]
        if pod is None:
            return any(_is_lost(each, there) for each in going)
        if pod.ready or pod.machine:
            return _is_lost(pod, there)
        # It waits for a machine, in place of one that the root still takes for there.
        return bool(going) or id in self.members


def _is_lost(pod: Pod, there: Container[str] | None) -> bool:
    """Whether its machine is not among those that are there: it is not ready, or is gone altogether."""
    return there is not None and pod.machine != "" and pod.machine not in there


def pods_of(documents: Iterable[Document]) -> dict[str, tuple[Pod, ...]]:
    """By the node that they are of, or by the StatefulSet of the root."""
    found: dict[str, list[Pod]] = {}
    for each in documents:
        labels = each["metadata"].get("labels") or {}
        id = labels.get(names.NODE)
        if id is None and labels.get(names.ROLE) == names.ROOT:
            id = names.root(labels[names.TOPOLOGY])
        if id is not None:
            found.setdefault(id, []).append(pod_of(each))
    return {id: tuple(sorted(pods, key=lambda pod: pod.going)) for id, pods in found.items()}


def pod_of(document: Document) -> Pod:
    metadata, status = document["metadata"], document.get("status") or {}
    conditions = {each["type"]: each for each in status.get("conditions") or ()}
    ready = conditions.get("Ready", {}).get("status") == "True"
    return Pod(
        metadata["name"],
        metadata["uid"],
        (document.get("spec") or {}).get("nodeName") or "",
        ready,
        metadata.get("deletionTimestamp") is not None,
        ("", "") if ready else _why(status, conditions),
        status.get("podIP") or "",
        None if ready else _code(status),
    )


def _code(status: Document) -> int | None:
    for container in status.get("containerStatuses", ()):
        for state in (container.get("state") or {}, container.get("lastState") or {}):
            if "terminated" in state:
                return int(state["terminated"].get("exitCode", 0))
    return None


def _why(status: Document, conditions: Mapping[str, Document]) -> tuple[str, str]:
    """The most telling thing that Kubernetes says about a pod that is not ready."""
    for container in (*status.get("initContainerStatuses", ()), *status.get("containerStatuses", ())):
        state = container.get("state") or {}
        for kind in _WAITS:
            told = state.get(kind)
            if told is not None and told.get("reason") not in ("ContainerCreating", "PodInitializing", None):
                before = (container.get("lastState") or {}).get("terminated") or {}
                # What the program said is worth more than that it is waited with the next try.
                said = _last_word(told if kind == "terminated" else before) or told.get("message") or ""
                code = told.get("exitCode", before.get("exitCode"))
                more = "" if code is None else f"exit code {code}"
                return told["reason"], "; ".join(part for part in (said, more) if part) or told["reason"]
    scheduled = conditions.get("PodScheduled", {})
    if scheduled.get("status") == "False":
        return scheduled.get("reason") or "Unschedulable", scheduled.get("message") or "it has no machine"
    if status.get("phase") == "Failed":
        return status.get("reason") or "Failed", status.get("message") or "it has ended"
    if not status.get("containerStatuses"):
        return "Starting", "its image is pulled or its volumes are mounted"
    return "NotReady", "it does not say that it is ready"


def _last_word(terminated: Document) -> str:
    """What a program of ours said last, of what Kubernetes has kept of its log; empty: nothing telling."""
    for line in reversed((terminated.get("message") or "").strip().splitlines()):
        try:
            found = json.loads(line)
        except ValueError:
            return line
        if isinstance(found, dict) and "problem" in found:
            reason = found.get("reason")
            return f"{reason}: {found['problem']}" if reason else str(found["problem"])
    return ""


def _is_outdated(workload: Document) -> bool:
    """Whether its controller has not seen how it is to be, or has not done it yet."""
    spec, status = workload.get("spec") or {}, workload.get("status") or {}
    unseen: bool = status.get("observedGeneration", 0) < workload["metadata"].get("generation", 0)
    undone: bool = status.get("updatedReplicas", 0) < spec.get("replicas", 0)
    # Pods of the template before are still there, beside the new ones.
    surplus: bool = status.get("replicas", 0) > status.get("updatedReplicas", 0)
    return unseen or undone or surplus


def _nodes(documents: Iterable[Document]) -> list[TreeNode]:
    return _in_order(node for node in map(_node, documents) if node is not None)


def _in_order(nodes: Iterable[TreeNode]) -> list[TreeNode]:
    return sorted(nodes, key=lambda node: (node.layer, node.number))


def _node(document: Document) -> TreeNode | None:
    """That which an object of its name is for, or its Certificate."""
    metadata = document["metadata"]
    of_certificate = document["kind"] in ("Certificate", "Secret")
    id = (metadata.get("labels") or {}).get(names.NODE, "") if of_certificate else metadata["name"]
    known = names.parts(id)
    if known is None or metadata.get("deletionTimestamp") is not None or len(id) > NAME_LIMIT:
        return None
    try:
        place = json.loads((metadata.get("annotations") or {}).get(names.PLACE) or "{}")
        selector, host = tuple(sorted(dict(place.get("selector") or {}).items())), place.get("host")
    except (ValueError, TypeError, AttributeError):
        # Somebody has changed it: the node is another one than is wanted, and gives way to that.
        selector, host = (("headwater.dev/unknown", ""),), None
    _, layer, number = known
    return TreeNode(id, layer, number, role_of(layer), "", 0.0, selector, host)
