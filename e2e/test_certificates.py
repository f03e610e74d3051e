"""Another authority, or cert-manager, takes over the certificates of a tree that runs."""

from __future__ import annotations

import json
import time
from base64 import b64decode, b64encode
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import count
from os import environ
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.exceptions import InvalidSignature

from e2e import helm
from e2e.api import Api
from e2e.certmanager import issuers, program
from e2e.images import NODE
from e2e.kubectl import kubectl, namespace, said
from e2e.trees import EXEC, Fleet, Tree, planted, topology
from headwater_operator import names
from headwater_operator.certificates import SPREAD, authority
from headwater_operator.rendering.pods import AUTHORITIES

# As the root shows itself to whoever comes.
SHOWN = f"import ssl; print(ssl.get_server_certificate(('localhost', {names.TREE_PORT})))"
# How long everybody has to learn of the next authority here, in seconds.
LEARN = 120.0


def _files(tree: Tree, secret: str) -> dict[str, bytes]:
    found = json.loads(kubectl("--namespace", tree.space, "get", "secret", secret, "--output=json"))
    return {file: b64decode(content) for file, content in found["data"].items()}


def _look(tree: Tree, round_: int) -> None:
    """What happens by itself in minutes, now: the operator looks, and machines bring files to pods."""
    at = ("--namespace", tree.space, "annotate", "--overwrite")
    kubectl(*at, "aggtopo", tree.name, f"e2e/look={round_}")
    # One that is about to end may be gone.
    said(*at, "pods", "--selector", names.selector(tree.name), f"e2e/look={round_}")


def _in_pod(tree: Tree, pod: str, *command: str) -> str:
    """What it prints; nothing where it cannot be asked."""
    done = said("--namespace", tree.space, "exec", pod, "--", *command)
    return done.stdout if done.returncode == 0 else ""


def _signed_by(certificate: bytes, signer: bytes) -> bool:
    try:
        x509.load_pem_x509_certificate(certificate).verify_directly_issued_by(
            x509.load_pem_x509_certificate(signer)
        )
    except (ValueError, InvalidSignature):
        return False
    return True


def test_another_authority_takes_over_while_data_flow(space: str) -> None:
    with planted(space, topology("trusted", 2)) as tree:
        tree.settled()
        uids = tree.uids()
        pods = [pod["metadata"]["name"] for pod in tree.pods()]
        sending = tree.send(Fleet(2, events=None), NODE)
        first = _files(tree, names.authority("trusted"))["tls.crt"]
        root = names.certificate(names.root("trusted"))
        assert _signed_by(_files(tree, root)["tls.crt"], first)

        begin = time.monotonic()
        successor = authority("trusted", datetime.fromtimestamp(time.time() + LEARN, UTC) - SPREAD).signing
        files = {"next.crt": successor.certificate, "next.key": successor.key}
        data = {file: b64encode(content).decode() for file, content in files.items()}
        kubectl(
            *("--namespace", space, "patch", "secret", names.authority("trusted")),
            *("--type=merge", "--patch", json.dumps({"data": data})),
        )
        _look(tree, 1)
        known = successor.certificate.decode().strip()
        tree.until(lambda: known in _files(tree, root)["ca.crt"].decode(), "nobody is told", LEARN / 2)
        rounds = count(2)

        def everybody_knows() -> bool:
            _look(tree, next(rounds))
            return all(known in _in_pod(tree, each, "cat", AUTHORITIES) for each in pods)

        # A look takes its time, and has to be over within the time to learn.
        tree.until(everybody_knows, "not all know", begin + LEARN - 40 - time.monotonic(), EXEC)
        assert _signed_by(_files(tree, root)["tls.crt"], first), "it signed before everybody had heard of it"

        time.sleep(max(0.0, begin + LEARN + 1 - time.monotonic()))
        _look(tree, next(rounds))
        tree.until(
            lambda: _signed_by(_files(tree, root)["tls.crt"], successor.certificate), "it does not sign"
        )
        _look(tree, next(rounds))
        pod = names.root_pod("trusted")
        tree.until(
            lambda: _signed_by(_in_pod(tree, pod, "python3", "-c", SHOWN).encode(), successor.certificate),
            "the root shows the old one",
        )
        # Whoever comes again finds a root of the new authority.
        kubectl("--namespace", space, "delete", "pod", pod, "--grace-period=0", "--force")
        sending.enough()
        tree.settled()
        assert tree.uids() == uids
        tree.assert_exact()


@pytest.fixture
def certified(cluster: Api, tmp_path: Path) -> Iterator[str]:
    """A namespace with an issuer of cert-manager, and an operator that may ask it."""
    definitions = program.definitions()
    try:
        for each in definitions:
            kubectl("apply", "--server-side", "--filename", "-", given=each)
        crds = [f"crd/{each['metadata']['name']}" for each in definitions]
        kubectl("wait", "--for=condition=Established", *crds, "--timeout=240s")
        every = ("--set-json", "watchNamespaces=[]", *helm.WAIT)
        helm.install(helm.CHART, "--set", "certManager.rbac=true", *every)
        with program.running(tmp_path, Path(environ["KUBECONFIG"])), namespace("certified") as space:
            for _, document in issuers.manifests("plant-ca"):
                kubectl("--namespace", space, "apply", "--filename", "-", given=document)
            yield space
    finally:
        for each in definitions:
            kubectl("delete", "--filename", "-", "--ignore-not-found", given=each)


@pytest.mark.alone
def test_a_tree_goes_over_to_cert_manager_while_data_flow(certified: str) -> None:
    with planted(certified, topology("issued", 4)) as tree:
        tree.settled()
        sending = tree.send(Fleet(4, events=None), NODE)
        tree.patch({"certificates": {"issuerRef": {"name": "plant-ca"}}})
        tree.settled(300)
        plant = _files(tree, issuers.authority("plant-ca"))["tls.crt"]
        parties = [names.root("issued"), names.operator("issued"), *tree.uids()]
        for party in parties:
            assert _signed_by(_files(tree, names.certificate(party))["tls.crt"], plant), party
        _look(tree, 1)
        pod = names.root_pod("issued")
        tree.until(
            lambda: _signed_by(_in_pod(tree, pod, "python3", "-c", SHOWN).encode(), plant),
            "the root shows the old one",
        )
        kubectl("--namespace", tree.space, "delete", "pod", pod, "--grace-period=0", "--force")
        sending.enough()
        tree.settled()
        tree.assert_exact()
