"""What this process and all below it use, by kind: driver, JVM, worker."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path


def processes(pid: int) -> Iterator[tuple[str, float, int]]:
    """A process and all below it: kind, CPU seconds, bytes."""
    stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    command = Path(f"/proc/{pid}/cmdline").read_text()
    name = "JVM" if "java" in command.split("\0")[0] else "worker" if "pyspark" in command else "driver"
    tick = os.sysconf("SC_CLK_TCK")
    # With children that are gone.
    yield name, sum(map(int, stat[11:15])) / tick, int(stat[21]) * os.sysconf("SC_PAGE_SIZE")
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in path.read_text().split():
            try:
                yield from processes(int(child))
            except OSError:
                continue


def cpu_by_kind() -> dict[str, float]:
    """Seconds of all processes here."""
    found: dict[str, float] = {}
    for name, seconds, _ in processes(os.getpid()):
        found[name] = found.get(name, 0.0) + seconds
    return found
