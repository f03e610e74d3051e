"""Runs on this machine: each leaves a note where its root listens, and holds a lock on it while it lives."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from headwater_cli import userfiles


@dataclass(frozen=True, slots=True)
class LocalRun:
    """A run of this user on this machine."""

    address: str
    topology: str
    process: int


def directory() -> Path:
    """Where the notes are: what ends with the session if there is such a place, else the user's cache, else
    a temporary directory."""
    if given := os.environ.get("XDG_RUNTIME_DIR") or os.environ.get("XDG_CACHE_HOME"):
        base = Path(given)
    else:
        home = userfiles.home()
        base = userfiles.temporary() if home is None else home / ".cache"
    return base / "headwater" / "runs"


@contextmanager
def announced(address: str, topology: str) -> Iterator[None]:
    """A note for the length of a block. Where none can be left the run goes on without."""
    found()  # removes what runs that were killed have left
    run = LocalRun(address, topology, os.getpid())
    path = directory() / f"{run.process}.json"
    fresh = path.with_suffix(".new")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        file = os.open(fresh, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    except OSError:
        yield
        return
    try:
        # The system lets go of it however the process ends.
        fcntl.flock(file, fcntl.LOCK_EX)
        os.write(file, json.dumps(asdict(run)).encode())
        # Nobody finds it before it is held.
        fresh.rename(path)
        yield
    finally:
        path.unlink(missing_ok=True)
        os.close(file)


def found() -> list[LocalRun]:
    """The runs that live; notes of others are removed."""
    runs = []
    for path in sorted(directory().glob("*.json")):
        with suppress(OSError, ValueError, TypeError), path.open() as file:
            if _held(file.fileno()):
                runs.append(LocalRun(**json.load(file)))
            else:
                path.unlink(missing_ok=True)
    return runs


def _held(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    return False
