"""The operator with a part that decides nothing and tells what it was called for.

`python -m e2e.operator.recorder` prints a line of JSON for each call, behind the program's own first line.
TIMING is a JSON object of shorter times: `lease` and `watch` have the fields of `Timing` and `WatchTiming`.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from dataclasses import replace

from headwater_operator import program
from headwater_operator.cluster import Cluster
from headwater_operator.lease import Timing
from headwater_operator.metrics import Metrics
from headwater_operator.nodes import Nodes
from headwater_operator.settings import Settings, WatchTiming, log_environment, settings_of
from headwater_operator.workers import Reconcile
from headwater_wire import logs


def recorder(cluster: Cluster, settings: Settings, nodes: Nodes, metrics: Metrics) -> Reconcile:
    lock = threading.Lock()

    def reconcile(namespace: str, name: str) -> float | None:
        known = nodes.all()
        said = {"reconciled": f"{namespace}/{name}", "at": time.time(), "nodes": known and sorted(known)}
        # Whole lines, though there are several workers.
        with lock:
            print(json.dumps(said), flush=True)
        return None

    return reconcile


def main() -> int:
    logs.configure("headwater-operator", log_environment(os.environ))
    times = json.loads(os.environ.get("TIMING", "{}"))
    settings = replace(
        settings_of(os.environ, "test"),
        lease=Timing(**times.get("lease", {})),
        watch=WatchTiming(**times.get("watch", {})),
    )
    return program.run(settings, os.environ, recorder)


if __name__ == "__main__":
    sys.exit(main())
