"""The images in pods that may do little: a child and a root of either kind, put up by hand."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from time import monotonic
from typing import Any

import pytest

from e2e.api import Api
from e2e.images import NODE, ROOT
from e2e.kubectl import forwarded, kubectl, namespace

PORT, METRICS = 7070, 9100
# How long a result may take that everything is there for: Spark starts meanwhile.
DELIVERED = 120.0
SECOND = 1_000_000
BEGIN = 1_700_000_000 * SECOND
EVENTS = [(BEGIN + 3_571 * n, float(n * n % 97)) for n in range(5_000)]

TOPOLOGY = {
    "apiVersion": "headwater.dev/v1alpha1",
    "kind": "AggregationTopology",
    "metadata": {"name": "by-hand"},
    "spec": {
        "sources": [{"class": "probe", "site": "here", "expected": 1, "rate": 100, "lateness": "0s"}],
        "queries": [
            {
                "id": "load",
                "aggregate": ["sum", "max"],
                "window": {"type": "tumbling", "length": "1s"},
            }
        ],
        "root": {"engine": "spark", "sinks": [{"type": "jsonlines", "path": "lines"}]},
    },
}


def _pod(name: str, image: str, tier: str, container: dict[str, Any], *mounts: str) -> dict[str, Any]:
    """With as few rights as a pod can have."""
    volumes: list[dict[str, Any]] = [{"name": "tmp", "emptyDir": {}}, {"name": "data", "emptyDir": {}}]
    places = [{"name": "tmp", "mountPath": "/tmp"}, {"name": "data", "mountPath": "/data"}]
    if mounts:
        volumes.append({"name": "topology", "configMap": {"name": "topology"}})
        places.append({"name": "topology", "mountPath": mounts[0]})
    ready = {"httpGet": {"path": "/readyz", "port": METRICS}, "periodSeconds": 1}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"name": name}},
        "spec": {
            "nodeSelector": {"headwater.dev/tier": tier},
            "automountServiceAccountToken": False,
            "securityContext": {
                "runAsNonRoot": True,
                "runAsUser": 65532,
                "fsGroup": 65532,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "containers": [
                {
                    "name": name,
                    "image": image,
                    "imagePullPolicy": "IfNotPresent",
                    "securityContext": {
                        "readOnlyRootFilesystem": True,
                        "allowPrivilegeEscalation": False,
                        "capabilities": {"drop": ["ALL"]},
                    },
                    "readinessProbe": ready,
                    "volumeMounts": places,
                    **container,
                }
            ],
            "volumes": volumes,
        },
    }


def _service(name: str) -> dict[str, Any]:
    ports = [{"port": PORT, "targetPort": PORT}]
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name},
        "spec": {"selector": {"name": name}, "ports": ports},
    }


def _put_up(space: str, engine: str) -> None:
    topology = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "topology"},
        "data": {"topology.json": json.dumps(TOPOLOGY)},
    }
    given = ["--topology", "/etc/headwater/topology.json", "--directory", "/data/state"]
    listen = ["--listen", f"0.0.0.0:{PORT}", "--metrics", f"0.0.0.0:{METRICS}"]
    program = {"spark": [], "embedded": ["python3", "-m", "headwater_root"]}[engine]
    root = {"args": [*given, *listen], **({"command": program} if program else {})}
    environment = {
        "HEADWATER_NAME": "l1-0",
        "HEADWATER_ROLE": "child",
        "HEADWATER_LISTEN": f"0.0.0.0:{PORT}",
        "HEADWATER_METRICS": f"0.0.0.0:{METRICS}",
        "HEADWATER_PARENT": "root",
        "HEADWATER_PARENT_ADDRESS": f"root:{PORT}",
    }
    child = {"env": [{"name": name, "value": value} for name, value in environment.items()]}
    objects = [
        topology,
        _service("root"),
        _pod("root", ROOT, "cloud", root, "/etc/headwater"),
        _pod("child", NODE, "edge", child),
    ]
    for each in objects:
        kubectl("--namespace", space, "apply", "--filename", "-", given=each)
    kubectl("--namespace", space, "wait", "--for=condition=Ready", "pod/root", "pod/child", "--timeout=180s")


def _expected() -> dict[int, list[float]]:
    values = defaultdict(list)
    for ts, value in EVENTS:
        values[ts // SECOND * SECOND].append(value)
    return {start: [len(found), sum(found), max(found)] for start, found in values.items()}


@pytest.mark.parametrize("engine", ["embedded", "spark"])
def test_a_tree_by_hand_gives_exact_windows(cluster: Api, engine: str, tmp_path: Path) -> None:
    events = tmp_path / "events.csv"
    events.write_text("ts,value\n" + "".join(f"{ts},{value}\n" for ts, value in EVENTS))
    with namespace(f"by-hand-{engine}") as space:
        _put_up(space, engine)
        with forwarded(space, "child", PORT) as address:
            command = [sys.executable, "-m", "headwater_cli", "send", str(events), "--to", address]
            options = [
                "--name",
                "probe-1",
                "--site",
                "here",
                "--lateness",
                "0s",
                "--end",
                "--timeout",
                "120s",
            ]
            done = subprocess.run(
                [*command, *options, "--spool", str(tmp_path / "spool"), "--json"],
                capture_output=True,
                text=True,
                timeout=180,
                check=False,
            )
        assert done.returncode == 0, done.stderr + done.stdout
        assert json.loads(done.stdout)["counted"] == len(EVENTS) + 1
        found: dict[int, list[float]] = {}
        until = monotonic() + DELIVERED
        while len(found) < len(_expected()) and monotonic() < until:
            lines = kubectl(
                *("--namespace", space, "exec", "root", "--"),
                *("sh", "-c", "cat /data/state/sinks/lines/results.jsonl || true"),
            ).splitlines()
            results = [json.loads(line) for line in lines]
            found = {each["start"]: [each["count"], *each["values"].values()] for each in results}
        assert found == _expected(), kubectl("--namespace", space, "logs", "root", "--tail=30")
        assert len(results) == len(found)
