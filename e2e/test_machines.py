"""Machines that are drained, killed and come back: the tree is planned around them, and no window is wrong.

The machines are containers of kind, and Docker's client kills them.
"""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any

import pytest

from e2e import helm
from e2e.api import Api
from e2e.images import NODE
from e2e.kubectl import kubectl, namespace
from e2e.trees import Fleet, Tree, planted, topology
from headwater_operator import names

pytestmark = pytest.mark.alone

# How long Kubernetes may take to notice that a machine is gone, in seconds.
NOTICED = 300.0


def docker(*arguments: str) -> None:
    done = subprocess.run(["docker", *arguments], capture_output=True, text=True, timeout=180, check=False)
    assert done.returncode == 0, done.stderr


def machine(tier: str) -> str:
    found = kubectl("get", "nodes", "--selector", f"headwater.dev/tier={tier}", "--output=name").split()
    return found[0].removeprefix("node/")


def is_ready(name: str) -> tuple[bool, str]:
    """Whether a machine is ready, and since when that is so."""
    found = json.loads(kubectl("get", "node", name, "--output=json"))
    condition = next(each for each in found["status"]["conditions"] if each["type"] == "Ready")
    return condition["status"] == "True", condition["lastTransitionTime"]


def until(name: str, ready: bool) -> str:
    end = time.monotonic() + NOTICED
    while True:
        found, since = is_ready(name)
        if found == ready:
            return since
        assert time.monotonic() < end, f"{name} is {'not ' if ready else ''}ready"
        time.sleep(0.5)


@contextmanager
def killed(name: str) -> Iterator[str]:
    """A machine without power; it comes back behind it. Gives since when the cluster knows."""
    docker("kill", name)
    try:
        yield until(name, ready=False)
    finally:
        docker("start", name)
        until(name, ready=True)


@pytest.fixture(scope="module")
def apart(cluster: Api) -> Iterator[None]:
    """The operator is on the one machine that stays: what it says of another one may hold for seconds. Other
    tests kill it."""
    every = ("--set-json", "watchNamespaces=[]", *helm.WAIT)
    fog = json.dumps({"headwater.dev/tier": "fog"})
    helm.install(helm.CHART, *every, "--set-json", f"nodeSelector={fog}")
    yield
    helm.install(helm.CHART, *every)


@pytest.fixture
def tree(apart: None, request: pytest.FixtureRequest) -> Iterator[Tree]:
    """Nodes on any machine, the root in the cloud."""
    name = request.node.name.removeprefix("test_").replace("_", "-")[:40].rstrip("-")
    document = topology("spread", 8)
    placement: dict[str, Any] = document["spec"]["placement"]
    for role in ("child", "intermediate"):
        del placement[role]["nodeSelector"]
        # Where they must not go, the root is.
        outside = {"key": "headwater.dev/tier", "operator": "NotIn", "values": ["cloud"]}
        terms = {"nodeSelectorTerms": [{"matchExpressions": [outside]}]}
        placement[role]["affinity"] = {
            "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}
        }
    with namespace(name) as space, planted(space, document) as found:
        found.settled()
        yield found


@pytest.mark.promise("a machine is drained, and one is lost, and every window stays exact")
def test_a_machine_is_drained_and_then_killed(tree: Tree, capsys: pytest.CaptureFixture[str]) -> None:
    edge = machine("edge")
    sending = tree.send(Fleet(8, events=None), NODE)
    tree.shows()
    try:
        options = ["--ignore-daemonsets", "--delete-emptydir-data", "--force", "--timeout=400s"]
        kubectl("drain", edge, f"--pod-selector={names.TOPOLOGY}=spread", *options)
        tree.settled()
        assert edge not in {pod["spec"]["nodeName"] for pod in tree.pods()}
    finally:
        kubectl("uncordon", edge)
    # It is used again, as the emptier one of two.
    kubectl("--namespace", tree.space, "delete", "pods", "--selector", f"{names.ROLE}=child", "--wait=false")
    tree.until(lambda: edge in {pod["spec"].get("nodeName") for pod in tree.pods(names.NODE)}, "not used")
    tree.settled()
    with killed(edge) as since:
        tree.until(
            lambda: tree.condition("Degraded").get("reason") == "MachinesLost", "nobody noticed", NOTICED
        )
        told = tree.condition("Degraded")["lastTransitionTime"]
        late = datetime.fromisoformat(told) - datetime.fromisoformat(since)
        with capsys.disabled():
            print(f"\nplanned around a machine {late.total_seconds():.0f} s after it was NotReady")
        # The pods are made elsewhere, and all of it goes on without the machine.
        tree.until(lambda: tree.condition("Ready").get("status") == "True", "it is not ready")
        running = [pod for pod in tree.pods(names.NODE) if "deletionTimestamp" not in pod["metadata"]]
        assert edge not in {pod["spec"]["nodeName"] for pod in running}
    sending.enough()
    tree.settled()
    assert tree.assert_exact() > 50


def test_the_machine_of_the_root_is_killed_and_comes_back(tree: Tree) -> None:
    cloud = machine("cloud")
    sending = tree.send(Fleet(8, events=None), NODE)
    tree.shows()
    with killed(cloud):
        tree.until(
            lambda: tree.condition("Degraded").get("reason") == "RootNodeLost", "nobody noticed", NOTICED
        )
        said = tree.condition("Degraded")["message"]
        assert f"kubectl delete pod {names.root_pod('spread')} --namespace {tree.space} --force" in said
        assert tree.condition("Ready")["status"] == "False"
    sending.enough()
    tree.settled()
    assert tree.assert_exact() > 30
