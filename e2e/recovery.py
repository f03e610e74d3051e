"""How long sources need to flow again when the tree is replaced under them: trials on a real cluster.

    python -m e2e.recovery --trials 5                                  every way in, every kind of replacement
    python -m e2e.recovery --expose nodePort --sources 12 --replace all --trials 20 --idle-after 30s

A trial replaces something while sources send, waits for the first child that could accept them (Ready again,
or Ready all the time), and measures from there until the root has counted a later record of every source. At
the end of each tree every window is compared with the oracle, and the late events are counted. It prints a
line a trial and a table, and fails if a window differs, an event is late, or the 99th percentile is above
`--limit` seconds.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from e2e import devices, helm
from e2e.images import NODE
from e2e.kubectl import forwarded, kubectl, namespace, said
from e2e.trees import Fleet, Tree, planted, topology
from headwater_operator import names

EXPOSE = ("clusterIP", "nodePort", "hostPort", "loadBalancer", "portForward")
# What is replaced: one child, all children, all under other names and addresses, the root.
REPLACE = ("one", "all", "renamed", "root")
SOURCES = (1, 12)
TIER = f"{names.GROUP}/tier"
# Children of the first class, then of the second one, which the same machines have: other names each time.
PLACES = ({TIER: "edge"}, {TIER: "edge", "kubernetes.io/os": "linux"})
# By hostPort a machine has one child: these two machines have them at first, then the last two.
HALL = "e2e.headwater.dev/recovery"
HALLS = (("edge", "fog"), ("fog", "cloud"))
# Of a range that is nobody's: it is led to a machine of the cluster, whose proxy knows it.
BALANCER = "198.51.100."
# Longer than any trial may take.
GIVE_UP = 180.0
START_TIMEOUT = "30s"
LIMIT = 5.0
POLL = 0.1


@dataclass(slots=True)
class Progress:
    """What the devices report: how far the root has counted each, and when that last changed."""

    settled: list[int] = field(default_factory=list)
    changed: list[float] = field(default_factory=list)
    waits: list[str] = field(default_factory=list)
    sent: list[int] = field(default_factory=list)

    def read(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.add(line)

    def add(self, line: str) -> None:
        if not line.startswith("{"):
            return
        report = json.loads(line)
        now, settled = time.monotonic(), report["settled"]
        if len(settled) != len(self.settled):
            self.settled, self.changed = settled, [now] * len(settled)
        for place, (before, after) in enumerate(zip(self.settled, settled, strict=True)):
            if after != before:
                self.changed[place] = now
        self.settled, self.waits, self.sent = settled, report["waits"], report["events"]

    def flow_since(self, moment: float) -> bool:
        return bool(self.changed) and all(at > moment for at in self.changed)


@contextmanager
def sending(tree: Tree, expose: str, sources: int, progress: Progress) -> Iterator[None]:
    """Sources of one process that send through a way in; on leaving, everything that they sent is counted."""
    fleet = Fleet(sources, events=None)
    if expose == "clusterIP":
        pod = tree.send(fleet, NODE)
        logs = ("--namespace", tree.space, "logs", pod.pod)
        tree.until(lambda: said(*logs).stdout, "the devices do not run")
        with _following(("kubectl", *logs[:3], "--follow", pod.pod), progress):
            yield
        pod.enough()
        return
    with tempfile.TemporaryDirectory() as directory, _address(tree, expose) as address:
        command = (sys.executable, "-m", "e2e.devices", address, f"--count={sources}")
        options = (f"--directory={directory}", "--report-every=0.1")
        with _following((*command, *options), progress) as running:
            yield
            tree.flows()
            (Path(directory) / devices.ENOUGH).touch()
            tree.until(lambda: running.poll() is not None, f"not all is counted: {progress}")
        tree.fleets.append(replace(fleet, sent=tuple(progress.sent)))


@contextmanager
def _following(command: Sequence[str], progress: Progress) -> Iterator[subprocess.Popen[str]]:
    """Run a command that prints the devices' reports, and read them."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as running:
        assert running.stdout is not None
        reader = threading.Thread(target=progress.read, args=(running.stdout,), daemon=True)
        reader.start()
        try:
            yield running
        finally:
            running.kill()
            reader.join()


