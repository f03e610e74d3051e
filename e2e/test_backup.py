"""The root is copied and restored by the commands of docs/backup.md, as they stand there."""

from __future__ import annotations

import subprocess
from pathlib import Path

from e2e.images import NODE, ROOT
from e2e.kubectl import kubectl
from e2e.trees import Fleet, planted, topology
from headwater_operator import names
from tests.cli.test_pages import blocks

LIMIT = 900.0


def test_a_root_is_copied_and_restored_by_the_page(space: str, tmp_path: Path) -> None:
    def run(commands: str) -> None:
        local = commands.replace("--namespace plant", f"--namespace {space}")
        done = subprocess.run(
            ["sh", "-eu", "-c", local.replace("headwater/root:0.1.0", ROOT)],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=LIMIT,
            check=False,
        )
        assert done.returncode == 0, (local, done.stdout, done.stderr, tree.told())

    *_, suspend, manifest, copy, wake, fill, restore = blocks("backup.md", "sh")
    with planted(space, topology("factory")) as tree:
        devices = tree.send(Fleet(4, events=None), NODE)
        tree.shows()
        for commands in (suspend, manifest, copy, wake):
            run(commands)
        assert (tmp_path / "factory-root.tar").stat().st_size > 0
        tree.flows()
        # A copy of a root that has not run since loses nothing, also when its claim is lost.
        for commands in (suspend, copy):
            run(commands)
        kubectl("--namespace", space, "delete", "pvc", names.claim("factory"))
        for commands in (fill, restore):
            run(commands)
        tree.settled()
        devices.enough()
        assert tree.assert_exact() > 0
