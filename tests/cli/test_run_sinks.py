"""`headwater run` ends when its sinks have everything: what they have not got would be gone with it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import yaml

from tests.root.receiver import Fault, receiving

EXAMPLE = Path(__file__).parents[2] / "examples" / "tumbling.yaml"
# With less patience than a user has.
IMPATIENT = """
import sys
from headwater_cli import run
from headwater_cli.__main__ import main

run.SINKS_PATIENCE = 2.0
sys.exit(main())
"""


def run(tmp_path: Path, url: str, *program: str) -> subprocess.CompletedProcess[str]:
    manifest = yaml.safe_load(EXAMPLE.read_text())
    manifest["spec"]["root"]["sinks"] = [{"type": "webhook", "url": url}]
    path = tmp_path / "sinks.json"
    path.write_text(json.dumps(manifest))
    given = ["run", str(path), "--engine", "embedded", "--seconds", "2", "--children", "1", "--layers", ""]
    return subprocess.run([sys.executable, *program, *given], capture_output=True, text=True, timeout=120)


def test_a_sink_that_is_slow_to_take_gets_everything(tmp_path: Path) -> None:
    with receiving() as receiver:
        # The waits between them are longer than the run is.
        refusals: list[Fault] = [503] * 6
        receiver.faults.extend(refusals)
        done = run(tmp_path, f"http://127.0.0.1:{receiver.port}/", "-m", "headwater_cli")
        assert done.returncode == 0, done.stderr + done.stdout
        windows = int(done.stdout.split(" windows in ")[0].split()[-1].replace(",", ""))
        assert len(receiver.rows) == windows > 0


def test_a_sink_that_takes_nothing_is_named(tmp_path: Path) -> None:
    with receiving() as receiver:
        address = f"http://127.0.0.1:{receiver.port}/"
    # Nobody is there any more.
    done = run(tmp_path, address, "-c", IMPATIENT)
    assert done.returncode == 1, done.stderr + done.stdout
    assert "the sink 0-webhook did not take the results of" in done.stdout + done.stderr
