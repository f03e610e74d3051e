"""From whom the parties of a tree have their certificates by now: its own authority, or cert-manager.

Nothing is remembered but what stands in the cluster. A tree that changes from the one to the other goes in
steps, so that nobody ever meets a certificate of somebody that it does not trust yet:

- to cert-manager: the operator's own certificate is asked for first, which tells the authority of the
  issuer; every pod is started anew, one of each layer at a time, and trusts both; then all others are asked
  for. The authority of the tree is kept, and trusted, for a day from then on.
- back: an authority is made, and trusted beside the issuer's; when that has reached every pod the
  certificates are of that, and each pod is started anew with the files of its own Secret.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from headwater.topology.tree import Issuer
from headwater_operator import names
from headwater_operator.certificates import SPREAD, Authority, made, signed_by, unfit, union
from headwater_operator.certifying import Secrets, certified, held_authority
from headwater_operator.observation import Observed
from headwater_operator.rendering import Identity, Material, pair_of

# How long until kubelets have surely brought what a ConfigMap says to pods that run.
BROUGHT = timedelta(minutes=3)

Document = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Issuance:
    """What the parties of a tree have, and what they lack."""

    material: Material
    # Why certificates of the tree's own authority are made anew, by Secret.
    renewed: Mapping[str, str] = field(default_factory=dict)
    # What is waited for, and what was issued but cannot be used, by Certificate and in words.
    awaited: Mapping[str, str] = field(default_factory=dict)
    unfit: Mapping[str, str] = field(default_factory=dict)
    # What is still of the authority before, on the way from one to the other, and why.
    replaced_later: Mapping[str, str] = field(default_factory=dict)
    # Objects that are neither wanted nor to go yet, by kind and name.
    untouched: frozenset[tuple[str, str]] = frozenset()

    def lacks(self, id: str) -> bool:
        """Whether a node, or the root by its StatefulSet's name, has no certificate to start with."""
        secret = names.certificate(id)
        return secret in self.awaited or secret in self.unfit


def issuance(
    topology: str,
    issuer: Issuer | None,
    parties: Sequence[Identity],
    observed: Observed,
    devices: bytes | None,
    now: datetime,
) -> Issuance:
    """`devices` is the authority of the devices."""
    seen = _Seen(topology, parties, observed, devices, now)
    if issuer is not None:
        return _by_cert_manager(seen)
    if seen.certificates or seen.trusted is not None or any(map(_mounts, seen.workloads)):
        return _back(seen)
    material, renewed = certified(topology, parties, observed.secrets, devices, now)
    return Issuance(material, renewed)


class _Seen:
    """What there is of a tree's certificates."""

    def __init__(
        self,
        topology: str,
        parties: Sequence[Identity],
        observed: Observed,
        devices: bytes | None,
        now: datetime,
    ) -> None:
        self.topology, self.parties, self.devices, self.now = topology, parties, devices, now
        self.held: Secrets = observed.secrets
        self.authority = held_authority(topology, self.held)
        self.certificates = {each["metadata"]["name"]: each for each in observed.of_kind("Certificate")}
        self.workloads = [*observed.of_kind("Deployment"), *observed.of_kind("StatefulSet")]
        self.documents = {each["metadata"]["name"]: each for each in observed.of_kind("Secret")}
        self.trusted = observed.trusted(topology)
        self.issued = {party.secret for party in parties if self._is_issued(party.secret, self.authority)}

    def _is_issued(self, secret: str, own: Authority | None) -> bool:
        """Whether cert-manager has filled a Secret, and nobody since."""
        metadata = self.documents.get(secret, {}).get("metadata", {})
        if names.ISSUED not in (metadata.get("annotations") or {}):
            return False
        pair = pair_of(self.held[secret])
        return own is None or pair is None or not signed_by(own, pair)

    def problem(self, party: Identity) -> str | None:
        """What is wrong with what cert-manager has issued."""
        return unfit(self.held[party.secret], party.id, party.names, party.role, self.now)

    def certified(self, parties: Iterable[Identity]) -> tuple[Material, Mapping[str, str]]:
        """Those that have theirs from the authority of the tree."""
        return certified(self.topology, tuple(parties), self.held, self.devices, self.now)

    def union(self, own: Authority | None) -> bytes:
        """Whom all of them trust together."""
        bundles = [self.held[secret].get("ca.crt") for secret in sorted(self.issued)]
        return union(*bundles, None if own is None else own.trusted)


def _by_cert_manager(seen: _Seen) -> Issuance:
    problems = {party.secret: seen.problem(party) for party in seen.parties if party.secret in seen.issued}
    good = {secret for secret, problem in problems.items() if problem is None}
    first = names.certificate(names.operator(seen.topology))
    # With no authority of its own, nobody trusts another yet.
    ready = seen.authority is None or (first in good and all(map(_moved, seen.workloads)))
    requested = tuple(
        party
        for party in seen.parties
        if ready
        or party.secret == first
        or party.secret in seen.certificates
        or party.secret not in seen.held
    )
    asked = {party.secret for party in requested}
    awaited, wrong = {}, {}
    for secret in sorted(asked - good):
        certificate = seen.certificates.get(secret, {})
        problem = problems.get(secret)
        if problem is not None and _condition(certificate)[0]:
            wrong[secret] = problem
        else:
            awaited[secret] = _condition(certificate)[1]
    own, renewed = _own(seen, good)
    trust = seen.union(None if own is None else own.authority) or seen.trusted
    material = Material(
        None if own is None else own.authority,
        {} if own is None else own.issued,
        seen.devices,
        yielding=True,
        requested=requested,
        filled=tuple(
            (secret, seen.certificates[secret]["metadata"].get("uid", ""))
            for secret in sorted(seen.issued & seen.certificates.keys())
            if _adoptable(seen.documents[secret])
        ),
        trust=trust,
        mounted=first in good or seen.authority is None or any(map(_mounts, seen.workloads)),
    )
    # Somebody has taken their Certificates away, which are asked for again.
    kept = frozenset(("Secret", secret) for secret in seen.issued - seen.certificates.keys())
    said = "is asked for once every pod is started anew and trusts the issuer"
    later = {party.secret: said for party in seen.parties if party.secret not in asked}
    return Issuance(material, renewed, awaited, wrong, later, kept)


