"""Executors that are processes of their own: they have to see the checkpoint, or nothing is acknowledged."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from http.client import HTTPConnection
from pathlib import Path
from time import monotonic, sleep

import grpc
import pyspark
import pytest

from headwater_spark import java, reach
from headwater_spark.merging import Job, Merging
from headwater_spark.reach import CheckpointNotShared
from headwater_wire.v1 import control_pb2, control_pb2_grpc
from tests.faults.sparkcells import children, command
from tests.faults.tree import manifest

# Far more than it takes: on a machine that is busy a session may need minutes.
PATIENCE = 300.0
# A Java that treats some executors in another way.
JAVA = """#!/bin/sh
case "$*" in
*CoarseGrainedExecutorBackend*"--executor-id "{executors}" "*) {instead} ;;
*) exec "{java}" "$@" ;;
esac
"""
# They have an empty directory in place of the checkpoint, as on a node without the volume.
BLIND = """exec unshare --mount sh -c 'mount -t tmpfs none "$0" && exec "$@"' "{checkpoint}" "{java}" "$@" """
# They never come, as where there is no room for them.
AWAY = "exec sleep 600"


def free_address() -> str:
    with socket.create_server(("127.0.0.1", 0)) as held:
        return f"127.0.0.1:{held.getsockname()[1]}"


@contextmanager
def started(
    tmp_path: Path, executors: int, pattern: str, instead: str = BLIND
) -> Iterator[subprocess.Popen[str]]:
    """A root some of whose executors are blind, or something else instead."""
    checkpoint, home = tmp_path / "elsewhere", tmp_path / "java"
    real = java.found(os.environ).home
    (home / "bin").mkdir(parents=True)
    launcher = home / "bin" / "java"
    program = real / "bin" / "java"
    done = instead.format(checkpoint=checkpoint, java=program)
    launcher.write_text(JAVA.format(executors=pattern, instead=done, java=program))
    launcher.chmod(0o755)
    path = tmp_path / "topology.json"
    path.write_text(json.dumps(manifest("spark")))
    given: list[str | Path] = [
        "--topology",
        path,
        "--directory",
        tmp_path / "root",
        "--checkpoint",
        checkpoint,
    ]
    given += ["--master", f"local-cluster[{executors},1,1024]", "--brief", "--no-ui"]
    given += ["--conf", f"spark.executorEnv.JAVA_HOME={home}", "--metrics", free_address()]
    with (tmp_path / "errors").open("w") as errors:
        running = subprocess.Popen(
            [sys.executable, "-m", "headwater_spark", *given],
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
    try:
        yield running
    finally:
        running.kill()
        running.communicate()


def halted(running: subprocess.Popen[str], tmp_path: Path) -> str:
    """What it said at its end, which is that executors are blind."""
    out, _ = running.communicate(timeout=PATIENCE)
    said = (tmp_path / "errors").read_text()
    assert running.returncode == 6, said
    last = json.loads(said.splitlines()[-1])
    assert (last["message"], last["reason"]) == ("halted", "CheckpointNotShared")
    assert "do not see the driver's checkpoint; give them the same volume" in last["problem"]
    return out


def executor_of(running: subprocess.Popen[str]) -> int:
    end = monotonic() + PATIENCE
    while not (
        found := [pid for pid in children(running.pid) if "CoarseGrainedExecutorBackend" in command(pid)]
    ):
        assert monotonic() < end
        sleep(0.05)
    return found[0]


def test_executors_that_do_not_see_the_checkpoint_are_refused(tmp_path: Path) -> None:
    with started(tmp_path, 2, "1") as running:
        # It never listened.
        assert halted(running, tmp_path) == ""


@pytest.mark.extended(
    "an executor is lost and its successor refused; `make test` has executors that are refused at the start"
)
def test_an_executor_that_comes_later_is_refused_before_it_has_written_state(tmp_path: Path) -> None:
    with started(tmp_path, 1, "[1-9]") as running:
        assert running.stdout is not None
        port = json.loads(running.stdout.readline())["port"]
        commits = tmp_path / "elsewhere" / "commits"
        end = monotonic() + PATIENCE
        while not (commits / "0").exists():
            assert monotonic() < end
            sleep(0.05)
        executor = executor_of(running)
        working = Path(f"/proc/{executor}/cwd").readlink().parent
        os.kill(executor, signal.SIGKILL)
        # Something to do for the next one.
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            stub = control_pb2_grpc.ControlStub(channel)  # type: ignore[no-untyped-call]  # generated
            document = {"id": "more", "aggregate": "sum", "window": {"type": "tumbling", "length": "1s"}}
            stub.AddQuery(control_pb2.AddQueryRequest(document=json.dumps(document)), timeout=PATIENCE)
        halted(running, tmp_path)
        assert not (commits / "1").exists()
    # Executors work in the package of Spark.
    assert working.is_relative_to(Path(pyspark.__file__).parent)
    assert not working.exists()


def test_a_root_that_waits_for_executors_says_so_and_ends_when_it_is_told_to(tmp_path: Path) -> None:
    with started(tmp_path, 2, "[1-9]", AWAY) as running:
        assert isinstance(running.args, list)
        end, said = monotonic() + PATIENCE, ""
        while "executors are awaited: 1 of 2 are there" not in said:
            assert monotonic() < end, said
            with suppress(OSError), closing(HTTPConnection(str(running.args[-1]))) as asked:
                asked.request("GET", "/readyz")
                said = asked.getresponse().read().decode()
            sleep(0.1)
        running.send_signal(signal.SIGTERM)
        assert running.communicate(timeout=PATIENCE)[0] == ""
        assert running.returncode == 0
    assert "ended before it had started" in (tmp_path / "errors").read_text()


def test_a_nonce_of_an_earlier_life_is_none(tmp_path: Path) -> None:
    first = reach.written(tmp_path)
    assert first.seen
    second = reach.written(tmp_path)
    assert second.seen
    assert not first.seen
    assert list(tmp_path.iterdir()) == [second.path]


def test_a_worker_that_does_not_see_the_nonce_takes_no_state(tmp_path: Path) -> None:
    nonce = reach.written(tmp_path)
    nonce.path.unlink()
    with pytest.raises(CheckpointNotShared) as raised:
        Merging(Job("id", "[]", 1, 0), nonce).init(None)  # type: ignore[arg-type]  # it comes to no state
    told = f"Traceback (most recent call last):\nheadwater_spark.reach.CheckpointNotShared: {raised.value}"
    assert str(reach.blamed(tmp_path, told)) == str(raised.value)
    assert reach.blamed(tmp_path, "ValueError: something else") is None
