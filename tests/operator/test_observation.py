"""What was seen of a topology, as values."""

from __future__ import annotations

from typing import Any

from headwater.topology import Topology
from headwater_operator import names
from headwater_operator.layout import Host, TreeNode
from headwater_operator.observation import Observed, pods_of
from headwater_operator.specification import specification
from tests.operator.test_layout import topology
from tests.operator.views import deployment, member, observed, pod, root

A, B = (TreeNode(f"factory-l1-{n}", 1, n, "child", f"factory-l2-{n}", 5.0) for n in range(2))
M, N = (TreeNode(f"factory-l2-{n}", 2, n, "intermediate", "root", 5.0) for n in range(2))
HOSTS = [Host("good", {}), Host("lost", {}, ready=False)]


def going(document: dict[str, Any]) -> dict[str, Any]:
    document["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    return document


def absent(*pods: dict[str, Any], members: bool = True, hosts: Any = HOSTS) -> set[str]:
    answer = root(member(A.id)) if members else root()
    return set(observed([A], list(pods), answer).absent(hosts))


def test_a_node_is_absent_while_its_machine_is_lost_and_until_it_has_another() -> None:
    assert absent(pod(A.id, machine="good")) == set()
    assert absent(pod(A.id, machine="lost")) == {A.id}
    # Its Node was deleted, its pod not yet.
    assert absent(pod(A.id, machine="gone for good")) == {A.id}
    assert absent(pod(A.id, machine="lost"), hosts=None) == set()
    # It is evicted, and the next one waits for a machine.
    assert absent(going(pod(A.id, machine="lost"))) == {A.id}
    assert absent(going(pod(A.id, machine="lost")), pod(A.id, ready=False, machine="")) == {A.id}
    assert absent(pod(A.id, ready=False, machine=""), hosts=None) == {A.id}
    assert absent(going(pod(A.id, machine="lost")), pod(A.id, ready=False, machine="good")) == set()
    # One that has never been there is not missed.
    assert absent(pod(A.id, ready=False, machine=""), members=False) == set()


def test_nobody_sends_to_a_node_that_is_absent() -> None:
    def told(*gone: str) -> dict[str, tuple[str, float]]:
        found = specification(topology(), "uid", 1, [A, B, M, N], (), frozenset(gone))
        return {id: (parent, capacity) for id, parent, capacity in found.nodes}

    assert told()[A.id] == (M.id, 5.0)
    assert told(M.id)[A.id] == (N.id, 5.0)
    assert told(M.id, N.id)[A.id] == ("root", 5.0)
    assert told(A.id)[A.id] == (M.id, 0.0)


def test_nodes_are_known_again_by_their_deployments() -> None:
    special = TreeNode("factory-l1-7", 1, 7, "child", "", 0.0, (("disk", "ssd"),), None)
    bound = TreeNode("factory-l1-8", 1, 8, "child", "", 0.0, (), "edge-3")
    seen = Observed((deployment(special), deployment(bound), going(deployment(A))), {})
    assert seen.running == [special, bound]
    changed = deployment(special)
    changed["metadata"]["annotations"][names.PLACE] = "{"
    (found,) = Observed((changed,), {}).running
    assert found.selector != special.selector
    assert Observed((deployment(special), deployment(A)), {}).named("factory") == {1: 7}
    assert Observed((), {}, root(member("factory-l3-4", left=True))).named("factory") == {3: 4}


def test_pods_of_what_was_before_are_outdated() -> None:
    def workload(generation: int, seen: int | None, updated: int | None, replicas: int = 1) -> Observed:
        found: dict[str, Any] = deployment(A, generation=generation)
        told = {"observedGeneration": seen, "updatedReplicas": updated}
        status = {name: value for name, value in told.items() if value is not None}
        return Observed(({**found, "spec": {"replicas": replicas}, "status": status},), {})

    assert workload(1, None, None).outdated == {A.id}
    assert workload(2, 1, 1).outdated == {A.id}
    assert workload(2, 2, None).outdated == {A.id}
    assert workload(2, 2, 1).outdated == frozenset()
    # It rests.
    assert workload(3, 3, None, replicas=0).outdated == frozenset()


def test_a_node_that_waits_for_an_address_is_known_again_by_its_service() -> None:
    waits = TreeNode("factory-l1-7", 1, 7, "child", "", 0.0, (("disk", "ssd"),), None)
    placed = {"name": waits.id, "annotations": {names.PLACE: waits.place}}
    service = {"kind": "Service", "metadata": placed}
    layer = {"kind": "Service", "metadata": {"name": "factory-l1"}}
    bound = TreeNode("factory-l1-8", 1, 8, "child", "", 0.0, (), "edge-3")
    seen = Observed((deployment(bound), service, layer), {})
    assert seen.begun == [waits, bound]
    assert seen.running == [bound]
    # Whatever a Service says of a node that runs, its Deployment says it too.
    assert Observed((deployment(waits), {"kind": "Service", "metadata": {"name": waits.id}}), {}).begun == [
        waits
    ]


def test_a_node_that_the_api_server_does_not_take_keeps_its_number() -> None:
    waits = TreeNode("factory-l1-7", 1, 7, "child", "", 0.0, (("disk", "ssd"),), None)
    placed = {"labels": {names.NODE: waits.id}, "annotations": {names.PLACE: waits.place}}
    secret = {"kind": "Secret", "metadata": {"name": names.certificate(waits.id), **placed}}
    of_root = {"kind": "Secret", "metadata": {"name": "factory-root-tls"}}
    assert Observed((secret, of_root), {}).begun == [waits]


def test_one_that_cert_manager_has_given_a_certificate_keeps_its_machine() -> None:
    """A Secret that is filled says nothing of machines, unless it was told to."""
    waits = TreeNode("factory-l1-7", 1, 7, "child", "", 0.0, (), "edge-3")
    labels, name = {names.NODE: waits.id}, names.certificate(waits.id)
    filled = {"kind": "Secret", "metadata": {"name": name, "labels": labels}}
    placed = {"name": name, "labels": labels, "annotations": {names.PLACE: waits.place}}
    asked = {"kind": "Certificate", "metadata": placed}
    assert Observed((filled, asked), {}).begun == [waits]
    assert Observed((asked, filled), {}).begun == [waits]


def test_what_a_program_said_last_is_why_its_pod_is_not_ready() -> None:
    def why(message: str) -> tuple[str, str]:
        waiting = {"reason": "CrashLoopBackOff", "message": "back-off 10s restarting failed container"}
        before = {"exitCode": 4, "message": message}
        container = {"state": {"waiting": waiting}, "lastState": {"terminated": before}}
        (found,) = pods_of([pod(A.id, ready=False, containerStatuses=[container])])[A.id]
        return found.why

    started = '{"node": "root", "port": 7070}'
    halted = '{"level": "error", "message": "halted", "reason": "CheckpointDiffers", "problem": "start that"}'
    assert why(f"{started}\n{halted}\n") == ("CrashLoopBackOff", "CheckpointDiffers: start that; exit code 4")
    assert why(f"{halted}\n{started}") == ("CrashLoopBackOff", "CheckpointDiffers: start that; exit code 4")
    assert why("Killed") == ("CrashLoopBackOff", "Killed; exit code 4")
    assert why(started) == ("CrashLoopBackOff", "back-off 10s restarting failed container; exit code 4")


def test_children_are_reached_from_outside_by_what_the_api_server_gave() -> None:
    def service(ports: Any, **status: Any) -> Observed:
        found = {"kind": "Service", "metadata": {"name": A.id}, "spec": {"ports": ports}, "status": status}
        return Observed((found,), {})

    def exposed(how: str) -> Topology:
        return topology(ingest={"expose": how})

    port = {"port": 7070, "nodePort": 30_123}
    assert service([port]).advertised(exposed("clusterIP")) == {}
    assert service([port]).advertised(exposed("nodePort")) == {A.id: "$(HEADWATER_HOST_IP):30123"}
    assert service([{"port": 7070}]).advertised(exposed("nodePort")) == {}
    given = {"loadBalancer": {"ingress": [{"ip": "192.0.2.7"}]}}
    assert service([port], **given).advertised(exposed("loadBalancer")) == {A.id: "192.0.2.7:7070"}
    assert service([port]).advertised(exposed("loadBalancer")) == {}


def test_why_a_pod_is_not_ready() -> None:
    def why(**status: Any) -> str:
        found = pods_of([pod(A.id, ready=False, **status)])
        return found[A.id][0].why[0]

    assert (
        why(containerStatuses=[{"state": {"waiting": {"reason": "ImagePullBackOff"}}}]) == "ImagePullBackOff"
    )
    assert why(containerStatuses=[{"state": {"terminated": {"reason": "OOMKilled"}}}]) == "OOMKilled"
    unplaced = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/4"}
    assert why(conditions=[unplaced], containerStatuses=[]) == "Unschedulable"
    assert why(containerStatuses=[]) == "Starting"
    assert why() == "NotReady"
    assert why(phase="Failed", reason="Evicted") == "Evicted"


def test_a_node_that_waits_for_its_certificate_is_known_by_it() -> None:
    """Else it would have another number at each look."""
    labels = {names.NODE: A.id}
    asked = {"apiVersion": "cert-manager.io/v1", "kind": "Certificate"}
    certificate = {**asked, "metadata": {"name": f"{A.id}-tls", "labels": labels}}
    of_root = {**asked, "metadata": {"name": "factory-root-tls", "labels": {}}}
    seen = Observed((certificate, of_root), {})
    assert [node.id for node in seen.begun] == [A.id]
    assert seen.running == []
    begun = Observed((certificate, deployment(A)), {})
    assert [node.id for node in begun.begun] == [node.id for node in begun.running] == [A.id]


def test_one_that_has_ended_is_not_held_because_its_secret_is_still_there() -> None:
    labels = {names.NODE: A.id}
    secret = {"kind": "Secret", "metadata": {"name": names.certificate(A.id), "labels": labels}}
    assert [node.id for node in Observed((secret,), {}).living] == [A.id]
    assert Observed((secret,), {}, root(member(A.id, left=True))).living == []
    begun_again = Observed((secret, deployment(A)), {}, root(member(A.id, left=True)))
    assert [node.id for node in begun_again.living] == [A.id]
