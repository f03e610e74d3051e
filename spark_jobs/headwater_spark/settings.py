"""How the Spark of a root is run."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass

# A task that fails, with its worker for one, is tried again.
MASTER = "local[*,4]"
# The inbox listens on this machine alone, so executors are on it too.
MASTERS = re.compile(
    r"local|local\[(\*|\d+)(, *\d+)?\]|local-cluster\[ *(?P<executors>\d+) *, *(?P<cores>\d+) *, *\d+ *\]"
)


@dataclass(frozen=True, slots=True)
class SparkSettings:
    """How Spark is run."""

    master: str = MASTER
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
        return self.master.startswith("local-cluster")

    @property
    def slots(self) -> int:
        """How many tasks executors of their own run at once."""
        match = MASTERS.fullmatch(self.master)
        return int(match["executors"]) * int(match["cores"]) if match and match["executors"] else 1


def cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
