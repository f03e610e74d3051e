"""The root's log: one numbering of records, committed in groups, held by one writer (protocol, rules 16, 17).

A directory holds

- `<first position>-<epoch>.log`, the segments (`segments`): control state, then records;
- `epoch`, the number of openings so far in digits, and a random word, so that no two openings write the same:
  a writer that finds another one there than its own is fenced;
- `committed`, the last committed position and a CRC-32: written behind every fsync but not itself fsynced. It
  proves that a record was committed; where it is older or missing, less is proven and nothing is lost;
- `lock`, which the writer holds with flock.

Every opening writes segments of its own. So a writer that was fenced, on a volume where flock does not reach
it, can only add to files that its successor has finished with; a segment is read up to the first position of
the next one, and what stands behind that is never looked at.

A record that is wrong or incomplete was torn by a crash, and is cut together with all behind it, unless
something proves that it was committed: that is damage, and the log does not open.
"""

from __future__ import annotations

import errno
import fcntl
import os
import struct
import threading
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from types import TracebackType
from zlib import crc32

from headwater.errors import PermanentError, RetryableError
from headwater_root import files, segments
from headwater_root.files import Damaged
from headwater_root.segments import EPOCHS, FORMAT, LogDamaged, Segment
from headwater_wire import failpoints

# Appended bytes go to the operating system from here on, so that a group does not lie in memory twice: with
# the next append, since a record that could not be applied is the last one and must not come back.
SPILL = 4 * 2**20

_PROOF = struct.Struct("<QI")


class LogHeld(RetryableError):
    """Another writer has the log open."""

    def __init__(self, directory: Path) -> None:
        super().__init__(
            f"{directory}: another process has this log open; one root at a time writes it, "
            "so stop the other one or give this one a directory of its own"
        )


class Fenced(PermanentError):
    """A later opening has taken over: what was not committed before is not acknowledged."""

    def __init__(self, directory: Path, mine: int, found: int) -> None:
        self.mine, self.found = mine, found
        super().__init__(
            f"{directory}: opened again with epoch {found} while this writer has epoch {mine}; "
            "it must exit, the later one goes on"
        )


class LogStopped(RetryableError):
    """The volume failed: nothing after the committed position counts until the log is opened again."""

    def __init__(self, directory: Path, doing: str, error: OSError, committed: int | None = None) -> None:
        self.committed = committed
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        kept = "" if committed is None else f"records up to {committed} are safe, later ones were not taken; "
        super().__init__(
            f"{directory}: {doing} failed ({error.strerror or error}); {kept}"
            f"{'make room on the volume' if full else 'see to the volume'} and start the root again"
        )


class LogTruncated(PermanentError):
    """A position that was asked for but is gone."""

    def __init__(self, directory: Path, wanted: int, first: int) -> None:
        self.wanted, self.first = wanted, first
        super().__init__(
            f"{directory}: record {wanted} was asked for, but the log begins with {first}; "
            "whoever reads from before that must begin with the snapshot"
        )


class LogClosed(PermanentError):
    """A write to a log that was closed."""

    def __init__(self, directory: Path) -> None:
        super().__init__(f"{directory}: the log was closed; open it again")


