"""What a root drops is kept beside it: so its results can be judged, though it has let go of its records."""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from pathlib import Path

PAUSE = 0.02
# In a root's directory, and what of it is kept.
PARTS = (("inbox", "*.log"), ("outbox", "[0-9]*"))


class Kept:
    """Has a second name for every segment of the log and every file of the outbox, from soon after it is
    there; a root drops none of them that soon."""

    def __init__(self, root: Path, kept: Path) -> None:
        self._root, self._kept = root, kept
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="kept", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._over.wait(PAUSE):
            self._look()

    def _look(self) -> None:
        for name, pattern in PARTS:
            (self._kept / name).mkdir(parents=True, exist_ok=True)
            for path in (self._root / name).glob(pattern):
                # It is kept already, or gone.
                with suppress(FileExistsError, FileNotFoundError):
                    os.link(path, self._kept / name / path.name)

    def end(self) -> None:
        self._over.set()
        self._thread.join()

    def put_back(self) -> int:
        """Everything is as if nothing had been dropped; gives how many segments of the log were."""
        self.end()
        self._look()
        dropped = 0
        for name, pattern in PARTS:
            for path in (self._kept / name).glob(pattern):
                there = self._root / name / path.name
                if not there.exists():
                    os.link(path, there)
                    dropped += name == "inbox"
        (self._root / "outbox" / "trimmed").unlink(missing_ok=True)
        return dropped