def _own(seen: _Seen, good: set[str]) -> tuple[Material | None, Mapping[str, str]]:
    """What is still of the tree's own authority; None once nobody is left who would need it."""
    if seen.authority is None:
        return None, {}
    # What cert-manager has not got to yet is good until then.
    left = [party for party in seen.parties if party.secret in seen.held and party.secret not in seen.issued]
    everybody = all(party.secret in good for party in seen.parties)
    if everybody and (since := _issued_at(seen)) is not None and seen.now >= since + SPREAD:
        return None, {}
    return seen.certified(left)


def _issued_at(seen: _Seen) -> datetime | None:
    """When the last of all Certificates came to be ready; None: not all are."""
    times = [_ready_since(seen.certificates.get(party.secret, {})) for party in seen.parties]
    return None if None in times else max((time for time in times if time is not None), default=None)


def _ready_since(certificate: Document) -> datetime | None:
    conditions = (certificate.get("status") or {}).get("conditions") or ()
    for each in conditions:
        if each["type"] == "Ready" and each["status"] == "True" and each.get("lastTransitionTime"):
            return datetime.fromisoformat(each["lastTransitionTime"])
    return None


def _back(seen: _Seen) -> Issuance:
    if seen.issued and (seen.authority is None or not made(seen.authority, BROUGHT, seen.now)):
        # The authority is made, and everybody told; what cert-manager has issued is good meanwhile.
        material, renewed = seen.certified(party for party in seen.parties if party.secret not in seen.issued)
        kept = {("Certificate", name) for name in seen.certificates}
        kept |= {("Secret", secret) for secret in seen.issued}
        trust = union(seen.trusted, seen.union(material.authority))
        said = "is cert-manager's until every pod trusts the authority of the tree"
        return Issuance(
            _with(material, trust=trust, mounted=True, others=trust),
            renewed,
            replaced_later=dict.fromkeys(sorted(seen.issued), said),
            untouched=frozenset(kept),
        )
    material, renewed = seen.certified(seen.parties)
    assert material.authority is not None
    trust = union(material.authority.trusted, seen.trusted, seen.union(None))
    if not seen.issued and not seen.certificates and all(map(_moved_back, seen.workloads)):
        return Issuance(material, renewed)
    said = "trusts the issuer until it is started anew"
    names_left = (each["metadata"]["name"] for each in seen.workloads if not _moved_back(each))
    later = dict.fromkeys([*sorted(seen.issued | seen.certificates.keys()), *names_left], said)
    return Issuance(_with(material, trust=trust, mounted=False, others=trust), renewed, replaced_later=later)


def _with(material: Material, *, trust: bytes, mounted: bool, others: bytes) -> Material:
    return Material(
        material.authority, material.issued, material.devices, others, trust=trust, mounted=mounted
    )


def _condition(certificate: Document) -> tuple[bool, str]:
    """Whether a Certificate is ready as it is asked for now, and what it says of that."""
    conditions = (certificate.get("status") or {}).get("conditions") or ()
    found = {each["type"]: each for each in conditions}
    ready = found.get("Ready")
    if ready is None:
        return False, "cert-manager has not looked at it yet"
    generation = (certificate.get("metadata") or {}).get("generation")
    current = ready.get("observedGeneration", generation) == generation
    said = [ready.get("message")]
    if ready.get("status") != "True" and (issuing := found.get("Issuing")) is not None:
        said.append(issuing.get("message"))
    told = "; ".join(text for text in said if text) or "it is not ready"
    return ready.get("status") == "True" and current, told


def _adoptable(secret: Document) -> bool:
    """Whether a Secret is to be made to go with its Certificate; cert-manager may see to that itself."""
    references = secret["metadata"].get("ownerReferences") or ()
    return not any(each.get("kind") == "Certificate" and each.get("controller") for each in references)


def _mounts(workload: Document) -> bool:
    """Whether its pods read whom they trust from where all do."""
    spec = ((workload.get("spec") or {}).get("template") or {}).get("spec") or {}
    return any("projected" in volume and volume.get("name") == "tls" for volume in spec.get("volumes") or ())


def _moved(workload: Document) -> bool:
    return _mounts(workload) and _rolled(workload)


def _moved_back(workload: Document) -> bool:
    return not _mounts(workload) and _rolled(workload)


def _rolled(workload: Document) -> bool:
    """Whether all its pods are those of its present template, and ready."""
    status, wanted = workload.get("status") or {}, (workload.get("spec") or {}).get("replicas", 1)
    counts = (status.get(each) or 0 for each in ("replicas", "updatedReplicas", "readyReplicas"))
    current = status.get("observedGeneration") == workload["metadata"].get("generation")
    return current and all(count == wanted for count in counts)
