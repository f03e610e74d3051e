"""How long sources need to flow again when children are replaced while they send: trials on a real cluster.

    python -m e2e.recovery --trials 10 --expose nodePort --sources 12 --replace all

Each trial deletes the pods of one child or of all children, waits for the first child that could accept a
source (Ready again, or ready all the time), and measures from there until every source has a later record
counted. It prints a line a trial, and fails if the 99th percentile is above `--limit` seconds.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from e2e import helm
from e2e.images import NODE
from e2e.kubectl import kubectl, namespace, said
from e2e.trees import Fleet, Tree, planted, topology
from headwater_operator import names

EXPOSE = ("clusterIP", "nodePort", "hostPort", "portForward")
# Longer than any trial may take.
GIVE_UP = 180.0
LIMIT = 5.0
POLL = 0.1


@dataclass(slots=True)
class Progress:
    """What the devices report: how far the root has counted each, and when that last changed."""

    settled: list[int] = field(default_factory=list)
    changed: list[float] = field(default_factory=list)
    waits: list[str] = field(default_factory=list)

    def read(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.add(line)

    def add(self, line: str) -> None:
        if not line.startswith("{"):
            return
        found = json.loads(line)
        now, settled = time.monotonic(), found["settled"]
        if len(settled) != len(self.settled):
            self.settled, self.changed = settled, [now] * len(settled)
        for place, (before, after) in enumerate(zip(self.settled, settled, strict=True)):
            if after != before:
                self.changed[place] = now
        self.settled, self.waits = settled, found["waits"]


@contextmanager
def _following(command: Sequence[str], progress: Progress) -> Iterator[None]:
    """Run a command that prints the devices' reports, and read them."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as running:
        assert running.stdout is not None
        lines = running.stdout
        reader = threading.Thread(target=progress.read, args=(lines,), daemon=True)
        reader.start()
        try:
            yield
        finally:
            running.kill()
            reader.join()


@contextmanager
def sending(tree: Tree, expose: str, sources: int, progress: Progress) -> Iterator[None]:
    """Devices of one process that send through the way in that is asked for."""
    if expose == "clusterIP":
        sending = tree.send(Fleet(sources, events=None), NODE)
        logs = ("--namespace", tree.space, "logs", sending.pod)
        tree.until(lambda: said(*logs).stdout, "the devices do not run")
        with _following(("kubectl", "--namespace", tree.space, "logs", "--follow", sending.pod), progress):
            yield
        return
    with tempfile.TemporaryDirectory() as directory:
        if expose == "portForward":
            forward = ("kubectl", "--namespace", tree.space, "port-forward")
            service = (f"service/{names.ingest_service(tree.name)}", "17070:7070")
            # A forwarding ends with its pod: whoever uses one starts it again.
            loop = f"while true; do {' '.join((*forward, *service))}; sleep 0.2; done"
            with subprocess.Popen(
                ("setsid", "sh", "-c", loop), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            ) as looping:
                try:
                    with _devices("127.0.0.1:17070", sources, directory, progress):
                        yield
                finally:
                    subprocess.run(("pkill", "-KILL", "-s", str(looping.pid)), check=False)
            return
        with _devices(_address(tree, expose), sources, directory, progress):
            yield


@contextmanager
def _devices(address: str, sources: int, directory: str, progress: Progress) -> Iterator[None]:
    command = (sys.executable, "-m", "e2e.devices", address, f"--count={sources}", f"--directory={directory}")
    with _following((*command, "--report-every=0.1"), progress):
        yield


def _address(tree: Tree, expose: str) -> str:
    host = _edge()
    if expose == "hostPort":
        return f"{host}:{names.TREE_PORT}"
    found = json.loads(
        kubectl("--namespace", tree.space, "get", "service", names.ingest_service(tree.name), "--output=json")
    )
    return f"{host}:{found['spec']['ports'][0]['nodePort']}"


def _edge() -> str:
    tier = f"{names.GROUP}/tier=edge"
    found = json.loads(kubectl("get", "nodes", "--selector", tier, "--output=json"))["items"][0]
    return next(str(one["address"]) for one in found["status"]["addresses"] if one["type"] == "InternalIP")


def _is_ready(pod: dict[str, Any]) -> bool:
    conditions = pod["status"].get("conditions") or ()
    return "deletionTimestamp" not in pod["metadata"] and any(
        each["type"] == "Ready" and each["status"] == "True" for each in conditions
    )


