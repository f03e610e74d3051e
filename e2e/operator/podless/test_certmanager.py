"""Certificates by cert-manager's own controllers: what the operator asks for, takes up, and takes away."""

from __future__ import annotations

import ssl
import time
from base64 import b64decode
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import yaml
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID

from e2e import apiserver as alone
from e2e.certmanager import issuers, program
from e2e.operator.running import NODES, PATIENCE, Operator, rights
from e2e.operator.spaces import DEFINITIONS, Rules, Spaces, rule
from headwater_operator import access, kinds, names
from headwater_operator.certificates import Authority, Pair, authority, signed_by
from headwater_operator.cluster import Cluster, Document
from headwater_operator.comparison import stamped
from headwater_operator.kinds import Kind
from headwater_operator.rendering import Material, Owner
from headwater_operator.rendering.identities import certificates
from tests.cli.test_pages import blocks

ISSUED: Rules = [rule(kind, *verbs) for (kind, _), verbs in access.CERTIFYING.items()]
PARTIES = ("small-root-tls", "small-operator-tls", "small-l1-0-tls")
NODE = {"ingestLimit": 500}
Start = Callable[..., Operator]


@pytest.fixture
def start(spaces: Spaces, space: str, tmp_path: Path) -> Iterator[Start]:
    """The operator, with its rights to Certificates unless others are given."""
    with ExitStack() as stack:

        def started(more: Rules = ISSUED) -> Operator:
            token = spaces.account(space, [*rights(), *more], NODES)
            kubeconfig = spaces.kubeconfig(tmp_path / "kubeconfig", token)
            return stack.enter_context(Operator(tmp_path, kubeconfig, space, program="headwater_operator"))

        yield started


