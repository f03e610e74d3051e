"""Notes of runs on this machine: those of the living are found, those of the dead removed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import click
import pytest

from headwater_cli import client, runs

HOLD = """
import sys
from headwater_cli import runs
with runs.announced(sys.argv[1], "plant"):
    print("there", flush=True)
    sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def own_session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))


def held(address: str) -> subprocess.Popen[str]:
    """A process that has left a note."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, address], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "there\n"
    return process


def test_the_one_run_is_found_and_a_killed_one_forgotten() -> None:
    one = held("127.0.0.1:7")
    try:
        assert client.address(None) == "127.0.0.1:7"
        assert client.address("elsewhere:1") == "elsewhere:1"
        two = held("127.0.0.1:8")
        try:
            with pytest.raises(click.ClickException, match="name one with --root"):
                client.address(None)
        finally:
            two.kill()
            two.communicate()
        # Killed, it could not take its note away.
        assert len(list(runs.directory().iterdir())) == 2
        assert client.address(None) == "127.0.0.1:7"
        assert len(list(runs.directory().iterdir())) == 1
        one.communicate(timeout=60)
        assert list(runs.directory().iterdir()) == []
    finally:
        one.kill()
        one.communicate()
    with pytest.raises(click.ClickException, match="no run of yours"):
        client.address(None)


def test_a_note_that_is_none_and_a_place_where_none_can_be_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs.directory().mkdir(parents=True)
    (runs.directory() / "1.json").write_text("{")
    assert runs.found() == []
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "file"))
    with runs.announced("127.0.0.1:7", "plant"):
        assert runs.found() == []
