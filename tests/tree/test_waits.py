"""A tree whose windows wait: its status names the source, the child, the reason and what happens next."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.tree.processes import Tree, tree
from tests.tree.test_idle import QUERY, _send

# Enough for a machine that is three times slower.
LIMIT = 90.0


def _status(found: Tree, *more: str) -> str:
    command = [sys.executable, "-m", "headwater_cli", "status", "--root", f"127.0.0.1:{found.above}", *more]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout


def _until(found: Tree, reached: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    until = time.monotonic() + LIMIT
    while not reached(status := json.loads(_status(found, "--json"))):
        assert time.monotonic() < until, status
        time.sleep(0.2)
    return dict(status)


def _reasons(status: dict[str, Any]) -> list[tuple[str | None, str | None, str]]:
    return [(each["source"], each["child"], each["reason"]) for each in status["waiting_for"]]


def test_the_status_names_who_is_silent_and_then_that_the_child_is(tmp_path: Path) -> None:
    with tree(tmp_path, 2, [QUERY], idle_after=600.0) as found:
        status = _until(found, lambda status: _reasons(status) == [(None, None, "expected")])
        assert "0 of 2" in status["waiting_for"][0]["message"]
        _send(found, "quiet", 1)
        status = _until(found, lambda status: ("quiet", "leaf", "silent") in _reasons(status))
        assert "1 of 2" in status["waiting_for"][0]["message"]
        _send(found, "brisk", 3)
        wanted = ("quiet", "leaf", "silent")
        status = _until(found, lambda status: _reasons(status)[:1] == [wanted])
        first = status["waiting_for"][0]
        # The clock says so, not the events: none came since.
        assert first["ends"] - first["since"] == 600_000_000
        assert status["watermark_still"] > 0
        _until(found, lambda later: later["watermark_still"] > status["watermark_still"])
        shown = " ".join(_status(found).split())
        assert "Windows wait for" in shown
        assert "declared" in shown
        child = found.running[-1]
        child.send_signal(signal.SIGSTOP)
        try:
            status = _until(found, lambda status: _reasons(status)[:1] == [("quiet", "leaf", "child silent")])
            (leaf,) = status["nodes"]
            assert not leaf["planned_rate"], "there is no plan"
            assert leaf["state"] == "silent"
            assert leaf["silent_seconds"] > 5
            assert "silent for" in " ".join(_status(found).split())
        finally:
            child.send_signal(signal.SIGCONT)
        _until(found, lambda status: _reasons(status)[:1] == [wanted])


def test_a_node_that_is_gone_is_silent_within_ten_seconds(tmp_path: Path) -> None:
    with tree(tmp_path, 1, [QUERY]) as found:
        _send(found, "press", 3)
        status = _until(found, lambda status: [each["state"] for each in status["nodes"]] == ["member"])
        assert status["nodes"][0]["silent_seconds"] <= 5
        found.running[-1].kill()
        gone = time.monotonic()
        status = _until(found, lambda status: [each["state"] for each in status["nodes"]] == ["silent"])
        took = time.monotonic() - gone
        (leaf,) = status["nodes"]
        # By the root's own clock, however long the command takes on a busy machine.
        assert 5 < leaf["silent_seconds"] < 10 + max(took - 10, 0)
        assert "silent for" in " ".join(_status(found).split())
        # The root takes nothing any more, and says so of itself.
        _until(found, lambda status: status["root_rate"] == 0.0)


def test_a_node_that_a_root_has_never_heard_is_silent_for_as_long_as_that_runs(tmp_path: Path) -> None:
    with tree(tmp_path, 1, [QUERY]) as found:
        _until(found, lambda status: [each["state"] for each in status["nodes"]] == ["member"])
        root, child = found.running
        for process in (child, root):
            process.kill()
            process.wait()
        topology, directory = tmp_path / "topology.json", tmp_path / "root"
        command = ["headwater_root", "--topology", topology, "--directory", directory, "--keep-results"]
        _, found.above = found.started(*command)
        status = json.loads(_status(found, "--json"))
        (leaf,) = status["nodes"]
        assert leaf["silent_seconds"] is not None
        status = _until(found, lambda status: [each["state"] for each in status["nodes"]] == ["silent"])
        assert status["nodes"][0]["silent_seconds"] > 5
