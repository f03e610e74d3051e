"""`headwater-root` as an operator meets it: what it cannot use, and what it halts for."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from headwater_root import program
from tests.patience import PATIENCE
from tests.programs import Program

TOPOLOGY: dict[str, Any] = {
    "apiVersion": "headwater.dev/v1alpha1",
    "kind": "AggregationTopology",
    "metadata": {"name": "t"},
    "spec": {
        "sources": [{"class": "s", "site": "x", "expected": 1, "rate": 1, "lateness": "0s"}],
        "queries": [{"id": "q", "aggregate": "sum", "window": {"type": "tumbling", "length": "1s"}}],
        "root": {"engine": "embedded"},
    },
}


def ended(directory: Path, manifest: str, *options: str, **environment: str) -> tuple[int, dict[str, Any]]:
    """The exit code of a root that does not start, and the one line of its log."""
    path = directory / "topology.json"
    path.write_text(manifest)
    command = [sys.executable, "-m", "headwater_root", "--topology", str(path)]
    command += ["--directory", str(directory / "root"), *options]
    done = subprocess.run(
        command,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    (line,) = [json.loads(line) for line in done.stderr.splitlines()]
    return done.returncode, line


@pytest.mark.parametrize(
    "asked, given, expected", [(None, None, 64 << 20), ("1MiB", None, 1 << 20), ("1MiB", 2 << 20, 2 << 20)]
)
def test_when_the_log_begins_anew_is_the_manifests_unless_it_is_given(
    tmp_path: Path, asked: str | None, given: int | None, expected: int
) -> None:
    class Seen(Exception):
        pass

    def make(*_: Any, segment_bytes: int, **__: Any) -> Any:
        raise Seen(segment_bytes)

    root = {**TOPOLOGY["spec"]["root"], **({} if asked is None else {"snapshotAfter": asked})}
    path = tmp_path / "topology.json"
    path.write_text(json.dumps({**TOPOLOGY, "spec": {**TOPOLOGY["spec"], "root": root}}))
    options: dict[str, Any] = {"status": False, "keep_results": False, "metrics": None, "tls": {}}
    with pytest.raises(Seen, match=f"^{expected}$"):
        program.run(path, tmp_path, "127.0.0.1:0", snapshot_bytes=given, make=make, **options)


def with_aggregate(name: str) -> str:
    query = {**TOPOLOGY["spec"]["queries"][0], "aggregate": name}
    return json.dumps({**TOPOLOGY, "spec": {**TOPOLOGY["spec"], "queries": [query]}})


@pytest.mark.parametrize(
    "manifest, options, said",
    [
        ("{", [], "--topology: "),
        ("[]", [], "holds no object"),
        ("{}", [], "apiVersion"),
        (with_aggregate("function:none"), [], "'none' is no function of an installed package"),
        (json.dumps(TOPOLOGY), ["--listen", "127.0.0.1:x"], "--listen: 127.0.0.1:x cannot be listened on"),
        (json.dumps(TOPOLOGY), ["--metrics", "x"], "metrics: is 'x'; give host and port"),
        (json.dumps(TOPOLOGY), ["--tls-key", "/none"], "tls.certificate: is missing; give all three files"),
    ],
)
def test_what_cannot_be_used_ends_with_2_and_a_sentence(
    tmp_path: Path, manifest: str, options: list[str], said: str
) -> None:
    code, line = ended(tmp_path, manifest, *options)
    assert code == 2
    assert line["level"] == "error"
    assert said in line["message"]


def test_a_package_that_cannot_be_loaded_is_told(tmp_path: Path) -> None:
    metadata = tmp_path / "broken-3.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 3.0\n")
    (metadata / "entry_points.txt").write_text("[headwater.functions]\nbad = broken:bad\n")
    (tmp_path / "broken.py").write_text("raise RuntimeError('no licence')\n")
    code, line = ended(tmp_path, with_aggregate("function:bad"), PYTHONPATH=str(tmp_path))
    assert code == 2
    assert "bad = broken:bad of broken 3.0 cannot be loaded (RuntimeError: no licence)" in line["message"]


def test_a_directory_that_cannot_be_used_is_told(tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    (tmp_path / "root" / "outbox").write_text("a file")
    code, line = ended(tmp_path, json.dumps(TOPOLOGY))
    assert code == 2
    assert "--directory: cannot be used" in line["message"]


def test_a_log_that_another_root_holds_is_not_touched(tmp_path: Path) -> None:
    manifest = tmp_path / "first.json"
    manifest.write_text(json.dumps(TOPOLOGY))
    command = ["headwater_root", "--topology", manifest, "--directory", tmp_path / "root"]
    with Program(tmp_path / "first.log", *command) as first:
        code, line = ended(tmp_path, json.dumps(TOPOLOGY))
        assert (code, line["message"]) == (4, "halted")
        assert "another process has this log open" in line["problem"]
        assert first.end(signal.SIGTERM) == 0


@pytest.mark.parametrize(
    "idle_after, options, expected",
    [("20s", (), {"idleAfter": "20s"}), ("60s", (), None), ("20s", ("--managed",), None)],
)
def test_settings_of_nodes_that_the_root_cannot_give_them_are_warned_of(
    tmp_path: Path, idle_after: str, options: tuple[str, ...], expected: dict[str, str] | None
) -> None:
    sources = [{**TOPOLOGY["spec"]["sources"][0], "idleAfter": idle_after}]
    path, log = tmp_path / "topology.json", tmp_path / "log"
    path.write_text(json.dumps({**TOPOLOGY, "spec": {**TOPOLOGY["spec"], "sources": sources}}))
    command = [sys.executable, "-m", "headwater_root", "--topology", str(path), "--listen", "127.0.0.1:0"]
    command += ["--directory", str(tmp_path / "root"), *options]
    with log.open("w") as errors, subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors) as running:
        assert running.stdout is not None
        running.stdout.readline()
        running.send_signal(signal.SIGTERM)
        assert running.wait(PATIENCE) == 0
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert [line["settings"] for line in lines if "settings" in line] == ([expected] if expected else [])