@dataclass(frozen=True, slots=True)
class Trial:
    """`ready`: from the deletion to the first child that could accept; `recovery`: from there until all
    sources flow."""

    ready: float
    recovery: float
    waits: tuple[str, ...]

    def __str__(self) -> str:
        waits = f"; said: {' | '.join(self.waits)}" if self.waits else ""
        return f"ready after {self.ready:.1f} s, all flow {self.recovery:.1f} s later{waits}"


def trial(tree: Tree, progress: Progress, *, replace: str) -> Trial:
    children = f"{names.ROLE}=child"
    before = {pod["metadata"]["uid"]: pod["metadata"]["name"] for pod in tree.pods(children)}
    doomed = list(before) if replace == "all" else list(before)[:1]
    begin = time.monotonic()
    kubectl("--namespace", tree.space, "delete", "pod", "--wait=false", *(before[uid] for uid in doomed))
    ready: float | None = None
    flowing: float | None = None
    seen: list[str] = []
    while flowing is None:
        now = time.monotonic()
        if now - begin > GIVE_UP:
            raise AssertionError(f"sources do not flow after {GIVE_UP:.0f} s: {progress}\n{tree.told()}")
        if ready is None:
            pods = [pod for pod in tree.pods(children) if pod["metadata"]["uid"] not in doomed]
            if any(map(_is_ready, pods)):
                ready = time.monotonic()
        elif all(at > max(ready, begin) for at in progress.changed):
            flowing = max(progress.changed)
        seen += [wait for wait in progress.waits if wait not in seen]
        time.sleep(POLL)
    assert ready is not None
    return Trial(ready - begin, max(flowing - ready, 0.0), tuple(seen))


def settle(tree: Tree, progress: Progress) -> None:
    """Until all children are ready and all sources flow, for some seconds."""
    tree.settled()

    def flows() -> bool:
        now = time.monotonic()
        return bool(progress.changed) and all(now - at < 1.5 for at in progress.changed)

    tree.until(flows, "the sources do not flow", every=0.2)
    time.sleep(2)


def percentile(values: Sequence[float], share: float) -> float:
    return sorted(values)[max(math.ceil(share * len(values)) - 1, 0)]


def run(given: argparse.Namespace) -> list[Trial]:
    expose = "clusterIP" if given.expose == "portForward" else given.expose
    document = topology("flow", given.sources, ingest={"expose": expose})
    document["spec"]["node"]["ingestLimit"] = 10 * max(math.ceil(given.sources / 2), 1)
    if expose == "hostPort":
        document["spec"]["node"]["ingestLimit"] = 1000
    document["spec"]["sources"][0]["idleAfter"] = given.idle_after
    document["spec"]["startTimeout"] = "60s"
    trials = []
    with namespace(f"recovery-{int(time.time()) % 100_000}") as space, planted(space, document) as tree:
        tree.settled()
        progress = Progress()
        with sending(tree, given.expose, given.sources, progress):
            for number in range(1, given.trials + 1):
                settle(tree, progress)
                done = trial(tree, progress, replace=given.replace)
                trials.append(done)
                print(f"{_subject(given)}, trial {number}: {done}", flush=True)
    return trials


def _subject(given: argparse.Namespace) -> str:
    return f"{given.expose}, {given.sources} sources, {given.replace} replaced"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trials", type=int, default=10)
    parser.add_argument("--expose", choices=EXPOSE, default="nodePort")
    parser.add_argument("--sources", type=int, default=12)
    parser.add_argument("--replace", choices=("one", "all"), default="all")
    parser.add_argument("--idle-after", default="10m")
    parser.add_argument("--limit", type=float, default=LIMIT)
    given = parser.parse_args()
    helm.install(helm.CHART, "--set-json", "watchNamespaces=[]", *helm.WAIT)
    times = [each.recovery for each in run(given)]
    figures = ", ".join(f"p{share} {percentile(times, share / 100):.2f} s" for share in (50, 90, 99))
    print(
        f"{given.expose}, {given.sources} sources, {given.replace} replaced: {len(times)} trials, {figures}"
    )
    return int(percentile(times, 0.99) > given.limit)


if __name__ == "__main__":
    sys.exit(main())
