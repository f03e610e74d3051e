"""Directories of the user; in a container there may be no home, or one that cannot be written."""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path


def home() -> Path | None:
    """The home of the user; None where nothing says which it is."""
    try:
        return Path.home()
    except RuntimeError:
        return None


def temporary() -> Path:
    """A directory of the user among the temporary ones, the same each time and closed to others."""
    path = Path(tempfile.gettempdir()) / f"headwater-user-{os.getuid()}"
    try:
        path.mkdir(mode=0o700)
    except FileExistsError:
        found = path.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
            # Somebody else was there first.
            return Path(tempfile.mkdtemp(prefix="headwater-user-"))
    return path
