"""`headwater simulate`."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from headwater.machines.source import SourceMachine
from headwater_cli.app import main
from headwater_simulator.plans import draw
from headwater_simulator.runs import run


def say(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["simulate", *map(str, arguments)])


def test_it_tells_what_it_ran() -> None:
    done = say("--seeds", 6, "--from", 40, "--jobs", 2, "--transitions")
    assert done.exit_code == 0, done.output
    assert "seeds 40 to 45: 6 runs" in done.stdout
    assert "0 failed" in done.stdout
    assert "faults" in done.stdout
    assert "merged" in done.stdout
    assert "Hello      -> Challenge" in done.stdout


def test_it_tells_which_lines_of_the_machines_no_run_has_reached() -> None:
    done = say("--seeds", 1, "--jobs", 1, "--coverage")
    assert done.exit_code == 0, done.output
    # One run has no member that comes from the future, but merges batches.
    assert "root.py" in done.stdout
    assert "self._commits.add(sender, message)" not in done.stdout


def test_figures_as_json() -> None:
    done = say("--seeds", 3, "--jobs", 1, "--json")
    told = json.loads(done.stdout)
    assert told["seeds"] == 3
    assert told["failed"] == {}
    assert told["logged"]["merged"] > 0


def test_a_seed_that_fails_is_kept_cut_down_and_run_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SourceMachine, "_resynced", lambda self, message: None)
    seed = next(seed for seed in range(200) if run(seed).failure is not None)
    done = say("--seeds", 1, "--from", seed, "--jobs", 1, "--keep", tmp_path / "failed")
    assert done.exit_code == 1
    kept = sorted((tmp_path / "failed").glob("*.json"))
    assert kept
    assert f"headwater simulate --plan {kept[0]} --trace" in done.stderr
    again = say("--plan", kept[0], "--trace")
    assert again.exit_code == 1
    assert "Columns(" in again.stdout
    monkeypatch.undo()
    assert say("--plan", kept[0]).exit_code == 0


def test_a_file_that_is_no_plan_is_said_to_be_none(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    for text in ("{", "[]", "{}", json.dumps({**json.loads(draw(1).to_json()), "faults": 3})):
        path.write_text(text)
        done = say("--plan", path)
        assert done.exit_code == 1
        assert "give a file that --keep has written" in done.stderr


@pytest.mark.parametrize("jobs", [1, 2])
def test_ctrl_c_ends_it_and_its_workers(jobs: int) -> None:
    command = [sys.executable, "-m", "headwater_cli", "simulate", "--seeds", "100000", "--jobs", str(jobs)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        # The first line of progress: it is in the middle of it.
        assert "seeds" in process.stderr.readline()
        workers = _children(process.pid)
        process.send_signal(signal.SIGINT)
        said = process.communicate(timeout=60)[1]
        assert process.returncode == 130, said
        assert said.splitlines()[-1] == "stopped"
        assert "Traceback" not in said
    finally:
        process.kill()
        process.communicate()
    until = time.monotonic() + 60
    while any(os.path.exists(f"/proc/{worker}") for worker in workers):
        assert time.monotonic() < until, "a worker goes on"
        time.sleep(0.1)


def _children(pid: int) -> list[int]:
    found = subprocess.run(
        ["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, text=True, check=False
    )
    return [int(each) for each in found.stdout.split()]
