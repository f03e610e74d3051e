"""Batches of events as messages, and back."""

from __future__ import annotations

import numpy as np

from headwater.errors import InvalidEvents
from headwater.events import NO_MARK, Batch
from headwater.rows import TS_MAX
from headwater.sources import SourceId
from headwater_wire.arrays import coded, narrow, packed, viewed, width
from headwater_wire.errors import Malformed
from headwater_wire.v1 import events_pb2

EVENT_LIMIT = 100_000
# As many sources' keys are remembered.
SHARED = 4_096
_INT32 = np.iinfo(np.int32)


def encode(batch: Batch) -> events_pb2.Events:
    source = SourceId.of(batch.source)
    message = events_pb2.Events(
        source=source.name,
        incarnation=source.incarnation,
        first=batch.first,
        count=len(batch),
        value=packed(batch.value, "<f8"),
    )
    ts = batch.ts
    if len(ts) and _near(ts) and abs(int(ts[0])) <= TS_MAX + _INT32.min:
        # Against one time, not against the one before: to add is faster than to add up.
        message.ts_offsets.first = int(ts[0])
        message.ts_offsets.int32 = packed(ts - ts[0], "<i4")
    else:
        message.ts_int64 = packed(ts, "<i8")
    if batch.key is not None:
        message.key = narrow(batch.key, len(batch.keys))
        message.keys.extend(batch.keys)
    if batch.mark is not None:
        message.mark = narrow(batch.mark + 1, len(batch.marks) + 1)
        message.marks.extend(batch.marks)
    if batch.bare is not None:
        message.bare = np.packbits(batch.bare, bitorder="little").tobytes()
    return message


def _near(ts: np.ndarray[tuple[int, ...], np.dtype[np.int64]]) -> bool:
    """Whether every time is an int32 away from the first one."""
    return int(ts.max()) - int(ts.min()) <= _INT32.max


# The keys of each source's last message: most have those of the one before, and whoever has looked at them
# need not look again if they are the same object.
_keys: dict[str, tuple[str, ...]] = {}


def _shared(source: str, keys: tuple[str, ...]) -> tuple[str, ...]:
    held = _keys.get(source)
    if held == keys:
        return held
    if len(_keys) >= SHARED:
        _keys.clear()
    _keys[source] = keys
    return keys


def decode(message: events_pb2.Events) -> Batch:
    count = message.count
    if not 1 <= count <= EVENT_LIMIT:
        raise Malformed("count", f"is {count}", f"send 1 to {EVENT_LIMIT} events a message")
    if message.first < 1 or message.first + count > 1 << 63:
        raise Malformed("first", f"is {message.first}", "records are numbered from 1")
    kind = message.WhichOneof("ts")
    if kind == "ts_offsets":
        begin, furthest = message.ts_offsets.first, -_INT32.min
        if not -TS_MAX + furthest <= begin <= TS_MAX - furthest:
            raise Malformed("ts_offsets.first", f"is {begin}", "send times so far out as int64")
        ts = viewed(message.ts_offsets.int32, "<i4", "ts_offsets.int32", count) + np.int64(begin)
    else:
        ts = viewed(message.ts_int64, "<i8", "ts_int64", count)
    key = mark = bare = None
    if len(message.keys) > EVENT_LIMIT or len(message.marks) > EVENT_LIMIT:
        raise Malformed("keys", f"are {len(message.keys)}", f"send at most {EVENT_LIMIT} a message")
    if message.key or message.keys:
        # As narrow as they came; whether all have a name, the batch looks.
        key = viewed(message.key, width(len(message.keys)), "key", count)
    if message.mark or message.marks:
        mark = coded(message.mark, len(message.marks) + 1, "mark", count) + NO_MARK
    if message.bare:
        if len(message.bare) != -(-count // 8):
            raise Malformed("bare", f"has {len(message.bare)} bytes", f"send {-(-count // 8)}")
        bare = np.unpackbits(np.frombuffer(message.bare, np.uint8), count=count, bitorder="little").view(bool)
    source = str(SourceId(message.source, message.incarnation))
    value = viewed(message.value, "<f8", "value", count)
    keys, marks = _shared(source, tuple(message.keys)), tuple(message.marks)
    try:
        return Batch(source, message.first, ts, value, key=key, keys=keys, mark=mark, marks=marks, bare=bare)
    except InvalidEvents as error:
        first = error.problems[0]
        raise Malformed(first.field, first.message, first.remedy) from error
