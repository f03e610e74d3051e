"""Helm, as a user runs it."""

from __future__ import annotations

import fcntl
import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import gettempdir
from typing import Any

from e2e.images import NODE, OPERATOR, ROOT

CHART = Path(__file__).parents[1] / "charts" / "headwater"
RELEASE, NAMESPACE = "headwater", "headwater-system"
# The annotations of what belongs to it.
OWNER = {"meta.helm.sh/release-name": RELEASE, "meta.helm.sh/release-namespace": NAMESPACE}
# Longer than any time that Helm is given itself: killed, it leaves a release that nothing can be done with.
SECONDS = 600.0
# Both replicas of an operator start in turn.
WAIT = ("--wait", "--timeout", "400s")


def helm(*arguments: object) -> str:
    """What a command prints; fails with what it complains of."""
    done = said(*arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


def said(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = ["helm", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)


def install(
    chart: Path = CHART, *arguments: object, release: str = RELEASE, namespace: str = NAMESPACE
) -> None:
    """Have a release of a chart, whether there was one or not. One at a time: Helm refuses a second one."""
    done = install_said(chart, *arguments, release=release, namespace=namespace)
    assert done.returncode == 0, done.stderr


def install_said(
    chart: Path, *arguments: object, release: str, namespace: str
) -> subprocess.CompletedProcess[str]:
    """What comes of that, also where Helm refuses it."""
    images = ("--set", f"image.node={NODE},image.root={ROOT},image.operator={OPERATOR}")
    where = ("--namespace", namespace, "--create-namespace")
    with _alone():
        return said("upgrade", release, chart, "--install", *where, *images, *arguments)


def uninstall(release: str = RELEASE, namespace: str = NAMESPACE) -> None:
    with _alone():
        helm("uninstall", release, "--namespace", namespace, "--ignore-not-found", *WAIT)


@contextmanager
def _alone() -> Iterator[None]:
    """No other test changes the release meanwhile."""
    with (Path(gettempdir()) / "headwater-e2e-helm.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def releases(namespace: str = NAMESPACE) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(helm("list", "--namespace", namespace, "--output", "json"))
    return found
