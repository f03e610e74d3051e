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
