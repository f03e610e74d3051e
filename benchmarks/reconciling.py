"""The operator on a real API server without anything behind it: what a look at a topology costs.

    make bench BENCH=reconciling

Needs the programs of a cluster in the cache (`make cluster` builds them).
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from e2e import apiserver
from e2e.operator.spaces import Spaces
from headwater_operator import kinds
from headwater_operator.cluster import Cluster
from headwater_operator.connection import Connection, configured
from headwater_operator.metrics import Metrics
from headwater_operator.nodes import Nodes
from headwater_operator.reconciling import Reconciler
from headwater_operator.settings import Settings

LOOKS = 20


def topology(name: str, sources: int) -> dict[str, Any]:
    return {
        "apiVersion": "headwater.dev/v1alpha1",
        "kind": "AggregationTopology",
        "metadata": {"name": name},
        "spec": {
            "sources": [{"class": "s", "site": "h", "expected": sources, "rate": 0.5, "lateness": "2s"}],
            "node": {"ingestLimit": 20, "margin": 0},
            "queries": [{"id": "q", "aggregate": "sum", "window": {"type": "tumbling", "length": "1s"}}],
            "root": {"engine": "embedded"},
        },
    }


def made(cluster: Cluster, space: str, document: dict[str, Any]) -> None:
    cluster.apply({**document, "metadata": {**document["metadata"], "namespace": space}})


def looks(cluster: Cluster, space: str, sources: int) -> None:
    """One tree: the first look makes it, the others find nothing to do."""
    name = f"tree-{sources}"
    made(cluster, space, topology(name, sources))
    settings = Settings(node_image="headwater/node:0", root_image="headwater/root:0")
    look = Reconciler(cluster, settings, Nodes(), Metrics())
    begin = time.perf_counter()
    look(space, name)
    first = time.perf_counter() - begin
    # The second one may tell of what the first one has made.
    look(space, name)
    nodes = len(cluster.list(kinds.DEPLOYMENT, space))
    writes, reads, times = cluster.writes, cluster.reads, []
    for _ in range(LOOKS):
        begin = time.perf_counter()
        look(space, name)
        times.append(time.perf_counter() - begin)
    print(
        f"| {nodes + 1} | {1_000 * first:.0f} | {1_000 * median(times):.0f} | {1_000 * max(times):.0f} "
        f"| {(cluster.reads - reads) / LOOKS:.0f} | {cluster.writes - writes} |"
    )
    cluster.delete(kinds.TOPOLOGY, space, name)
    for kind in (kinds.DEPLOYMENT, kinds.SECRET):
        for each in cluster.list(kind, space):
            cluster.delete(kind, space, each["metadata"]["name"])


def memory(pid: int) -> float:
    """What a process has in memory and had at most, in MB."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1]) / 1_024


def many(cluster: Cluster, kubeconfig: Path, space: str, count: int) -> None:
    """The operator as a process, and many topologies at once."""
    environment = {
        **os.environ,
        "KUBECONFIG": str(kubeconfig),
        "NODE_IMAGE": "headwater/node:0",
        "ROOT_IMAGE": "headwater/root:0",
        "WATCH_NAMESPACES": space,
        "POD_NAMESPACE": space,
        "METRICS_ADDRESS": "127.0.0.1:0",
    }
    with subprocess.Popen(
        [sys.executable, "-m", "headwater_operator"],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as running:
        try:
            for number in range(count):
                made(cluster, space, topology(f"many-{number}", 60))
            begin = time.perf_counter()
            while True:
                found = cluster.list(kinds.TOPOLOGY, space)
                planned = [each for each in found if (each.get("status") or {}).get("widths")]
                if len(planned) == count:
                    break
                time.sleep(0.5)
            seconds = time.perf_counter() - begin
            # Some time of doing nothing in particular.
            time.sleep(10)
            print(f"| {count} | {seconds:.0f} | {memory(running.pid):.0f} |")
        finally:
            running.send_signal(signal.SIGTERM)
            running.wait(30)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer topologies")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, apiserver.running(Path(folder)) as server:
        kubeconfig = server.kubeconfig(Path(folder) / "kubeconfig")
        connection = Connection(configured({"KUBECONFIG": str(kubeconfig)}))
        cluster = Cluster(connection)
        with Spaces(cluster) as spaces:
            print("| nodes | ms, first look | ms, nothing new | ms, at most | requests | writes |")
            print("|---|---|---|---|---|---|")
            for sources in (60, 500, 950):
                looks(cluster, spaces.make(), sources)
            print("\n| topologies | s until all are planned | MB of the operator at most |")
            print("|---|---|---|")
            many(cluster, kubeconfig, spaces.make(), 40 if given.quick else 200)
        connection.close()


if __name__ == "__main__":
    main()
