"""The spool: a source's events on disk, from the moment they are accepted until the root has counted them.

A directory holds

- `lock`, held by flock as long as a process has the spool open;
- `state`, two slots that are overwritten in turn, so that it changes without needing space on the disk;
- segments `<first number>.seg`: a header, then blocks. A block is what one fsync made durable, so nothing
  but the last block of the last segment can be torn; anything else that does not read is damage.

One caller at a time: the spool has no lock between threads.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import secrets
import struct
import zlib
from bisect import bisect_right
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn

import numpy as np

from headwater.errors import (
    HeadwaterError,
    InvalidEvents,
    InvalidSource,
    PermanentError,
    Problem,
    RetryableError,
)
from headwater.events import Batch
from headwater.rows import Array

FORMAT = 1
SEGMENT_BYTES = 8 << 20
# Beyond this a group is written before it grows further, and one call may not bring more than twice as much.
GROUP_BYTES = 4 << 20
BLOCK_LIMIT = 2 * GROUP_BYTES
SMALLEST_LIMIT = 64 << 10
ID_BYTES = 16

_SEGMENT_MAGIC = b"HWSPOOL\n"
_BLOCK_MAGIC = b"HWBK"
# magic, format, id of the spool, first number; then the CRC of these.
_SEGMENT = struct.Struct("<8sI4x16sQ")
# magic, length of the payload, its CRC, rows, first number; then the CRC of these, begun with the spool's id.
_BLOCK = struct.Struct("<4sIIIQ4x")
_CRC = struct.Struct("<I")
_SEGMENT_SIZE = _SEGMENT.size + _CRC.size
_BLOCK_SIZE = _BLOCK.size + _CRC.size
# rows, keys, marks, which columns are there.
_COLUMNS = struct.Struct("<IIII")
_HAS_KEY, _HAS_MARK, _HAS_BARE = 1, 2, 4
# A slot of its own page and sector: a torn write of one leaves the other whole.
_SLOT_SIZE = 4_096
# How far apart the places lie that a segment's index remembers.
_STRIDE = 64 << 10
_NO_SPACE = (errno.ENOSPC, errno.EDQUOT)


class SpoolFull(RetryableError):
    """There is no room. `withdrawn` are the numbers given since the last sync; they are free again."""

    def __init__(self, why: str, withdrawn: range = range(0)) -> None:
        self.withdrawn = withdrawn
        lost = ""
        if withdrawn:
            lost = f"; records {withdrawn[0]} to {withdrawn[-1]} were not accepted, append them again"
        super().__init__(
            f"the spool is full ({why}){lost}; wait until the root has counted more, or give the spool "
            "more room"
        )


class SpoolLocked(RetryableError):
    """Another process has the spool open."""

    def __init__(self, directory: Path) -> None:
        super().__init__(
            f"the spool in {directory} is open already; end the process that has it, or use another directory"
        )


class SpoolDamaged(PermanentError):
    """What was durable once does not read any more."""

    def __init__(self, file: Path, offset: int, what: str) -> None:
        self.file, self.offset = file, offset
        super().__init__(
            f"{file} at byte {offset}: {what}; restore the file, or move the whole directory away and begin "
            "a new spool (the root then reports what is lost)"
        )


class SpoolTrimmed(PermanentError):
    """Records that were counted for good and are gone."""

    def __init__(self, after: int, base: int) -> None:
        self.after, self.base = after, base
        super().__init__(
            f"record {after + 1} is asked for, but records up to {base} are trimmed; read after {base} or "
            "later"
        )


class SpoolClosed(HeadwaterError):
    """The spool was closed, or a disk error left it in an unknown state."""

    def __init__(self) -> None:
        super().__init__("the spool is closed, or its disk failed; open it again")


@dataclass(slots=True)
class _Segment:
    """A file of blocks: its first number, where its last block ends, and some places to begin reading."""

    path: Path
    first: int
    end: int
    numbers: list[int] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)

    def remember(self, number: int, offset: int) -> None:
        if not self.offsets or offset >= self.offsets[-1] + _STRIDE:
            self.numbers.append(number)
            self.offsets.append(offset)

    def place(self, number: int) -> int:
        """An offset of a block at or before the record of that number."""
        return self.offsets[bisect_right(self.numbers, number) - 1]


@dataclass(frozen=True, slots=True)
class _Block:
    """A block that was read."""

    segment: _Segment
    next_offset: int
    batch: Batch


@dataclass(frozen=True, slots=True)
class _State:
    """What stands in `state`."""

    id: str
    base: int
    # At least so far records were durable when this was written.
    head: int
    # The head found at the oldest opening that is not confirmed; None if the last one is.
    unconfirmed: int | None


class Spool:
    """Numbered records of one source, accepted when they are fsynced (protocol, rules 1 to 3)."""

    def __init__(
        self,
        directory: Path,
        lock: int,
        *,
        source: str,
        limit_bytes: int,
        segment_bytes: int,
        token: Callable[[int], str],
    ) -> None:
        """Use `Spool.open`."""
        self.directory, self.source, self.limit_bytes = directory, source, limit_bytes
        self._segment_bytes = segment_bytes
        self._lock: int | None = lock
        self._file: int | None = None
        self._torn = False
        self._pending: list[Batch] = []
        self._pending_bytes = 0
        self._last: _Block | None = None
        self._segments: list[_Segment] = []
        self._slots = _Slots(directory / "state")
        try:
            self._start(token)
        except OSError as error:
            self._release()
            if error.errno in _NO_SPACE:
                raise SpoolFull(str(error)) from error
            raise
        except BaseException:
            self._release()
            raise

    @classmethod
    def open(
        cls,
        directory: str | os.PathLike[str],
        *,
        limit_bytes: int,
        source: str = "source",
        segment_bytes: int | None = None,
        token: Callable[[int], str] = secrets.token_hex,
    ) -> Spool:
        """The spool in a directory, made if there is none; what a crash tore is cut off.

        `source` is the name in the batches that are read. `token(n)` gives n random bytes as hex.
        """
        problems = []
        if limit_bytes < SMALLEST_LIMIT:
            problems.append(Problem("limit_bytes", f"is {limit_bytes}", f"give at least {SMALLEST_LIMIT}"))
        if not source:
            problems.append(Problem("source", "is empty", "give the name of the source"))
        if problems:
            raise InvalidSource("the spool cannot be opened", problems)
        path = Path(directory)
        path.mkdir(parents=True, exist_ok=True)
        lock = os.open(path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            raise SpoolLocked(path) from None
        return cls(
            path,
            lock,
            source=source,
            limit_bytes=limit_bytes,
            # Several, or trimming could not make room.
            segment_bytes=min(segment_bytes or SEGMENT_BYTES, limit_bytes // 8),
            token=token,
        )

    def __enter__(self) -> Spool:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Sync and let go of the directory; the second time nothing happens."""
        if self._file is None:
            return
        try:
            self.sync()
            if self._state.head < self.head:
                self._write_state()
        finally:
            self._release()

    @property
    def id(self) -> str:
        """Drawn once, when the spool was made."""
        return self._state.id

    @property
    def opened_at(self) -> int:
        """The head found at the oldest opening that the root has not confirmed, else at this one."""
        unconfirmed = self._state.unconfirmed
        return self._found if unconfirmed is None else unconfirmed

    @property
    def confirmed(self) -> bool:
        """Whether the root knows this opening: nothing is sent before."""
        return self._state.unconfirmed is None

    @property
    def base(self) -> int:
        """Records up to this number are trimmed."""
        return self._segments[0].first - 1

    @property
    def size(self) -> int:
        """Bytes of all segments."""
        return sum(segment.end for segment in self._segments)

    @property
    def pending(self) -> int:
        """Records that were appended and are not durable yet."""
        return sum(map(len, self._pending))

    def append(
        self,
        ts: Any,
        value: Any,
        *,
        key: Any = None,
        keys: Sequence[str] = (),
        mark: Any = None,
        marks: Sequence[str] = (),
        bare: Any = None,
        sync: bool = True,
    ) -> range:
        """Number these records; with `sync` they are accepted, without it once `sync` was called.

        A refusal for want of room in the spool leaves what was appended before as it is.
        """
        self._writable()
        first = self.head + self.pending + 1
        batch = Batch(self.source, first, ts, value, key=key, keys=keys, mark=mark, marks=marks, bare=bare)
        batch.key, batch.keys = _used(batch.key, batch.keys)
        batch.mark, batch.marks = _used(batch.mark, batch.marks)
        if not sync:
            # The caller may use its arrays again before they are written.
            batch = _copied(batch)
        if not len(batch):
            if sync:
                self.sync()
            return range(first, first)
        size = _BLOCK_SIZE + _encoded_size(batch)
        if size > min(BLOCK_LIMIT, self.limit_bytes // 2):
            raise InvalidEvents(
                "the records cannot be appended",
                [Problem("columns", f"take {size} bytes", "append fewer rows at a time")],
            )
        needed = self.size + self._pending_bytes + size + _SEGMENT_SIZE
        if needed > self.limit_bytes:
            raise SpoolFull(f"{needed} bytes are needed and {self.limit_bytes} allowed")
        if self._pending and self._pending_bytes + size > GROUP_BYTES:
            self.sync()
        self._pending.append(batch)
        self._pending_bytes += size
        if sync:
            self.sync()
        return range(first, first + len(batch))

    def sync(self) -> int:
        """Make durable what was appended; gives the head. What a full disk refuses is withdrawn whole."""
        file = self._writable()
        if not self._pending:
            return self.head
        batch = _joined(self._pending)
        payload = _encoded(batch)
        data = _sealed(
            _BLOCK.pack(_BLOCK_MAGIC, len(payload), zlib.crc32(payload), len(batch), batch.first), self._seed
        )
        try:
            if self._torn:
                self._cut(file)
            segment = self._segments[-1]
            if segment.end > _SEGMENT_SIZE and segment.end + len(data) + len(payload) > self._segment_bytes:
                segment = self._roll()
                file = self._writable()
            self._torn = True
            os.lseek(file, segment.end, os.SEEK_SET)
            _write(file, data + payload)
            os.fsync(file)
            self._torn = False
        except OSError as error:
            self._withdraw(error)
        segment.remember(batch.first, segment.end)
        segment.end += len(data) + len(payload)
        self.head += len(batch)
        self._forget_pending()
        return self.head

    def read(self, after: int, limit: int) -> Batch | None:
        """At most `limit` durable records from number `after + 1` on, or None if there are none."""
        if self._file is None:
            raise SpoolClosed
        if after < self.base:
            raise SpoolTrimmed(after, self.base)
        parts: list[Batch] = []
        number = after + 1
        while limit > 0 and number <= self.head:
            block = self._block_with(number)
            skipped = number - block.first
            part = block if not skipped and len(block) <= limit else _cut_out(block, skipped, skipped + limit)
            parts.append(part)
            number += len(part)
            limit -= len(part)
        return _joined(parts) if parts else None

    def trim(self, upto: int) -> int:
        """Drop whole segments whose records are all counted for good; gives the new base.

        The last segment goes too once it has grown, if nothing of it is needed.
        """
        self._writable()
        upto = min(upto, self.head)
        last = self._segments[-1]
        if upto == self.head and last.end > max(_SEGMENT_SIZE, self._segment_bytes // 2):
            # Without room for a new segment the old one is kept until there is.
            try:
                self._roll()
            except OSError as error:
                if error.errno not in _NO_SPACE:
                    self._release()
                    raise
        kept = bisect_right([segment.first for segment in self._segments], upto + 1) - 1
        if kept > 0:
            # First that they are gone: a crash may then leave any of them, and it is no gap.
            self._write_state(base=self._segments[kept].first - 1)
            gone, self._segments = self._segments[:kept], self._segments[kept:]
            for segment in gone:
                segment.path.unlink(missing_ok=True)
        return self.base

    def confirm(self, opening: str) -> None:
        """The root has logged this opening. Durable when it returns; nothing may be sent before.

        An opening that is not the present one says nothing: what it promised is over.
        """
        self._writable()
        if opening == self.opening and not self.confirmed:
            self._write_state(unconfirmed=None)

    # Opening

    def _start(self, token: Callable[[int], str]) -> None:
        paths = sorted(self.directory.glob("*.seg"))
        found = self._slots.read()
        if found is None:
            if paths:
                raise SpoolDamaged(self.directory / "state", 0, "segments are there, but no state that reads")
            found = _State(token(ID_BYTES), base=0, head=0, unconfirmed=None)
            self._slots.make(found)
            _sync_directory(self.directory)
        self._state = found
        self._seed = zlib.crc32(bytes.fromhex(found.id))
        self.head = found.base
        for place, path in enumerate(paths):
            self._load(path, last=place == len(paths) - 1)
        if not self._segments:
            if found.head:
                raise SpoolDamaged(
                    self.directory, 0, f"{found.head} records were durable, but no segment is there"
                )
            self._segments.append(self._create(1))
        last = self._segments[-1]
        if self.head < found.head:
            raise SpoolDamaged(
                last.path, last.end, f"it ends with record {self.head}, but {found.head} were durable"
            )
        if self._file is None:
            self._file = os.open(last.path, os.O_RDWR | os.O_CLOEXEC)
        # What a crashed process wrote without fsync reads like the rest, and must be as durable.
        self._cut(self._file)
        self.opening = token(ID_BYTES)
        self._found = self.head
        unconfirmed = found.unconfirmed
        self._write_state(unconfirmed=self.head if unconfirmed is None else unconfirmed)

    def _load(self, path: Path, *, last: bool) -> None:
        """Check a segment whole; cut the torn end of the last one."""
        data = path.read_bytes()
        if last and len(data) <= _SEGMENT_SIZE and not self._is_header(data):
            # A crash came while it was made; no block is written before its header is durable.
            path.unlink()
            return
        if not self._is_header(data):
            raise SpoolDamaged(path, 0, "the header is wrong, of another spool or of another format")
        first = _SEGMENT.unpack_from(data)[3]
        segment = _Segment(path, first, _SEGMENT_SIZE)
        if self._segments or first > self.head + 1:
            if first != self.head + 1:
                raise SpoolDamaged(path, 0, f"it begins with record {first}, but {self.head + 1} is next")
        else:
            self.head = first - 1
        while segment.end < len(data):
            size, rows = self._block_at(data, segment.end)
            if not size:
                if not last or self._any_block_behind(data, segment.end):
                    raise SpoolDamaged(path, segment.end, "a block has a wrong CRC, and it is not the last")
                break
            number = _BLOCK.unpack_from(data, segment.end)[4]
            if number != self.head + 1:
                raise SpoolDamaged(
                    path, segment.end, f"a block begins with {number} instead of {self.head + 1}"
                )
            segment.remember(number, segment.end)
            segment.end += size
            self.head += rows
        if self.head <= self._state.base and not last:
            # Trimmed, but the crash came before it was gone. Others like it may be gone already.
            path.unlink()
            self.head = self._state.base
            return
        self._segments.append(segment)

    def _is_header(self, data: bytes) -> bool:
        if len(data) < _SEGMENT_SIZE or not _unbroken(data[:_SEGMENT_SIZE], 0):
            return False
        magic, version, id, _ = _SEGMENT.unpack_from(data)
        return bool(magic == _SEGMENT_MAGIC and version == FORMAT and id == bytes.fromhex(self.id))

    def _block_at(self, data: bytes, offset: int) -> tuple[int, int]:
        """Size and rows of the block that begins there; a size of 0 if none does."""
        header = data[offset : offset + _BLOCK_SIZE]
        if len(header) < _BLOCK_SIZE or not _unbroken(header, self._seed):
            return 0, 0
        magic, length, crc, rows, _ = _BLOCK.unpack_from(header)
        payload = memoryview(data)[offset + _BLOCK_SIZE : offset + _BLOCK_SIZE + length]
        if magic != _BLOCK_MAGIC or len(payload) < length or zlib.crc32(payload) != crc:
            return 0, 0
        return _BLOCK_SIZE + length, rows

    def _any_block_behind(self, data: bytes, offset: int) -> bool:
        """Whether a whole block follows: then the one before it was durable once."""
        while (offset := data.find(_BLOCK_MAGIC, offset + 1)) >= 0:
            if self._block_at(data, offset)[0]:
                return True
        return False

    # Writing

    def _writable(self) -> int:
        if self._file is None:
            raise SpoolClosed
        return self._file

    def _cut(self, file: int) -> None:
        """Take away what stands behind the last durable block."""
        os.ftruncate(file, self._segments[-1].end)
        os.fsync(file)
        self._torn = False

    def _withdraw(self, error: OSError) -> NoReturn:
        """Nothing of the group is accepted; its numbers are free again."""
        withdrawn = range(self.head + 1, self.head + self.pending + 1)
        self._forget_pending()
        if error.errno not in _NO_SPACE:
            # After a failed fsync nobody knows what the disk holds; opening it again finds out.
            self._release()
            raise error
        if self._torn and self._file is not None:
            # At once if it can be done, so that a crash does not bring back what was refused.
            with suppress(OSError):
                self._cut(self._file)
        raise SpoolFull(str(error), withdrawn) from error

    def _forget_pending(self) -> None:
        self._pending, self._pending_bytes = [], 0

    def _roll(self) -> _Segment:
        """Begin a new segment behind the last one."""
        file = self._writable()
        if self._torn:
            self._cut(file)
        self._segments.append(self._create(self.head + 1))
        os.close(file)
        return self._segments[-1]

    def _create(self, first: int) -> _Segment:
        path = self.directory / f"{first:020d}.seg"
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
        try:
            _write(
                file, _sealed(_SEGMENT.pack(_SEGMENT_MAGIC, FORMAT, bytes.fromhex(self.id), first), seed=0)
            )
            os.fsync(file)
            _sync_directory(self.directory)
        except BaseException:
            os.close(file)
            with suppress(OSError):
                path.unlink()
            raise
        self._file = file
        return _Segment(path, first, _SEGMENT_SIZE)

    def _write_state(self, **changes: Any) -> None:
        state = replace(self._state, head=self.head, **changes)
        try:
            self._slots.write(state)
        except OSError as error:
            if error.errno in _NO_SPACE:
                raise SpoolFull(str(error)) from error
            raise
        self._state = state

    def _release(self) -> None:
        self._forget_pending()
        for file in (self._file, self._slots.file, self._lock):
            if file is not None:
                os.close(file)
        self._file = self._slots.file = self._lock = None

    # Reading

    def _block_with(self, number: int) -> Batch:
        """The block that holds a durable record."""
        last = self._last
        if last is not None and last.batch.first <= number < last.batch.first + len(last.batch):
            return last.batch
        segment = self._segments[bisect_right([segment.first for segment in self._segments], number) - 1]
        offset = segment.place(number)
        if last is not None and last.segment is segment and last.batch.first < number:
            offset = max(offset, last.next_offset)
        file = os.open(segment.path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            while True:
                header = os.pread(file, _BLOCK_SIZE, offset)
                if len(header) < _BLOCK_SIZE or not _unbroken(header, self._seed):
                    raise SpoolDamaged(segment.path, offset, "the header of a block has a wrong CRC")
                _, length, crc, rows, first = _BLOCK.unpack_from(header)
                following = offset + _BLOCK_SIZE + length
                if number < first + rows:
                    break
                offset = following
            payload = os.pread(file, length, offset + _BLOCK_SIZE)
        finally:
            os.close(file)
        if zlib.crc32(payload) != crc:
            raise SpoolDamaged(segment.path, offset, "a block has a wrong CRC")
        self._last = _Block(segment, following, _decoded(self.source, first, payload))
        return self._last.batch


class _Slots:
    """The state on disk: the newer of two slots that reads."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.file: int | None = None
        self._generation = 0

    def read(self) -> _State | None:
        """The state, or None if there is none."""
        with suppress(FileNotFoundError):
            self.file = os.open(self.path, os.O_RDWR | os.O_CLOEXEC)
        if self.file is None:
            return None
        found = None
        for slot in range(2):
            data = os.pread(self.file, _SLOT_SIZE, slot * _SLOT_SIZE)
            if len(data) < _SLOT_SIZE or not _unbroken(data, 0):
                continue
            content = json.loads(data[: -_CRC.size].rstrip(b"\0"))
            if content.pop("format") != FORMAT:
                raise SpoolDamaged(self.path, slot * _SLOT_SIZE, "it was written in another format")
            generation = content.pop("generation")
            if generation > self._generation:
                self._generation, found = generation, _State(**content)
        return found

    def make(self, state: _State) -> None:
        """A new file of two slots, whose blocks are taken on the disk from now on."""
        if self.file is None:
            self.file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        os.pwrite(self.file, bytes(2 * _SLOT_SIZE), 0)
        self.write(state)

    def write(self, state: _State) -> None:
        assert self.file is not None
        generation = self._generation + 1
        content = {"format": FORMAT, "generation": generation, **asdict(state)}
        body = json.dumps(content).encode().ljust(_SLOT_SIZE - _CRC.size, b"\0")
        os.pwrite(self.file, _sealed(body, seed=0), generation % 2 * _SLOT_SIZE)
        os.fsync(self.file)
        self._generation = generation


# Bytes


def _sealed(body: bytes, seed: int) -> bytes:
    return body + _CRC.pack(zlib.crc32(body, seed))


def _unbroken(data: bytes, seed: int) -> bool:
    """Whether the CRC at the end is that of the rest."""
    return bool(_CRC.unpack_from(data, len(data) - _CRC.size)[0] == zlib.crc32(data[: -_CRC.size], seed))


def _write(file: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(file, view) :]


def _sync_directory(directory: Path) -> None:
    file = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(file)
    finally:
        os.close(file)


# Columns


def _copied(batch: Batch) -> Batch:
    def copy(column: Array | None) -> Array | None:
        return None if column is None else column.copy()

    return Batch(
        batch.source,
        batch.first,
        batch.ts.copy(),
        batch.value.copy(),
        key=copy(batch.key),
        keys=batch.keys,
        mark=copy(batch.mark),
        marks=batch.marks,
        bare=copy(batch.bare),
    )


def _used(codes: Array | None, names: tuple[str, ...]) -> tuple[Array | None, tuple[str, ...]]:
    """Codes and names; of more names than rows only those that the rows use."""
    if codes is None:
        return None, ()
    if len(names) <= len(codes):
        return codes.astype(np.int32, copy=False), names
    used, places = np.unique(codes, return_inverse=True)
    absent = int(len(used) > 0 and used[0] < 0)
    found = tuple(names[code] for code in used[absent:].tolist())
    return (places - absent).astype(np.int32), found


def _encoded_size(batch: Batch) -> int:
    """At least the bytes of the encoded batch; what is joined is never larger than its parts together."""
    rows = len(batch)
    names = [*batch.keys, *batch.marks]
    return _COLUMNS.size + 25 * rows + sum(4 + (len(n) if n.isascii() else len(n.encode())) for n in names)


def _encoded(batch: Batch) -> bytes:
    flags = (
        (_HAS_KEY if batch.key is not None else 0)
        | (_HAS_MARK if batch.mark is not None else 0)
        | (_HAS_BARE if batch.bare is not None else 0)
    )
    parts = [
        _COLUMNS.pack(len(batch), len(batch.keys), len(batch.marks), flags),
        batch.ts.astype("<i8", copy=False).tobytes(),
        batch.value.astype("<f8", copy=False).tobytes(),
    ]
    parts += [
        codes.astype("<i4", copy=False).tobytes() for codes in (batch.key, batch.mark) if codes is not None
    ]
    names = [name.encode() for name in (*batch.keys, *batch.marks)]
    parts += [np.array([len(name) for name in names], "<u4").tobytes(), *names]
    if batch.bare is not None:
        parts.append(batch.bare.tobytes())
    return b"".join(parts)


def _decoded(source: str, first: int, payload: bytes) -> Batch:
    rows, n_keys, n_marks, flags = _COLUMNS.unpack_from(payload)
    offset = _COLUMNS.size

    def column(dtype: str, size: int = rows) -> Array:
        nonlocal offset
        found: Array = np.frombuffer(payload, dtype, size, offset)
        offset += found.nbytes
        return found

    ts, value = column("<i8"), column("<f8")
    key = column("<i4") if flags & _HAS_KEY else None
    mark = column("<i4") if flags & _HAS_MARK else None
    names = []
    for size in column("<u4", n_keys + n_marks).tolist():
        names.append(payload[offset : offset + size].decode())
        offset += size
    bare = column("?") if flags & _HAS_BARE else None
    keys, marks = tuple(names[:n_keys]), tuple(names[n_keys:])
    return Batch(source, first, ts, value, key=key, keys=keys, mark=mark, marks=marks, bare=bare)


def _cut_out(batch: Batch, low: int, high: int) -> Batch:
    def cut(column: Array | None) -> Array | None:
        return None if column is None else column[low:high]

    return Batch(
        batch.source,
        batch.first + low,
        batch.ts[low:high],
        batch.value[low:high],
        key=cut(batch.key),
        keys=batch.keys,
        mark=cut(batch.mark),
        marks=batch.marks,
        bare=cut(batch.bare),
    )


def _joined(parts: Sequence[Batch]) -> Batch:
    """Batches that follow each other as one."""
    if len(parts) == 1:
        return parts[0]
    key, keys = _joined_names([(len(part), part.key, part.keys) for part in parts], absent="")
    mark, marks = _joined_names([(len(part), part.mark, part.marks) for part in parts], absent=None)
    bare: Array | None = None
    if any(part.bare is not None for part in parts):
        bare = np.concatenate(
            [np.zeros(len(part), np.bool_) if part.bare is None else part.bare for part in parts]
        )
    return Batch(
        parts[0].source,
        parts[0].first,
        np.concatenate([part.ts for part in parts]),
        np.concatenate([part.value for part in parts]),
        key=key,
        keys=keys,
        mark=mark,
        marks=marks,
        bare=bare,
    )


def _joined_names(
    columns: Sequence[tuple[int, Array | None, tuple[str, ...]]], *, absent: str | None
) -> tuple[Array | None, tuple[str, ...]]:
    """Codes into one dictionary. A part without the column has `absent` in every row (None: no name)."""
    if all(codes is None for _, codes, _ in columns):
        return None, ()
    places: dict[str, int] = {}
    joined = []
    for rows, codes, names in columns:
        if codes is None:
            code = -1 if absent is None else places.setdefault(absent, len(places))
            joined.append(np.full(rows, code, np.int32))
            continue
        # The last place is what a code of -1 finds.
        lookup = np.array([*(places.setdefault(name, len(places)) for name in names), -1], np.int32)
        joined.append(lookup[codes])
    return np.concatenate(joined), tuple(places)