@contextmanager
def _address(tree: Tree, expose: str) -> Iterator[str]:
    """Where devices outside of the cluster begin."""
    if expose == "hostPort":
        # The machine of one of them may have none any more: devices are given several.
        yield "ipv4:" + ",".join(f"{_machine(tier)}:{names.TREE_PORT}" for tier in HALLS[0])
    elif expose == "loadBalancer":
        with _balanced() as host:
            yield f"{host}:{names.TREE_PORT}"
    elif expose == "portForward":
        with _forwarding(tree) as address:
            yield address
    else:
        yield f"{_machine()}:{_ingest(tree)['spec']['ports'][0]['nodePort']}"


def _ingest(tree: Tree) -> dict[str, Any]:
    """The Service of all children."""
    name = names.ingest_service(tree.name)
    found: dict[str, Any] = json.loads(
        kubectl("--namespace", tree.space, "get", "service", name, "--output=json")
    )
    return found


@contextmanager
def _forwarding(tree: Tree) -> Iterator[str]:
    """`kubectl port-forward` to the Service of all children, started again when it ends, as a user does."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = (
        f"kubectl --namespace {tree.space} port-forward service/{names.ingest_service(tree.name)} {port}:7070"
    )
    loop = f"while true; do {command}; sleep 0.2; done"
    quiet = subprocess.DEVNULL
    with subprocess.Popen(("setsid", "sh", "-c", loop), stdout=quiet, stderr=quiet) as looping:
        try:
            yield f"127.0.0.1:{port}"
        finally:
            subprocess.run(("pkill", "-KILL", "-s", str(looping.pid)), check=False)


@contextmanager
def _balanced() -> Iterator[str]:
    """The address of the balancer of all children, which a machine of the cluster leads on."""
    subprocess.run(("ip", "route", "replace", f"{BALANCER}0/24", "via", _machine()), check=True)
    try:
        yield f"{BALANCER}1"
    finally:
        subprocess.run(("ip", "route", "del", f"{BALANCER}0/24"), check=False)


class Balancers:
    """Gives every Service of a tree an address, as the controller of a cloud does."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._given = 1

    def __enter__(self) -> Balancers:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ended.wait(0.3):
            selector = names.selector(self._tree.name)
            command = ("--namespace", self._tree.space, "get", "services", f"--selector={selector}")
            done = said(*command, "--output=json")
            for service in json.loads(done.stdout)["items"] if done.returncode == 0 else ():
                if service["spec"]["type"] == "LoadBalancer" and not service["status"]["loadBalancer"]:
                    self._give(service["metadata"]["name"])

    def _give(self, service: str) -> None:
        number = 1
        if service != names.ingest_service(self._tree.name):
            self._given += 1
            number = self._given
        status = {"status": {"loadBalancer": {"ingress": [{"ip": f"{BALANCER}{number}"}]}}}
        # One that has just gone needs none.
        said(
            *("--namespace", self._tree.space, "patch", "service", service, "--subresource=status"),
            *("--type=merge", "--patch", json.dumps(status)),
        )


def _machine(tier: str = "edge") -> str:
    found = json.loads(kubectl("get", "nodes", "--selector", f"{TIER}={tier}", "--output=json"))["items"][0]
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
        # The beginning of the sentence: what is waited for.
        reasons = sorted({wait.partition(" s: ")[2].partition(" (tried ")[0] for wait in self.waits})
        waits = f"; said: {' | '.join(reasons)}" if reasons else ""
        return f"ready after {self.ready:.1f} s, all flow {self.recovery:.1f} s later{waits}"


