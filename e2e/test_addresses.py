"""How devices come in from outside of the cluster, and a child on each machine."""

from __future__ import annotations

import json
from typing import Any

from e2e.images import NODE
from e2e.kubectl import kubectl
from e2e.trees import Fleet, Tree, planted, topology
from headwater_operator import names

HALL = "e2e.headwater.dev/hall"
# Of a range that is nobody's: within the cluster its own proxy leads there.
BALANCER = "203.0.113."


def _machines() -> dict[str, str]:
    """Their addresses, by tier."""
    found = json.loads(kubectl("get", "nodes", "--output=json"))["items"]
    return {
        each["metadata"]["labels"].get("headwater.dev/tier", ""): next(
            one["address"] for one in each["status"]["addresses"] if one["type"] == "InternalIP"
        )
        for each in found
    }


def _services(tree: Tree) -> list[dict[str, Any]]:
    """Those of one child each."""
    selector = f"{names.TOPOLOGY}={tree.name},{names.NODE}"
    found: list[dict[str, Any]] = json.loads(
        kubectl("--namespace", tree.space, "get", "services", "--selector", selector, "--output=json")
    )["items"]
    return found


def _outside(tree: Tree, addresses: list[str]) -> list[str]:
    """Those that devices were sent to."""
    return [each for each in addresses if not each.startswith(names.ingest_service(tree.name))]


def test_by_ports_of_machines(space: str) -> None:
    with planted(space, topology("ported", 6, ingest={"expose": "nodePort"})) as tree:
        tree.settled()
        ports = {each["spec"]["ports"][0]["nodePort"] for each in _services(tree)}
        assert len(ports) == 3
        sending = tree.send(Fleet(6, events=50), NODE)
        sending.done()
        edge = _machines()["edge"]
        sent_to = _outside(tree, sending.at)
        assert sent_to
        assert {*sent_to} <= {f"{edge}:{port}" for port in ports}
        tree.assert_exact()


def test_by_balancers(space: str) -> None:
    with planted(space, topology("balanced", 6, ingest={"expose": "loadBalancer"})) as tree:
        # A child says where it is reached: it is not made before that is known.
        tree.until(lambda: len(_services(tree)) == 3, "there is no Service for each child")
        assert tree.pods(f"{names.ROLE}=child") == []
        # No cloud gives addresses here.
        for number, service in enumerate(_services(tree)):
            ingress = {"status": {"loadBalancer": {"ingress": [{"ip": f"{BALANCER}{number + 1}"}]}}}
            kubectl(
                *("--namespace", space, "patch", "service", service["metadata"]["name"]),
                *("--subresource=status", "--type=merge", "--patch", json.dumps(ingress)),
            )
        tree.settled()
        sending = tree.send(Fleet(6, events=50), NODE)
        sending.done()
        sent_to = _outside(tree, sending.at)
        assert sent_to
        assert {*sent_to} <= {f"{BALANCER}{number}:{names.TREE_PORT}" for number in (1, 2, 3)}
        tree.assert_exact()


def test_a_child_on_each_machine_at_its_port(space: str) -> None:
    machines = _machines()
    document = topology("halls", 4, ingest={"expose": "hostPort"})
    document["spec"]["node"]["ingestLimit"] = 100
    document["spec"]["placement"]["child"] |= {"mode": "perNode", "nodeSelector": {HALL: "yes"}}
    try:
        _label("edge", "yes")
        with planted(space, document) as tree:
            tree.settled()
            assert _children(tree) == {machines["edge"]}
            sending = tree.send(Fleet(4, events=None), NODE)
            tree.shows()
            # A machine joins, and has a child.
            _label("fog", "yes")
            both = {machines["edge"], machines["fog"]}
            tree.until(lambda: _children(tree) == both, "the machine that joined has no child")
            tree.settled()
            # One leaves, and its child does.
            _label("edge", None)
            tree.until(lambda: _children(tree) == {machines["fog"]}, "the child stays")
            tree.settled()
            sending.enough()
            # All are where the one is that stayed, by its machine's address.
            assert _outside(tree, sending.at) == [f"{machines['fog']}:{names.TREE_PORT}"]
            tree.assert_exact()
    finally:
        for tier in ("edge", "fog"):
            _label(tier, None)


def _label(tier: str, value: str | None) -> None:
    said = f"{HALL}-" if value is None else f"{HALL}={value}"
    kubectl("label", "nodes", "--selector", f"headwater.dev/tier={tier}", said, "--overwrite")


def _children(tree: Tree) -> set[str]:
    """The addresses of the machines that have one."""
    pods = tree.pods(f"{names.ROLE}=child")
    return {pod["status"].get("hostIP", "") for pod in pods if "deletionTimestamp" not in pod["metadata"]}
