"""`headwater run --input`: events of a file or a pipe through a whole tree, exact or not done."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from click.testing import CliRunner

from headwater_cli import piped
from headwater_cli.app import main
from headwater_cli.manifests import topology
from headwater_cli.piped import Piped
from headwater_source.columns import Events

EXAMPLES = Path(__file__).parents[2] / "examples"


def run(*arguments: object, **options: Any) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "headwater_cli", "run", *map(str, arguments), "--json"]
    return subprocess.run(command, capture_output=True, text=True, timeout=90, check=False, **options)


def rows(count: int, sources: int) -> str:
    rng = random.Random(count)
    lines = ["time,temp,device,mark,source"]
    for n in range(count):
        mark = rng.choice(["begin", "end"]) if n % 40 == 0 else ""
        source = f"press-{n % sources}" if sources else ""
        ts = 1_700_000_000_000_000 + n * 5_000 - rng.randrange(50_000)
        lines.append(f"{ts},{rng.randrange(100)},k{rng.randrange(3)},{mark},{source}")
    return "\n".join(lines) + "\n"


def test_a_file_of_several_sources_is_exact(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text(rows(2_000, 3))
    done = run(
        EXAMPLES / "factory.yaml",
        "--input",
        path,
        "--columns",
        "ts=time,value=temp,key=device",
        "--verify",
    )
    assert done.returncode == 0, done.stderr + done.stdout
    summary = json.loads(done.stdout)
    assert summary["differing"] == 0
    assert summary["sources"] == 3
    assert summary["windows"] > 0
    assert summary["sent"] == 2_000 == summary["counted"] + summary["late"] + summary["rejected"]


def test_a_pipe_is_exact() -> None:
    text = "".join(
        json.dumps({"ts": 1_700_000_000_000_000 + n * 10_000, "value": n % 7, "key": "k"}) + "\n"
        for n in range(1_000)
    )
    done = run(
        EXAMPLES / "tumbling.yaml",
        "--input",
        "-",
        "--format",
        "jsonl",
        "--children",
        1,
        "--layers",
        "",
        "--verify",
        input=text,
    )
    assert done.returncode == 0, done.stderr + done.stdout
    summary = json.loads(done.stdout)
    assert (summary["differing"], summary["sources"], summary["sent"]) == (0, 1, 1_000)
    assert summary["windows"] > 0


def test_a_bad_input_is_told(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("ts,value\n1,1\nx,2\n")
    done = CliRunner().invoke(main, ["run", str(EXAMPLES / "tumbling.yaml"), "--input", str(path)])
    assert done.exit_code == 1
    assert f"{path}, line 3: ts: is 'x'" in done.output


def test_a_bad_input_is_told_as_json(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("ts,value\n1,1\nx,2\n")
    for given, said in ((path, f"{path}, line 3: ts: is 'x'"), (tmp_path / "y.csv", "cannot be opened")):
        done = CliRunner().invoke(main, ["run", "--json", "--input", str(given)])
        assert done.exit_code == 1
        summary = json.loads(done.stdout)
        assert (summary["topology"], summary["ok"]) == ("demo", False)
        assert said in summary["problems"][0]
        assert said in done.stderr


def test_a_pipe_that_goes_bad_is_told_as_json(tmp_path: Path) -> None:
    # The first megabyte is read before the tree is started, the rest beside it.
    good = "1700000000000000,1\n" * 60_000
    done = run(EXAMPLES / "tumbling.yaml", "--input", "-", "--format", "csv", input=f"ts,value\n{good}x,2\n")
    assert done.returncode == 1
    assert "line 60002: ts: is 'x'" in json.loads(done.stdout)["problems"][0]
    assert "Traceback" not in done.stderr


def test_bad_records_are_passed_over_and_the_rest_is_exact(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    lines = rows(500, 2).splitlines()
    path.write_text("\n".join([*lines[:100], "nonsense", *lines[100:], "x,1,k,,press-9"]) + "\n")
    columns = "ts=time,value=temp,key=device"
    done = run(EXAMPLES / "factory.yaml", "--input", path, "--columns", columns, "--skip-bad", "--verify")
    assert done.returncode == 0, done.stderr + done.stdout
    summary = json.loads(done.stdout)
    assert (summary["sent"], summary["bad"], summary["sources"], summary["differing"]) == (500, 2, 2, 0)
    assert f"passed over {path}, line 101: record: has 1 fields" in done.stderr
    assert f"passed over {path}, line 503: ts: is 'x'" in done.stderr


@pytest.mark.parametrize("content", ["", "ts,value\n", "\n\n"])
def test_an_input_without_events_is_no_success(tmp_path: Path, content: str) -> None:
    path = tmp_path / "x.csv"
    path.write_text(content)
    asked = ["run", "--input", str(path), "--verify", "--json"]
    done = CliRunner().invoke(main, asked)
    assert done.exit_code == 1
    assert "input: holds no events" in json.loads(done.stdout)["problems"][0]
    done_pipe = run("--input", "-", "--format", "csv", "--verify", input=content)
    assert done_pipe.returncode == 1
    assert "input: holds no events" in json.loads(done_pipe.stdout)["problems"][0]


def test_an_input_of_bad_records_alone_is_no_success(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("ts,value\nx,1\ny,2\n")
    done = CliRunner().invoke(main, ["run", "--input", str(path), "--skip-bad"])
    assert done.exit_code == 1
    assert "holds no events, but 2 bad records" in done.output
    done = CliRunner().invoke(main, ["run", "--skip-bad"])
    assert done.exit_code == 2
    assert "say how to read an --input" in done.output


def test_too_much_is_not_kept(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("ts,value\n1,1\n")
    found = Piped(str(path), None, "", topology(EXAMPLES / "factory.yaml"), keep=True)
    feed = found.feed("press-7", None)
    assert feed.lateness >= 0
    with patch.object(piped, "VERIFIABLE", 5):
        found.sent(feed, Events(np.arange(5), np.arange(5.0)))
        assert found.verifiable
        assert len(feed.kept) == 1
        found.sent(feed, Events(np.arange(1), np.arange(1.0)))
        assert not found.verifiable
        assert feed.kept == []
