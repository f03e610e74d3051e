"""The root as a Spark job: alone, and with executors that Spark itself makes as pods; halted where those do
not see its checkpoint."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from e2e.api import Api
from e2e.images import NODE, ROOT
from e2e.kubectl import kubectl, namespace
from e2e.trees import Fleet, Tree, planted, tiers, topology
from headwater_operator import names

EXECUTORS = 2
# Longer than the root itself waits for its last merges, for executors to come and for the one check that they
# see the checkpoint, in seconds.
PATIENCE = 600.0


def _executors(tree: Tree) -> dict[str, str]:
    """Those that run and are not about to end, each with its machine."""
    return {
        pod["metadata"]["name"]: pod["spec"]["nodeName"]
        for pod in tree.pods(f"{names.ROLE}={names.EXECUTOR}")
        if pod["status"]["phase"] == "Running" and "deletionTimestamp" not in pod["metadata"]
    }


def _kill(tree: Tree, pod: str) -> None:
    kubectl("--namespace", tree.space, "delete", "pod", pod, "--grace-period=0", "--force")


@pytest.mark.promise("a Spark root loses an executor and then its driver, and every window stays exact")
def test_the_root_as_a_spark_job_alone_and_with_executors(space: str) -> None:
    document = topology("sparked", 4)
    root: dict[str, Any] = document["spec"]["root"] | {"engine": "spark"}
    document["spec"]["root"] = root
    # Of two cores that all trees share, Spark gets more than what is left: it and each executor.
    document["spec"]["placement"]["root"]["resources"] = {"requests": {"cpu": "500m", "memory": "64Mi"}}
    with planted(space, document) as tree:
        tree.settled(PATIENCE)
        assert _executors(tree) == {}
        sending = tree.send(Fleet(4, events=None), NODE)
        tree.shows()
        # Other arguments: the driver starts again, and goes on from its volume.
        tree.patch({"root": {**root, "spark": {"executors": EXECUTORS}}})
        tree.settled(PATIENCE)
        tree.until(lambda: len(_executors(tree)) == EXECUTORS, "an executor is missing", PATIENCE)
        machines, before = tiers(), _executors(tree)
        assert {machines[each] for each in before.values()} == {"cloud"}
        victim = min(before)
        _kill(tree, victim)
        tree.until(
            lambda: victim not in (there := _executors(tree)) and len(there) == EXECUTORS,
            "there is no other executor",
            PATIENCE,
        )
        _kill(tree, names.root_pod("sparked"))
        sending.enough(PATIENCE)
        assert tree.assert_exact() > 50
        # What the life before has left is gone.
        tree.settled(PATIENCE)
        tree.until(lambda: len(_executors(tree)) == EXECUTORS, "there are not as many executors", PATIENCE)


def test_a_root_whose_executors_do_not_see_its_checkpoint_halts(cluster: Api) -> None:
    """By hand: of what the operator makes, executors get the volume of the driver."""
    with namespace("executors-blind") as space:
        for each in _blind():
            kubectl("--namespace", space, "apply", "--filename", "-", given=each)
        end = time.monotonic() + PATIENCE
        while not (ended := _ended(space)):
            assert time.monotonic() < end, kubectl("--namespace", space, "logs", "driver", "--tail=30")
            time.sleep(0.5)
        assert ended["exitCode"] == 6
        said = json.loads(ended["message"].strip().splitlines()[-1])
        assert said["reason"] == "CheckpointNotShared"
        assert "give them the same volume at the same path (--executor-template)" in said["problem"]
        # Nothing was acknowledged: it never listened.
        assert "started" not in ended["message"]


def _ended(space: str) -> dict[str, Any]:
    """How the container of the driver has ended; empty if it has not."""
    pod = json.loads(kubectl("--namespace", space, "get", "pod", "driver", "--output=json"))
    found: dict[str, Any] = {}
    for status in pod["status"].get("containerStatuses", []):
        found = status["state"].get("terminated") or {}
    return found


def _blind() -> list[dict[str, Any]]:
    """A driver, and executors with a folder of their own where it has its checkpoint."""
    security = {
        "runAsNonRoot": True,
        "runAsUser": 65_532,
        "fsGroup": 65_532,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    pod: dict[str, Any] = {
        "nodeSelector": {"headwater.dev/tier": "cloud"},
        "securityContext": security,
        "volumes": [{"name": name, "emptyDir": {}} for name in ("tmp", "data")],
    }
    container: dict[str, Any] = {
        "securityContext": {
            "readOnlyRootFilesystem": True,
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [{"name": name, "mountPath": f"/{name}"} for name in ("tmp", "data")],
    }
    template = {
        "apiVersion": "v1",
        "kind": "Pod",
        "spec": {**pod, "containers": [{**container, "name": "executor"}]},
    }
    document = topology("blind")
    document["spec"]["root"] |= {"engine": "spark", "spark": {"executors": EXECUTORS}}
    given = {"topology.json": json.dumps(document), "executor.json": json.dumps(template)}
    options = {
        "topology": "/etc/headwater/topology.json",
        "directory": "/data/state",
        "listen": f"0.0.0.0:{names.TREE_PORT}",
        "executors": EXECUTORS,
        "executor-image": ROOT,
        "executor-cores": "0.2",
        "executor-memory": "512m",
        "executor-template": "/etc/headwater/executor.json",
    }
    fields = {"POD_NAMESPACE": "metadata.namespace", "POD_NAME": "metadata.name", "POD_IP": "status.podIP"}
    driver = {
        **container,
        "name": "root",
        "image": ROOT,
        "imagePullPolicy": "IfNotPresent",
        "args": [f"--{option}={value}" for option, value in options.items()],
        "env": [
            {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}} for name, path in fields.items()
        ],
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [*container["volumeMounts"], {"name": "given", "mountPath": "/etc/headwater"}],
    }
    volumes = [*pod["volumes"], {"name": "given", "configMap": {"name": "given"}}]
    rights = "rbac.authorization.k8s.io"
    verbs = ["get", "list", "watch", "create", "patch", "delete", "deletecollection"]
    return [
        _object("ServiceAccount", "driver"),
        _object(
            "Role",
            "driver",
            f"{rights}/v1",
            rules=[{"apiGroups": [""], "resources": ["pods"], "verbs": verbs}],
        ),
        _object(
            "RoleBinding",
            "driver",
            f"{rights}/v1",
            roleRef={"apiGroup": rights, "kind": "Role", "name": "driver"},
            subjects=[{"kind": "ServiceAccount", "name": "driver"}],
        ),
        _object("ConfigMap", "given", data=given),
        _object(
            "Pod",
            "driver",
            spec={
                **pod,
                "serviceAccountName": "driver",
                "restartPolicy": "Never",
                "containers": [driver],
                "volumes": volumes,
            },
        ),
    ]


def _object(kind: str, name: str, api: str = "v1", **fields: Any) -> dict[str, Any]:
    return {"apiVersion": api, "kind": kind, "metadata": {"name": name}, **fields}
