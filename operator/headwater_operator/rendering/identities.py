"""Who has a certificate, with which names, and the Secrets that they are in."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from headwater.topology import TOPOLOGY_KIND
from headwater.topology.tree import Topology
from headwater_operator import names
from headwater_operator.certificates import Authority, Pair, Role, bundle, issue, needs_renewal, union
from headwater_operator.layout import TreeNode
from headwater_operator.rendering.objects import Manifest, Owner, manifest


@dataclass(frozen=True, slots=True)
class Identity:
    """A party of the tree: the name with which it speaks, those by which it is reached, and its Secret."""

    id: str
    names: tuple[str, ...]
    role: Role
    secret: str


@dataclass(frozen=True, slots=True)
class Material:
    """The authority of a tree, what it has issued by Secret, and the authority of the devices, if they have
    certificates."""

    # None: cert-manager issues them.
    authority: Authority | None
    issued: Mapping[str, Pair]
    devices: bytes | None = None
    # Whom the tree trusts as well, while it goes over from another authority.
    others: bytes = b""
    # Whether cert-manager is to issue others in their place: it must not take them for its own.
    yielding: bool = False
    # Who has a certificate by cert-manager, and the Secrets that it has filled, with the uids of their
    # Certificates.
    requested: tuple[Identity, ...] = ()
    filled: tuple[tuple[str, str], ...] = ()
    # Whom the tree trusts, where that is no matter of each Secret; and whether pods read it there.
    trust: bytes | None = None
    mounted: bool = False


def parties(
    owner: Owner, topology: Topology, nodes: Sequence[TreeNode], advertised: Mapping[str, str]
) -> tuple[Identity, ...]:
    """Everybody who has to have a certificate."""
    root, operator = names.root(owner.name), names.operator(owner.name)
    pod = f"{names.root_pod(owner.name)}.{root}"
    reached = (*_within(owner, root), *_within(owner, pod))
    return (
        Identity(names.ROOT, reached, "root", names.certificate(root)),
        Identity(names.OPERATOR, (), "operator", names.certificate(operator)),
        *(_node(owner, topology, node, advertised.get(node.id)) for node in nodes),
    )


def provide(
    everybody: Sequence[Identity], held: Mapping[str, Pair], by: Authority, now: datetime
) -> tuple[dict[str, Pair], dict[str, str]]:
    """A certificate for each, by Secret: the one that it has, or another one; and why, for those."""
    issued, reasons = {}, {}
    for party in everybody:
        pair = held.get(party.secret)
        why = "there is none"
        if pair is not None:
            why = needs_renewal(pair, by, party.id, party.names, party.role, now) or ""
        if why or pair is None:
            pair = issue(by, party.id, party.names, party.role, now)
            reasons[party.secret] = why
        issued[party.secret] = pair
    return issued, reasons


def _node(owner: Owner, topology: Topology, node: TreeNode, advertised: str | None) -> Identity:
    service = names.layer_service(owner.name, node.layer)
    found = [*_within(owner, f"{node.id}.{service}")]
    if node.role == "child":
        # A device that knows nobody yet asks there, and whichever child answers has to bear that name.
        found += _within(owner, names.ingest_service(owner.name))
        if topology.ingest.expose in ("nodePort", "loadBalancer"):
            found += _within(owner, node.id)
    # That of the machine it is on changes, and a device knows a child by its name anyway.
    if advertised is not None and names.HOST_IP not in advertised:
        found.append(names.host(advertised))
    return Identity(node.id, tuple(dict.fromkeys(found)), "node", names.certificate(node.id))


def _within(owner: Owner, name: str) -> Iterator[str]:
    """As it is called from its own namespace, from others, and in full."""
    yield name
    for suffix in ("", ".svc", ".svc.cluster.local"):
        yield f"{name}.{owner.namespace}{suffix}"


def certificates(
    owner: Owner, everybody: Sequence[Identity], nodes: Sequence[TreeNode], material: Material
) -> Iterator[Manifest]:
    """The Secrets of all parties that have their certificates from the authority, and its own."""
    authority = material.authority
    if authority is None:
        return
    held = {"tls.crt": authority.signing.certificate, "tls.key": authority.signing.key}
    if authority.successor is not None:
        held |= {"next.crt": authority.successor.certificate, "next.key": authority.successor.key}
    if authority.former is not None:
        held |= {"former.crt": authority.former}
    yield _secret(owner, names.authority(owner.name), held | {"ca.crt": authority.trusted})
    trusted = union(authority.trusted, material.others) if material.others else authority.trusted
    children = {names.certificate(node.id) for node in nodes if node.role == "child"}
    more, place = labels(nodes), places(nodes)
    for party in everybody:
        pair = material.issued.get(party.secret)
        if pair is None:
            continue
        # Devices speak to children alone: nobody else trusts who is known by their authority.
        devices = material.devices if party.secret in children else None
        files = {
            "tls.crt": pair.certificate,
            "tls.key": pair.key,
            "ca.crt": bundle(trusted, devices),
        }
        found = _secret(owner, party.secret, files, more.get(party.secret))
        annotations = place.get(party.secret, {})
        if material.yielding:
            issuer = {"name": owner.name, "kind": TOPOLOGY_KIND, "group": names.GROUP}
            annotations |= {names.ISSUER[part]: issuer[part] for part in issuer}
        if annotations:
            found["metadata"]["annotations"] = annotations
        yield found


def places(nodes: Iterable[TreeNode]) -> dict[str, dict[str, str]]:
    """Annotations of what nodes have their certificates in, by Secret: it is there before they are."""
    return {names.certificate(node.id): {names.PLACE: node.place} for node in nodes}


def labels(nodes: Iterable[TreeNode]) -> dict[str, dict[str, str]]:
    """Of the Secrets of nodes, beside those that all have."""
    return {names.certificate(node.id): {names.NODE: node.id, names.LAYER: str(node.layer)} for node in nodes}


def authority_of(data: Mapping[str, bytes]) -> Authority | None:
    """The authority that a Secret holds, as it was written here; None if it holds none."""
    signing = pair_of(data)
    if signing is None:
        return None
    successor = None
    if "next.crt" in data and "next.key" in data:
        successor = Pair(data["next.crt"], data["next.key"])
    return Authority(signing, successor, data.get("former.crt"))


def pair_of(data: Mapping[str, bytes]) -> Pair | None:
    """The certificate that a Secret holds; None if it holds none."""
    found = data.get("tls.crt"), data.get("tls.key")
    return Pair(found[0], found[1]) if found[0] is not None and found[1] is not None else None


def _secret(
    owner: Owner, name: str, files: Mapping[str, bytes], labels: Mapping[str, str] | None = None
) -> Manifest:
    data = {file: b64encode(content).decode() for file, content in files.items()}
    return manifest(owner, "v1", "Secret", name, labels, type="kubernetes.io/tls", data=data)
