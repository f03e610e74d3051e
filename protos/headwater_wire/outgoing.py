"""Envelopes on their way out of a party, and large ones in pieces.

A message is at most `MESSAGE_LIMIT` bytes, so that no receiver has to make room for more than that at once.
An envelope that is larger than `PIECE_BYTES` comes as pieces, one behind the other, up to `ENVELOPE_LIMIT`
in all: gRPC takes a message whole, and on a slow link no sign of life would come past a large one in time.
What a party holds of envelopes that are not complete yet is bounded over all of its streams.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from google.protobuf.message import DecodeError

from headwater_wire.errors import Malformed, NoRoom
from headwater_wire.v1 import tree_pb2 as pb

MESSAGE_LIMIT = 1 << 20
PIECE_BYTES = 48 << 10
ENVELOPE_LIMIT = 64 << 20
# What may wait on one stream: bytes, and envelopes however small.
QUEUE_BYTES, QUEUE_LIMIT = 96 << 20, 16_384
# What may lie in assemblies, over all streams: four of the largest, or hundreds of the usual ones.
ASSEMBLED_BYTES = 4 * ENVELOPE_LIMIT


class Outgoing:
    """What waits to be written on one stream, bounded. Whoever says something says it again if it is lost.

    What waits here is not lost: records or a batch that are said again take the place of what waits, or a
    link that is slower than they are repeated would carry nothing else.
    """

    def __init__(self, *, whole: bool = False) -> None:
        """`whole`: nothing is sent in pieces."""
        self._whole = whole
        # By what makes a repetition known, in the order in which they are sent.
        self._waiting: dict[tuple[object, ...], tuple[pb.Envelope, bytes]] = {}
        self._writing: tuple[tuple[object, ...], bytes] | None = None
        self._bytes = self._reader = self._others = 0
        self._some = asyncio.Event()

    def put(self, envelope: pb.Envelope, data: bytes) -> bool:
        """Send an envelope, given as its bytes too; False if there is no room for it."""
        key = self._key(envelope)
        if self._writing == (key, data):
            return True
        before = len(self._waiting[key][1]) if key in self._waiting else 0
        if self._bytes + len(data) - before > QUEUE_BYTES or len(self._waiting) >= QUEUE_LIMIT:
            return False
        self._waiting[key] = (envelope, data)
        self._bytes += len(data) - before
        self._some.set()
        return True

    def _key(self, envelope: pb.Envelope) -> tuple[object, ...]:
        kind = envelope.WhichOneof("message")
        if kind == "delivery":
            return envelope.sender, envelope.to, kind, envelope.delivery.id
        if kind == "columns":
            return envelope.sender, envelope.to, kind, envelope.columns.id
        # A probe bears the id of the one before and may say less: it takes no other's place.
        self._others += 1
        return (self._others,)

    def turn(self) -> int:
        """Let another stream read, which gives this number; the one before gets nothing more."""
        self._reader += 1
        # What was being written may have got lost with the stream.
        self._writing = None
        self._some.set()
        return self._reader

    async def get(self, reader: int = 0) -> list[bytes]:
        """The next one, as the messages that it is sent in; nothing for a stream that is over."""
        if reader == self._reader:
            # Whoever comes back for more has written it.
            self._writing = None
        while not self._waiting and reader == self._reader:
            self._some.clear()
            await self._some.wait()
        if reader != self._reader:
            return []
        key = next(iter(self._waiting))
        envelope, data = self._waiting.pop(key)
        self._writing = (key, data)
        self._bytes -= len(data)
        return [data] if self._whole or len(data) <= PIECE_BYTES else list(_pieces(envelope, data))


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