class Log:
    """An append-only log in a directory.

    `append` and `sync` may be called from several threads: what is appended during a sync waits for the
    next one. `read` sees committed records only and may run in any thread beside them. `roll` belongs to the
    thread that appends, since the snapshot must be the state after the last appended record.
    """

    def __init__(self, directory: Path, lock: int, format_version: int) -> None:
        self.directory, self.format_version = directory, format_version
        self._lock = lock
        # Held in this order. The first is for what commits, the second for what appends.
        self._committing, self._appending = threading.Lock(), threading.RLock()
        self._segments: tuple[Segment, ...] = ()
        self._pending: list[bytes] = []
        self._pending_bytes = 0
        self._failure: PermanentError | RetryableError | None = None
        self._active: int | None = None
        self._committed = self._end = self._committed_size = 0
        self.torn = 0

        # Looked at first: a release that must refuse the log takes it from nobody.
        before = segments.listed(directory, format_version)
        self.epoch = max([self._found_epoch()[0], *(segment.epoch for segment in before)]) + 1
        self._signature = f"{self.epoch} {os.urandom(8).hex()}\n".encode()
        files.replace(directory / "epoch", self._signature)
        self._mark: tuple[int, int] | None = None
        self._fence()
        # Only now: what a writer has acknowledged before it saw the new epoch is in the files by then.
        self._proof = os.open(directory / "committed", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            self._committed = self._end = self._load()
        except BaseException:
            os.close(self._proof)
            raise

    @classmethod
    def open(cls, directory: Path | str, *, format_version: int = FORMAT) -> Log:
        """Take the lock, raise the epoch, check every record and cut a torn tail."""
        directory = Path(directory)
        try:
            files.make_directory(directory)
            lock = os.open(directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            try:
                _hold(lock, directory)
                files.sweep(directory)
                return cls(directory, lock, format_version)
            except BaseException:
                os.close(lock)
                raise
        except OSError as error:
            raise LogStopped(directory, "opening the log", error) from error

    # What is there

    @property
    def first(self) -> int:
        """The first position that can be read, or the next one to be given if there is none."""
        held = self._segments
        return held[0].first if held else self._end + 1

    @property
    def committed(self) -> int:
        """The last position that is durable; 0 before the first."""
        return self._committed

    @property
    def end(self) -> int:
        """The last position that was given; what is beyond `committed` may still be lost."""
        return self._end

    @property
    def size(self) -> int:
        """Bytes of all segments, with what is appended and not yet committed."""
        return sum(segment.size for segment in self._segments)

    @property
    def tail_size(self) -> int:
        """Bytes of the records behind the newest snapshot, by which a caller decides when to roll."""
        held = self._segments
        reached = held[-1].snapshot_position if held else 0
        return sum(segment.size - segment.begin for segment in held if segment.first > reached)

    @property
    def snapshot(self) -> tuple[int, bytes]:
        """The control state of the newest segment and the position at which it held; (0, b"") at first."""
        if not self._segments:
            return 0, b""
        segment = self._segments[-1]
        return segment.snapshot_position, segment.snapshot

    @property
    def overtaken(self) -> bool:
        """Whether a later opening has taken over; may be asked in any thread."""
        return self._found_epoch()[1] != self._signature

    def read(self, after: int) -> Iterator[tuple[int, bytes]]:
        """The committed records behind a position, in order, up to the last one at the time it is reached."""
        position = after + 1
        while position <= self._committed:
            held = self._segments
            if position < held[0].first:
                raise LogTruncated(self.directory, position, held[0].first)
            # The last one of those that begin there: the ones before it are empty.
            segment = held[bisect_right(held, position, key=lambda segment: segment.first) - 1]
            try:
                file = segment.path.open("rb")
            except FileNotFoundError:
                raise LogTruncated(self.directory, position, self.first) from None
            with file:
                records = segment.records(file, position)
                while position <= self._limit(segment):
                    yield position, next(records)
                    position += 1

    def _limit(self, segment: Segment) -> int:
        # In this order: a segment without a last record after the look at `committed` holds all up to there.
        committed = self._committed
        last = segment.last
        return committed if last is None else min(committed, last)

    # Writing

    def append(self, payloads: Sequence[bytes]) -> range:
        """Give each payload a position; they count once `sync` has returned.

        Whoever appends more, or syncs, has applied what was appended before.
        """
        with self._appending:
            self._check()
            first = self._end + 1
            framed = [
                segments.framed(position, self._committed, payload)
                for position, payload in enumerate(payloads, first)
            ]
            if self._pending_bytes >= SPILL:
                self._spill()
            if self._active is None:
                self._begin(*self._kept())
            for head, payload in framed:
                self._end += 1
                self._pending += (head, payload)
                self._pending_bytes += len(payload)
                self._segments[-1].add(self._end, len(payload))
            return range(first, self._end + 1)

    def sync(self) -> int:
        """Commit all that is appended, with one fsync, and return the committed position."""
        with self._committing:
            return self._sync()

    def roll(self, snapshot: bytes) -> None:
        """Commit, then begin a segment with the control state as it is after the last record."""
        with self._committing, self._appending:
            self._sync()
            self._begin(self._end, snapshot)
            self._fence()

    def truncate(self, before: int) -> None:
        """Drop the old segments that end before a position; never what the newest snapshot does not cover."""
        with self._committing, self._appending:
            self._check()
            self._fence()
            # One by one, the oldest first: whenever it stops, what is left has no gap.
            while self.can_truncate(before):
                gone = self._segments[0]
                self._segments = self._segments[1:]
                try:
                    gone.path.unlink()
                    files.sync_directory(self.directory)
                except OSError as error:
                    raise self._stop("dropping a segment", error) from error

    def can_truncate(self, before: int) -> bool:
        """Whether there is a segment to be dropped."""
        held = self._segments
        return len(held) > 1 and held[1].first <= min(before, held[-1].snapshot_position + 1)

    def check(self) -> None:
        """Raise if the log takes no more from here: another opening has taken over, or the volume has
        failed."""
        with self._committing:
            self._check()
            self._fence()

    def close(self) -> None:
        """Let go of the log; what was appended and not synced is dropped."""
        with self._committing, self._appending:
            if isinstance(self._failure, LogClosed):
                return
            failed, self._failure = self._failure, LogClosed(self.directory)
            self._pending.clear()
            try:
                if failed is None:
                    self._cut()
            finally:
                for descriptor in (self._active, self._proof, self._lock):
                    if descriptor is not None:
                        os.close(descriptor)
                self._active = None

    def __enter__(self) -> Log:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _sync(self) -> int:
        with self._appending:
            self._check()
            self._fence()
            self._spill()
            active, end = self._active, self._end
            size = self._segments[-1].size if self._segments else 0
        if active is None or end == self._committed:
            return self._committed
        failpoints.reached("root.written")
        try:
            os.fsync(active)
        except OSError as error:
            # Never once more: the kernel may have dropped the pages and would call the next one a success.
            raise self._stop("fsync", error) from error
        with self._appending:
            # A write beside the fsync may have failed, and cut the tail.
            self._check()
            # And again: a successor that has raised the epoch since may have read the segment too early.
            self._fence()
            self._committed, self._committed_size = end, size
        self._prove()
        return end

    def _spill(self) -> None:
        if not self._pending:
            return
        assert self._active is not None
        data = b"".join(self._pending)
        self._pending.clear()
        self._pending_bytes = 0
        try:
            files.write_all(self._active, data)
        except OSError as error:
            raise self._stop("writing", error) from error

    def _kept(self) -> tuple[int, bytes]:
        """The snapshot of the opening before, with which this one begins if it is given no other."""
        try:
            return self.snapshot
        except OSError as error:
            raise self._stop("reading the snapshot", error) from error

    def _begin(self, snapshot_position: int, snapshot: bytes) -> None:
        """Go on in a new segment; everything in the one before is committed."""
        try:
            segment = Segment.create(
                self.directory, self.format_version, self.epoch, self._end + 1, snapshot_position, snapshot
            )
            active = os.open(segment.path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        except OSError as error:
            raise self._stop("beginning a segment", error) from error
        if self._active is not None:
            os.close(self._active)
        self._active = active
        self._committed_size = segment.size
        # A segment without records gives its name to the one that is begun at the same position.
        before = tuple(known for known in self._segments if known.path != segment.path)
        if before:
            before[-1].last = self._end
        self._segments = (*before, segment)

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _fence(self) -> None:
        try:
            mark = _identity(self.directory / "epoch")
            if mark == self._mark:
                return
            found, signature = self._found_epoch()
        except OSError as error:
            raise self._stop("looking at the epoch", error) from error
        if signature != self._signature:
            # The successor may have taken over what is appended here, so the tail is left alone.
            self._failure = Fenced(self.directory, self.epoch, found)
            raise self._failure
        self._mark = mark

    def _stop(self, doing: str, error: OSError) -> LogStopped:
        """Accept nothing more, and leave no tail that looks as if it had been written."""
        with self._appending:
            stopped = LogStopped(self.directory, doing, error, self._committed)
            self._failure = stopped
            self._pending.clear()
            self._cut()
            return stopped

    def _cut(self) -> None:
        """Let nothing stand behind what is committed, unless a successor may have taken it over."""
        if self._active is None:
            return
        self._end, self._segments[-1].size = self._committed, self._committed_size
        with suppress(OSError, Damaged):
            if self._found_epoch()[1] == self._signature:
                os.ftruncate(self._active, self._committed_size)

    def _prove(self) -> None:
        number = _PROOF.pack(self._committed, crc32(_PROOF.pack(self._committed, 0)))
        # The commit holds without it.
        with suppress(OSError):
            os.pwrite(self._proof, number, 0)

    # Opening

    def _found_epoch(self) -> tuple[int, bytes]:
        path = self.directory / "epoch"
        try:
            text = path.read_bytes()
        except FileNotFoundError:
            return 0, b""
        number = text.split(maxsplit=1)[:1]
        # Long ones are not even looked at: Python takes its time to read thousands of digits.
        if not number or not number[0].isdigit() or len(number[0]) > 20 or int(number[0]) >= EPOCHS:
            raise LogDamaged(path, 0, f"{text[:20]!r} is no epoch")
        return int(number[0]), text

    def _load(self) -> int:
        """Read every record; the last position, from which this writer goes on."""
        # Once more, and after the epoch was raised.
        held = segments.listed(self.directory, self.format_version)
        for segment, following in pairwise(held):
            self._verify(segment, following)
        proven = self._proven()
        if not held and proven:
            raise LogDamaged(self.directory, 0, f"there is no segment, but record {proven} was committed")
        end = self._recover(held[-1], proven) if held else 0
        self._segments = tuple(held)
        return end

    def _verify(self, segment: Segment, following: Segment) -> None:
        if following.epoch < segment.epoch:
            raise LogDamaged(following.path, 0, f"follows a segment of the later epoch {segment.epoch}")
        segment.last = following.first - 1
        with segment.path.open("rb") as file:
            records = segment.records(file, segment.first)
            for position in range(segment.first, following.first):
                segment.add(position, len(next(records)))

    def _recover(self, segment: Segment, proven: int) -> int:
        """Read the newest segment up to a torn tail, and cut that; its last position."""
        unproven, position = segment.begin, segment.first
        with segment.path.open("rb") as file:
            try:
                for payload in segment.records(file, position):
                    segment.add(position, len(payload))
                    if position <= proven:
                        unproven = segment.size
                    position += 1
            except LogDamaged as wrong:
                found = os.fstat(file.fileno()).st_size
                if position <= proven or segment.committed_later(file, position):
                    what = f"{wrong.what}, and it was committed"
                    raise LogDamaged(wrong.path, wrong.offset, what) from None
                self.torn = found - segment.size
            file.seek(unproven)
            rest = file.read(segment.size - unproven)
        segment.last = position - 1
        with files.opened(segment.path, os.O_WRONLY) as descriptor:
            os.ftruncate(descriptor, segment.size)
            # Written again, because the pages of a failed fsync look clean and would not reach the disk.
            os.lseek(descriptor, unproven, os.SEEK_SET)
            files.write_all(descriptor, rest)
            os.fsync(descriptor)
        return segment.last

    def _proven(self) -> int:
        found = os.pread(self._proof, _PROOF.size, 0)
        if len(found) < _PROOF.size:
            return 0
        position, crc = _PROOF.unpack(found)
        return int(position) if crc == crc32(_PROOF.pack(position, 0)) else 0


def _hold(lock: int, directory: Path) -> None:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise LogHeld(directory) from None


def _identity(path: Path) -> tuple[int, int]:
    """What changes whenever a file is replaced; needs no descriptor, and so none to be free."""
    found = path.stat()
    return found.st_ino, found.st_ctime_ns
