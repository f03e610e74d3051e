"""A topology on the cluster, the devices that send to it, and what has to come out."""

from __future__ import annotations

import base64
import io
import json
import subprocess
import time
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import headwater_source
from e2e import devices
from e2e.api import connected
from e2e.kubectl import kubectl, said
from headwater import oracle
from headwater.sources import SourceId
from headwater.topology import API_VERSION, TOPOLOGY_KIND, queries_of
from headwater.verification import differences, spec_of
from headwater_operator import names

SECONDS = 400.0
# Between two looks into a pod, which take more of the machine than one at the API server.
EXEC = 2.0
WINDOW = {"type": "tumbling", "length": "1s"}
QUERIES: list[dict[str, Any]] = [
    {"id": "t", "aggregate": ["sum", "count", "median"], "window": WINDOW},
    {
        "id": "s",
        "aggregate": ["avg", "max"],
        "window": {"type": "sliding", "length": "5s", "slide": "1s"},
        "keyBy": "key",
    },
    {"id": "g", "aggregate": ["count"], "window": {"type": "session", "gap": "2s"}},
]


@dataclass(frozen=True, slots=True)
class Fleet:
    """Devices with numbers from `first` on, each with so many events; None: until it is enough."""

    count: int
    rate: float = 10.0
    events: int | None = 200
    first: int = 0
    site: str = "hall-1"
    # Where it was enough: how many each of them has sent.
    sent: tuple[int, ...] = ()

    def sources(self) -> list[oracle.Source]:
        return [oracle.Source(self._id(n), 1_000_000, self.site) for n in self._numbers]

    def events_of(self) -> Iterator[oracle.Event]:
        for number, events in zip(self._numbers, self._counts, strict=True):
            made = devices.events_of(number, 0, events, self.rate)
            assert made.key is not None
            for row, (ts, value) in enumerate(zip(made.ts.tolist(), made.value.tolist(), strict=True)):
                yield oracle.Event(self._id(number), row + 1, ts, made.key.at(row), value)
            yield oracle.Event(self._id(number), events + 1, devices.END)

    @property
    def _counts(self) -> Sequence[int]:
        assert self.sent or self.events is not None, "it is not known yet how much they send"
        return self.sent or [self.events or 0] * self.count

    @property
    def _numbers(self) -> range:
        return range(self.first, self.first + self.count)

    def _id(self, number: int) -> str:
        return str(SourceId(devices.name_of(number), 1))


