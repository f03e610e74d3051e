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
        self._waiting: deque[tuple[pb.Envelope, bytes]] = deque()
        self._bytes = 0
        self._some = asyncio.Event()
        self._closed = False

    def close(self) -> None:
        """Nobody listens any more: what waits is not asked for."""
        self._closed = True
        self._some.set()

    def put(self, envelope: pb.Envelope, data: bytes | None = None) -> bool:
        """False if there is no room for it. `data` is the envelope, where it has come as bytes."""
        data = envelope.SerializeToString() if data is None else data
        full = self._bytes + len(data) > QUEUE_BYTES or len(self._waiting) >= QUEUE_LIMIT
        if full or len(data) > ENVELOPE_LIMIT:
            return False
        self._waiting.append((envelope, data))
        self._bytes += len(data)
        self._some.set()
        return True

    async def get(self) -> list[bytes]:
        """The next one, as the messages that it is sent in; none once it is closed."""
        while not self._waiting and not self._closed:
            self._some.clear()
            await self._some.wait()
        if self._closed:
            return []
        envelope, data = self._waiting.popleft()
        self._bytes -= len(data)
        return [data] if len(data) <= MESSAGE_LIMIT else list(_pieces(envelope, data))


def _pieces(envelope: pb.Envelope, data: bytes) -> Iterator[bytes]:
    for begin in range(0, len(data), PIECE_BYTES):
        end = begin + PIECE_BYTES
        piece = pb.Piece(data=data[begin:end], last=end >= len(data))
        yield pb.Envelope(sender=envelope.sender, to=envelope.to, piece=piece).SerializeToString()


class Assembly:
    """Messages that come on one stream, and pieces put together again."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._size = 0

    def take(self, data: bytes) -> tuple[pb.Envelope, bytes] | None:
        """The envelope that a message is or completes, and its bytes; None if more is to come."""
        message = _parsed(data)
        if message.WhichOneof("message") != "piece":
            if self._parts:
                self._parts, self._size = [], 0
                raise Malformed("piece", "is the last one of an envelope that did not end", "send it whole")
            return message, data
        self._size += len(message.piece.data)
        if self._size > ENVELOPE_LIMIT:
            self._parts, self._size = [], 0
            raise Malformed("piece", f"makes more than {ENVELOPE_LIMIT} bytes", "send smaller envelopes")
        self._parts.append(message.piece.data)
        if not message.piece.last:
            return None
        data, self._parts, self._size = b"".join(self._parts), [], 0
        whole = _parsed(data)
        if whole.sender != message.sender or whole.WhichOneof("message") == "piece":
            raise Malformed("piece", "makes an envelope of somebody else", "send it as it is")
        return whole, data


def _parsed(data: bytes) -> pb.Envelope:
    try:
        return pb.Envelope.FromString(data)
    except DecodeError as error:
        raise Malformed("envelope", f"cannot be read ({error})", "send one of this version") from error
