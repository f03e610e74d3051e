"""A small volume of its own, that can be full."""

from __future__ import annotations

import subprocess
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from tests.faults import network


class Volume:
    """A tmpfs on a directory, with a file that takes what is free."""

    def __init__(self, path: Path, kib: int) -> None:
        self.path, self._kib = path, kib
        self._ballast = path / "ballast"

    def __enter__(self) -> Volume:
        network.ready()
        self.path.mkdir(parents=True)
        subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={self._kib}k", "headwater-test", self.path], check=True
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # Also where somebody still has a file open there.
        subprocess.run(["umount", "--lazy", self.path], check=True)

    def fill(self) -> None:
        with self._ballast.open("ab", buffering=0) as file, suppress(OSError):
            while True:
                file.write(bytes(4_096))

    def free(self) -> None:
        self._ballast.unlink()
