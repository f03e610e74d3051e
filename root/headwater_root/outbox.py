"""The outbox: results as files, from which every sink reads at its own pace.

A file is named `<position>-<epoch>`: the first position of the log that its results are of, and the epoch of
the writer. A replay makes the same bytes; where they are there, of whatever epoch, nothing is written. Other
bytes, of a later release for one, get a name with the later epoch, and the file of the highest epoch counts.
The bytes are those of `resultlines`; nothing here looks into them.

`trimmed` holds the position up to which results were dropped, because every sink has them. It is durable
before the first file goes: a replay writes nothing up to there, so nothing is delivered that was.

One process writes a directory, the one that holds the log. Errors of the volume are raised as they are:
a write that raised has either not happened or can be repeated.
"""

from __future__ import annotations

import errno
import logging
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TypeAlias

from headwater.errors import PermanentError, RetryableError
from headwater_root import files
from headwater_root.files import Damaged

# By another name, since the outbox has a property `bytes`.
Rows: TypeAlias = bytes

log = logging.getLogger(__name__)
BOUND = 2**30
_NAME = re.compile(r"(\d{20})-(\d{10})")
_TRIMMED = "trimmed"
# No position has more.
_DIGITS = 20


class OutboxStopped(RetryableError):
    """The volume failed: results that are final cannot be kept, so nothing more is acknowledged."""

    def __init__(self, path: Path, error: OSError) -> None:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        super().__init__(
            f"{path}: writing results failed ({error.strerror or error}); "
            f"{'make room on the volume' if full else 'see to the volume'} and start the root again"
        )


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
        self._trimmed = self._found_trimmed()
        # By position: the size of the file of each epoch.
        self._sizes: dict[int, dict[int, int]] = {}
        for path in self.directory.iterdir():
            if match := _NAME.fullmatch(path.name):
                self._sizes.setdefault(int(match[1]), {})[int(match[2])] = path.stat().st_size
        # Of a trim that came to no end some files may be left, and not the last ones.
        self._last = max([self._trimmed, *self._sizes])
        self._bytes = sum(sum(sizes.values()) for sizes in self._sizes.values())
        # What is left of a trim that came to no end.
        self._drop(self._trimmed)

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
        """The highest position that has a file or had one; 0 if none had."""
        return self._last

    @property
    def trimmed(self) -> int:
        """The position up to which results are gone for good; 0 if none are."""
        return self._trimmed

    def write(self, position: int, epoch: int, rows: Rows) -> None:
        """Keep the results of the log from a position on, durably; the same ones again change nothing."""
        path = self._path(position, epoch)
        with self._lock:
            if position <= self._trimmed:
                return
            sizes = self._sizes.get(position, {})
            if sizes:
                known = self._path(position, max(sizes))
                if known.read_bytes() == rows:
                    # Its name may not be durable yet, if the process died before that.
                    files.sync_directory(self.directory)
                    return
                if epoch in sizes:
                    raise NotTheSame(path)
                log.warning("the same part of the log gave other results before", extra={"path": str(known)})
            try:
                files.replace(path, rows, "root.outbox")
            except OSError as error:
                raise OutboxStopped(path, error) from error
            self._sizes.setdefault(position, {})[epoch] = len(rows)
            self._last = max(self._last, position)
            self._bytes += len(rows)

    def read(self, after: int) -> Iterator[tuple[int, Rows]]:
        """The results behind a position, in order, as far as there are any now."""
        with self._lock:
            newest = sorted(
                (position, max(sizes)) for position, sizes in self._sizes.items() if position > after
            )
        for position, epoch in newest:
            path = self._path(position, epoch)
            try:
                rows = path.read_bytes()
            except FileNotFoundError:
                what = "the file is gone, though not every reader was beyond it"
                raise Damaged(path, 0, what, "put it back") from None
            yield position, rows

    def trim(self, upto: int) -> None:
        """Drop the results up to and with a position: every sink has delivered them."""
        with self._lock:
            upto = max((position for position in self._sizes if position <= upto), default=0)
            if upto:
                files.replace(self.directory / _TRIMMED, b"%d\n" % upto)
                self._trimmed = upto
                self._drop(upto)

    def shrink(self) -> None:
        """At the bound, drop the oldest results until an eighth is free: for an outbox that nobody reads."""
        if not self.full:
            return
        with self._lock:
            upto, left = 0, self._bytes
            for position in sorted(self._sizes):
                if left <= self.bound - self.bound // 8:
                    break
                upto, left = position, left - sum(self._sizes[position].values())
        self.trim(upto)

    def _drop(self, upto: int) -> None:
        for position in sorted(position for position in self._sizes if position <= upto):
            for epoch in list(self._sizes[position]):
                self._path(position, epoch).unlink(missing_ok=True)
                self._bytes -= self._sizes[position].pop(epoch)
            del self._sizes[position]

    def _found_trimmed(self) -> int:
        path = self.directory / _TRIMMED
        try:
            found = path.read_bytes().strip()
        except FileNotFoundError:
            return 0
        if not found.isdigit() or len(found) > _DIGITS:
            remedy = "put it back, or remove it: sinks pass over what they have"
            raise Damaged(path, 0, f"{found[:20]!r} is no position", remedy)
        return int(found)

    def _path(self, position: int, epoch: int) -> Path:
        return self.directory / f"{position:020}-{epoch:010}"
