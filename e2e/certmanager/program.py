"""cert-manager as a process beside an API server: its definitions, and its controllers of Certificates."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from os import environ
from pathlib import Path
from typing import Any

import yaml

from airgap_kind import gobuilds, toolchain
from airgap_kind.cache import Cache, default_root
from airgap_kind.progress import Progress
from airgap_kind.toolchain import Toolchain
from airgap_kind.versions import VERSIONS
from e2e.apiserver import process

MODULE, VERSION = "github.com/cert-manager/cert-manager", "v1.21.2"
_BUILD = gobuilds.GoBuild(
    name="cert-manager",
    version=VERSION,
    about="about 3 min",
    packages=(".",),
    files={
        "main.go": (Path(__file__).parent / "main.go").read_text(encoding="utf-8"),
        "go.mod": f"module airgap/cert-manager\n\ngo 1.26.0\n\nrequire {MODULE} {VERSION}\n",
    },
    products=("cert-manager",),
)


def definitions() -> list[Mapping[str, Any]]:
    """Of the kinds that its controllers know."""
    folder = _toolchain().module(MODULE, VERSION) / "deploy" / "crds"
    return [yaml.safe_load(file.read_text(encoding="utf-8")) for file in sorted(folder.glob("*.yaml"))]


def built() -> Path:
    """The program: of the cache, or built now."""
    cache = _cache()
    with cache.lock(Progress()):
        return gobuilds.built(_BUILD, cache, _toolchain, Progress()) / "cert-manager"


@contextmanager
def running(folder: Path, kubeconfig: Path) -> Iterator[None]:
    """With its log in a folder; it ends with the block, and with this process."""
    with process(folder / "cert-manager.log", built(), f"--kubeconfig={kubeconfig}"):
        yield


def _cache() -> Cache:
    """Beside that of clusters, which throws away what it does not know."""
    return Cache(default_root(environ).with_name("headwater-e2e"))


@functools.cache
def _toolchain() -> Toolchain:
    return toolchain.find(Cache(default_root(environ)), VERSIONS, Progress())
