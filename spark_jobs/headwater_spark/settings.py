"""How the Spark of a root is run."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

# A task that fails, with its worker for one, is tried again.
MASTER = "local[*,4]"
# The inbox listens on this machine alone, so executors are on it too.
MASTERS = re.compile(
    r"local|local\[(\*|\d+)(, *\d+)?\]|local-cluster\[ *(?P<executors>\d+) *, *(?P<cores>\d+) *, *\d+ *\]"
)


# The API server of the cluster that the driver is a pod of.
SERVER = "https://kubernetes.default.svc"
CLUSTER = f"k8s://{SERVER}"


@dataclass(frozen=True, slots=True)
class Executors:
    """Executors as pods of a cluster, which Spark makes and removes itself."""

    count: int
    image: str
    # The pod of the driver, with which they go: where it is, what it is called, its address.
    namespace: str
    pod: str
    address: str
    # Of each: what is asked of the cluster, such as 0.5; what its JVM has as heap.
    cores: str = "1"
    memory: str = "1g"
    # Of a pod, in which Spark puts what it needs.
    template: Path | None = None

    @property
    def tasks(self) -> int:
        """How many tasks one runs at once."""
        return max(math.ceil(amount(self.cores)), 1)


def amount(cores: str) -> float:
    """Cores as Kubernetes writes them."""
    return int(cores[:-1]) / 1_000 if cores.endswith("m") else float(cores)


@dataclass(frozen=True, slots=True)
class SparkSettings:
    """How Spark is run."""

    master: str = MASTER
    # In place of a master on this machine.
    executors: Executors | None = None
    # None: in the directory of the root.
    checkpoint: Path | None = None
    # Of the JVM of the driver.
    memory: str = "1g"
    # 0: one for each core, two at least. For a new checkpoint alone.
    buckets: int = 0
    # Bytes of records in a micro-batch, at most, unless one record has more.
    batch_bytes: int = 32 * 2**20
    # Bytes of records that Spark is behind with, from which on nothing more is acknowledged.
    backlog_bytes: int = 4 * 2**30
    # Seconds from one micro-batch to the next, at least.
    interval: float = 0.3
    # For a run of minutes: the JVM compiles quickly instead of well.
    brief: bool = False
    ui: bool = True
    conf: Mapping[str, str] | None = None

    @property
    def apart(self) -> bool:
        """Whether executors are processes of their own."""
        return self.executors is not None or self.master.startswith("local-cluster")

    @property
    def count(self) -> int:
        """How many executors of their own there are to be."""
        return self.executors.count if self.executors is not None else self._of_master("executors", 0)

    @property
    def tasks(self) -> int:
        """How many tasks an executor of its own runs at once."""
        return self.executors.tasks if self.executors is not None else self._of_master("cores", 1)

    @property
    def slots(self) -> int:
        """How many tasks run at once, at most."""
        return self.count * self.tasks if self.apart else cores()

    def _of_master(self, what: str, otherwise: int) -> int:
        match = MASTERS.fullmatch(self.master)
        return int(match[what]) if match and match[what] else otherwise


def cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