def trial(tree: Tree, progress: Progress, expose: str, kind: str, number: int) -> Trial:
    """Replace something while sources send, and wait until all of them flow again."""
    children = f"{names.ROLE}=child"
    before = {pod["metadata"]["uid"]: pod["metadata"]["name"] for pod in tree.pods(children)}
    doomed = {} if kind == "root" else before
    if kind == "one":
        # Each of them in turn: one that reads a source is among them.
        chosen = sorted(before)[number % len(before)]
        doomed = {chosen: before[chosen]}
    if kind == "renamed":
        _rename(tree, expose, number)
    pods = [names.root_pod(tree.name)] if kind == "root" else list(doomed.values())
    begin = time.monotonic()
    # The operator may have ended one of them by now.
    kubectl("--namespace", tree.space, "delete", "pod", "--wait=false", "--ignore-not-found", *pods)
    ready: float | None = None
    flowing: float | None = None
    seen: list[str] = []
    while flowing is None:
        now = time.monotonic()
        if now - begin > GIVE_UP:
            raise AssertionError(f"sources do not flow after {GIVE_UP:.0f} s: {progress}\n{tree.told()}")
        if ready is None:
            selector = f"{names.ROLE}=root" if kind == "root" else children
            there = [pod for pod in tree.pods(selector) if pod["metadata"]["uid"] not in doomed]
            if any(map(_is_ready, there)):
                ready = time.monotonic()
        elif progress.flow_since(max(ready, begin)):
            flowing = max(progress.changed)
        seen += [wait for wait in progress.waits if _without_numbers(wait) not in map(_without_numbers, seen)]
        time.sleep(POLL)
    assert ready is not None
    return Trial(ready - begin, max(flowing - ready, 0.0), tuple(seen))


def _without_numbers(wait: str) -> str:
    return re.sub(r"\d+ s", "", wait)


def _rename(tree: Tree, expose: str, number: int) -> None:
    """Have the operator plan other children in place of the present ones: back and forth, by trial."""
    if expose == "hostPort":
        _label(HALLS[number % 2])
        return
    half = tree.document()["spec"]["node"]["ingestLimit"]
    tree.patch({"node": {"classes": _classes(PLACES[number % 2], half)}})


def _classes(place: dict[str, str], limit: int) -> list[dict[str, Any]]:
    """Children at a place, and a root that takes everything."""
    return [
        {"selector": place, "ingestLimit": limit + 1, "count": 12},
        {"selector": {TIER: "cloud"}, "ingestLimit": 1000},
    ]


@contextmanager
def _halls() -> Iterator[None]:
    """Machines that have a child each, for as long as a tree is there."""
    _label(HALLS[0])
    try:
        yield
    finally:
        _label(())


def _label(tiers: Iterable[str]) -> None:
    """Name the machines that have a child each."""
    for tier in {tier for pair in HALLS for tier in pair}:
        label = f"{HALL}=yes" if tier in tiers else f"{HALL}-"
        kubectl("label", "nodes", "--selector", f"{TIER}={tier}", label, "--overwrite")


def settle(tree: Tree, progress: Progress) -> None:
    """Until all children are ready and all sources flow, for some seconds."""
    tree.settled()
    tree.until(lambda: progress.flow_since(time.monotonic() - 1.5), "the sources do not flow", every=0.2)
    time.sleep(2)


def late_events(tree: Tree) -> int:
    """How many events the root has counted as late."""
    with (
        forwarded(tree.space, names.root_pod(tree.name), names.METRICS_PORT) as address,
        urlopen(f"http://{address}/metrics", timeout=30) as answer,
    ):
        text = answer.read().decode()
    found = re.search(r"^headwater_root_records_late_total\{.*\} (\S+)$", text, re.MULTILINE)
    assert found is not None, text
    return int(float(found[1]))


def percentile(values: Sequence[float], share: float) -> float:
    return sorted(values)[max(math.ceil(share * len(values)) - 1, 0)]


