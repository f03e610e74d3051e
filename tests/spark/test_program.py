"""`headwater-spark` as a process: it ends when it is told to, also while Spark starts, and tells why it
halts."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.faults.sparkcells import children, command

# Far more than it takes: on a machine that is busy a session may need minutes.
PATIENCE = 300.0
MANIFEST = {
    "apiVersion": "headwater.dev/v1alpha1",
    "kind": "AggregationTopology",
    "metadata": {"name": "t"},
    "spec": {
        "sources": [{"class": "s", "site": "here", "expected": 1, "rate": 1, "lateness": "1s"}],
        "queries": [{"id": "q", "aggregate": "sum", "window": {"type": "tumbling", "length": "1s"}}],
        "root": {"engine": "spark", "sinks": [{"type": "jsonlines", "path": "lines"}]},
    },
}


@contextmanager
def started(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    manifest = tmp_path / "t.json"
    manifest.write_text(json.dumps(MANIFEST))
    given = ["--topology", str(manifest), "--directory", str(tmp_path / "root")]
    given += ["--brief", "--no-ui", "--master", "local[1]"]
    with (tmp_path / "errors").open("w") as errors:
        running = subprocess.Popen(
            [sys.executable, "-m", "headwater_spark", *given],
            stdout=subprocess.DEVNULL,
            stderr=errors,
            text=True,
        )
    try:
        yield running
    finally:
        running.kill()
        running.wait()


def until(reached: Callable[[], bool], running: subprocess.Popen[str]) -> None:
    end = time.monotonic() + PATIENCE
    while not reached():
        assert running.poll() is None
        assert time.monotonic() < end
        time.sleep(0.02)


def jvms(running: subprocess.Popen[str]) -> list[int]:
    return [pid for pid in children(running.pid) if "SparkSubmit" in command(pid)]


def test_it_ends_while_spark_starts(tmp_path: Path) -> None:
    with started(tmp_path) as running:
        until(lambda: bool(jvms(running)), running)
        below = children(running.pid)
        running.send_signal(signal.SIGTERM)
        assert running.wait(PATIENCE) == 0, (tmp_path / "errors").read_text()
        # It has not waited for windows that nobody has computed yet.
        assert not (tmp_path / "root" / "checkpoint" / "commits").exists()
        end = time.monotonic() + PATIENCE
        while [pid for pid in below if Path(f"/proc/{pid}").exists()]:
            assert time.monotonic() < end
            time.sleep(0.02)
    assert "error" not in (tmp_path / "errors").read_text()


def test_a_jvm_that_is_killed_is_told(tmp_path: Path) -> None:
    with started(tmp_path) as running:
        commits = tmp_path / "root" / "checkpoint" / "commits"
        until(lambda: commits.exists() and any(commits.glob("[0-9]*")), running)
        (jvm,) = jvms(running)
        os.kill(jvm, signal.SIGKILL)
        assert running.wait(PATIENCE) == 4
    said = (tmp_path / "errors").read_text()
    assert "its JVM ended by signal 9" in json.loads(said.splitlines()[-1])["problem"]
    assert "Traceback" not in said
