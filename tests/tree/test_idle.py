"""A source that falls silent: windows close without it after as long as was asked for."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from tests.tree.processes import Tree, tree

QUERY: dict[str, Any] = {"id": "n", "aggregate": ["count"], "window": {"type": "tumbling", "length": "1s"}}
SECOND = 1_000_000
BEGIN = 1_700_000_000 * SECOND


def _send(found: Tree, name: str, seconds: int, *more: str) -> None:
    path = found.directory / f"{name}.csv"
    times = range(BEGIN, BEGIN + seconds * SECOND, SECOND // 10)
    path.write_text("ts,value\n" + "".join(f"{ts},1\n" for ts in times))
    command = [sys.executable, "-m", "headwater_cli", "send", str(path), "--to", found.address]
    options = ["--name", name, "--site", "here", "--lateness", "0s", "--timeout", "30s"]
    spool = ["--spool", f"{path}.spool"]
    done = subprocess.run(
        [*command, *options, *spool, *more], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_windows_close_without_who_is_silent(tmp_path: Path) -> None:
    with tree(tmp_path, 2, [QUERY], idle_after=1.0) as found:
        _send(found, "quiet", 1)
        _send(found, "brisk", 3, "--end")
        until = time.monotonic() + 20
        while len(rows := found.rows()) < 3:
            assert time.monotonic() < until, "the windows wait for a minute"
            time.sleep(0.1)
        assert [row["count"] for row in rows] == [20, 10, 10]
