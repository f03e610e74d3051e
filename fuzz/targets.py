"""What the fuzzer feeds: each target takes bytes, and raises only where that is a finding.

- `decoder`: an envelope is read, and no more.
- `messages`: envelopes of somebody below, read and given to a real root, intermediate or child.
- `log`: files of the root's log as they might be found, with checksums that are right.
- `raw_log`: the same, with the checksums that are in the bytes.
- `snapshot`: the state with which a segment opens.
- `outbox`: files of results, and of how far they were dropped.
"""

from __future__ import annotations

import pickletools
import shutil
import struct
import tempfile
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from zlib import crc32

import numpy as np

from fuzz.parties import QUERIES, node_machine, root_machine
from headwater.machines.lanes import shared
from headwater.machines.messages import Send
from headwater.machines.node import NodeMachine
from headwater.machines.root import RootMachine
from headwater.machines.terms import BehindTheTree
from headwater.prefix import Prefix
from headwater_root import resultlines, segments
from headwater_root.files import Damaged
from headwater_root.log import Log
from headwater_root.outbox import Outbox
from headwater_root.snapshots import _HEAD, Snapshots, Unreadable
from headwater_wire import records
from headwater_wire.errors import Malformed
from headwater_wire.messages import Codec
from headwater_wire.outgoing import parsed

CODEC = Codec()
SNAPSHOTS = Snapshots(QUERIES, lambda name: None, shared)
ROLES = ("root", "intermediate", "child")
# Files of the fuzzer's go where writing them costs nothing, if there is such a place.
_MEMORY = Path("/dev/shm")
_LENGTH = struct.Struct("<H")
# More than real ones, fewer than would only take time.
MESSAGES = 12
# What is appended to a log that could be opened.
MORE = b"more"

np.seterr(over="ignore", invalid="ignore")


def chunks(data: bytes) -> Iterator[bytes]:
    """Pieces with two bytes of length before each; the last one may be shorter than it says."""
    while len(data) > _LENGTH.size:
        (length,) = _LENGTH.unpack_from(data)
        yield data[_LENGTH.size : _LENGTH.size + length]
        data = data[_LENGTH.size + length :]


def joined(pieces: list[bytes]) -> bytes:
    """The other way round."""
    return b"".join(_LENGTH.pack(len(piece)) + piece for piece in pieces if len(piece) < 1 << 16)


# Messages


def decoder(data: bytes) -> None:
    """One envelope; what can be read can be said again, and is the same then."""
    try:
        envelope = parsed(data)
        message = CODEC.decode(envelope)
    except Malformed:
        return
    again = CODEC.encode(envelope.sender, envelope.to, message)
    assert type(CODEC.decode(again)) is type(message)


def messages(data: bytes) -> None:
    """The first byte says who gets them; then envelopes."""
    if not data:
        return
    role = ROLES[data[0] % len(ROLES)]
    machine: RootMachine | NodeMachine
    if role == "root":
        machine = root_machine()
    else:
        machine = node_machine(_prefixes(), child=role == "child")
    for now, piece in enumerate(chunks(data[1:]), 2):
        if now > MESSAGES:
            break
        try:
            envelope = parsed(piece)
            message = CODEC.decode(envelope)
        except Malformed:
            continue
        # In the name of those above nobody below can speak.
        if envelope.sender in ("root", "i"):
            continue
        try:
            _say(machine.step(envelope.sender, message, now * 1_000))
            _say(machine.commit() if isinstance(machine, RootMachine) else machine.flush(now * 1_000))
        except BehindTheTree:
            # A root that is told by a node of the tree that it has lost something stops, loudly (rule 17).
            return
    _say(machine.tick(1_000_000))


@cache
def _prefixes() -> dict[str, Prefix]:
    """Where the root stands with the sources at first."""
    return {name: source.prefix for name, source in root_machine().engine.sources.items()}


def _say(sends: list[Send]) -> None:
    """What is answered can be sent."""
    for each in sends:
        CODEC.encode("x", each.to, each.message).SerializeToString()


# Files


def raw_log(data: bytes) -> None:
    """Pieces: the epoch, the proof of what is committed, then segments."""
    _log(list(chunks(data)))


def log(data: bytes) -> None:
    """The same, after the checksums were made right, as far as there is anything that has one."""
    pieces = list(chunks(data))
    _log(pieces[:2] + [mended(piece) for piece in pieces[2:]])


