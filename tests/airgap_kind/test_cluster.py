"""The configuration of a cluster, and when it counts as healthy."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest
import yaml

from airgap_kind import config, process
from airgap_kind.__main__ import labels, main, parser
from airgap_kind.cache import Cache
from airgap_kind.cluster import Cluster, judge
from airgap_kind.engine import Engine
from airgap_kind.errors import Failure
from airgap_kind.nodeimage import Sources, last_line
from airgap_kind.progress import Progress
from airgap_kind.tools import Tools, parse_version
from airgap_kind.versions import VERSIONS

NOW = 1_700_000_000.0


def test_the_configuration_is_what_kind_reads() -> None:
    read = yaml.safe_load(config.render(config.tiers()))
    assert read["kind"] == "Cluster"
    roles = [(node["role"], node.get("labels")) for node in read["nodes"]]
    assert roles == [
        ("control-plane", None),
        ("worker", {"headwater.dev/tier": "edge"}),
        ("worker", {"headwater.dev/tier": "fog"}),
        ("worker", {"headwater.dev/tier": "cloud"}),
    ]
    server, kubelet = (yaml.safe_load(patch) for patch in read["kubeadmConfigPatches"])
    assert server["controllerManager"]["extraArgs"]["node-monitor-grace-period"] == "16s"
    assert server["etcd"]["local"]["extraArgs"] == {"unsafe-no-fsync": "true"}
    assert kubelet["nodeStatusUpdateFrequency"] == "2s"


def test_labels_are_text_whatever_they_look_like() -> None:
    read = yaml.safe_load(config.render(({"zone": "1", "on": "true"}, {})))
    assert [node.get("labels") for node in read["nodes"]] == [None, {"zone": "1", "on": "true"}, None]


def node(name: str, ready: str = "True", heard: float = NOW) -> dict[str, Any]:
    at = datetime.fromtimestamp(heard, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    conditions = [{"type": "Ready", "status": ready, "lastHeartbeatTime": at}]
    return {"kind": "Node", "metadata": {"name": name}, "status": {"conditions": conditions}}


def deployment(name: str, available: int, wanted: int = 1, namespace: str = "kube-system") -> dict[str, Any]:
    return {
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"replicas": wanted},
        "status": {"availableReplicas": available},
    }


def parts(available: int = 2, ready: int = 2, volumes: int = 1) -> list[dict[str, Any]]:
    return [
        deployment("coredns", available, 2),
        deployment("local-path-provisioner", volumes, namespace="local-path-storage"),
        {
            "kind": "DaemonSet",
            "metadata": {"name": "kube-proxy", "namespace": "kube-system"},
            "spec": {},
            "status": {"numberReady": ready, "desiredNumberScheduled": 2},
        },
    ]


def test_a_healthy_cluster() -> None:
    assert judge([node("a"), node("b"), *parts()], 2, NOW).good


@pytest.mark.parametrize(
    "items, problem",
    [
        ([node("a"), *parts()], "1 of 2 nodes"),
        ([node("a"), node("b", "Unknown"), *parts()], "b is not ready"),
        ([node("a"), node("b", heard=NOW - 60), *parts()], "b was not heard of"),
        ([node("a"), node("b"), *parts(available=1)], "coredns"),
        ([node("a"), node("b"), *parts(ready=1)], "kube-proxy"),
        ([node("a"), node("b"), *parts(volumes=0)], "local-path-provisioner"),
    ],
)
def test_what_is_missing_is_named(items: list[dict[str, Any]], problem: str) -> None:
    health = judge(items, 2, NOW)
    assert not health.good
    assert problem in "; ".join(health.problems)


def test_what_users_run_does_not_count() -> None:
    theirs = deployment("theirs", 0, namespace="default")
    assert judge([node("a"), node("b"), *parts(), theirs], 2, NOW).good


def test_health_asks_for_the_nodes_and_for_all_namespaces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def run(args: Sequence[str | Path], **_: object) -> CompletedProcess[str]:
        asked.extend(map(str, args))
        return CompletedProcess(asked, 0, json.dumps({"items": [node("a"), node("b"), *parts()]}), "")

    monkeypatch.setattr(process, "run", run)
    monkeypatch.setattr(Tools, "kubectl", lambda *_: Path("kubectl"))
    sources = Sources(Cache(tmp_path), VERSIONS, Progress(io.StringIO()), pytest.fail)
    cluster = Cluster("x", sources, tmp_path / "config", ({},))
    assert cluster.health(Engine("docker"), NOW).good
    verb = asked.index("get")
    # kubectl takes a flag of a verb, before the verb, for a plugin of another name.
    assert asked[:verb] == ["kubectl", "--kubeconfig", str(tmp_path / "config"), "--request-timeout=5s"]
    assert "--all-namespaces" in asked[verb:]


def test_labels_of_a_worker() -> None:
    assert labels("a=b,c=") == {"a": "b", "c": ""}
    args = parser().parse_args(["up", "--worker", "a=b", "--worker", "c=d"])
    assert args.worker == [{"a": "b"}, {"c": "d"}]
    with pytest.raises(SystemExit):
        parser().parse_args(["up", "--worker", "a"])


def test_env_is_for_a_shell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("AIRGAP_KIND_CACHE", str(tmp_path / "a b"))
    monkeypatch.setenv("PATH", "/nowhere")
    assert main(["env", "--name", "x"]) == 0
    said = capsys.readouterr().out
    assert f"export KUBECONFIG='{tmp_path}/a b/clusters/x/kubeconfig'\n" in said
    assert f"export PATH='{tmp_path}/a b/bin:/nowhere'\n" in said
    assert f"export DOCKER_HOST='unix://{tmp_path}/a b/engine/docker.sock'\n" in said


def test_versions_are_compared_as_numbers() -> None:
    assert parse_version("kind v0.33.0 go1.26.8 linux/amd64") == (0, 33, 0)
    assert parse_version("v0.9.1") < parse_version("v0.33.0")
    assert parse_version("none") < parse_version("v0.1.0")


def test_steps_say_what_they_did() -> None:
    said = io.StringIO()
    progress = Progress(said)
    with progress.step("one", "about 1 s"):
        pass
    with progress.step("two"):
        progress.say("in between")
    with pytest.raises(RuntimeError), progress.step("three"):
        raise RuntimeError
    lines = said.getvalue().splitlines()
    assert re.match(r"one \(about 1 s\) \.\.\. done in \d", lines[0])
    assert lines[1:3] == ["two ... ", "in between"]
    assert re.match(r"    \.\.\. done in \d", lines[3])
    assert lines[5].startswith("    ... failed after")


def test_a_failure_has_its_remedy() -> None:
    text = str(Failure("no engine", "start one", "line 1\nline 2"))
    assert text == "no engine\n    line 1\n    line 2\nRemedy: start one"
    assert last_line("a\nb\n") == "b"
    assert last_line("") == "no answer"
