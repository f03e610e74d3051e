"""The cache: whole or not there, and for one at a time."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from airgap_kind.cache import Cache, default_root, write_whole
from airgap_kind.progress import Progress
from airgap_kind.pruning import stale


def quiet() -> Progress:
    return Progress(io.StringIO())


def test_where_it_is(tmp_path: Path) -> None:
    assert default_root({"HOME": "/home/me"}) == Path("/home/me/.cache/airgap-kind")
    assert default_root({"HOME": "/home/me", "XDG_CACHE_HOME": "/fast"}) == Path("/fast/airgap-kind")
    assert default_root({"HOME": "/home/me", "XDG_CACHE_HOME": "rel"}) == Path("/home/me/.cache/airgap-kind")
    assert default_root({"HOME": "/home/me", "AIRGAP_KIND_CACHE": str(tmp_path)}) == tmp_path


def test_a_file_is_there_when_it_is_whole(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    target = cache.images / "one.tar"
    with cache.making(target) as part:
        part.write_text("half")
        assert not target.exists()
    assert target.read_text() == "half"


def test_what_fails_leaves_nothing(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    target = cache.builds / "folder"

    def fail() -> None:
        with cache.making(target) as part:
            part.mkdir()
            (part / "file").write_text("half")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert not target.exists()
    assert not list(cache.scratch.iterdir())


def test_a_folder_takes_the_place_of_another(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    target = cache.builds / "folder"
    for text in ("old", "new"):
        with cache.making(target) as part:
            part.mkdir()
            (part / text).write_text(text)
    assert [entry.name for entry in target.iterdir()] == ["new"]


def test_a_small_file_is_written_with_its_mode(tmp_path: Path) -> None:
    write_whole(tmp_path / "new" / "file", "text", 0o755)
    assert (tmp_path / "new" / "file").read_text() == "text"
    assert (tmp_path / "new" / "file").stat().st_mode & 0o777 == 0o755
    assert len(list((tmp_path / "new").iterdir())) == 1


def test_a_second_one_waits_and_goes_on_when_the_first_is_killed(tmp_path: Path) -> None:
    holder = textwrap.dedent(
        """
        import sys, time
        from pathlib import Path
        from airgap_kind.cache import Cache
        from airgap_kind.progress import Progress
        cache = Cache(Path(sys.argv[1]))
        with cache.lock(Progress()), cache.making(cache.builds / "x") as part:
            part.write_text("half")
            print("held", flush=True)
            time.sleep(60)
        """
    )
    root = Path(__file__).resolve().parents[2] / "e2e" / "kind"
    with subprocess.Popen(
        [sys.executable, "-c", holder, str(tmp_path)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(root)},
    ) as first:
        assert first.stdout
        assert first.stdout.readline() == "held\n"
        said = io.StringIO()

        class Killing(Progress):
            """Ends the holder as soon as we are told to wait for it."""

            def say(self, line: str) -> None:
                super().say(line)
                first.send_signal(signal.SIGKILL)

        cache = Cache(tmp_path)
        with cache.lock(Killing(said)):
            assert f"process {first.pid}" in said.getvalue()
            # Cleared away, and never in its place.
            assert not cache.scratch.exists()
            assert not (cache.builds / "x").exists()


def test_what_no_version_uses_is_stale() -> None:
    names = ["etcd-v1-amd64-aa", "etcd-v2-amd64-bb", "node-root-x.tar", "node-root-y.tar"]
    found = stale((Path(name) for name in names), ["etcd-v2-amd64-bb", "node-root-y"])
    assert [entry.name for entry in found] == ["etcd-v1-amd64-aa", "node-root-x.tar"]