@pytest.fixture(scope="module")
def certifying(spaces: Spaces, apiserver: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """cert-manager, and somebody who takes away what belongs to objects that are gone."""
    folder = tmp_path_factory.mktemp("cert-manager")
    made = [spaces.post(DEFINITIONS, each)["metadata"]["name"] for each in program.definitions()]
    try:
        _until(lambda: spaces.cluster.serves(kinds.CERTIFICATE) and spaces.cluster.serves(issuers.ISSUER))
        with ExitStack() as stack:
            stack.enter_context(program.running(folder, apiserver))
            stack.enter_context(alone.collecting(folder, apiserver))
            yield
    finally:
        for name in made:
            spaces.request("DELETE", f"{DEFINITIONS}/{name}")
        _until(lambda: not spaces.cluster.serves(kinds.CERTIFICATE))


def _until(reached: Callable[[], object]) -> None:
    end = time.monotonic() + PATIENCE
    while not reached():
        assert time.monotonic() < end
        time.sleep(0.1)


def _issuer(spaces: Spaces, space: str) -> None:
    for kind, document in issuers.manifests("plant-ca"):
        spaces.post(kind.collection(space), document)


def _asks(spaces: Spaces, space: str, issuer: str = "plant-ca") -> None:
    spaces.topology(space, spec__node=NODE, spec__certificates={"issuerRef": {"name": issuer}})


def _conditions(cluster: Cluster, space: str) -> dict[str, tuple[str, str]]:
    found = cluster.get(kinds.TOPOLOGY, space, "small")
    assert found is not None
    conditions = (found.get("status") or {}).get("conditions") or ()
    return {each["type"]: (each["reason"], each["message"]) for each in conditions}


def _said(cluster: Cluster, space: str, condition: str, reason: str) -> Callable[[], bool]:
    return lambda: _conditions(cluster, space).get(condition, ("", ""))[0] == reason


def _names(cluster: Cluster, kind: Kind, space: str) -> set[str]:
    return {each["metadata"]["name"] for each in cluster.list(kind, space, names.selector("small"))}


def _files(cluster: Cluster, space: str, secret: str) -> dict[str, bytes]:
    found = cluster.get(kinds.SECRET, space, secret)
    return {} if found is None else {file: b64decode(data) for file, data in (found["data"] or {}).items()}


def _context(folder: Path, files: Mapping[str, bytes], trusted: str, side: int) -> ssl.SSLContext:
    """As a party has it: key and certificate of its Secret, and whom all trust."""
    folder.mkdir()
    for file in ("tls.crt", "tls.key"):
        (folder / file).write_bytes(files[file])
    context = ssl.SSLContext(side)
    context.load_cert_chain(folder / "tls.crt", folder / "tls.key")
    context.load_verify_locations(cadata=trusted)
    context.verify_mode = ssl.CERT_REQUIRED
    return context


def _shake(server: ssl.SSLContext, client: ssl.SSLContext, name: str) -> None:
    """Both sides show their certificates, and check the other's; the client for a name."""
    here, there = (ssl.MemoryBIO(), ssl.MemoryBIO()), (ssl.MemoryBIO(), ssl.MemoryBIO())
    answers = server.wrap_bio(*here, server_side=True)
    asks = client.wrap_bio(*there, server_hostname=name)
    left = [asks, answers]
    for _ in range(8):
        for each in tuple(left):
            try:
                each.do_handshake()
                left.remove(each)
            except ssl.SSLWantReadError:
                pass
            here[0].write(there[1].read())
            there[0].write(here[1].read())
    assert not left


@pytest.mark.usefixtures("certifying")
def test_a_tree_has_its_certificates_from_an_issuer(
    start: Start, spaces: Spaces, space: str, tmp_path: Path
) -> None:
    cluster = spaces.cluster
    _asks(spaces, space)
    operator = start()
    # It says what it waits for, and begins nobody who has no certificate.
    operator.until(_said(cluster, space, "Progressing", "Certifying"))
    said = _conditions(cluster, space)["Progressing"][1]
    assert "small-l1-0-tls: " in said
    operator.until(lambda: "Issuing certificate" in _conditions(cluster, space)["Progressing"][1])
    assert _names(cluster, kinds.CERTIFICATE, space) == set(PARTIES)
    assert not _names(cluster, kinds.DEPLOYMENT, space) | _names(cluster, kinds.STATEFUL_SET, space)
    assert not _names(cluster, kinds.SECRET, space)
    _issuer(spaces, space)
    # Each with its own, in whatever order they come.
    operator.until(lambda: _names(cluster, kinds.DEPLOYMENT, space) == {"small-l1-0"})
    operator.until(lambda: _names(cluster, kinds.STATEFUL_SET, space) == {"small-root"})
    operator.until(lambda: _names(cluster, kinds.SECRET, space) >= set(PARTIES))
    assert _names(cluster, kinds.SECRET, space) == set(PARTIES), "there is no authority of its own"
    # What cert-manager has made goes with the topology, and says who is who.
    operator.until(lambda: all(_owned(cluster, space, secret) for secret in PARTIES))
    trust = cluster.get(kinds.CONFIG_MAP, space, "small-trust")
    assert trust is not None
    trusted = trust["data"]["tree.crt"]
    assert trusted.encode() == _files(cluster, space, PARTIES[0])["ca.crt"]
    root = _context(tmp_path / "root", _files(cluster, space, PARTIES[0]), trusted, ssl.PROTOCOL_TLS_SERVER)
    for party in PARTIES[1:]:
        files = _files(cluster, space, party)
        _shake(root, _context(tmp_path / party, files, trusted, ssl.PROTOCOL_TLS_CLIENT), "root")
    assert _conditions(cluster, space)["Degraded"][0] == "AsPlanned"

    # A renewal is taken up, and nobody else's data are touched.
    before = _files(cluster, space, "small-l1-0-tls")
    path = kinds.CERTIFICATE.object(space, "small-l1-0-tls")
    issuing = {
        "type": "Issuing",
        "status": "True",
        "reason": "ManuallyTriggered",
        "message": "by a test",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    held = spaces.request("GET", path)["status"]["conditions"]
    spaces.patch(f"{path}/status", {"status": {"conditions": [*held, issuing]}})
    operator.until(lambda: _files(cluster, space, "small-l1-0-tls")["tls.crt"] != before["tls.crt"])
    after = _files(cluster, space, "small-l1-0-tls")
    assert after["tls.key"] != before["tls.key"], "each has a key of its own"
    spaces.topology(
        space,
        spec__node=NODE,
        spec__certificates={"issuerRef": {"name": "plant-ca"}},
        metadata__annotations={names.RESTART: "now"},
    )
    operator.until(lambda: _restarted(cluster, space))
    assert _files(cluster, space, "small-l1-0-tls") == after
    assert _conditions(cluster, space)["Degraded"][0] == "AsPlanned"

    # It goes, and all of it with it.
    assert cluster.delete(kinds.TOPOLOGY, space, "small")
    its = (kinds.CERTIFICATE, kinds.SECRET, kinds.DEPLOYMENT, kinds.CONFIG_MAP)
    operator.until(lambda: not any(_names(cluster, kind, space) for kind in its))


@pytest.mark.usefixtures("certifying")
def test_a_device_has_its_certificate_by_the_page(spaces: Spaces, space: str) -> None:
    known = {kind.name: kind for kind in (issuers.ISSUER, kinds.CERTIFICATE)}
    documents = [each for block in blocks("connect.md", "yaml") for each in yaml.safe_load_all(block)]
    assert [(each["kind"], each["metadata"]["name"]) for each in documents] == [
        ("Issuer", "itself"),
        ("Certificate", "devices-authority"),
        ("Issuer", "devices"),
        ("Certificate", "boiler-7"),
    ]
    for each in documents:
        kind = known[each["kind"]]
        assert each["apiVersion"] == kind.api_version
        metadata = {**each["metadata"], "namespace": space}
        spaces.post(kind.collection(space), {**each, "metadata": metadata})
    cluster = spaces.cluster
    _until(lambda: {"tls.crt", "tls.key", "ca.crt"} <= _files(cluster, space, "boiler-7-tls").keys())
    files = _files(cluster, space, "boiler-7-tls")
    shown, issuing_authority = (x509.load_pem_x509_certificate(files[file]) for file in ("tls.crt", "ca.crt"))
    alternative = shown.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    # Its own name, and no role.
    assert alternative.get_values_for_type(x509.DNSName) == ["boiler-7"]
    assert len(list(alternative)) == 1
    usage = shown.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(usage) == [ExtendedKeyUsageOID.CLIENT_AUTH]
    assert files["ca.crt"] == _files(cluster, space, "devices-authority")["tls.crt"]
    shown.verify_directly_issued_by(issuing_authority)


def _owned(cluster: Cluster, space: str, secret: str) -> bool:
    found = cluster.get(kinds.SECRET, space, secret)
    certificate = cluster.get(kinds.CERTIFICATE, space, secret)
    assert found is not None
    assert certificate is not None
    references = found["metadata"].get("ownerReferences") or ()
    return [each["uid"] for each in references] == [certificate["metadata"]["uid"]]


def _restarted(cluster: Cluster, space: str) -> bool:
    found = cluster.get(kinds.DEPLOYMENT, space, "small-l1-0")
    assert found is not None
    annotations = found["spec"]["template"]["metadata"].get("annotations") or {}
    return annotations.get(names.RESTART) == "now"


@pytest.mark.usefixtures("certifying")
def test_an_issuer_without_an_issuing_authorityis_told_of(start: Start, spaces: Spaces, space: str) -> None:
    _issuer(spaces, space)
    _asks(spaces, space, issuers.ITSELF)
    operator = start()
    operator.until(_said(spaces.cluster, space, "Degraded", "CertificateUnfit"))
    said = _conditions(spaces.cluster, space)["Degraded"][1]
    assert "it has no ca.crt with an authority; use an issuer with a CA" in said
    assert not _names(spaces.cluster, kinds.DEPLOYMENT, space)


@pytest.mark.usefixtures("certifying")
def test_a_secret_of_somebody_else_is_not_overwritten(start: Start, spaces: Spaces, space: str) -> None:
    _issuer(spaces, space)
    theirs = {"metadata": {"name": "small-root-tls"}, "data": {"a": "Yg=="}}
    spaces.post(kinds.SECRET.collection(space), theirs)
    _asks(spaces, space)
    operator = start()
    operator.until(_said(spaces.cluster, space, "Degraded", "NameTaken"))
    assert _names(spaces.cluster, kinds.CERTIFICATE, space) == set(PARTIES) - {"small-root-tls"}
    assert _files(spaces.cluster, space, "small-root-tls") == {"a": b"b"}


@pytest.mark.usefixtures("certifying")
def test_without_the_right_nothing_is_changed(start: Start, spaces: Spaces, space: str) -> None:
    _issuer(spaces, space)
    spaces.topology(space, spec__node=NODE)
    operator = start(())
    operator.until(lambda: _names(spaces.cluster, kinds.DEPLOYMENT, space))
    before = _files(spaces.cluster, space, "small-root-tls")
    _asks(spaces, space)
    operator.until(_said(spaces.cluster, space, "Planned", "InvalidSpec"))
    said = _conditions(spaces.cluster, space)["Planned"][1]
    assert "spec.certificates.issuerRef: cannot be had: the operator may not get, list, create" in said
    assert "install the chart with certManager.rbac=true" in said
    assert _names(spaces.cluster, kinds.DEPLOYMENT, space) == {"small-l1-0"}
    assert _files(spaces.cluster, space, "small-root-tls") == before


@pytest.mark.usefixtures("certifying")
def test_a_tree_goes_over_to_an_issuer_and_back(start: Start, spaces: Spaces, space: str) -> None:
    """There are no pods here: the test says of each workload that they are as it asks for."""
    cluster = spaces.cluster
    _issuer(spaces, space)
    made = spaces.topology(space, spec__node=NODE, metadata__annotations={names.PAUSE: "true"})
    # Its authority is one that pods have known for long.
    old = authority("small", datetime.fromtimestamp(time.time(), UTC) - timedelta(hours=1))
    owner = Owner(space, "small", made["metadata"]["uid"])
    (secret,) = certificates(owner, (), (), Material(old, {}))
    cluster.apply(stamped(secret))
    spaces.topology(space, spec__node=NODE)
    operator = start()
    operator.until(lambda: _rolled(spaces, space))
    held = {secret: _files(cluster, space, secret) for secret in PARTIES}
    assert not _names(cluster, kinds.CERTIFICATE, space)

    # Over: first the operator's, then pods, then everybody.
    _asks(spaces, space)
    operator.until(lambda: _mounting(cluster, space) == {"projected"})
    assert _names(cluster, kinds.CERTIFICATE, space) == {"small-operator-tls"}
    assert _files(cluster, space, "small-l1-0-tls") == held["small-l1-0-tls"]
    assert _trusted(cluster, space) == 2
    operator.until(lambda: _rolled(spaces, space) and _issued(cluster, space) == set(PARTIES))
    operator.until(lambda: _conditions(cluster, space)["Progressing"][0] != "Certifying")
    assert _conditions(cluster, space)["Degraded"][0] == "AsPlanned"
    # Nobody may have them yet.
    assert "small-ca" in _names(cluster, kinds.SECRET, space)
    assert _trusted(cluster, space) == 2

    # Back.
    spaces.topology(space, spec__node=NODE)
    operator.until(
        lambda: (
            _rolled(spaces, space)
            and not _names(cluster, kinds.CERTIFICATE, space)
            and cluster.get(kinds.CONFIG_MAP, space, "small-trust") is None
        ),
    )
    operator.until(lambda: all(_by_itself(cluster, space, old, secret) for secret in PARTIES))
    assert _mounting(cluster, space) == {"secret"}
    # Nobody writes to them any more.
    after = {secret: _files(cluster, space, secret) for secret in PARTIES}
    time.sleep(3)
    assert {secret: _files(cluster, space, secret) for secret in PARTIES} == after


def _workloads(cluster: Cluster, space: str) -> list[tuple[Kind, Document]]:
    found = (kinds.DEPLOYMENT, kinds.STATEFUL_SET)
    return [(kind, each) for kind in found for each in cluster.list(kind, space, names.selector("small"))]


def _rolled(spaces: Spaces, space: str) -> bool:
    """Say of all workloads that their pods are what they ask for; gives whether there are any."""
    found = _workloads(spaces.cluster, space)
    for kind, each in found:
        counts = {"replicas": 1, "updatedReplicas": 1, "readyReplicas": 1}
        status = {"observedGeneration": each["metadata"]["generation"], **counts}
        if (each.get("status") or {}).get("observedGeneration") != status["observedGeneration"]:
            path = kind.object(space, each["metadata"]["name"], "status")
            spaces.patch(path, {"status": status})
    return len(found) == 2


def _mounting(cluster: Cluster, space: str) -> set[str]:
    """From where pods have their certificates."""
    return {
        kind
        for _, each in _workloads(cluster, space)
        for volume in each["spec"]["template"]["spec"]["volumes"]
        for kind in volume
        if volume["name"] == "tls" and kind != "name"
    }


def _issued(cluster: Cluster, space: str) -> set[str]:
    """The Secrets that cert-manager has filled."""
    return {
        each["metadata"]["name"]
        for each in cluster.list(kinds.SECRET, space, names.selector("small"))
        if names.ISSUED in (each["metadata"].get("annotations") or {})
    }


def _trusted(cluster: Cluster, space: str) -> int:
    """How many authorities."""
    found = cluster.get(kinds.CONFIG_MAP, space, "small-trust")
    return 0 if found is None else found["data"]["tree.crt"].count("BEGIN CERTIFICATE")


def _by_itself(cluster: Cluster, space: str, by: Authority, secret: str) -> bool:
    """Whether a Secret is of the tree's own authority, and trusts no other."""
    files = _files(cluster, space, secret)
    return signed_by(by, Pair(files["tls.crt"], files["tls.key"])) and files["ca.crt"] == by.trusted
