"""The pod network of a node: addresses for its pods, and a route to those of every other node.

It runs in a pod on each node, alone, copied out of this package, so it imports nothing of it. It follows the
nodes by a watch: one that joins, leaves, or comes back with another address changes the routes of the others
at once. Everything is looked over again every half a minute, so that nothing stays lost.
"""

import http.client
import json
import logging
import os
import ssl
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# Marks our routes in the node's table, so that we remove our own alone.
PROTOCOL = "87"
REVIEW = 30
RETRY = 0.3
ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
CONFIG = Path("/etc/cni/net.d/10-podnet.conflist")

log = logging.getLogger("podnet")


@dataclass(frozen=True)
class Node:
    name: str
    address: str
    pods: str


def read_node(document: Mapping[str, Any]) -> Node | None:
    """A node once it has both an address and a range of pod addresses."""
    addresses = document.get("status", {}).get("addresses") or []
    address = next((one["address"] for one in addresses if one["type"] == "InternalIP"), None)
    pods = document.get("spec", {}).get("podCIDR")
    return Node(document["metadata"]["name"], address, pods) if address and pods else None


def conflist(pods: str, mtu: int) -> str:
    """Each pod has a link of its own to the node, which routes; so all it sends meets the Services' rules."""
    link = {
        "type": "ptp",
        "ipMasq": False,
        "mtu": mtu,
        # On a file system that a restart of the node empties, as it does the pods.
        "ipam": {
            "type": "host-local",
            "dataDir": "/run/podnet",
            "ranges": [[{"subnet": pods}]],
            "routes": [{"dst": "0.0.0.0/0"}],
        },
    }
    ports = {"type": "portmap", "capabilities": {"portMappings": True}}
    return json.dumps({"cniVersion": "0.3.1", "name": "podnet", "plugins": [link, ports]}, indent=2) + "\n"


def wanted_routes(nodes: Mapping[str, Node], own: str) -> dict[str, str]:
    """Where to send packets for the pods of the others."""
    return {node.pods: node.address for name, node in nodes.items() if name != own}


def route_changes(wanted: Mapping[str, str], present: Mapping[str, str]) -> list[list[str]]:
    """The `ip route` commands that turn the one into the other."""
    changes = [["del", pods, "proto", PROTOCOL] for pods in present if pods not in wanted]
    for pods, address in wanted.items():
        if present.get(pods) != address:
            changes.append(["replace", pods, "via", address, "proto", PROTOCOL])
    return changes


def present_routes() -> dict[str, str]:
    shown = command("ip", "-json", "route", "show", "proto", PROTOCOL)
    return {
        route["dst"]: route.get("gateway", "")
        for route in json.loads(shown or "[]")
        if route.get("type") != "unreachable"
    }


def seal(subnet: str) -> None:
    """A packet for a pod that is gone ends here. By the default route it would leave the cluster, and a
    stranger outside might answer in the pod's place."""
    command("ip", "route", "replace", "unreachable", subnet, "proto", PROTOCOL)


def masquerade(subnet: str) -> None:
    """What leaves the cluster does so in the node's name, since nobody outside knows a way back to a pod."""
    rule = ["POSTROUTING", "-s", subnet, "!", "-d", subnet, "-j", "MASQUERADE"]
    known = subprocess.run(["iptables", "-w", "-t", "nat", "-C", *rule], capture_output=True, check=False)
    if known.returncode:
        command("iptables", "-w", "-t", "nat", "-A", *rule)


def configure(pods: str) -> None:
    """Tells the node how to connect pods, which makes it ready.

    Not before Services work: a pod that calls one too early holds on to a connection that leads nowhere.
    """
    uplink = Path("/sys/class/net/eth0/mtu")
    text = conflist(pods, int(uplink.read_text()) if uplink.exists() else 1500)
    if CONFIG.exists() and CONFIG.read_text() == text:
        return
    # By its certificate: whoever else answers at that address is not it.
    host, port = os.environ["KUBERNETES_SERVICE_HOST"], os.environ["KUBERNETES_SERVICE_PORT"]
    Server(f"https://{host}:{port}").get("/version", timeout=2)
    part = CONFIG.with_name(f".{CONFIG.name}.part")
    part.write_text(text)
    part.replace(CONFIG)
    log.info("pods of this node are in %s", pods)


def apply(nodes: Mapping[str, Node], own: str, subnet: str) -> None:
    for change in route_changes(wanted_routes(nodes, own), present_routes()):
        command("ip", "route", *change)
        log.info("ip route %s", " ".join(change))
    seal(subnet)
    masquerade(subnet)
    if own in nodes:
        configure(nodes[own].pods)


def command(*args: str) -> str:
    done = subprocess.run(args, capture_output=True, text=True, check=False)
    if done.returncode:
        raise OSError(f"{' '.join(args)}: {done.stderr.strip()}")
    return done.stdout


class Server:
    """The API server, asked with this pod's account."""

    def __init__(self, base: str) -> None:
        self.base = base
        self.context = ssl.create_default_context(cafile=str(ACCOUNT / "ca.crt"))

    def get(self, path: str, timeout: float) -> dict[str, Any]:
        with self._open(path, timeout) as answer:
            found: dict[str, Any] = json.load(answer)
            return found

    def lines(self, path: str, timeout: float) -> Iterator[dict[str, Any]]:
        with self._open(path, timeout) as answer:
            for line in answer:
                yield json.loads(line)

    def _open(self, path: str, timeout: float) -> http.client.HTTPResponse:
        # The token is renewed in its file from time to time.
        headers = {"Authorization": f"Bearer {(ACCOUNT / 'token').read_text().strip()}"}
        request = urllib.request.Request(self.base + path, headers=headers)
        answer: http.client.HTTPResponse = urllib.request.urlopen(
            request, timeout=timeout, context=self.context
        )
        return answer


def follow(server: Server, own: str, subnet: str) -> None:
    """One look at all nodes, then whatever changes, until the next look is due."""
    listed = server.get("/api/v1/nodes", timeout=10)
    found = (read_node(item) for item in listed["items"])
    nodes = {node.name: node for node in found if node}
    apply(nodes, own, subnet)
    version = listed["metadata"]["resourceVersion"]
    watch = f"/api/v1/nodes?watch=1&resourceVersion={version}&timeoutSeconds={REVIEW}"
    # A silent server is a dead one: kubelets report every few seconds.
    for event in server.lines(watch, timeout=REVIEW + 10):
        if event["type"] not in ("ADDED", "MODIFIED", "DELETED"):
            return
        name = event["object"]["metadata"]["name"]
        node = read_node(event["object"]) if event["type"] != "DELETED" else None
        if node == nodes.get(name):
            continue
        if node:
            nodes[name] = node
        else:
            nodes.pop(name, None)
        apply(nodes, own, subnet)


def main() -> None:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", stream=sys.stderr)
    # kind names the control plane, which needs no kube-proxy.
    server = Server(f"https://{os.environ['CONTROL_PLANE_ENDPOINT']}")
    while True:
        try:
            follow(server, os.environ["NODE_NAME"], os.environ["POD_SUBNET"])
        except (OSError, ValueError, http.client.HTTPException) as error:
            log.warning("%s: %s", type(error).__name__, error)
            time.sleep(RETRY)


if __name__ == "__main__":
    main()