@dataclass(slots=True)
class Tree:
    """One topology of a namespace."""

    space: str
    name: str
    fleets: list[Fleet] = field(default_factory=list)

    # The topology

    def apply(self, document: dict[str, Any]) -> None:
        kubectl("--namespace", self.space, "apply", "--filename", "-", given=document)

    def patch(self, spec: dict[str, Any]) -> None:
        given = json.dumps({"spec": spec})
        kubectl(*self._at, "patch", "aggtopo", self.name, "--type=merge", "--patch", given)

    @property
    def _at(self) -> tuple[str, str]:
        return ("--namespace", self.space)

    def document(self) -> dict[str, Any]:
        at = f"/apis/{API_VERSION}/namespaces/{self.space}/{names.TOPOLOGIES}"
        found = connected().get(f"{at}/{self.name}")
        assert found is not None
        return found

    @property
    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = self.document().get("status") or {}
        return found

    def condition(self, kind: str) -> dict[str, Any]:
        conditions = self.status.get("conditions") or ()
        return next((each for each in conditions if each["type"] == kind), {})

    def until(
        self, reached: Callable[[], object], what: str, seconds: float = SECONDS, every: float = 0.5
    ) -> float:
        """Wait for something; gives how long it took, and fails with all that can be known."""
        begin = time.monotonic()
        while not reached():
            if time.monotonic() - begin > seconds:
                raise AssertionError(f"{what}\n{self.told()}")
            time.sleep(every)
        return time.monotonic() - begin

    def settled(self, seconds: float = SECONDS) -> float:
        """Until the operator says of the spec as it is that all of it is there."""

        def reached() -> bool:
            document = self.document()
            status = document.get("status") or {}
            held = {each["type"]: each for each in status.get("conditions") or ()}
            ready, moves = held.get("Ready", {}), held.get("Progressing", {})
            seen = status.get("observedGeneration") == document["metadata"]["generation"]
            return bool(seen and ready.get("status") == "True" and moves.get("status") == "False")

        return self.until(reached, f"{self.name} is not as it was asked for", seconds)

    def told(self) -> str:
        """What somebody would look at."""
        asked = (
            ("get", "pods", "--output=wide"),
            ("get", "aggtopo", self.name, "--output=yaml"),
            ("get", "events", "--sort-by=.lastTimestamp"),
            ("logs", f"{names.root_pod(self.name)}", "--tail=20"),
        )
        found = []
        for each in asked:
            done = subprocess.run(
                ["kubectl", *self._at, *each], capture_output=True, text=True, timeout=60, check=False
            )
            found.append(done.stdout[-6_000:] + done.stderr[-500:])
        return "\n".join(found)

    # Pods

    def pods(self, selector: str = "") -> list[dict[str, Any]]:
        labels = ",".join(part for part in (f"{names.TOPOLOGY}={self.name}", selector) if part)
        found = connected().get(f"/api/v1/namespaces/{self.space}/pods", labelSelector=labels)
        items: list[dict[str, Any]] = [] if found is None else found["items"]
        return items

    def root_said(self) -> list[dict[str, Any]]:
        """The log of the root, as it is now."""
        said = kubectl(*self._at, "logs", names.root_pod(self.name))
        return [json.loads(line) for line in said.splitlines() if line.startswith("{")]

    def uids(self) -> dict[str, str]:
        """Of the pods of nodes, by node."""
        found = self.pods(names.NODE)
        return {each["metadata"]["labels"][names.NODE]: each["metadata"]["uid"] for each in found}

    def everything(self) -> list[str]:
        """All objects with the topology's label."""
        kinds = "deploy,sts,svc,cm,secret,pdb,netpol,pod,sa,role,rolebinding"
        found = kubectl(*self._at, "get", kinds, "--selector", names.selector(self.name), "--output=name")
        return found.split()

    # Devices

    def send(self, fleet: Fleet, image: str) -> Sending:
        """Have devices send; they go on by themselves."""
        number = len(self.fleets)
        self.fleets.append(fleet)
        name = f"devices-{self.name}-{number}"
        files = {"code.zip": base64.b64encode(_code()).decode()}
        code = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "binaryData": files}
        address = f"{names.ingest_service(self.name)}.{self.space}.svc:{names.TREE_PORT}"
        options: dict[str, float | str] = {
            "first": fleet.first,
            "count": fleet.count,
            "rate": fleet.rate,
            "site": fleet.site,
        }
        if fleet.events is not None:
            options["events"] = fleet.events
        flags = [f"--{option}={value}" for option, value in options.items()]
        kubectl(*self._at, "apply", "--filename", "-", given=code)
        kubectl(*self._at, "apply", "--filename", "-", given=_pod(name, image, [address, *flags]))
        return Sending(self, number, name)

    # Results

    def results(self) -> list[oracle.Row]:
        """All that there are; none while the root is not there."""
        done = said(
            *(*self._at, "exec", names.root_pod(self.name), "--"),
            *("cat", "/data/state/sinks/lines/results.jsonl"),
        )
        lines = done.stdout.splitlines(keepends=True) if done.returncode == 0 else ()
        # The last one may be half written.
        return [_row(json.loads(line)) for line in lines if line.endswith("\n")]

    def shows(self, seconds: float = SECONDS) -> None:
        """Until there is a window."""
        self.until(self.results, "there is no window", seconds, EXEC)

    def flows(self, seconds: float = SECONDS) -> None:
        """Until there are more windows than there are."""
        before = 0

        def more() -> bool:
            nonlocal before
            now = len(self.results())
            # A root that is not there shows none.
            before = before or now
            return now > before

        self.until(more, "no more windows come", seconds, EXEC)

    def expected(self, queries: Iterable[dict[str, Any]]) -> list[oracle.Row]:
        """By the naive oracle: one computer that saw every event."""
        found = oracle.windows(
            [event for fleet in self.fleets for event in fleet.events_of()],
            [source for fleet in self.fleets for source in fleet.sources()],
            [spec_of(query) for query in queries_of(list(queries))],
            watermark=devices.END - 1_000_000,
        )
        return found

    def assert_exact(self, queries: Iterable[dict[str, Any]] = QUERIES) -> int:
        """Every window is the oracle's, each of them once; gives how many."""
        expected = self.expected(queries)
        found: list[oracle.Row] = []

        def complete() -> bool:
            # Read once: the root may be about to be killed.
            found[:] = self.results()
            return len(found) >= len(expected)

        self.until(complete, "windows are missing", every=EXEC)
        assert differences(expected, found) == [], self.told()
        assert len(found) == len(expected)
        return len(expected)


