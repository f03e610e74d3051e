"""`headwater run` as a user calls it: real processes, every example, exact or not done."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.packages import install

FOLDER = Path(__file__).parents[2] / "examples"
EXAMPLES = sorted(FOLDER.glob("*.yaml"))
COMMAND = [sys.executable, "-m", "headwater_cli"]
# One of each family of windows, and a function of a package; the engine's tests have all of them.
FIRST = {"factory", "sliding", "session", "count-windows", "punctuation-order", "user-defined"}
assert {path.stem for path in EXAMPLES} >= FIRST, "an example of `make test` is gone"
OTHERS = pytest.mark.extended("the same processes with other windows or functions")
EACH = [pytest.param(path, id=path.stem, marks=() if path.stem in FIRST else OTHERS) for path in EXAMPLES]


@pytest.fixture(scope="module", autouse=True)
def functions(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The examples' own package, installed where every process of these tests finds it."""
    directory = tmp_path_factory.mktemp("site")
    install(FOLDER / "functions", directory)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(directory))
        yield


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *map(str, arguments)], capture_output=True, text=True, timeout=120, check=False
    )


@pytest.mark.parametrize("example", EACH)
def test_every_example_is_exact(example: Path) -> None:
    done = run("run", example, "--seconds", 2, "--children", 2, "--layers", "1", "--verify", "--json")
    assert done.returncode == 0, done.stderr + done.stdout
    summary = json.loads(done.stdout)
    assert summary["ok"]
    assert summary["differing"] == 0
    assert summary["windows"] > 0
    assert summary["sent"] == summary["counted"] + summary["late"] + summary["rejected"] > 100


def test_a_tree_of_several_layers_is_exact() -> None:
    example = next(path for path in EXAMPLES if path.stem == "many-groups")
    done = run("run", example, "--seconds", 2, "--children", 4, "--layers", "2,1", "--verify")
    assert done.returncode == 0, done.stderr + done.stdout
    assert "every window equals the oracle" in done.stdout


def test_a_run_ends_though_all_sources_are_in_quarantine(tmp_path: Path) -> None:
    bounded = tmp_path / "bounded.yaml"
    text = (FOLDER / "tumbling.yaml").read_text()
    bounded.write_text(text.replace("  root:", "  limits: {keysPerSource: 3}\n  root:"))
    done = run("run", bounded, "--seconds", 600, "--children", 1, "--layers", "", "--verify")
    assert done.returncode == 1, done.stderr + done.stdout
    told = re.findall(r"^(\S+) is in quarantine: .* limits.keysPerSource is 3; mend .*$", done.stdout, re.M)
    assert told == [f"meter-{'north' if n < 4 else 'south'}-{n}" for n in range(8)]
    assert re.search(r"^[\d,]+ events sent: \d+ counted, .* rejected.*, [\d,]+ not read$", done.stdout, re.M)
    # What was read before adds up.
    assert "events were sent, but" not in done.stdout
    assert "every window equals the oracle" in done.stdout


def test_a_source_in_a_result_goes_by_its_name() -> None:
    example = next(path for path in EXAMPLES if path.stem == "punctuation-local")
    done = run("run", example, "--seconds", 2, "--children", 1, "--layers", "1", "--verify")
    assert done.returncode == 0, done.stderr + done.stdout
    shown = set(re.findall(r"site=(\S+)", done.stdout))
    assert shown
    assert shown <= {"press-hall-1-0", "press-hall-1-1", "press-hall-2-2", "press-hall-2-3"}


def started(directory: Path) -> subprocess.Popen[str]:
    """A run that would take long, once its processes are there."""
    running = subprocess.Popen(
        [*COMMAND, "run", str(EXAMPLES[0]), "--seconds", "600"],
        env=os.environ | {"TMPDIR": str(directory)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    until = time.monotonic() + 120
    while len(processes(directory)) < 4:
        if time.monotonic() > until:
            running.kill()
            raise AssertionError(f"it did not start: {running.communicate()[0]}")
        time.sleep(0.1)
    return running


def processes(directory: Path) -> list[int]:
    """The processes that were started on something in a directory."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and str(directory).encode() in (entry / "cmdline").read_bytes():
                found.append(int(entry.name))
        except OSError:
            continue
    return found


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_nothing_is_left_behind(tmp_path: Path, how: signal.Signals) -> None:
    running = started(tmp_path)
    try:
        running.send_signal(how)
        running.wait(60)
        until = time.monotonic() + 60
        while processes(tmp_path) and time.monotonic() < until:
            time.sleep(0.1)
        assert processes(tmp_path) == []
        if how is not signal.SIGKILL:
            assert running.returncode == (130 if how is signal.SIGINT else 143)
            assert not list(tmp_path.iterdir())
    finally:
        running.kill()
        for process in processes(tmp_path):
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        running.communicate()


def test_a_manifest_that_cannot_be_used_is_told_with_field_and_remedy(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text(EXAMPLES[0].read_text().replace("lateness:", "lateness_:", 1))
    done = run("validate", wrong)
    assert done.returncode == 1
    assert "lateness" in done.stderr
    assert "Traceback" not in done.stderr
    assert run("validate", *EXAMPLES).returncode == 0
