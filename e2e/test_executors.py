"""The Spark root with executors that Spark itself makes as pods: exact whatever dies, and halted where
executors do not see its checkpoint."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, sleep
from typing import Any

from e2e.api import Api
from e2e.images import NODE, ROOT
from e2e.kubectl import forwarded, kubectl, namespace
from tests.certificates import Authority

log = logging.getLogger(__name__)
PORT, METRICS = 7070, 9100
CHILD = "l1-0"
TLS_MOUNT = {"name": "tls", "mountPath": "/etc/headwater-tls"}
CERTIFICATES = {
    "HEADWATER_TLS_CERTIFICATE": "/etc/headwater-tls/tls.crt",
    "HEADWATER_TLS_KEY": "/etc/headwater-tls/tls.key",
    "HEADWATER_TLS_CA": "/etc/headwater-tls/ca.crt",
}
EXECUTORS = 2
# The pod of the driver, and what finds those of its executors.
DRIVER = "root-0"
ITS_EXECUTORS = f"headwater.dev/driver={DRIVER}"
# How long a pod may take to be ready and a result to come, in seconds: Spark starts, more than once.
PATIENCE = 240.0
SECOND = 1_000_000
BEGIN = 1_700_000_000 * SECOND
# Before each thing that happens, and behind the last.
PORTION = 1_200
EVENTS = [(BEGIN + 9_973 * n, f"machine-{n % 7}", float(n * n % 97)) for n in range(5 * PORTION)]
# With as few rights as a pod and a container can have.
POD = {
    "runAsNonRoot": True,
    "runAsUser": 65532,
    "runAsGroup": 65532,
    "fsGroup": 65532,
    "seccompProfile": {"type": "RuntimeDefault"},
}
CONTAINER = {
    "readOnlyRootFilesystem": True,
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
}

KILL_JAVA = """
import os, pathlib, signal
for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
    if path.read_bytes().partition(b"\\0")[0].endswith(b"/java"):
        os.kill(int(path.parent.name), signal.SIGKILL)
