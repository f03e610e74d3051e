"""Trees to render, and certificates that are none: what is rendered is then the same every time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from headwater.topology import topology_of
from headwater.topology.tree import Selector, Topology
from headwater_operator import names
from headwater_operator.certificates import Authority, Pair
from headwater_operator.layout import TreeNode
from headwater_operator.rendering import Images, Manifest, Material, Owner, parties, render

IMAGES = Images("headwater/node:0.1.0", "headwater/root:0.1.0")


def owner(document: Mapping[str, Any]) -> Owner:
    return Owner("plant", document["metadata"]["name"], "7c8e2a5e-0000-4000-8000-000000000001")


def nodes(
    topology: str,
    *widths: int,
    selectors: Mapping[int, Selector] | None = None,
    hosts: Mapping[int, str] | None = None,
) -> list[TreeNode]:
    """So many nodes in each layer, children first; selectors and hosts are by the numbers of children."""
    found = []
    for layer, width in enumerate(widths, 1):
        above = widths[layer] if layer < len(widths) else None
        for number in range(width):
            parent = names.ROOT if above is None else names.node(topology, layer + 1, number % above)
            child = layer == 1
            found.append(
                TreeNode(
                    names.node(topology, layer, number),
                    layer,
                    number,
                    "child" if child else "intermediate",
                    parent,
                    18.0,
                    (selectors or {}).get(number, ()) if child else (),
                    (hosts or {}).get(number) if child else None,
                )
            )
    return found


def material(
    given: Owner,
    topology: Topology,
    tree: Sequence[TreeNode],
    advertised: Mapping[str, str] | None = None,
    devices: bytes | None = None,
) -> Material:
    everybody = parties(given, topology, tree, advertised or {})
    if topology.issuer is not None:
        filled = tuple((party.secret, f"uid of {party.secret}") for party in everybody)
        trust = b"authority\n"
        return Material(None, {}, devices, requested=everybody, filled=filled, trust=trust, mounted=True)
    issued = {
        party.secret: Pair(f"{party.id} certificate\n".encode(), f"{party.id} key\n".encode())
        for party in everybody
    }
    return Material(Authority(Pair(b"authority\n", b"authority key\n")), issued, devices)


def rendered(
    document: dict[str, Any],
    tree: Sequence[TreeNode],
    *,
    images: Images = IMAGES,
    devices: bytes | None = None,
    **options: Any,
) -> list[Manifest]:
    topology, given = topology_of(document), owner(document)
    held = material(given, topology, tree, options.get("advertised"), devices)
    return render(given, topology, document, tree, images, held, **options)


def one(manifests: Sequence[Manifest], kind: str, name: str) -> Manifest:
    (found,) = [each for each in manifests if each["kind"] == kind and each["metadata"]["name"] == name]
    return found


def every(manifests: Sequence[Manifest], kind: str) -> dict[str, Manifest]:
    return {each["metadata"]["name"]: each for each in manifests if each["kind"] == kind}


def templates(manifests: Sequence[Manifest]) -> dict[str, Any]:
    """The pod templates by the names of what has them."""
    kinds = ("Deployment", "StatefulSet")
    return {each["metadata"]["name"]: each["spec"]["template"] for each in manifests if each["kind"] in kinds}
