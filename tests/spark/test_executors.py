"""Executors that are processes of their own: they have to see the checkpoint, or nothing is acknowledged."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from headwater_spark import java
from tests.faults.tree import manifest

CLUSTER = ("--master", "local-cluster[2,1,1024]", "--brief", "--no-ui")
# A Java that gives executors an empty directory in place of the checkpoint, as on a node without the volume.
BLIND = """#!/bin/sh
case "$*" in
*CoarseGrainedExecutorBackend*)
    exec unshare --mount sh -c 'mount -t tmpfs none "$0" && exec "$@"' "{checkpoint}" "{java}" "$@" ;;
*) exec "{java}" "$@" ;;
esac
"""


def test_executors_that_do_not_see_the_checkpoint_are_refused(tmp_path: Path) -> None:
    directory, home = tmp_path / "root", tmp_path / "java"
    real = java.found(os.environ).home
    (home / "bin").mkdir(parents=True)
    launcher = home / "bin" / "java"
    launcher.write_text(BLIND.format(checkpoint=directory / "checkpoint", java=real / "bin" / "java"))
    launcher.chmod(0o755)
    path = tmp_path / "topology.json"
    path.write_text(json.dumps(manifest("spark")))
    program = [sys.executable, "-m", "headwater_spark", *CLUSTER]
    command: list[str | Path] = [*program, "--topology", path, "--directory", directory]
    done = subprocess.run(
        [*command, "--conf", f"spark.executorEnv.JAVA_HOME={home}"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 6, done.stderr
    said = json.loads(done.stderr.splitlines()[-1])
    assert (said["message"], said["reason"]) == ("halted", "CheckpointNotShared")
    assert "do not see the driver's checkpoint; give them the same volume" in said["problem"]
    # It never listened.
    assert done.stdout == ""