"""
TOPOLOGY = {
    "apiVersion": "headwater.dev/v1alpha1",
    "kind": "AggregationTopology",
    "metadata": {"name": "executors"},
    "spec": {
        "sources": [{"class": "probe", "site": "here", "expected": 1, "rate": 1_000, "lateness": "0s"}],
        "queries": [
            {
                "id": "load",
                "aggregate": ["sum", "max"],
                "keyBy": "key",
                "window": {"type": "tumbling", "length": "1s"},
            }
        ],
        "root": {
            "engine": "spark",
            "spark": {"executors": EXECUTORS},
            "sinks": [{"type": "jsonlines", "path": "lines"}],
        },
    },
}


def _object(kind: str, name: str, api: str = "v1", **fields: Any) -> dict[str, Any]:
    return {"apiVersion": api, "kind": kind, "metadata": {"name": name}, **fields}


def _rights() -> Iterator[dict[str, Any]]:
    """Of the driver: pods, and nothing else."""
    api = "rbac.authorization.k8s.io"
    verbs = ["get", "list", "watch", "create", "patch", "delete", "deletecollection"]
    yield _object("ServiceAccount", "root")
    yield _object(
        "Role", "root", f"{api}/v1", rules=[{"apiGroups": [""], "resources": ["pods"], "verbs": verbs}]
    )
    yield _object(
        "RoleBinding",
        "root",
        f"{api}/v1",
        roleRef={"apiGroup": api, "kind": "Role", "name": "root"},
        subjects=[{"kind": "ServiceAccount", "name": "root"}],
    )


def _template(data: dict[str, Any]) -> dict[str, Any]:
    """Of an executor: on the node of the driver, since that has the volume."""
    mounts = [{"name": "tmp", "mountPath": "/tmp"}, {"name": "data", "mountPath": "/data"}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "spec": {
            "nodeSelector": {"headwater.dev/tier": "cloud"},
            "automountServiceAccountToken": False,
            "securityContext": POD,
            "containers": [{"name": "executor", "securityContext": CONTAINER, "volumeMounts": mounts}],
            "volumes": [{"name": "tmp", "emptyDir": {}}, {"name": "data", **data}],
        },
    }


def _root() -> dict[str, Any]:
    mounts = [{"name": "tmp", "mountPath": "/tmp"}, {"name": "data", "mountPath": "/data"}]
    certificates = [{"name": name, "value": value} for name, value in CERTIFICATES.items()]
    given = {
        "--topology": "/etc/headwater/topology.json",
        "--directory": "/data/state",
        "--listen": f"0.0.0.0:{PORT}",
        "--metrics": f"0.0.0.0:{METRICS}",
        "--executors": str(EXECUTORS),
        "--executor-image": ROOT,
        "--executor-cores": "0.2",
        "--executor-memory": "512m",
        "--executor-template": "/etc/headwater/executor.json",
    }
    fields = {"POD_NAMESPACE": "metadata.namespace", "POD_NAME": "metadata.name", "POD_IP": "status.podIP"}
    own = [{"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}} for name, path in fields.items()]
    pod = {
        "serviceAccountName": "root",
        "nodeSelector": {"headwater.dev/tier": "cloud"},
        "securityContext": POD,
        # A folder on the node belongs to nobody else until somebody says so.
        "initContainers": [
            {
                "name": "volume",
                "image": ROOT,
                "command": ["chown", "65532", "/data"],
                "securityContext": {"runAsUser": 0, "runAsNonRoot": False},
                "volumeMounts": mounts,
            }
        ],
        "containers": [
            {
                "name": "root",
                "image": ROOT,
                "imagePullPolicy": "IfNotPresent",
                "args": [each for option in given.items() for each in option],
                "env": own + certificates,
                "terminationMessagePolicy": "FallbackToLogsOnError",
                "securityContext": CONTAINER,
                "readinessProbe": {"httpGet": {"path": "/readyz", "port": METRICS}, "periodSeconds": 1},
                "volumeMounts": [*mounts, {"name": "given", "mountPath": "/etc/headwater"}, TLS_MOUNT],
            }
        ],
        "volumes": [
            {"name": "tmp", "emptyDir": {}},
            {"name": "data", "persistentVolumeClaim": {"claimName": "state"}},
            {"name": "given", "configMap": {"name": "given"}},
            {"name": "tls", "secret": {"secretName": "root-tls"}},
        ],
    }
    labels = {"name": "root"}
    spec = {
        "serviceName": "root",
        "replicas": 1,
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": pod},
    }
    return _object("StatefulSet", "root", "apps/v1", spec=spec)


def _child() -> dict[str, Any]:
    environment = {
        "HEADWATER_NAME": CHILD,
        "HEADWATER_ROLE": "child",
        "HEADWATER_LISTEN": f"0.0.0.0:{PORT}",
        "HEADWATER_METRICS": f"0.0.0.0:{METRICS}",
        "HEADWATER_PARENT": "root",
        "HEADWATER_PARENT_ADDRESS": f"root:{PORT}",
        **CERTIFICATES,
    }
    container = {
        "name": "child",
        "image": NODE,
        "imagePullPolicy": "IfNotPresent",
        "env": [{"name": name, "value": value} for name, value in environment.items()],
        "securityContext": CONTAINER,
        "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}, TLS_MOUNT],
    }
    spec = {
        "nodeSelector": {"headwater.dev/tier": "edge"},
        "securityContext": POD,
        "containers": [container],
        "volumes": [
            {"name": "tmp", "emptyDir": {}},
            {"name": "tls", "secret": {"secretName": f"{CHILD}-tls"}},
        ],
    }
    return _object("Pod", "child", spec=spec)


def _certificate(authority: Authority, name: str) -> dict[str, Any]:
    held = authority.issue(name, role="node")
    files = {"tls.crt": held.certificate, "tls.key": held.key, "ca.crt": held.ca}
    return _object("Secret", f"{name}-tls", stringData={at: path.read_text() for at, path in files.items()})


def _put_up(space: str, authority: Authority, of_executors: dict[str, Any]) -> None:
    """A root and a child; executors have a volume of their own or that of the root."""
    given = {"topology.json": json.dumps(TOPOLOGY), "executor.json": json.dumps(_template(of_executors))}
    storage = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    service = {"clusterIP": "None", "selector": {"name": "root"}, "publishNotReadyAddresses": True}
    for each in (
        *_rights(),
        *(_certificate(authority, name) for name in ("root", CHILD)),
        _object("ConfigMap", "given", data=given),
        _object("PersistentVolumeClaim", "state", spec=storage),
        _object("Service", "root", spec={**service, "ports": [{"port": PORT}]}),
        _root(),
        _child(),
    ):
        kubectl("--namespace", space, "apply", "--filename", "-", given=each)


def _until(reached: Callable[[], bool], told: Callable[[], str]) -> None:
    end = monotonic() + PATIENCE
    while not reached():
        assert monotonic() < end, told()
        sleep(0.5)


def _pods(space: str, selector: str) -> list[dict[str, Any]]:
    said = kubectl("--namespace", space, "get", "pods", "--selector", selector, "--output", "json")
    found: list[dict[str, Any]] = json.loads(said)["items"]
    return found


def _executors(space: str) -> list[str]:
    """Those that run."""
    return [
        pod["metadata"]["name"]
        for pod in _pods(space, ITS_EXECUTORS)
        if pod["status"]["phase"] == "Running" and "deletionTimestamp" not in pod["metadata"]
    ]


def _status(space: str) -> dict[str, Any]:
    """Of the container of the root."""
    for pod in _pods(space, "name=root"):
        for status in pod["status"].get("containerStatuses", []):
            return {"pod": pod["metadata"]["uid"], **status}
    return {"pod": "", "ready": False, "restartCount": 0}


def _told(space: str) -> str:
    said = kubectl("--namespace", space, "get", "pods", "--output", "wide")
    return said + kubectl("--namespace", space, "logs", DRIVER, "--tail=30")


def _ready(space: str) -> None:
    _until(lambda: bool(_status(space)["ready"]), lambda: _told(space))


def _kill_java(space: str, pod: str, container: str) -> None:
    kubectl(*("--namespace", space, "exec", pod, "--container", container, "--", "python3", "-c", KILL_JAVA))


def _lines(space: str) -> list[dict[str, Any]]:
    lines = kubectl(
        *("--namespace", space, "exec", DRIVER, "--container", "root", "--"),
        *("sh", "-c", "cat /data/state/sinks/lines/results.jsonl 2>/dev/null || true"),
    )
    return [json.loads(line) for line in lines.splitlines()]


class _Source:
    """Events through a pipe, a portion whenever it is asked for."""

    def __init__(self, running: subprocess.Popen[str]) -> None:
        self._running, self._left = running, list(EVENTS)
        self._write("ts,key,value\n")

    def _write(self, text: str) -> None:
        assert self._running.stdin is not None
        self._running.stdin.write(text)
        self._running.stdin.flush()

    def send(self) -> None:
        portion, self._left = self._left[:PORTION], self._left[PORTION:]
        self._write("".join(f"{ts},{key},{value}\n" for ts, key, value in portion))

    def end(self) -> dict[str, Any]:
        """What it says when all is counted."""
        assert not self._left
        out, errors = self._running.communicate(timeout=PATIENCE)
        assert self._running.returncode == 0, errors + out
        found: dict[str, Any] = json.loads(out)
        return found


@contextmanager
def _source(space: str, authority: Authority, tmp_path: Path) -> Iterator[_Source]:
    mine = authority.issue("probe-1")
    with forwarded(space, "child", PORT) as address:
        command = [sys.executable, "-m", "headwater_cli", "send", "-", "--format", "csv", "--to", address]
        command += ["--name", "probe-1", "--site", "here", "--lateness", "0s", "--end", "--json"]
        command += ["--timeout", "600s", "--spool", str(tmp_path / "spool")]
        command += ["--child", CHILD, "--tls-ca", str(mine.ca)]
        command += ["--tls-certificate", str(mine.certificate), "--tls-key", str(mine.key)]
        pipe = subprocess.PIPE
        running = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True)
        try:
            yield _Source(running)
        finally:
            running.kill()
            running.communicate()


def _expected() -> dict[tuple[int, str], list[float]]:
    values = defaultdict(list)
    for ts, key, value in EVENTS:
        values[ts // SECOND * SECOND, key].append(value)
    return {at: [len(found), sum(found), max(found)] for at, found in values.items()}


def test_windows_are_exact_whatever_dies(cluster: Api, tmp_path: Path) -> None:
    """An executor, then the JVM of the driver within its pod, then the pod of the driver."""
    authority = Authority(tmp_path)
    with namespace("executors") as space:
        begin = monotonic()
        _put_up(space, authority, {"persistentVolumeClaim": {"claimName": "state"}})
        _ready(space)
        log.info("ready after %.1f s", monotonic() - begin)
        assert len(_executors(space)) == EXECUTORS
        with _source(space, authority, tmp_path) as source:
            begin = monotonic()
            source.send()
            _until(lambda: bool(_lines(space)), lambda: _told(space))
            log.info("first result after %.1f s", monotonic() - begin)

            victim = _executors(space)[0]
            begin = monotonic()
            source.send()
            _kill_java(space, victim, "executor")
            _until(
                lambda: victim not in (there := _executors(space)) and len(there) == EXECUTORS,
                lambda: _told(space),
            )
            log.info("another executor after %.1f s", monotonic() - begin)

            before, held = _executors(space), _status(space)
            begin = monotonic()
            source.send()
            _kill_java(space, DRIVER, "root")
            _until(lambda: _status(space)["restartCount"] > held["restartCount"], lambda: _told(space))
            _ready(space)
            log.info("ready again in its pod after %.1f s", monotonic() - begin)
            # What the life before has left is gone.
            assert len(_pods(space, ITS_EXECUTORS)) == EXECUTORS
            assert not {*before} & {*_executors(space)}

            begin = monotonic()
            source.send()
            kubectl("--namespace", space, "delete", "pod", DRIVER, "--grace-period=0", "--force")
            _until(lambda: _status(space)["pod"] not in ("", held["pod"]), lambda: _told(space))
            _ready(space)
            log.info("ready again in another pod after %.1f s", monotonic() - begin)
            source.send()
            assert source.end()["counted"] == len(EVENTS) + 1
        _until(lambda: len(_lines(space)) >= len(_expected()), lambda: _told(space))
        lines = _lines(space)
        found = {(each["start"], each["key"]): [each["count"], *each["values"].values()] for each in lines}
        assert found == _expected(), _told(space)
        assert not [at for at, times in Counter((x["start"], x["key"]) for x in lines).items() if times > 1]


def test_a_root_whose_executors_do_not_see_its_checkpoint_halts(cluster: Api, tmp_path: Path) -> None:
    with namespace("executors-blind") as space:
        _put_up(space, Authority(tmp_path), {"emptyDir": {}})
        ended: dict[str, Any] = {}

        def halted() -> bool:
            status = _status(space)
            last = status.get("lastState", {}).get("terminated") or status.get("state", {}).get("terminated")
            ended.update(last or {})
            return bool(ended)

        _until(halted, lambda: _told(space))
        assert ended["exitCode"] == 6
        said = json.loads(ended["message"].strip().splitlines()[-1])
        assert said["reason"] == "CheckpointNotShared"
        assert "give them the same volume at the same path (--executor-template)" in said["problem"]
        # Nothing was acknowledged: it never listened.
        assert "started" not in ended["message"]