@dataclass(frozen=True, slots=True)
class Outcome:
    """The trials of one tree, by what was replaced; `windows` were compared, and equal the oracle's."""

    expose: str
    sources: int
    trials: dict[str, list[Trial]]
    windows: int
    late: int

    def rows(self) -> Iterator[str]:
        for kind, trials in self.trials.items():
            times = [each.recovery for each in trials]
            shown = " | ".join(f"{percentile(times, share):.1f}" for share in (0.5, 0.99))
            away = max(each.ready for each in trials)
            yield (
                f"| {self.expose} | {self.sources} | {kind} | {len(times)} | {away:.1f} | {shown} | "
                f"{self.windows} | {self.late} |"
            )


HEADER = (
    "| way in | sources | replaced | trials | no child for at most, s | p50, s | p99, s | windows | late |\n"
    "|---|---|---|---|---|---|---|---|---|"
)


def document(expose: str, sources: int, idle_after: str, name: str = "flow") -> dict[str, Any]:
    """A tree with two children; by hostPort, where a machine has one at most, on two machines."""
    asked = "clusterIP" if expose == "portForward" else expose
    # Two children also for one source: the other one is not there at the start.
    expected = max(sources, 2)
    found = topology(name, expected, ingest={"expose": asked})
    spec = found["spec"]
    half = 10 * math.ceil(expected / 2)
    child = spec["placement"]["child"]
    if expose == "hostPort":
        spec["node"] = {"ingestLimit": 1000, "margin": 0}
        child |= {"mode": "perNode", "nodeSelector": {HALL: "yes"}}
    else:
        # Those of a class come before others, since they take a little more.
        spec["node"] = {"ingestLimit": half, "margin": 0, "classes": _classes(PLACES[0], half)}
        del child["nodeSelector"]
    spec["sources"][0]["idleAfter"] = idle_after
    spec["startTimeout"] = START_TIMEOUT
    return found


def run(expose: str, sources: int, kinds: Sequence[str], trials: int, idle_after: str) -> Outcome:
    """All trials of one tree."""
    found: dict[str, list[Trial]] = {kind: [] for kind in kinds}
    progress = Progress()
    with (
        _halls() if expose == "hostPort" else nullcontext(),
        namespace(f"recovery-{expose.lower()}-{sources}-{int(time.time()) % 10_000}") as space,
        planted(space, document(expose, sources, idle_after)) as tree,
        Balancers(tree),
    ):
        tree.settled()
        with sending(tree, expose, sources, progress):
            for number in range(1, trials + 1):
                for kind in kinds:
                    settle(tree, progress)
                    done = trial(tree, progress, expose, kind, number)
                    found[kind].append(done)
                    print(f"{expose}, {sources} sources, {kind}, trial {number}: {done}", flush=True)
            tree.settled()
        windows = tree.assert_exact()
        return Outcome(expose, sources, found, windows, late_events(tree))


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trials", type=int, default=5, help="of each kind of replacement")
    parser.add_argument("--expose", choices=EXPOSE, action="append", help="the way in; all if none is given")
    parser.add_argument("--sources", type=int, action="append", help="in one process; 1, and 12")
    parser.add_argument("--replace", choices=REPLACE, action="append", help="what; all if none is given")
    parser.add_argument("--idle-after", default="10m")
    parser.add_argument("--limit", type=float, default=LIMIT)
    given = parser.parse_args()
    helm.install(helm.CHART, "--set-json", "watchNamespaces=[]", *helm.WAIT)
    outcomes = []
    for expose, sources in product(given.expose or EXPOSE, given.sources or SOURCES):
        outcomes.append(run(expose, sources, given.replace or REPLACE, given.trials, given.idle_after))
    print(HEADER)
    for outcome in outcomes:
        print("\n".join(outcome.rows()))
    times = [each.recovery for outcome in outcomes for kind in outcome.trials.values() for each in kind]
    late = sum(outcome.late for outcome in outcomes)
    shown = ", ".join(f"p{share} {percentile(times, share / 100):.2f} s" for share in (50, 90, 99))
    print(f"{len(times)} trials: {shown}, longest {max(times):.2f} s; {late} late events")
    return int(late > 0 or percentile(times, 0.99) > given.limit)


if __name__ == "__main__":
    sys.exit(main())
