"""`headwater simulate`."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from headwater.machines.source import SourceMachine
from headwater_cli.app import main
from headwater_simulator.plans import Plan, draw
from headwater_simulator.runs import Outcome, run


def say(*arguments: object) -> Result:
    flat = (part for each in arguments for part in (each if isinstance(each, tuple) else (each,)))
    return CliRunner().invoke(main, ["simulate", *map(str, flat)])


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
    assert not {"transitions", "coverage"} & told.keys()


def test_transitions_and_coverage_as_json() -> None:
    done = say("--seeds", 1, "--jobs", 1, "--json", "--transitions", "--coverage")
    told = json.loads(done.stdout)
    greeted = [each for each in told["transitions"] if each["machine"] == "root" and each["to"] == "Hello"]
    assert any("Challenge" in each["answers"] and each["times"] > 0 for each in greeted)
    found = told["coverage"]
    assert found["reached"] + len(found["missed"]) == found["lines"]
    assert found["reached"] > 0
    assert any(missed.startswith("root.py") for missed in found["missed"])


@pytest.mark.parametrize(
    "given",
    [
        ("--trace", "--json"),
        ("--trace", "--seeds", 2),
        ("--trace", "--keep", "kept"),
        ("--trace", "--coverage"),
        ("--trace", "--transitions"),
        ("--plan", "--json"),
        ("--plan", "--keep", "kept"),
        ("--plan", "--seeds", 1),
        ("--plan", "--from", 3),
        ("--plan", "--trace", "--json"),
    ],
)
def test_options_of_many_runs_are_refused_with_one(given: tuple[object, ...], tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    path.write_text(draw(1).to_json())
    done = say(*((each, path) if each == "--plan" else (each,) for each in given))
    assert done.exit_code == 2, done.output
    assert f"not with {given[0]}, which is one run" in done.stderr
    assert not done.stdout


def test_one_run_may_be_said_to_be_one() -> None:
    done = say("--trace", "--from", 3, "--seeds", 1, "--jobs", 1, "--no-shrink")
    assert done.exit_code == 0, done.output
    assert "seed 3: " in done.stdout


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
        assert done.exit_code == 2
        assert "it is no plan" in done.stderr
        assert "give a file that --keep has written" in done.stderr


def test_values_that_no_run_can_have_are_no_plan(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    good = json.loads(draw(1).to_json())
    wrongs: list[dict[str, object]] = [{"parents": []}, {"delay": 0}, {"seed": "7"}, {"layers": []}]
    for wrong in wrongs:
        path.write_text(json.dumps({**good, **wrong}))
        done = say("--plan", path)
        assert done.exit_code == 2, done.output
        assert "it is no plan" in done.stderr
    path.write_text("[" * 100_000)
    assert say("--plan", path).exit_code == 2


def test_faults_that_befall_nobody_are_told(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    good = json.loads(draw(1).to_json())
    path.write_text(json.dumps({**good, "faults": [{"at": 40, "kind": "crash", "who": "c77"}]}))
    done = say("--plan", path)
    assert done.exit_code == 0, done.output
    assert "crash at 40 befalls nobody" in done.stderr


# Sources that do not go back when they are told to, in each of its processes: some seeds fail.
BROKEN = """
from headwater.machines.source import SourceMachine
SourceMachine._resynced = lambda self, message: None
if __name__ == "__main__":
    from headwater_cli.app import main
    main(prog_name="headwater")
