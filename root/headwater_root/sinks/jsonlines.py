"""Results in one growing file of JSON lines, each exactly once.

`results.jsonl` counts up to the size that the cursor names. What stands behind that was being delivered when
the process died; it is cut at the next start and delivered again, so the file never holds a result twice.
"""

from __future__ import annotations

import os
from pathlib import Path

from headwater_root import files
from headwater_root.files import Damaged
from headwater_root.sinks.cursor import Cursor
from headwater_wire import failpoints


class JsonLines:
    """Appends to `results.jsonl` in a directory of its own."""

    name = "jsonlines"

    def __init__(self, directory: Path | str) -> None:
        directory = Path(directory)
        files.make_directory(directory)
        files.sweep(directory)
        self.path = directory / "results.jsonl"
        self._cursor = Cursor(directory / "cursor.json")
        self._file: int | None = None
        self._open()

    @property
    def cursor(self) -> int:
        """The last position that is delivered, durably."""
        return self._cursor.position

    def deliver(self, position: int, rows: bytes) -> None:
        """Append the rows, then move the cursor behind them."""
        if position <= self.cursor:
            return
        file = self._open() if self._file is None else self._file
        # Until all is done, nobody knows what the files hold: the cursor is read again, and the file cut.
        self._file = None
        try:
            files.write_all(file, rows)
            os.fsync(file)
            failpoints.reached("root.sink.written")
            self._cursor.move(position, self._cursor.size + len(rows))
        except BaseException:
            os.close(file)
            raise
        self._file = file

    def recall(self) -> None:
        """Read the cursor again; the next delivery cuts the file."""
        self._cursor.load()

    def tidy(self) -> None:
        """Nothing waits to be tidied."""

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _open(self) -> int:
        """The file, cut back to what the cursor says."""
        new = not self.path.exists()
        file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        try:
            found = os.fstat(file).st_size
            if found < self._cursor.size:
                what = f"the file ends here, but {self._cursor.size} bytes were delivered"
                remedy = f"put it back, or remove {self._cursor.path.name} too to begin anew"
                raise Damaged(self.path, found, what, remedy)
            os.ftruncate(file, self._cursor.size)
            if new:
                files.sync_directory(self.path.parent)
        except BaseException:
            os.close(file)
            raise
        self._file = file
        return file
