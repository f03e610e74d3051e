"""A segment of the root's log: one file of control state and records. All numbers are little-endian.

    header    magic, 8 bytes; format version, u32; epoch, u64; first position, u64; position at which the
              snapshot holds, u64; length of the snapshot, u64; CRC-32 of the snapshot, u32;
              CRC-32 of the header up to here, u32
    snapshot  the control state, opaque here
    record    marker, 4 bytes; length of the payload, u32; position, u64; the committed position when it was
              written, u64; CRC-32 of length, position, committed position and payload, u32; payload

The marker lets a reader look for records behind one that is wrong; the committed position lets it say whether
that one had been committed.
"""

from __future__ import annotations

import mmap
import os
import re
import struct
from bisect import bisect_right
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO
from zlib import crc32

from headwater.errors import PermanentError
from headwater_root import files
from headwater_root.files import Damaged

FORMAT = 1
# The largest payload; a length beyond it is no length.
RECORD_BOUND = 64 * 2**20
# Positions and epochs stay below these: no log comes to so many, and both fit into names and numbers.
POSITIONS, EPOCHS = 2**63, 10**10 - 1
# How far apart the records lie whose offsets are kept.
STRIDE = 256 * 2**10

_MAGIC = b"HWLOG\r\n\x1a"
_MARKER = b"\xf5HWr"
# The first two fields of the header are the same in every format.
_VERSION = struct.Struct("<8sI")
_HEADER = struct.Struct("<8sIQQQQI")
_CRC = struct.Struct("<I")
_RECORD = struct.Struct("<4sIQQI")
_CHECKED = struct.Struct("<IQQ")
_NAME = re.compile(r"\d{20}-\d{10}\.log")


class LogDamaged(Damaged):
    """A committed record, a header or a snapshot that cannot be read."""

    def __init__(self, path: Path, offset: int, what: str) -> None:
        super().__init__(path, offset, what, "restore the directory from a copy, whole")


class NewerFormat(PermanentError):
    """A log of a later release."""

    def __init__(self, path: Path, found: int, known: int) -> None:
        self.found, self.known = found, known
        super().__init__(
            f"{path}: written in format {found}, but this release reads up to format {known}; "
            "start the release that wrote it, or a later one"
        )


class RecordTooLarge(PermanentError):
    """A payload beyond the bound: nothing of its group was appended."""

    def __init__(self, size: int) -> None:
        super().__init__(
            f"a record of {size} bytes; the log takes up to {RECORD_BOUND}, so send smaller ones"
        )


