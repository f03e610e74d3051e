"""Volumes of the default class, for pods that are not root."""

from __future__ import annotations

from typing import Any

import pytest

from e2e.images import NODE
from e2e.kubectl import kubectl, namespace

TIERS = ("edge", "fog", "cloud")
USER = 65532


def _claim(name: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Mi"}}},
    }


def _pod(name: str, selector: dict[str, str]) -> dict[str, Any]:
    """Waits, with the volume of the claim of its name."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "nodeSelector": selector,
            "automountServiceAccountToken": False,
            "terminationGracePeriodSeconds": 1,
            "securityContext": {
                "runAsNonRoot": True,
                "runAsUser": USER,
                "runAsGroup": USER,
                "fsGroup": USER,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "containers": [
                {
                    "name": "waits",
                    "image": NODE,
                    "imagePullPolicy": "IfNotPresent",
                    "command": ["sleep", "infinity"],
                    "securityContext": {
                        "readOnlyRootFilesystem": True,
                        "allowPrivilegeEscalation": False,
                        "capabilities": {"drop": ["ALL"]},
                    },
                    "volumeMounts": [{"name": "data", "mountPath": "/data"}],
                }
            ],
            "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": name}}],
        },
    }


def _ready(space: str, pods: list[dict[str, Any]]) -> None:
    for pod in pods:
        kubectl("--namespace", space, "apply", "--filename", "-", given=pod)
    names = [f"pod/{pod['metadata']['name']}" for pod in pods]
    kubectl("--namespace", space, "wait", "--for=condition=Ready", *names, "--timeout=180s")


def _sh(space: str, pod: str, script: str) -> str:
    return kubectl("--namespace", space, "exec", pod, "--", "sh", "-euc", script).strip()


@pytest.mark.usefixtures("cluster")
def test_a_volume_outlives_its_pod_and_goes_with_its_claim() -> None:
    with namespace("storage") as space:
        for tier in TIERS:
            kubectl("--namespace", space, "apply", "--filename", "-", given=_claim(tier))
        _ready(space, [_pod(tier, {"headwater.dev/tier": tier}) for tier in TIERS])
        for tier in TIERS:
            wrote = f"id -u; mkdir /data/state; echo of-{tier} > /data/state/word; cat /data/state/word"
            assert _sh(space, tier, wrote).split() == [str(USER), f"of-{tier}"]
        volumes = [
            kubectl("--namespace", space, "get", "pvc", tier, "--output=jsonpath={.spec.volumeName}")
            for tier in TIERS
        ]
        kubectl("--namespace", space, "delete", "pod", *TIERS, "--wait=true")

        # Nothing but the volume leads them back to where it is.
        _ready(space, [_pod(tier, {}) for tier in TIERS])
        for tier in TIERS:
            assert _sh(space, tier, "cat /data/state/word; echo more >> /data/state/word") == f"of-{tier}"
        kubectl("--namespace", space, "delete", "pod", *TIERS, "--wait=true")

        kubectl("--namespace", space, "delete", "pvc", *TIERS, "--wait=true")
        for volume in volumes:
            kubectl("wait", "--for=delete", f"persistentvolume/{volume}", "--timeout=180s")
