"""Failpoints: each of them has a cell, and a name that is none is refused."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from headwater.errors import Invalid
from headwater_wire import failpoints
from tests.faults import cells, sparkcells
from tests.faults.tree import manifest


def test_there_is_a_crash_at_every_failpoint() -> None:
    crashed = {
        each.partition(":")[0] for each in (*cells.ROOT, *cells.NODE, *cells.SOURCE, *sparkcells.DRIVER)
    }
    assert crashed == set(failpoints.NAMES)


@pytest.mark.parametrize("given", ["root.nowhere", "root.synced:0", "root.synced:x", "root.synced:-1"])
def test_what_is_no_failpoint_is_refused(given: str) -> None:
    with pytest.raises(Invalid, match="HEADWATER_FAILPOINT"):
        failpoints.arm({failpoints.VARIABLE: given})


def test_a_program_refuses_it_too(tmp_path: Path) -> None:
    path = tmp_path / "topology.json"
    path.write_text(json.dumps(manifest()))
    done = subprocess.run(
        [sys.executable, "-m", "headwater_root", "--topology", path, "--directory", tmp_path / "root"],
        env={**os.environ, failpoints.VARIABLE: "root.nowhere"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2
    assert "HEADWATER_FAILPOINT: is 'root.nowhere'; leave it out" in json.loads(done.stderr)["message"]
    assert not (tmp_path / "root").exists()


@pytest.mark.parametrize("given", ["0", "-1", "inf", "nan"])
def test_a_root_says_what_is_wrong_with_the_size_of_its_snapshots(tmp_path: Path, given: str) -> None:
    path = tmp_path / "topology.json"
    path.write_text(json.dumps(manifest()))
    command: list[str | Path] = ["headwater_root", "--topology", path, "--directory", tmp_path / "root"]
    done = subprocess.run(
        [sys.executable, "-m", *command, f"--snapshot-mib={given}"], capture_output=True, text=True
    )
    assert done.returncode == 2
    assert "--snapshot-mib: is " in json.loads(done.stderr)["message"]
