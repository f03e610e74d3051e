"""An API server alone: etcd and kube-apiserver as two processes of this machine, for work on the operator.

There are no controllers, no scheduler and no nodes behind it: objects are kept and watched, and nothing comes
of them. It starts in seconds from the programs that a kind cluster has left in the cache; where that had the
stock node image, they are built first, once.
"""

from __future__ import annotations

import ctypes
import json
import secrets
import signal
import socket
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from os import environ
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from airgap_kind import gobuilds, toolchain
from airgap_kind.cache import Cache, architecture, default_root
from airgap_kind.progress import Progress
from airgap_kind.versions import VERSIONS

# How long a server may take to answer, in seconds.
STARTED = 180.0
ADMIN = "token-of-the-administrator"
_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True, slots=True)
class ApiServer:
    """Where it listens, who signed that, and a token that may do everything."""

    url: str
    authority: Path
    token: str

    def kubeconfig(self, path: Path) -> Path:
        """A file for whoever may do everything."""
        reached = {"server": self.url, "certificate-authority": str(self.authority)}
        return write_kubeconfig(path, reached, {"token": self.token})


def write_kubeconfig(path: Path, cluster: dict[str, Any], user: dict[str, Any]) -> Path:
    found = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "test",
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
        "clusters": [{"name": "test", "cluster": cluster}],
        "users": [{"name": "test", "user": user}],
    }
    # JSON is YAML too.
    path.write_text(json.dumps(found))
    return path


def program(name: str) -> Path:
    """etcd, or one of Kubernetes: of the cache, where a cluster with a node image of ours has left it, or
    built now."""
    cache, progress = Cache(default_root(environ)), Progress()
    build = gobuilds.etcd(VERSIONS) if name == "etcd" else gobuilds.kubernetes(VERSIONS)
    there = cache.builds / build.key(architecture()) / name
    if not there.exists():
        with cache.lock(progress):
            gobuilds.built(build, cache, lambda: toolchain.find(cache, VERSIONS, progress), progress)
    return there


@contextmanager
def running(folder: Path) -> Iterator[ApiServer]:
    """One with its data in a folder; both processes end with the block, and with this process."""
    programs = {name: program(name) for name in ("etcd", "kube-apiserver")}
    etcd, peers, port = _free(3)
    url = f"https://127.0.0.1:{port}"
    key = folder / "accounts.key"
    key.write_bytes(
        rsa.generate_private_key(65537, 2048).private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.TraditionalOpenSSL,
            serialization.NoEncryption(),
        )
    )
    tokens = folder / "tokens.csv"
    tokens.write_text(f'{ADMIN},administrator,1,"system:masters"\n')
    with ExitStack() as stack:
        store = stack.enter_context(
            process(
                folder / "etcd.log",
                programs["etcd"],
                f"--data-dir={folder / 'etcd'}",
                f"--listen-client-urls=http://127.0.0.1:{etcd}",
                f"--advertise-client-urls=http://127.0.0.1:{etcd}",
                f"--listen-peer-urls=http://127.0.0.1:{peers}",
                f"--initial-advertise-peer-urls=http://127.0.0.1:{peers}",
                f"--initial-cluster=default=http://127.0.0.1:{peers}",
                "--unsafe-no-fsync",
            )
        )
        server = stack.enter_context(
            process(
                folder / "apiserver.log",
                programs["kube-apiserver"],
                f"--etcd-servers=http://127.0.0.1:{etcd}",
                "--bind-address=127.0.0.1",
                "--advertise-address=127.0.0.1",
                f"--secure-port={port}",
                f"--cert-dir={folder / 'certificates'}",
                "--authorization-mode=RBAC",
                f"--token-auth-file={tokens}",
                "--service-account-issuer=https://kubernetes.default.svc",
                f"--service-account-key-file={key}",
                f"--service-account-signing-key-file={key}",
                "--service-cluster-ip-range=10.0.0.0/24",
                "--endpoint-reconciler-type=none",
                # Pods may be made though no controller makes the accounts that they would run as.
                "--disable-admission-plugins=ServiceAccount",
            )
        )
        _until_ready(url, {folder / "etcd.log": store, folder / "apiserver.log": server})
        yield ApiServer(url, folder / "certificates" / "apiserver.crt", ADMIN)


@contextmanager
def reached(folder: Path) -> Iterator[Path]:
    """One as its administrator reaches it: by a kubeconfig."""
    with running(folder) as server:
        yield server.kubeconfig(folder / "kubeconfig")


@contextmanager
def collecting(folder: Path, kubeconfig: Path) -> Iterator[None]:
    """With the one controller that takes away what belongs to objects that are gone."""
    arguments = ["--controllers=garbage-collector-controller", "--leader-elect=false", "--secure-port=0"]
    manager = program("kube-controller-manager")
    with process(folder / "controllers.log", manager, f"--kubeconfig={kubeconfig}", *arguments):
        yield


@contextmanager
def process(log: Path, program: Path, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("wb") as output:
        started = subprocess.Popen(
            [program, *arguments], stdout=output, stderr=output, preexec_fn=_end_with_the_parent
        )
    try:
        yield started
    finally:
        started.terminate()
        try:
            started.wait(10)
        except subprocess.TimeoutExpired:
            started.kill()
            started.wait()


def _end_with_the_parent() -> None:
    """Also when the tests are killed: nobody looks for a server that is left."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _until_ready(url: str, processes: Mapping[Path, subprocess.Popen[bytes]]) -> None:
    """Or until one has ended, which fails with the end of its log."""
    # It signs its certificate itself, and writes it only while it starts.
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    until = time.monotonic() + STARTED
    while True:
        for log, each in processes.items():
            assert each.poll() is None, log.read_text()[-4000:]
        assert time.monotonic() < until, [log.read_text()[-4000:] for log in processes]
        try:
            request = urllib.request.Request(f"{url}/readyz", headers={"Authorization": f"Bearer {ADMIN}"})
            with urllib.request.urlopen(request, timeout=2, context=context) as answer:
                if answer.status == 200:
                    return
        except OSError:
            time.sleep(0.1)


def _free(count: int) -> list[int]:
    """Ports below those that a system, by default, gives to whoever asks for any: nobody is given them
    meanwhile."""
    ports: set[int] = set()
    while len(ports) < count:
        port = secrets.randbelow(10_000) + 20_000
        with socket.socket() as found, suppress(OSError):
            found.bind(("127.0.0.1", port))
            ports.add(port)
    return list(ports)