@dataclass(slots=True)
class Sending:
    """Devices at work."""

    tree: Tree
    number: int
    pod: str

    def enough(self, seconds: float = SECONDS) -> float:
        """Have them end as soon as windows come behind all that has happened; until everything is counted."""
        self.tree.flows(seconds)
        touch = f"open('{devices.DIRECTORY}/{devices.ENOUGH}', 'w')"
        command = ("--namespace", self.tree.space, "exec", self.pod, "--", "python3", "-c", touch)
        self.tree.until(lambda: said(*command).returncode == 0, f"{self.pod} is not told", seconds, EXEC)
        took = self.done(seconds)
        fleets = self.tree.fleets
        fleets[self.number] = replace(fleets[self.number], sent=tuple(self._last["events"]))
        return took

    def done(self, seconds: float = SECONDS) -> float:
        """Until all that they have sent is counted."""

        def phase() -> str:
            pod = connected().get(f"/api/v1/namespaces/{self.tree.space}/pods/{self.pod}")
            assert pod is not None
            found: str = pod["status"]["phase"]
            assert found != "Failed", self.said() + self.tree.told()
            return found

        return self.tree.until(lambda: phase() == "Succeeded", f"{self.pod}: not all is counted", seconds)

    def said(self) -> str:
        return kubectl("--namespace", self.tree.space, "logs", self.pod, "--tail=20")

    @property
    def at(self) -> list[str]:
        """Where those who are through with sending are connected."""
        found: list[str] = self._last["at"]
        return found

    @property
    def _last(self) -> dict[str, Any]:
        # What they complain of may stand behind it.
        told = [line for line in self.said().splitlines() if line.startswith("{")]
        found: dict[str, Any] = json.loads(told[-1])
        return found


def topology(name: str, sources: int = 4, **spec: Any) -> dict[str, Any]:
    """One for the three machines of `make cluster`; a child takes two sources of the usual pace."""
    tier = f"{names.GROUP}/tier"
    classes = [
        {
            "class": "sensor",
            "site": "hall-1",
            "expected": sources,
            "rate": 10,
            "lateness": "1s",
            # However long a test disturbs them, nobody is given up.
            "idleAfter": "10m",
        }
    ]
    small = {"requests": {"cpu": "10m", "memory": "64Mi"}}
    return {
        "apiVersion": API_VERSION,
        "kind": TOPOLOGY_KIND,
        "metadata": {"name": name},
        "spec": {
            "sources": classes,
            "node": {"ingestLimit": 20, "margin": 0},
            "placement": {
                "child": {"nodeSelector": {tier: "edge"}, "resources": small},
                "intermediate": {"nodeSelector": {tier: "fog"}, "resources": small},
                "root": {"nodeSelector": {tier: "cloud"}, "resources": small},
            },
            "startTimeout": "10m",
            "queries": QUERIES,
            "root": {"engine": "embedded", "sinks": [{"type": "jsonlines", "path": "lines"}]},
            **spec,
        },
    }


def tiers() -> dict[str, str]:
    """Of the machines, by their names."""
    found = json.loads(kubectl("get", "nodes", "--output=json"))["items"]
    tier = f"{names.GROUP}/tier"
    return {each["metadata"]["name"]: each["metadata"]["labels"].get(tier, "") for each in found}


@contextmanager
def planted(space: str, document: dict[str, Any]) -> Iterator[Tree]:
    """A topology that is applied; gone afterwards."""
    tree = Tree(space, document["metadata"]["name"])
    tree.apply(document)
    try:
        yield tree
    finally:
        kubectl("--namespace", space, "delete", "aggtopo", tree.name, "--ignore-not-found", "--wait=false")


def _row(line: dict[str, Any]) -> oracle.Row:
    values = {
        name: tuple(value) if isinstance(value, list) else value for name, value in line["values"].items()
    }
    site, key = line["site"], line["key"]
    bounds = line["start"], line["end"]
    times = line["first_time"], line["last_time"]
    return oracle.Row(line["query"], site, key, *bounds, line["count"], values, 0.0, *times)


def _code() -> bytes:
    """What devices run beside what the image of a node has."""
    packed = io.BytesIO()
    package = Path(headwater_source.__file__).parent
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(package.rglob("*.py")):
            archive.write(path, Path(package.name) / path.relative_to(package))
        archive.write(Path(devices.__file__), "__main__.py")
    return packed.getvalue()


def _pod(name: str, image: str, arguments: list[str]) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"devices": name}},
        "spec": {
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 1,
            "automountServiceAccountToken": False,
            "nodeSelector": {f"{names.GROUP}/tier": "fog"},
            "securityContext": {
                "runAsNonRoot": True,
                "runAsUser": 65_532,
                "fsGroup": 65_532,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "containers": [
                {
                    "name": "devices",
                    "image": image,
                    "command": ["python3", "/etc/devices/code.zip", *arguments],
                    "securityContext": {
                        "readOnlyRootFilesystem": True,
                        "allowPrivilegeEscalation": False,
                        "capabilities": {"drop": ["ALL"]},
                    },
                    "volumeMounts": [
                        {"name": "code", "mountPath": "/etc/devices"},
                        {"name": "tmp", "mountPath": "/tmp"},
                    ],
                }
            ],
            "volumes": [
                {"name": "code", "configMap": {"name": name}},
                # Their spools: how slow a disk is they are not to feel.
                {"name": "tmp", "emptyDir": {"medium": "Memory"}},
            ],
        },
    }
