"""The pod network: routes that follow the nodes, addresses for pods."""

from __future__ import annotations

import json
from typing import Any

from airgap_kind import network
from airgap_kind.podnet import Node, conflist, read_node, route_changes, wanted_routes


def document(
    name: str, address: str | None = "172.18.0.2", pods: str | None = "10.244.1.0/24"
) -> dict[str, Any]:
    addresses = [{"type": "Hostname", "address": name}]
    if address:
        addresses.append({"type": "InternalIP", "address": address})
    return {
        "metadata": {"name": name},
        "spec": {"podCIDR": pods} if pods else {},
        "status": {"addresses": addresses},
    }


def test_a_node_counts_once_it_has_an_address_and_a_range() -> None:
    assert read_node(document("a")) == Node("a", "172.18.0.2", "10.244.1.0/24")
    assert read_node(document("a", address=None)) is None
    assert read_node(document("a", pods=None)) is None
    assert read_node({"metadata": {"name": "a"}}) is None


def test_routes_lead_to_all_others() -> None:
    nodes = {name: Node(name, f"172.18.0.{at}", f"10.244.{at}.0/24") for at, name in enumerate("abc")}
    assert wanted_routes(nodes, "b") == {"10.244.0.0/24": "172.18.0.0", "10.244.2.0/24": "172.18.0.2"}


def test_only_what_differs_is_changed() -> None:
    present = {"10.244.0.0/24": "172.18.0.2", "10.244.1.0/24": "172.18.0.3", "10.244.2.0/24": "172.18.0.4"}
    wanted = {"10.244.0.0/24": "172.18.0.2", "10.244.1.0/24": "172.18.0.9", "10.244.3.0/24": "172.18.0.5"}
    assert [" ".join(change) for change in route_changes(wanted, present)] == [
        "del 10.244.2.0/24 proto 87",
        "replace 10.244.1.0/24 via 172.18.0.9 proto 87",
        "replace 10.244.3.0/24 via 172.18.0.5 proto 87",
    ]
    assert route_changes(wanted, wanted) == []


def test_pods_get_addresses_of_their_node() -> None:
    link, ports = json.loads(conflist("10.244.7.0/24", 1400))["plugins"]
    assert link["ipam"]["ranges"] == [[{"subnet": "10.244.7.0/24"}]]
    assert link["mtu"] == 1400
    assert ports["capabilities"] == {"portMappings": True}


def test_the_manifest_is_one_that_kind_fills_in() -> None:
    text = network.manifest("some/podnet:1")
    assert "image: some/podnet:1\n" in text
    assert '"{{ .PodSubnet }}"' in text
    # kind adds to the environment of the first container of every DaemonSet.
    assert text.count("kind: DaemonSet") == 1
