"""Envelopes on their way out of a party, and large ones in pieces.

A message is at most `MESSAGE_LIMIT` bytes, so that no receiver has to make room for more than that at once;
an envelope that is larger comes as pieces, one behind the other, up to `ENVELOPE_LIMIT` in all.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator

from google.protobuf.message import DecodeError

from headwater_wire.errors import Malformed
from headwater_wire.v1 import tree_pb2 as pb

MESSAGE_LIMIT = 1 << 20
PIECE_BYTES = 1_000_000
ENVELOPE_LIMIT = 64 << 20
# What may wait on one stream: bytes, and envelopes however small.
QUEUE_BYTES, QUEUE_LIMIT = 96 << 20, 16_384


class Outgoing:
    """What waits to be written on one stream, bounded. Whoever says something says it again if it is lost."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[pb.Envelope, int]] = deque()
        self._bytes = 0
        self._some = asyncio.Event()

    def put(self, envelope: pb.Envelope) -> bool:
        """False if there is no room for it."""
        size = envelope.ByteSize()
        if size > ENVELOPE_LIMIT or self._bytes + size > QUEUE_BYTES or len(self._waiting) >= QUEUE_LIMIT:
            return False
        self._waiting.append((envelope, size))
        self._bytes += size
        self._some.set()
        return True

    async def get(self) -> tuple[pb.Envelope, int]:
        """The next one and its size."""
        while not self._waiting:
            self._some.clear()
            await self._some.wait()
        envelope, size = self._waiting.popleft()
        self._bytes -= size
        return envelope, size


def messages(envelope: pb.Envelope, size: int) -> Iterator[pb.Envelope]:
    """An envelope as messages that are small enough: itself, or pieces of it."""
    if size <= MESSAGE_LIMIT:
        yield envelope
        return
    data = envelope.SerializeToString()
    for begin in range(0, len(data), PIECE_BYTES):
        end = begin + PIECE_BYTES
        piece = pb.Piece(data=data[begin:end], last=end >= len(data))
        yield pb.Envelope(sender=envelope.sender, to=envelope.to, piece=piece)


class Assembly:
    """Pieces that come on one stream, put together again."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._size = 0

    def take(self, message: pb.Envelope) -> pb.Envelope | None:
        """The envelope that a message is or completes; None if more is to come."""
        if message.WhichOneof("message") != "piece":
            if self._parts:
                self._parts, self._size = [], 0
                raise Malformed("piece", "is the last one of an envelope that did not end", "send it whole")
            return message
        self._size += len(message.piece.data)
        if self._size > ENVELOPE_LIMIT:
            self._parts, self._size = [], 0
            raise Malformed("piece", f"makes more than {ENVELOPE_LIMIT} bytes", "send smaller envelopes")
        self._parts.append(message.piece.data)
        if not message.piece.last:
            return None
        data, self._parts, self._size = b"".join(self._parts), [], 0
        try:
            whole = pb.Envelope.FromString(data)
        except DecodeError as error:
            raise Malformed("piece", f"makes no envelope ({error})", "send it again") from error
        if whole.sender != message.sender or whole.WhichOneof("message") == "piece":
            raise Malformed("piece", "makes an envelope of somebody else", "send it as it is")
        return whole
