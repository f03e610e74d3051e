"""Segments: files of numbered records, as bytes.

A segment `<first number>.seg` is a header, then blocks. A block is what one fsync made durable, so nothing
but the last block of the last segment can be torn; anything else that does not read is damage. Every header
and block says by its CRC to which spool it belongs.
"""

from __future__ import annotations

import os
import struct
import zlib
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from headwater.errors import PermanentError
from headwater.events import Batch
from headwater.rows import Array

FORMAT = 1

_SEGMENT_MAGIC = b"HWSPOOL\n"
_BLOCK_MAGIC = b"HWBK"
# magic, format, id of the spool, first number; then the CRC of these.
_SEGMENT = struct.Struct("<8sI4x16sQ")
# magic, length of the payload, its CRC, rows, first number; then the CRC of these, begun with the spool's id.
_BLOCK = struct.Struct("<4sIIIQ4x")
_CRC = struct.Struct("<I")
CRC_SIZE = _CRC.size
SEGMENT_SIZE = _SEGMENT.size + CRC_SIZE
BLOCK_SIZE = _BLOCK.size + CRC_SIZE
# rows, keys, marks, which columns are there.
_COLUMNS = struct.Struct("<IIII")
_HAS_KEY, _HAS_MARK, _HAS_BARE = 1, 2, 4
# How far apart the places lie that a segment's index remembers.
_STRIDE = 64 << 10


class SpoolDamaged(PermanentError):
    """What was durable once does not read any more."""

    def __init__(self, file: Path, offset: int, what: str) -> None:
        self.file, self.offset = file, offset
        super().__init__(
            f"{file} at byte {offset}: {what}; restore the file, or move the whole directory away and begin "
            "a new spool (the root then reports what is lost)"
        )


@dataclass(slots=True)
class Segment:
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
class Block:
    """A block that was read."""

    segment: Segment
    next_offset: int
    batch: Batch


# Headers and blocks


def seed_of(id: str) -> int:
    """What the CRC of a block begins with, so that a block of another spool does not read."""
    return zlib.crc32(bytes.fromhex(id))


def header(id: str, first: int) -> bytes:
    """The beginning of a segment of the spool with that id."""
    return sealed(_SEGMENT.pack(_SEGMENT_MAGIC, FORMAT, bytes.fromhex(id), first), seed=0)


def first_of(data: bytes, id: str) -> int | None:
    """The first number that a segment's header names; None if it is no header of that spool."""
    if len(data) < SEGMENT_SIZE or not unbroken(data[:SEGMENT_SIZE], 0):
        return None
    magic, version, found, first = _SEGMENT.unpack_from(data)
    fits = magic == _SEGMENT_MAGIC and version == FORMAT and found == bytes.fromhex(id)
    return int(first) if fits else None


def block(batch: Batch, seed: int) -> bytes:
    payload = _encoded(batch)
    fields = (_BLOCK_MAGIC, len(payload), zlib.crc32(payload), len(batch), batch.first)
    return sealed(_BLOCK.pack(*fields), seed) + payload


def block_at(data: bytes, offset: int, seed: int) -> tuple[int, int, int]:
    """Size, rows and first number of the block that begins there; a size of 0 if none does."""
    header = data[offset : offset + BLOCK_SIZE]
    if len(header) < BLOCK_SIZE or not unbroken(header, seed):
        return 0, 0, 0
    magic, length, crc, rows, first = _BLOCK.unpack_from(header)
    payload = memoryview(data)[offset + BLOCK_SIZE : offset + BLOCK_SIZE + length]
    if magic != _BLOCK_MAGIC or len(payload) < length or zlib.crc32(payload) != crc:
        return 0, 0, 0
    return BLOCK_SIZE + length, rows, first


def any_block_behind(data: bytes, offset: int, seed: int) -> bool:
    """Whether a whole block follows: then the one before it was durable once."""
    while (offset := data.find(_BLOCK_MAGIC, offset + 1)) >= 0:
        if block_at(data, offset, seed)[0]:
            return True
    return False


def read_block(segment: Segment, offset: int, number: int, seed: int, source: str) -> Block:
    """The block with a durable record, looked for from the block at an offset on."""
    file = os.open(segment.path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        while True:
            header = os.pread(file, BLOCK_SIZE, offset)
            if len(header) < BLOCK_SIZE or not unbroken(header, seed):
                raise SpoolDamaged(segment.path, offset, "the header of a block has a wrong CRC")
            _, length, crc, rows, first = _BLOCK.unpack_from(header)
            following = offset + BLOCK_SIZE + length
            if number < first + rows:
                break
            offset = following
        payload = os.pread(file, length, offset + BLOCK_SIZE)
    finally:
        os.close(file)
    if zlib.crc32(payload) != crc:
        raise SpoolDamaged(segment.path, offset, "a block has a wrong CRC")
    return Block(segment, following, _decoded(source, first, payload))


# Bytes


def sealed(body: bytes, seed: int) -> bytes:
    return body + _CRC.pack(zlib.crc32(body, seed))


def unbroken(data: bytes, seed: int) -> bool:
    """Whether the CRC at the end is that of the rest."""
    return bool(_CRC.unpack_from(data, len(data) - _CRC.size)[0] == zlib.crc32(data[: -_CRC.size], seed))


def write(file: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(file, view) :]


def sync_directory(directory: Path) -> None:
    file = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(file)
    finally:
        os.close(file)


# Columns


def copied(batch: Batch) -> Batch:
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


def only_used(codes: Array | None, names: tuple[str, ...]) -> tuple[Array | None, tuple[str, ...]]:
    """Codes and names; of more names than rows only those that the rows use."""
    if codes is None:
        return None, ()
    if len(names) <= len(codes):
        return codes.astype(np.int32, copy=False), names
    used, places = np.unique(codes, return_inverse=True)
    absent = int(len(used) > 0 and used[0] < 0)
    found = tuple(names[code] for code in used[absent:].tolist())
    return (places - absent).astype(np.int32), found


def encoded_size(batch: Batch) -> int:
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


def cut_out(batch: Batch, low: int, high: int) -> Batch:
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


def within(batch: Batch, limit: int) -> Batch:
    """Rows from the first one on that take at most so many bytes, or the first one alone."""
    rows = len(batch)
    while encoded_size(batch) > limit:
        batch = cut_out(batch, 0, rows)
        batch.key, batch.keys = only_used(batch.key, batch.keys)
        batch.mark, batch.marks = only_used(batch.mark, batch.marks)
        if rows == 1:
            break
        rows = (rows + 1) // 2
    return batch


def joined(parts: Sequence[Batch]) -> Batch:
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