"""


class Program:
    """`headwater simulate` with more seeds than there is time for, many of which fail."""

    def __init__(self, folder: Path, *arguments: object) -> None:
        program, self._stderr = folder / "broken.py", folder / "stderr"
        program.write_text(BROKEN)
        self.workers = set[int]()
        with self._stderr.open("w") as stderr:
            self._process = subprocess.Popen(
                [sys.executable, program, "simulate", "--seeds", "100000", *map(str, arguments)],
                stdout=subprocess.DEVNULL,
                stderr=stderr,
                start_new_session=True,
            )
        self.pid = self._process.pid

    @property
    def said(self) -> str:
        return self._stderr.read_text()

    def until(self, what: Callable[[], bool], seconds: float = 120) -> None:
        until = time.monotonic() + seconds
        while True:
            # Those that run seeds; another one of them looks after what they share.
            self.workers |= set(filter(_runs, _children(self.pid)))
            if what():
                return
            assert time.monotonic() < until, self.said
            assert self._process.poll() is None, self.said
            time.sleep(0.05)

    def until_one_has_failed(self) -> None:
        self.until(lambda: "failed: " in self.said)

    def ended(self) -> int:
        """Its code; all of its processes end."""
        code = self._process.wait(timeout=60)
        until = time.monotonic() + 60
        while any(_runs(worker) for worker in self.workers):
            assert time.monotonic() < until, "a worker goes on"
            time.sleep(0.1)
        return code

    def end(self) -> None:
        self._process.kill()
        self._process.wait()
        for worker in filter(_runs, self.workers):
            with suppress(ProcessLookupError):
                os.kill(worker, signal.SIGKILL)


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Callable[..., Program]]:
    programs = list[Program]()

    def start(*arguments: object) -> Program:
        programs.append(Program(tmp_path, *arguments))
        return programs[-1]

    yield start
    for program in programs:
        program.end()


@pytest.mark.parametrize("jobs", [1, 2])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_what_has_failed_is_told_and_kept_when_it_is_stopped(
    number: signal.Signals, jobs: int, tmp_path: Path, started: Callable[..., Program]
) -> None:
    program = started("--jobs", jobs, "--keep", tmp_path / "failed")
    program.until_one_has_failed()
    assert bool(program.workers) == (jobs > 1)
    os.kill(program.pid, number)
    assert program.ended() == 128 + number, program.said
    lines = program.said.splitlines()
    assert lines[-1] == "stopped"
    assert "Traceback" not in program.said
    told = {int(line.split()[1]) for line in lines if line.startswith("seed ") and " failed: " in line}
    (after,) = (
        line.partition("failed: ")[2] for line in lines if " of 100,000 seeds were run; failed: " in line
    )
    listed = list(map(int, after.split(", ")))
    assert listed == sorted(listed)
    # It may be stopped between the two.
    assert told
    assert told <= set(listed)
    assert {int(path.stem) for path in (tmp_path / "failed").glob("*.json")} == set(listed)
    for seed in listed:
        path = tmp_path / "failed" / f"{seed}.json"
        assert f"kept as it is, not cut down: {path}" in lines
        assert Plan.of_json(path.read_text()) == draw(seed)


def test_what_has_failed_is_told_when_a_worker_dies(tmp_path: Path, started: Callable[..., Program]) -> None:
    program = started("--jobs", 2)
    program.until_one_has_failed()
    os.kill(min(program.workers), signal.SIGKILL)
    assert program.ended() == 1, program.said
    assert "Traceback" not in program.said
    seed = next(line.split()[1] for line in program.said.splitlines() if line.startswith("seed "))
    assert f"again: headwater simulate --from {seed} --trace" in program.said
    assert program.said.splitlines()[-1].endswith("give fewer --jobs")


def test_ctrl_c_while_its_workers_begin_leaves_no_trace(started: Callable[..., Program]) -> None:
    program = started("--jobs", 2)
    # In the midst of their imports; a terminal sends it to all of them.
    program.until(lambda: any("numpy" in _mapped(worker) for worker in program.workers))
    os.killpg(program.pid, signal.SIGINT)
    assert program.ended() == 130, program.said
    assert "Traceback" not in program.said
    assert program.said.splitlines()[-1] == "stopped"


def test_what_was_kept_whole_stays_when_it_is_stopped_while_it_is_cut_down(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SourceMachine, "_resynced", lambda self, message: None)
    seed = next(seed for seed in range(200) if run(seed).failure is not None)

    def stop(outcome: Outcome) -> Outcome:
        raise KeyboardInterrupt

    monkeypatch.setattr("headwater_cli.simulate.shrink", stop)
    done = say("--seeds", 1, "--from", seed, "--jobs", 1, "--keep", tmp_path)
    assert done.exit_code == 130
    assert f"1 of 1 seeds were run; failed: {seed}" in done.stderr
    assert Plan.of_json((tmp_path / f"{seed}.json").read_text()) == draw(seed)


def _runs(pid: int) -> bool:
    return "spawn_main" in _command(pid)


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""


def _mapped(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/maps").read_text()
    except OSError:
        return ""


def _children(pid: int) -> list[int]:
    found = subprocess.run(
        ["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, text=True, check=False
    )
    return [int(each) for each in found.stdout.split()]