class Segment:
    """One file: where its records begin, how far they reach, and the offsets of some of them."""

    def __init__(self, path: Path, first: int, epoch: int, begin: int, snapshot_position: int) -> None:
        self.path, self.first, self.epoch, self.begin = path, first, epoch, begin
        self.snapshot_position = snapshot_position
        self.size = begin
        # None while records are still appended.
        self.last: int | None = None
        self._positions, self._offsets = [first], [begin]

    @classmethod
    def create(
        cls, directory: Path, version: int, epoch: int, first: int, snapshot_position: int, snapshot: bytes
    ) -> Segment:
        """Write a segment without records, durably."""
        path = directory / _name(first, epoch)
        head = _HEADER.pack(_MAGIC, version, epoch, first, snapshot_position, len(snapshot), crc32(snapshot))
        data = head + _CRC.pack(crc32(head)) + snapshot
        files.replace(path, data, "root.segment")
        return cls(path, first, epoch, len(data), snapshot_position)

    @classmethod
    def load(cls, path: Path, known: int) -> Segment:
        """Read header and snapshot; the records are not looked at."""
        with path.open("rb") as file:
            head = file.read(_HEADER.size)
            if len(head) < _VERSION.size or not head.startswith(_MAGIC):
                raise LogDamaged(path, 0, "this is no segment of a log")
            if (version := _VERSION.unpack_from(head)[1]) > known:
                raise NewerFormat(path, version, known)
            if len(head) < _HEADER.size or file.read(_CRC.size) != _CRC.pack(crc32(head)):
                raise LogDamaged(path, 0, "the header has a wrong checksum")
            _, _, epoch, first, snapshot_position, length, crc = _HEADER.unpack(head)
            if not 0 < first < POSITIONS or epoch >= EPOCHS:
                raise LogDamaged(path, 0, f"no log has a position {first} or an epoch {epoch}")
            if path.name != _name(first, epoch):
                raise LogDamaged(path, 0, f"the header is that of position {first} and epoch {epoch}")
            start = file.tell()
            if start + length > os.fstat(file.fileno()).st_size or crc32(file.read(length)) != crc:
                raise LogDamaged(path, start, "the snapshot has a wrong checksum")
            return cls(path, first, epoch, start + length, snapshot_position)

    @property
    def snapshot(self) -> bytes:
        """The control state, read from the file."""
        with self.path.open("rb") as file:
            start = file.seek(_HEADER.size + _CRC.size)
            return file.read(self.begin - start)

    def add(self, position: int, length: int) -> None:
        """Note a record at the end."""
        if self.size - self._offsets[-1] >= STRIDE:
            # In this order: a reader in another thread finds a place by the positions.
            self._offsets.append(self.size)
            self._positions.append(position)
        self.size += _RECORD.size + length

    def records(self, file: BinaryIO, position: int) -> Iterator[bytes]:
        """The payloads from a position on; the first record that is wrong or incomplete raises."""
        place = bisect_right(self._positions, position) - 1
        offset = file.seek(self._offsets[place])
        for passed in range(self._positions[place], position):
            length, _, _ = self._head(file, passed, offset)
            offset = file.seek(offset + _RECORD.size + length)
        while True:
            length, committed, crc = self._head(file, position, offset)
            payload = file.read(length)
            if len(payload) < length:
                raise LogDamaged(self.path, offset, f"record {position} is incomplete")
            if crc != _checksum(position, committed, payload):
                raise LogDamaged(self.path, offset, f"record {position} has a wrong checksum")
            yield payload
            offset += _RECORD.size + length
            position += 1

    def committed_later(self, file: BinaryIO, position: int) -> bool:
        """Whether a whole record beyond `size` says that a position was committed when it was written.

        That there are whole records proves nothing: pages that were never synced reach the disk in any order.
        """
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            at = data.find(_MARKER, self.size)
            while 0 <= at <= len(data) - _RECORD.size:
                _, length, later, committed, crc = _RECORD.unpack_from(data, at)
                begin = at + _RECORD.size
                if (
                    position <= committed < later
                    and length <= min(RECORD_BOUND, len(data) - begin)
                    and crc == _checksum(later, committed, data[begin : begin + length])
                ):
                    return True
                at = data.find(_MARKER, at + 1)
            return False

    def _head(self, file: BinaryIO, position: int, offset: int) -> tuple[int, int, int]:
        head = file.read(_RECORD.size)
        if len(head) < _RECORD.size:
            what = "is incomplete" if head else "is missing"
            raise LogDamaged(self.path, offset, f"record {position} {what}")
        marker, length, found, committed, crc = _RECORD.unpack(head)
        if marker != _MARKER or found != position or length > RECORD_BOUND:
            raise LogDamaged(self.path, offset, f"record {position} does not begin here")
        return length, committed, crc


def listed(directory: Path, known: int) -> list[Segment]:
    """The segments of a directory, in the order of their first positions, then of their epochs."""
    paths = sorted(path for path in directory.iterdir() if _NAME.fullmatch(path.name))
    return [Segment.load(path, known) for path in paths]


def framed(position: int, committed: int, payload: bytes) -> tuple[bytes, bytes]:
    """A record: what stands before its payload, and the payload."""
    if len(payload) > RECORD_BOUND:
        raise RecordTooLarge(len(payload))
    crc = _checksum(position, committed, payload)
    return _RECORD.pack(_MARKER, len(payload), position, committed, crc), payload


def _name(first: int, epoch: int) -> str:
    return f"{first:020}-{epoch:010}.log"


def _checksum(position: int, committed: int, payload: bytes) -> int:
    return crc32(payload, crc32(_CHECKED.pack(len(payload), position, committed)))
