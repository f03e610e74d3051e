"""Changes to envelopes that keep them readable: who flips bytes alone rarely comes past the reader."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

from google.protobuf.message import DecodeError, Message

from fuzz.targets import chunks, joined
from headwater_wire.v1 import tree_pb2 as pb

EXTREMES = (
    0,
    1,
    2,
    7,
    255,
    1_000,
    2**31 - 1,
    2**32,
    2**53,
    2**62,
    2**63 - 1,
    -1,
    -(2**31),
    -(2**62),
    -(2**63),
)
FLOATS = (0.0, -0.0, 1.5, 1e308, float("inf"), float("nan"), 5e-324)
NAMES = ("", "a", "b", "n", "i", "root", "k", "S", "E", "order", "opening a", "x\0", "\N{GRINNING FACE}")
_INTEGERS = {
    "int32": (-(2**31), 2**31),
    "sint32": (-(2**31), 2**31),
    "int64": (-(2**63), 2**63),
    "sint64": (-(2**63), 2**63),
    "uint32": (0, 2**32),
    "uint64": (0, 2**64),
    "enum": (0, 2**31),
}
Mutate = Callable[[bytes, int], bytes]


def mutated_envelope(data: bytes, size: int, seed: int, mutate: Mutate) -> bytes:
    """Another envelope."""
    rng = random.Random(seed)
    try:
        envelope = pb.Envelope.FromString(data)
    except DecodeError:
        return mutate(data, size)
    if rng.random() < 0.2:
        return mutate(data, size)
    for _ in range(rng.choice((1, 1, 2, 4))):
        _change(envelope, rng, mutate)
    found = envelope.SerializeToString()
    return found if len(found) <= size else mutate(data, size)


def mutated(data: bytes, size: int, seed: int, mutate: Mutate) -> bytes:
    """Another input of `messages`; `mutate` is the fuzzer's own way to change bytes."""
    rng = random.Random(seed)
    pieces = list(chunks(data[1:]))
    if not pieces or rng.random() < 0.2:
        return mutate(data, size)
    place, role = rng.randrange(len(pieces)), data[0]
    how = rng.random()
    if how < 0.1:
        role = rng.randrange(3)
    elif how < 0.2:
        del pieces[place]
    elif how < 0.3:
        pieces.insert(place, rng.choice(pieces))
    elif how < 0.4:
        other = rng.randrange(len(pieces))
        pieces[place], pieces[other] = pieces[other], pieces[place]
    else:
        pieces[place] = mutated_envelope(pieces[place], 1 << 15, seed, mutate)
    found = bytes([role]) + joined(pieces)
    return found if len(found) <= size else mutate(data, size)


def _fields(message: Any) -> Iterator[tuple[Any, Any]]:
    """Every field of a message and of those in it, set or not."""
    for field in message.DESCRIPTOR.fields:
        yield message, field
        if field.message_type is None or field.message_type.GetOptions().map_entry:
            continue
        if field.is_repeated:
            for each in getattr(message, field.name):
                yield from _fields(each)
        elif message.HasField(field.name):
            yield from _fields(getattr(message, field.name))


def _change(envelope: pb.Envelope, rng: random.Random, mutate: Mutate) -> None:
    message, field = rng.choice(list(_fields(envelope)))
    held = getattr(message, field.name)
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        held[rng.choice(NAMES)] = rng.choice((0, 3, 2**40))
    elif field.is_repeated:
        how = rng.random()
        if held and how < 0.4:
            del held[rng.randrange(len(held))]
        elif field.message_type is not None:
            fresh = held.add()
            if len(held) > 1:
                fresh.CopyFrom(held[rng.randrange(len(held) - 1)])
        else:
            held.append(_value(field, rng, mutate, held[0] if held else None))
    elif field.message_type is not None:
        if message.HasField(field.name) and rng.random() < 0.2:
            message.ClearField(field.name)
        elif isinstance(held, Message):
            held.SetInParent()
    else:
        setattr(message, field.name, _value(field, rng, mutate, held))


def _value(field: Any, rng: random.Random, mutate: Mutate, held: Any) -> Any:
    kind = _KINDS[field.type]
    if kind in _INTEGERS:
        low, high = _INTEGERS[kind]
        near = [held - 1, held + 1] if isinstance(held, int) else []
        return rng.choice([each for each in (*EXTREMES, *near) if low <= each < high])
    if kind in ("double", "float"):
        return rng.choice(FLOATS)
    if kind == "bool":
        return rng.random() < 0.5
    if kind == "string":
        return rng.choice((*NAMES, held or "", "x" * rng.choice((1, 300))))
    return _bytes(held or b"", rng, mutate)


def _bytes(held: bytes, rng: random.Random, mutate: Mutate) -> bytes:
    data, how = bytearray(held), rng.random()
    place = 8 * rng.randrange(max(len(data) // 8, 1))
    if how < 0.3:
        return mutate(held, len(held) + 16)
    if how < 0.6:
        data[place : place + 8] = rng.choice(EXTREMES[:-1]).to_bytes(8, "little", signed=True)
    elif how < 0.8:
        data = data[:place]
    else:
        data += data[place : place + 8] or bytes(8)
    return bytes(data)


def _kinds() -> dict[int, str]:
    from google.protobuf.descriptor import FieldDescriptor

    return {
        value: name.removeprefix("TYPE_").lower()
        for name, value in vars(FieldDescriptor).items()
        if name.startswith("TYPE_")
    }


_KINDS = _kinds()
