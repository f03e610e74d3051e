"""A disk that fails: at any operation, for a moment or for good, with or without what was never synced."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import pytest

# What is left: all that the process did, only what was synced, or that without names that were not.
Loss = Literal["process", "contents", "names"]
LOSSES: tuple[Loss, ...] = ("process", "contents", "names")
REAL: dict[str, Callable[..., Any]] = {
    name: getattr(os, name)
    for name in ("write", "pwrite", "fsync", "replace", "unlink", "ftruncate", "link", "symlink", "rename")
}


class Died(BaseException):
    """The process is no more; nothing that it would do afterwards is done."""


class Disk:
    """Stands before the operations of `os` and counts them.

    The one numbered `fails_at` raises OSError, and the next one works; from `dies_at` on the process is dead.
    A write that comes to that has written half.
    """

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, root: Path, *, fails_at: int = 0, dies_at: int = 1_000_000
    ) -> None:
        self.fails_at, self.dies_at, self.count = fails_at, dies_at, 0
        self.root = root
        self.last_written = b""
        self._synced = {str(path): path.read_bytes() for path in root.rglob("*") if path.is_file()}
        # What each name was before: a file with these bytes, a link that led there, or nothing.
        self._unsynced_names: list[tuple[str, bytes | str | None]] = []
        for name in REAL:
            monkeypatch.setattr(os, name, getattr(self, f"_{name}"))

    @property
    def failed(self) -> bool:
        return self.count >= self.fails_at > 0

    @property
    def died(self) -> bool:
        return self.count >= self.dies_at

    def recover(self, monkeypatch: pytest.MonkeyPatch, loss: Loss) -> None:
        """The disk as the next process finds it."""
        monkeypatch.undo()
        # It does not fail again, so there is nothing to wait for.
        monkeypatch.setattr(os, "fsync", lambda _: None)
        if loss == "process":
            return
        found = [path for path in self.root.rglob("*") if path.is_file() and not path.is_symlink()]
        # What is synced is a file, whatever names it has.
        synced = {path.stat().st_ino: self._synced[str(path)] for path in found if str(path) in self._synced}
        for path in found:
            path.write_bytes(synced.get(path.stat().st_ino, b""))
        if loss == "names":
            for name, before in reversed(self._unsynced_names):
                Path(name).unlink(missing_ok=True)
                if isinstance(before, str):
                    os.symlink(before, name)
                elif before is not None:
                    Path(name).parent.mkdir(exist_ok=True)
                    Path(name).write_bytes(before)

    def _step(self) -> None:
        self.count += 1
        if self.died:
            raise Died
        if self.count == self.fails_at:
            raise OSError(errno.EIO, "the disk failed")

    def _write(self, descriptor: int, data: bytes) -> int:
        try:
            self._step()
        except BaseException:
            if self.count in (self.fails_at, self.dies_at):
                REAL["write"](descriptor, bytes(data)[: len(data) // 2])
            raise
        self.last_written = bytes(data)
        return int(REAL["write"](descriptor, data))

    def _pwrite(self, descriptor: int, data: bytes, offset: int) -> int:
        self._step()
        return int(REAL["pwrite"](descriptor, data, offset))

    def _ftruncate(self, descriptor: int, length: int) -> None:
        self._step()
        REAL["ftruncate"](descriptor, length)

    def _fsync(self, descriptor: int) -> None:
        self._step()
        path = os.readlink(f"/proc/self/fd/{descriptor}")
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            self._unsynced_names = [each for each in self._unsynced_names if os.path.dirname(each[0]) != path]
        else:
            self._synced[path] = Path(path).read_bytes()

    def _replace(self, source: Path, target: Path) -> None:
        self._step()
        if os.path.islink(source):
            before = os.readlink(target) if os.path.islink(target) else None
            self._unsynced_names.append((str(target), before))
            REAL["replace"](source, target)
            return
        self._unsynced_names.append((str(target), self._synced.get(str(target))))
        REAL["replace"](source, target)
        self._synced[str(target)] = self._synced.pop(str(source), b"")

    def _link(self, source: Path, target: Path) -> None:
        self._step()
        self._unsynced_names.append((str(target), None))
        REAL["link"](source, target)
        self._synced[str(target)] = self._synced.get(str(source), b"")

    def _rename(self, source: Path, target: Path) -> None:
        """Of a directory, with all that is in it."""
        self._step()
        REAL["rename"](source, target)
        before, after = f"{source}{os.sep}", f"{target}{os.sep}"
        for name in [name for name in self._synced if name.startswith(before)]:
            self._synced[after + name.removeprefix(before)] = self._synced.pop(name)

    def _symlink(self, source: str, target: Path) -> None:
        self._step()
        REAL["symlink"](source, target)

    def _unlink(self, path: Path, **options: Any) -> None:
        self._step()
        if str(path) in self._synced:
            self._unsynced_names.append((str(path), self._synced[str(path)]))
        REAL["unlink"](path, **options)
        self._synced.pop(str(path), None)
