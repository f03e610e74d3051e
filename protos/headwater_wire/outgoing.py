"""Envelopes on their way out of a party, and large ones in pieces.

A message is at most `MESSAGE_LIMIT` bytes, so that no receiver has to make room for more than that at once;
an envelope that is larger comes as pieces, one behind the other, up to `ENVELOPE_LIMIT` in all. What a party
holds of envelopes that are not complete yet is bounded over all of its streams.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator

from google.protobuf.message import DecodeError

from headwater_wire.errors import Malformed, NoRoom
from headwater_wire.v1 import tree_pb2 as pb

MESSAGE_LIMIT = 1 << 20
PIECE_BYTES = 1_000_000
ENVELOPE_LIMIT = 64 << 20
# What may wait on one stream: bytes, and envelopes however small.
QUEUE_BYTES, QUEUE_LIMIT = 96 << 20, 16_384
# What may lie in assemblies, over all streams: four of the largest, or hundreds of the usual ones.
ASSEMBLED_BYTES = 4 * ENVELOPE_LIMIT


class Outgoing:
    """What waits to be written on one stream, bounded. Whoever says something says it again if it is lost."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[pb.Envelope, bytes]] = deque()
        self._bytes = self._reader = 0
        self._some = asyncio.Event()

    def put(self, envelope: pb.Envelope, data: bytes) -> bool:
        """Send an envelope, given as its bytes too; False if there is no room for it."""
        if self._bytes + len(data) > QUEUE_BYTES or len(self._waiting) >= QUEUE_LIMIT:
            return False
        self._waiting.append((envelope, data))
        self._bytes += len(data)
        self._some.set()
        return True

    def turn(self) -> int:
        """Let another stream read, which gives this number; the one before gets nothing more."""
        self._reader += 1
        self._some.set()
        return self._reader

    async def get(self, reader: int = 0) -> list[bytes]:
        """The next one, as the messages that it is sent in; nothing for a stream that is over."""
        while not self._waiting and reader == self._reader:
            self._some.clear()
            await self._some.wait()
        if reader != self._reader:
            return []
        envelope, data = self._waiting.popleft()
        self._bytes -= len(data)
        return [data] if len(data) <= MESSAGE_LIMIT else list(_pieces(envelope, data))


def _pieces(envelope: pb.Envelope, data: bytes) -> Iterator[bytes]:
    for begin in range(0, len(data), PIECE_BYTES):
        end = begin + PIECE_BYTES
        piece = pb.Piece(data=data[begin:end], last=end >= len(data))
        yield pb.Envelope(sender=envelope.sender, to=envelope.to, piece=piece).SerializeToString()


class Assemblies:
    """The envelopes of one party that are not complete yet, over all streams."""

    def __init__(self, limit: int = ASSEMBLED_BYTES) -> None:
        self.limit, self.bytes = limit, 0

    def assembly(self) -> Assembly:
        """For one stream."""
        return Assembly(self)


class Assembly:
    """Pieces that come on one stream, put together again."""

    def __init__(self, shared: Assemblies) -> None:
        self._shared = shared
        self._held = bytearray()
        # Whether the rest of an envelope is passed over, because there was no room for it.
        self._passing = False

    def take(self, message: pb.Envelope, data: bytes) -> tuple[pb.Envelope, bytes] | None:
        """The envelope that a message is or completes, and its bytes; None if more is to come."""
        if message.WhichOneof("message") != "piece":
            self._passing = False
            if self._held:
                self.close()
                raise Malformed("piece", "is the last one of an envelope that did not end", "send it whole")
            return message, data
        piece = message.piece
        if self._passing:
            self._passing = not piece.last
            return None
        if wrong := self._no_room(len(piece.data)):
            self.close()
            self._passing = not piece.last
            raise wrong
        # One row of bytes: many small pieces take no more room than a few large ones.
        self._held += piece.data
        self._shared.bytes += len(piece.data)
        if not piece.last:
            return None
        whole = bytes(self._held)
        self.close()
        envelope = parsed(whole)
        if envelope.sender != message.sender or envelope.WhichOneof("message") == "piece":
            raise Malformed("piece", "makes an envelope of somebody else", "send it as it is")
        return envelope, whole

    def _no_room(self, more: int) -> Malformed | None:
        if len(self._held) + more > ENVELOPE_LIMIT:
            return Malformed("piece", f"makes more than {ENVELOPE_LIMIT} bytes", "send smaller envelopes")
        if self._shared.bytes + more > self._shared.limit:
            held = f"comes while {self._shared.bytes} bytes of others are not complete"
            return NoRoom("piece", held, "send it again later")
        return None

    def close(self) -> None:
        """Let go of what is held; the stream may be over."""
        self._shared.bytes -= len(self._held)
        self._held = bytearray()


def parsed(data: bytes) -> pb.Envelope:
    """A message as it was sent."""
    try:
        return pb.Envelope.FromString(data)
    except DecodeError as error:
        raise Malformed("envelope", f"cannot be read ({error})", "send one of this version") from error