def _log(pieces: list[bytes]) -> None:
    epoch, proof, *held = [*pieces, b"", b""][: max(len(pieces), 2)]
    directory = _directory()
    try:
        if epoch:
            (directory / "epoch").write_bytes(epoch)
        if proof:
            (directory / "committed").write_bytes(proof)
        for place, piece in enumerate(held[:4]):
            (directory / _named(piece, place)).write_bytes(piece)
        before = _read(directory)
        if before is not None and _opens_again(directory):
            # Whoever opens it again finds the same, and what was appended.
            assert _read(directory) == [*before, MORE]
    finally:
        shutil.rmtree(directory)


def _opens_again(directory: Path) -> bool:
    """Whether there is an epoch left: each opening takes one, and at their end the log is refused."""
    return int((directory / "epoch").read_bytes().split()[0]) + 1 < segments.EPOCHS


def _read(directory: Path) -> list[bytes] | None:
    """What the log says, and that it can be gone on with; None if it is damaged."""
    try:
        opened = Log.open(directory)
    except (Damaged, segments.NewerFormat):
        return None
    with opened:
        found = [payload for _, payload in opened.read(opened.first - 1)]
        assert len(found) == opened.committed - opened.first + 1
        for payload in found:
            try:
                records.decode(payload, CODEC)
            except Malformed:
                continue
        snapshot(opened.snapshot[1])
        opened.append([MORE])
        opened.sync()
    return found


def _named(segment: bytes, place: int) -> str:
    """As its header says, so that it is looked at."""
    if len(segment) < segments._HEADER.size:
        return f"{place + 1:020}-{1:010}.log"
    _, _, epoch, first, *_ = segments._HEADER.unpack_from(segment)
    return segments._name(first, epoch)


def mended(segment: bytes) -> bytes:
    """A segment whose checksums are right, of the header, the snapshot and each record that begins."""
    header, crc, record = segments._HEADER, segments._CRC, segments._RECORD
    if len(segment) < header.size + crc.size:
        return segment
    magic, version, epoch, first, at, length, _ = header.unpack_from(segment)
    begin = header.size + crc.size
    length = min(length, len(segment) - begin)
    head = header.pack(magic, version, epoch, first, at, length, crc32(segment[begin : begin + length]))
    data = bytearray(head + crc.pack(crc32(head)) + segment[begin:])
    place = begin + length
    while place + record.size <= len(data):
        marker, size, position, committed, _ = record.unpack_from(data, place)
        payload = bytes(data[place + record.size : place + record.size + size])
        if marker != segments._MARKER or len(payload) < size:
            break
        checked = segments._checksum(position, committed, payload)
        record.pack_into(data, place, marker, size, position, committed, checked)
        place += record.size + size
    return bytes(data)


def snapshot(data: bytes) -> None:
    if _puts(data):
        return
    try:
        SNAPSHOTS.decode(data)
    except Unreadable:
        return


def _puts(data: bytes) -> bool:
    """Whether a pickle chooses the places of its memo itself: Python then makes room up to the highest one.
    No snapshot that was ever written does so, and whoever could change it and its checksum has the disk."""
    try:
        _, _, length = _HEAD.unpack_from(data)
        return any("PUT" in op.name for op, _, _ in pickletools.genops(data[_HEAD.size + length :]))
    except Exception:
        # Up to what cannot be read: a place may have been chosen before that.
        return any(put in data for put in (b"p", b"q", b"r"))


def outbox(data: bytes) -> None:
    """Pieces: how far results were dropped, then files of results."""
    trimmed, *held = [*chunks(data)] or [b""]
    directory = _directory()
    try:
        if trimmed:
            (directory / "trimmed").write_bytes(trimmed)
        for place, piece in enumerate(held[:8]):
            (directory / f"{place + 1:020}-{1:010}").write_bytes(piece)
        try:
            opened = Outbox(directory)
        except Damaged:
            return
        for _, lines in opened.read(0):
            try:
                for row in resultlines.decode(lines):
                    assert isinstance(row, dict)
            except resultlines.NoResults:
                continue
    finally:
        shutil.rmtree(directory)


def _directory() -> Path:
    return Path(tempfile.mkdtemp(dir=_MEMORY if _MEMORY.is_dir() else None))


TARGETS: dict[str, Callable[[bytes], None]] = {
    each.__name__: each for each in (decoder, messages, log, raw_log, snapshot, outbox)
}
