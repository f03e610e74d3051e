"""Files that are there whole or not at all, also after the power fails."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from headwater.errors import PermanentError
from headwater_wire import failpoints

# Hidden, so that no listing of results shows a file that is not finished (pyarrow passes over dots too).
_TEMPORARY = ".{}.tmp"


class Damaged(PermanentError):
    """A file that does not hold what this program wrote: nothing is guessed, and nothing is changed."""

    def __init__(self, path: Path, offset: int, what: str, remedy: str) -> None:
        self.path, self.offset, self.what = path, offset, what
        super().__init__(f"{path}, offset {offset}: {what}; {remedy}")


def make_directory(path: Path) -> None:
    """Make a directory and those above it, durably."""
    if not path.is_dir():
        make_directory(path.parent)
        path.mkdir(exist_ok=True)
        sync_directory(path.parent)


def remove_directory(path: Path) -> None:
    """Remove a directory of files, if it is there."""
    if path.is_dir():
        for file in path.iterdir():
            file.unlink()
        path.rmdir()


def sweep(directory: Path) -> None:
    """Remove what a writer that died has left unfinished; only for whoever alone writes here."""
    for leftover in directory.glob(_TEMPORARY.format("*")):
        leftover.unlink(missing_ok=True)


def write_all(descriptor: int, data: bytes) -> None:
    """Write every byte: a single `os.write` may take fewer."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def replace(path: Path, data: bytes, failpoint: str = "") -> None:
    """Make `path` hold exactly `data`, durably; whoever reads meanwhile sees the old bytes or the new.

    `failpoint` is the place between writing and naming it, if that has a name.
    """
    temporary = path.with_name(_TEMPORARY.format(path.name))
    try:
        with opened(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC) as descriptor:
            write_all(descriptor, data)
            os.fsync(descriptor)
        if failpoint:
            failpoints.reached(failpoint)
        os.replace(temporary, path)
    except OSError:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise
    sync_directory(path.parent)


def sync(path: Path) -> None:
    """Make durable a file that somebody else has written, and its name."""
    with opened(path, os.O_RDONLY) as descriptor:
        os.fsync(descriptor)
    sync_directory(path.parent)


def sync_file_system(path: Path) -> None:
    """Make durable whatever anybody has written to the file system that a directory is on."""
    with opened(path, os.O_RDONLY | os.O_DIRECTORY) as descriptor:
        syncfs = getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None)
        if syncfs is None:
            # It tells no errors, but it is what other systems have.
            os.sync()
        elif syncfs(descriptor):
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), str(path))


def sync_directory(path: Path) -> None:
    """Make the names in a directory durable: a rename is not, before this."""
    with opened(path, os.O_RDONLY | os.O_DIRECTORY) as descriptor:
        os.fsync(descriptor)


@contextmanager
def opened(path: Path, flags: int) -> Iterator[int]:
    """A descriptor for the length of a block."""
    descriptor = os.open(path, flags | os.O_CLOEXEC, 0o644)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
