"""From whom parties have their certificates, and that they trust each other on the way from one to the other.

`World` is a cluster as far as certificates go: what the operator wants is applied in any order, cert-manager
fills Secrets when it likes, and kubelets bring files to pods when they like. Certificates are signed by an
authority of the operator's code and laid out as cert-manager does; e2e/operator has cert-manager itself.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from copy import deepcopy
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import pytest
from cryptography import x509

from headwater.topology import topology_of
from headwater_operator import names
from headwater_operator.certificates import DAY, Authority, authority, issue, union
from headwater_operator.comparison import compare
from headwater_operator.issuance import BROUGHT, Issuance, issuance
from headwater_operator.observation import Observed
from headwater_operator.rendering import Identity, parties, render
from tests.manifests import small
from tests.operator.trees import IMAGES, nodes, owner

TREE = nodes("small", 2, 1)
OWN = small()
ASKED = small(spec__certificates={"issuerRef": {"name": "plant-ca"}})
OWNER = owner(OWN)
BEGAN = datetime(2030, 5, 1, 12, tzinfo=UTC)
Document = dict[str, Any]


class World:
    """`objects` by kind and name, and what each pod has before it."""

    def __init__(self, seed: int = 0) -> None:
        self.now, self.random = BEGAN, Random(seed)
        self.objects: dict[tuple[str, str], Document] = {}
        self.pods: dict[tuple[str, str], tuple[Document, dict[str, bytes]]] = {}
        self.issuer: Authority = authority("plant", BEGAN)

    # The operator

    def look(self, document: Document, *, some: bool = False) -> Issuance:
        """What is wanted is there then; of workloads maybe only some, as when they take turns."""
        topology = topology_of(document)
        observed = Observed(tuple(self.objects.values()), {})
        has = issuance("small", topology.issuer, self.everybody, observed, None, self.now)
        wanted = [
            each
            for each in render(OWNER, topology, document, TREE, IMAGES, has.material)
            if each["kind"] not in ("Deployment", "StatefulSet")
            or not has.lacks(each["metadata"]["name"])
            or (each["kind"], each["metadata"]["name"]) in self.objects
        ]
        seen = [each for key, each in self.objects.items() if key not in has.untouched]
        actions = compare(OWNER, wanted, seen)
        assert not actions.conflicts
        for each in actions.apply:
            key = each["kind"], each["metadata"]["name"]
            if not some or key not in self.pods or self.random.random() < 0.3:
                self._apply(key, deepcopy(each))
        for gone in actions.delete:
            del self.objects[gone.kind, gone.name]
        self.trusting()
        return has

    @property
    def everybody(self) -> tuple[Identity, ...]:
        return parties(OWNER, topology_of(OWN), TREE, {})

    def _apply(self, key: tuple[str, str], given: Document) -> None:
        before = self.objects.get(key, {"metadata": {"generation": 0}})
        if key[0] == "Secret" and "data" not in given:
            # Only what is named is written; what cert-manager has put there stays.
            given["data"] = before["data"]
        annotations = {**(before["metadata"].get("annotations") or {}), **given["metadata"]["annotations"]}
        stamp = before["metadata"].get("creationTimestamp", self.now.strftime("%Y-%m-%dT%H:%M:%SZ"))
        generation = before["metadata"]["generation"] + 1
        given["metadata"] |= {
            "annotations": annotations,
            "creationTimestamp": stamp,
            "generation": generation,
        }
        self.objects[key] = {**given, "status": before.get("status", {})}
        if key[0] in ("Deployment", "StatefulSet") and key not in self.pods:
            self.started(key)

    # Everybody else

    def issues(self, secret: str) -> None:
        """cert-manager, if it is asked to and has not yet."""
        certificate = self.objects.get(("Certificate", secret))
        if certificate is None:
            return
        held = self.objects.get(("Secret", secret))
        if not (certificate["status"] or {}).get("conditions"):
            since = {"lastTransitionTime": self.now.strftime("%Y-%m-%dT%H:%M:%SZ")}
            ready = {"type": "Ready", "status": "True", "message": "Certificate is up to date"}
            certificate["status"] = {"conditions": [{**ready, **since}]}
        known = (held or {}).get("metadata", {}).get("annotations") or {}
        if held is not None and known.get(names.ISSUER["name"]) in (None, "plant-ca"):
            # It takes what is there for its own, if nothing speaks against it.
            return
        (party,) = [each for each in self.everybody if each.secret == secret]
        pair = issue(self.issuer, party.id, party.names, party.role, self.now)
        files = {"tls.crt": pair.certificate, "tls.key": pair.key, "ca.crt": self.issuer.trusted}
        metadata: Document = held["metadata"] if held is not None else {"name": secret, "generation": 1}
        metadata["labels"] = {**(metadata.get("labels") or {}), **names.labels("small")}
        metadata["annotations"] = {
            **(metadata.get("annotations") or {}),
            names.ISSUED: secret,
            names.ISSUER["name"]: "plant-ca",
        }
        data = {file: b64encode(content).decode() for file, content in files.items()}
        self.objects["Secret", secret] = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": metadata,
            "data": data,
        }
        self.trusting()

    def started(self, key: tuple[str, str]) -> None:
        """The pod of a workload, anew from its template."""
        found = self.objects[key]
        spec = found["spec"]["template"]["spec"]
        (volume,) = [each for each in spec["volumes"] if each["name"] == "tls"]
        self.pods[key] = volume, {}
        self.brought(key)
        counts = {"replicas": 1, "updatedReplicas": 1, "readyReplicas": 1}
        found["status"] = {"observedGeneration": found["metadata"]["generation"], **counts}
        self.trusting()

    def brought(self, key: tuple[str, str]) -> None:
        """The files of a pod as they are now; what cannot be had leaves them as they were."""
        volume, held = self.pods[key]
        if "secret" in volume:
            found = _files(self.objects["Secret", volume["secret"]["secretName"]])
            self.pods[key] = volume, found
            return
        secret, trust = volume["projected"]["sources"]
        if ("ConfigMap", trust["configMap"]["name"]) not in self.objects:
            assert held, "a pod cannot start without whom it trusts"
            return
        (item,) = trust["configMap"]["items"]
        data = self.objects["ConfigMap", trust["configMap"]["name"]]["data"]
        files = _files(self.objects["Secret", secret["secret"]["name"]])
        self.pods[key] = volume, {**files, "ca.crt": data[item["key"]].encode()}

    def passes(self, time: timedelta) -> None:
        """So long that kubelets have brought everything."""
        for key in self.pods:
            self.brought(key)
        self.trusting()
        self.now += time

    def anything(self) -> None:
        """That may happen on its own."""
        if self.random.random() < 0.4:
            self.issues(self.random.choice([party.secret for party in self.everybody]))
        elif self.pods:
            key = self.random.choice(sorted(self.pods))
            self.brought(key) if self.random.random() < 0.5 else self.started(key)
        if self.random.random() < 0.1:
            self.passes(BROUGHT)

    def trusting(self) -> None:
        """Whatever pods have by now, each takes the certificate of every other."""
        for _, (_, mine) in self.pods.items():
            trusted = x509.load_pem_x509_certificates(mine["ca.crt"])
            for other, (_, theirs) in self.pods.items():
                leaf = x509.load_pem_x509_certificate(theirs["tls.crt"])
                assert any(_signs(each, leaf) for each in trusted), f"{other} is not trusted"

    def secrets(self) -> dict[str, dict[str, bytes]]:
        return {name: _files(each) for (kind, name), each in self.objects.items() if kind == "Secret"}


def _files(secret: Mapping[str, Any]) -> dict[str, bytes]:
    return {file: b64decode(data) for file, data in secret["data"].items()}


def _signs(signer: x509.Certificate, leaf: x509.Certificate) -> bool:
    return signer.subject == leaf.issuer


def _by(files: Mapping[str, bytes], signer: Authority) -> bool:
    leaf = x509.load_pem_x509_certificate(files["tls.crt"])
    return _signs(x509.load_pem_x509_certificate(signer.signing.certificate), leaf)


def _kinds(world: World, kind: str) -> set[str]:
    return {name for found, name in world.objects if found == kind}


def _all_issued(world: World) -> bool:
    held = world.secrets()
    return all(_by(held[party.secret], world.issuer) for party in world.everybody)


def _issued(world: World) -> None:
    for party in world.everybody:
        world.issues(party.secret)


def _fresh() -> World:
    """A tree that has its certificates from an issuer since it is there."""
    world = World()
    world.look(ASKED)
    _issued(world)
    world.look(ASKED)
    return world


def test_a_new_tree_waits_for_its_certificates_and_has_no_authority() -> None:
    world = World()
    has = world.look(ASKED)
    assert has.awaited.keys() == {party.secret for party in world.everybody}
    assert set(has.awaited.values()) == {"cert-manager has not looked at it yet"}
    assert _kinds(world, "Certificate") == set(has.awaited)
    assert not world.pods
    assert not _kinds(world, "Secret")
    # Each begins when it can.
    world.issues("small-l1-0-tls")
    has = world.look(ASKED)
    assert [name for _, name in world.pods] == ["small-l1-0"]
    assert "small-l1-0-tls" not in has.awaited
    _issued(world)
    has = world.look(ASKED)
    assert (has.awaited, has.unfit) == ({}, {})
    assert len(world.pods) == 4
    assert names.authority("small") not in _kinds(world, "Secret")
    before = deepcopy(world.objects)
    world.look(ASKED)
    assert world.objects == before, "what is as it should be is not written again"


def test_a_certificate_says_itself_why_it_is_not_there() -> None:
    world = World()
    world.look(ASKED)
    said = "Issuing certificate as Secret does not exist"
    conditions = [
        {"type": "Ready", "status": "False", "message": said},
        {"type": "Issuing", "status": "False", "message": "the issuer refuses"},
    ]
    world.objects["Certificate", "small-root-tls"]["status"] = {"conditions": conditions}
    assert world.look(ASKED).awaited["small-root-tls"] == f"{said}; the issuer refuses"


def test_what_was_issued_wrongly_is_told_and_starts_nobody() -> None:
    world = World()
    world.look(ASKED)
    _issued(world)
    del world.objects["Secret", "small-root-tls"]["data"]["ca.crt"]
    has = world.look(ASKED)
    assert has.awaited == {}
    assert has.unfit["small-root-tls"].startswith(
        "it has no ca.crt with an authority; use an issuer with a CA"
    )
    assert ("StatefulSet", "small-root") not in world.objects
    # While it is issued anew nobody is blamed.
    world.objects["Certificate", "small-root-tls"]["status"]["conditions"][0]["observedGeneration"] = 0
    assert world.look(ASKED).awaited == {"small-root-tls": "Certificate is up to date"}


def test_names_that_change_are_waited_for() -> None:
    world = _fresh()
    topology = topology_of(ASKED)
    everybody = parties(OWNER, topology, TREE, {"small-l1-0": "203.0.113.7:7070"})
    observed = Observed(tuple(world.objects.values()), {})
    has = issuance("small", topology.issuer, everybody, observed, None, world.now)
    assert has.unfit["small-l1-0-tls"].startswith("it does not name 203.0.113.7")


def test_another_authority_of_the_issuer_is_trusted_beside_the_first() -> None:
    world = _fresh()
    first, world.issuer = world.issuer, authority("plant", BEGAN + DAY)
    held = world.objects["Secret", "small-l1-0-tls"]
    pair = issue(world.issuer, *_party(world, "small-l1-0-tls"), world.now)
    files = {"tls.crt": pair.certificate, "tls.key": pair.key, "ca.crt": world.issuer.trusted}
    held["data"] = {file: b64encode(content).decode() for file, content in files.items()}
    has = world.look(ASKED)
    assert has.material.trust == union(world.issuer.trusted, first.trusted)


def _party(world: World, secret: str) -> tuple[str, tuple[str, ...], Any]:
    (party,) = [each for each in world.everybody if each.secret == secret]
    return party.id, party.names, party.role


def test_a_secret_that_its_certificate_owns_is_not_taken_on() -> None:
    world = World()
    world.look(ASKED)
    _issued(world)
    reference = {"kind": "Certificate", "name": "small-root-tls", "uid": "c", "controller": True}
    world.objects["Secret", "small-root-tls"]["metadata"]["ownerReferences"] = [reference]
    has = world.look(ASKED)
    filled = [secret for secret, _ in has.material.filled]
    assert "small-root-tls" not in filled
    assert "small-operator-tls" in filled


def _until(world: World, document: Document, reached: Any, looks: int = 400) -> None:
    for _ in range(looks):
        if reached():
            return
        world.look(document, some=True)
        for _ in range(world.random.randrange(4)):
            world.anything()
    raise AssertionError("it does not get there")


@pytest.mark.parametrize("seed", range(25))
def test_nobody_ever_meets_somebody_it_does_not_trust(seed: int) -> None:
    world = World(seed)
    world.look(OWN)
    assert not _kinds(world, "Certificate") | _kinds(world, "ConfigMap") - {"small-bootstrap"}
    own = deepcopy(world.objects)

    _until(world, ASKED, lambda: _kinds(world, "Certificate") and _all_issued(world))
    # Not every pod has what was issued for it yet.
    world.look(ASKED)
    assert names.authority("small") in _kinds(world, "Secret")
    # A day later nobody has anything of the tree's own authority.
    world.passes(2 * DAY)
    world.look(ASKED)
    world.passes(BROUGHT)
    assert names.authority("small") not in _kinds(world, "Secret")
    assert world.look(ASKED).material.trust == world.issuer.trusted
    assert {"projected" in volume for volume, _ in world.pods.values()} == {True}

    _until(
        world,
        OWN,
        lambda: not _kinds(world, "Certificate") and "small-trust" not in _kinds(world, "ConfigMap"),
    )
    world.look(OWN)
    assert world.objects.keys() == own.keys()
    assert {"secret" in volume for volume, _ in world.pods.values()} == {True}
    held = world.secrets()
    trusted = held[names.authority("small")]["ca.crt"]
    assert {held[party.secret]["ca.crt"] for party in world.everybody} == {trusted}
    world.passes(BROUGHT)


@pytest.mark.parametrize("seed", range(10))
def test_on_the_way_to_another_authority_something_is_always_said_to_be_left(seed: int) -> None:
    world = World(seed)
    world.look(OWN)

    def is_own() -> bool:
        return not _kinds(world, "Certificate") and "small-trust" not in _kinds(world, "ConfigMap")

    ways: list[tuple[Document, Callable[[], bool]]] = [(ASKED, lambda: _all_issued(world)), (OWN, is_own)]
    for document, is_there in ways:
        for _ in range(400):
            before = is_there()
            has = world.look(document, some=True)
            if not (has.awaited or has.unfit or has.replaced_later):
                break
            for _ in range(world.random.randrange(4)):
                world.anything()
        assert before or is_there()
        assert not {**has.awaited, **has.unfit, **has.replaced_later}


def test_while_a_controller_has_not_counted_the_new_pods_a_tree_is_not_as_asked_for() -> None:
    world = World()
    world.look(OWN)
    world.look(ASKED)
    _issued(world)
    world.look(ASKED)
    # The pods are those of the new template; that they are ready their controller does not say yet.
    for (kind, _), workload in world.objects.items():
        if kind in ("Deployment", "StatefulSet"):
            generation = workload["metadata"].get("generation")
            counts = {"replicas": 1, "updatedReplicas": 1, "readyReplicas": 0}
            workload["status"] = {**counts, "observedGeneration": generation}
    has = world.look(ASKED)
    assert not has.awaited
    assert "small-root-tls" in has.replaced_later
    assert not has.lacks("small-root")


def test_a_tree_that_runs_goes_on_while_the_issuer_does_not_answer() -> None:
    world = World()
    world.look(OWN)
    before = world.secrets()
    for _ in range(3):
        has = world.look(ASKED)
        world.passes(BROUGHT)
    # One is asked for, and all else is as it was.
    assert _kinds(world, "Certificate") == {"small-operator-tls"}
    assert has.awaited.keys() == {"small-operator-tls"}
    assert world.secrets() == before
    assert {"secret" in volume for volume, _ in world.pods.values()} == {True}
    # And back without a trace.
    world.look(OWN)
    world.look(OWN)
    assert not _kinds(world, "Certificate")
    assert world.secrets() == before
