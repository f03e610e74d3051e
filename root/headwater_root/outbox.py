"""The outbox: results as files, from which every sink reads at its own pace.

A file is named `<position>-<epoch>`: the first position of the log that its results are of, and the epoch of
the writer. A replay makes the same bytes under the same name; one in a later epoch makes a name of its own,
and the file of the highest epoch counts. The bytes are those of `resultlines`; nothing here looks into them.

One process writes a directory, the one that holds the log. Errors of the volume are raised as they are:
a write that raised has either not happened or can be repeated.
"""

from __future__ import annotations

import re
import threading
from bisect import bisect_right
from collections.abc import Iterator
from pathlib import Path
from typing import TypeAlias

from headwater.errors import PermanentError
from headwater_root import files
from headwater_root.files import Damaged

# By another name, since the outbox has a property `bytes`.
Rows: TypeAlias = bytes

BOUND = 2**30
_NAME = re.compile(r"(\d{20})-(\d{10})")


class NotTheSame(PermanentError):
    """A replay that gave other results than before: results that were delivered can no longer be trusted."""

    def __init__(self, path: Path) -> None:
        self.path = path
        super().__init__(
            f"{path}: the same part of the log gave other results before; the results must be a function of "
            "the log alone, so keep both the log and this file and report it"
        )


class Outbox:
    """The results that not every sink has delivered yet; threads may write, read and trim it at once."""

    def __init__(self, directory: Path | str, *, bound: int = BOUND) -> None:
        self.directory, self.bound = Path(directory), bound
        files.make_directory(self.directory)
        files.sweep(self.directory)
        self._lock = threading.Lock()
        self._sizes: dict[tuple[int, int], int] = {}
        for path in self.directory.iterdir():
            if match := _NAME.fullmatch(path.name):
                self._sizes[int(match[1]), int(match[2])] = path.stat().st_size
        self._bytes = sum(self._sizes.values())

    @property
    def bytes(self) -> int:
        """The size of all files."""
        return self._bytes

    @property
    def full(self) -> bool:
        """Whether the bound is reached: the root then stops acknowledging until the sinks have caught up."""
        return self._bytes >= self.bound

    @property
    def last(self) -> int:
        """The highest position that has a file; 0 if there is none."""
        with self._lock:
            return max((position for position, _ in self._sizes), default=0)

    def write(self, position: int, epoch: int, rows: Rows) -> None:
        """Keep the results of the log from a position on, durably; the same ones again change nothing."""
        path = self._path(position, epoch)
        with self._lock:
            if (position, epoch) in self._sizes:
                if path.read_bytes() != rows:
                    raise NotTheSame(path)
                # Its name may not be durable yet, if the process died before that.
                files.sync_directory(self.directory)
                return
            files.replace(path, rows)
            self._sizes[position, epoch] = len(rows)
            self._bytes += len(rows)

    def read(self, after: int) -> Iterator[tuple[int, Rows]]:
        """The results behind a position, in order, as far as there are any now."""
        with self._lock:
            # The highest epoch of a position comes last, and stays.
            newest = dict(sorted(self._sizes))
        positions = list(newest)
        for position in positions[bisect_right(positions, after) :]:
            path = self._path(position, newest[position])
            try:
                rows = path.read_bytes()
            except FileNotFoundError:
                what = "the file is gone, though not every reader was beyond it"
                raise Damaged(path, 0, what, "put it back") from None
            yield position, rows

    def trim(self, upto: int) -> None:
        """Drop the results up to and with a position: every sink has delivered them."""
        with self._lock:
            for name in sorted(name for name in self._sizes if name[0] <= upto):
                self._path(*name).unlink(missing_ok=True)
                self._bytes -= self._sizes.pop(name)

    def _path(self, position: int, epoch: int) -> Path:
        return self.directory / f"{position:020}-{epoch:010}"
