"""Pods that may do little: what those of nodes and of the root have in common."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headwater.topology.tree import LayerPlacement, Resources
from headwater_operator import names
from headwater_operator.rendering.objects import Owner

# Nobody, with a line in the passwd of our images.
USER = 65_532
TLS_PATH = "/etc/headwater/tls"
CERTIFICATE, KEY, AUTHORITIES = (f"{TLS_PATH}/{file}" for file in ("tls.crt", "tls.key", "ca.crt"))
# An endpoint of ours answers after 5 seconds at the latest.
_ANSWER_SECONDS = 6

Variable = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Images:
    """What pods run. The Secrets to pull it with have to be in the namespace of the topology."""

    node: str
    root: str
    pull_policy: str = "IfNotPresent"
    pull_secrets: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Volume:
    """Something that a pod mounts."""

    name: str
    path: str
    source: Mapping[str, Any]
    writable: bool = False


TMP = Volume("tmp", "/tmp", {"emptyDir": {}}, writable=True)


@dataclass(frozen=True, slots=True)
class Container:
    """The one program of a pod."""

    name: str
    image: str
    environment: Sequence[Variable]
    resources: Resources
    command: Sequence[str] = ()
    arguments: Sequence[str] = ()
    # Seconds from its start until it has to answer at all.
    patience: int = 120
    host_port: int | None = None


def pod_security() -> dict[str, Any]:
    """Nobody, who may do nothing that is not needed."""
    return {
        "runAsNonRoot": True,
        "runAsUser": USER,
        "runAsGroup": USER,
        "fsGroup": USER,
        # The volume of a root holds many files.
        "fsGroupChangePolicy": "OnRootMismatch",
        "seccompProfile": {"type": "RuntimeDefault"},
    }


def container_security() -> dict[str, Any]:
    return {
        "readOnlyRootFilesystem": True,
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
    }


def template(
    owner: Owner,
    placement: LayerPlacement,
    images: Images,
    container: Container,
    certificates: Mapping[str, Any],
    volumes: Sequence[Volume] = (),
    *,
    labels: Mapping[str, str],
    annotations: Mapping[str, str],
    grace: int,
    spec: Mapping[str, Any],
) -> dict[str, Any]:
    """The pod of one program; `certificates` is the volume with its own, `spec` is what is its own else."""
    mounted = [
        TMP,
        Volume("tls", TLS_PATH, certificates),
        *volumes,
    ]
    optional = {
        "priorityClassName": placement.priority_class,
        "imagePullSecrets": pull_secrets(images, placement),
        **spec,
    }
    return {
        "metadata": {
            "labels": {**names.labels(owner.name), **labels},
            "annotations": {**dict(placement.annotations), **annotations},
        },
        "spec": {
            "automountServiceAccountToken": False,
            # A Service called headwater-metrics would otherwise say where metrics are to be listened for.
            "enableServiceLinks": False,
            "terminationGracePeriodSeconds": grace,
            "securityContext": pod_security(),
            "containers": [_container(container, placement, images.pull_policy, mounted)],
            "volumes": [volume(each) for each in mounted],
            **{field: value for field, value in optional.items() if value},
        },
    }


def _container(
    given: Container, placement: LayerPlacement, pull_policy: str, volumes: Iterable[Volume]
) -> dict[str, Any]:
    ours = {variable["name"] for variable in given.environment}
    theirs = [variable(name, value) for name, value in placement.env if name not in ours]
    tree: dict[str, Any] = {"name": "tree", "containerPort": names.TREE_PORT, "protocol": "TCP"}
    if given.host_port is not None:
        tree["hostPort"] = given.host_port
    program = {"command": list(given.command), "args": list(given.arguments)}
    return {
        "name": given.name,
        "image": given.image,
        "imagePullPolicy": pull_policy,
        **{field: value for field, value in program.items() if value},
        "env": [*theirs, *given.environment],
        "ports": [tree, {"name": "metrics", "containerPort": names.METRICS_PORT, "protocol": "TCP"}],
        "resources": _resources(placement.resources, given.resources),
        "startupProbe": _probe("/healthz", period=2, failures=given.patience // 2),
        "readinessProbe": _probe("/readyz", period=2, failures=2),
        # Whether others answer is no reason to end it.
        "livenessProbe": _probe("/healthz", period=10, failures=6),
        # What a program says last is why it ended; so the status of its pod has it.
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "securityContext": container_security(),
        "volumeMounts": [mount(each) for each in volumes],
    }


def pull_secrets(images: Images, placement: LayerPlacement) -> list[dict[str, str]]:
    found = dict.fromkeys((*images.pull_secrets, *placement.image_pull_secrets))
    return [{"name": name} for name in found]


def volume(given: Volume) -> dict[str, Any]:
    return {"name": given.name, **given.source}


def mount(given: Volume) -> dict[str, Any]:
    found = {"name": given.name, "mountPath": given.path}
    return found if given.writable else {**found, "readOnly": True}


def variable(name: str, value: str) -> Variable:
    return {"name": name, "value": value}


def from_field(name: str, path: str) -> Variable:
    """What only the cluster knows of a pod."""
    return {"name": name, "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": path}}}


def from_secret(name: str, secret: str, key: str) -> Variable:
    return {"name": name, "valueFrom": {"secretKeyRef": {"name": secret, "key": key}}}


def _probe(path: str, *, period: int, failures: int) -> dict[str, Any]:
    return {
        "httpGet": {"path": path, "port": "metrics", "scheme": "HTTP"},
        "periodSeconds": period,
        "timeoutSeconds": _ANSWER_SECONDS,
        "failureThreshold": failures,
    }


def _resources(theirs: Resources, usual: Resources) -> dict[str, Any]:
    """Of cpu and of memory the usual amounts hold only where the user says nothing of it at all: a request of
    theirs may be above a limit of ours, which no API server takes."""
    told = {name for name, _ in (*theirs.requests, *theirs.limits)}
    found: dict[str, dict[str, str]] = {}
    for field, given, instead in (
        ("requests", theirs.requests, usual.requests),
        ("limits", theirs.limits, usual.limits),
    ):
        amounts = {**{name: amount for name, amount in instead if name not in told}, **dict(given)}
        if amounts:
            found[field] = amounts
    return found
