"""What a partial is of: whether its vector can be, and its events can be of that."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from headwater.errors import InvalidPartial
from headwater.groups.soundness import Extent, check_ints
from headwater.partials import Partial, Span
from headwater.progress import Source
from headwater.rows import TS_MIN, Rows
from headwater.windows import TS_LIMIT


def extent(partial: Partial, sources: Mapping[str, Source]) -> Extent:
    """What a partial is of; raises if it is of something that cannot be."""
    vector = partial.vector
    if len(partial.sources) != len(vector) or set(partial.sources.values()) != vector.keys():
        said = f"are {len(partial.sources)} for a vector of {len(vector)}"
        raise InvalidPartial("sources", said, "send each source of the vector once")
    for name, span in vector.items():
        if (problem := span.problem()) is not None:
            raise InvalidPartial("vector", f"{problem}, of {name!r}", "send what was read")
    high = max((span.high.largest for span in vector.values()), default=TS_MIN)
    if partial.largest > high or (TS_MIN < partial.largest < -TS_LIMIT):
        said = f"is {partial.largest}, but the sources have come to {high}"
        raise InvalidPartial("largest", said, "send the largest time of an event")
    return Extent(
        np.array(list(partial.sources), np.int64),
        sum(span.records for span in vector.values()),
        min((_since(sources[name], span) for name, span in vector.items()), default=-TS_LIMIT),
        partial.largest,
    )


def check_rows(rows: Rows, partial: Partial, sources: Mapping[str, Source]) -> None:
    """Raise if events that are forwarded cannot be among those of the partial."""
    name = partial.sources.get(rows.source) if isinstance(rows.source, int) else None
    if name is None:
        raise InvalidPartial("events.source", "is not in the partial", "name each source of the partial")
    span, size = partial.vector[name], len(rows.ts)
    check_ints("events.ts", rows.ts, size, _since(sources[name], span), partial.largest)
    if rows.value.dtype != np.float64 or rows.value.shape != (size,) or not np.isfinite(rows.value).all():
        raise InvalidPartial("events.value", "is no finite number for each", f"send {size} numbers")
    if rows.in_order and (rows.ts[1:] < rows.ts[:-1]).any():
        raise InvalidPartial("events.ts", "falls in events that are in order", "say that they are not")
    first, last = span.low.position + 1, span.high.position
    if not isinstance(rows.seq, int):
        check_ints("events.seq", rows.seq, size, first, last)
    elif not first <= rows.seq <= last - size + 1:
        said = f"is {rows.seq} for {size} events"
        raise InvalidPartial("events.seq", said, f"send numbers from {first} to {last}")
    if rows.codes is not None:
        check_ints("events.key", rows.codes, size, 0, len(partial.keys) - 1)


def _since(source: Source, span: Span) -> int:
    """Before this time no event of a span lies: it would have been late."""
    return min(max(span.low.largest - source.lateness, -TS_LIMIT), TS_LIMIT)
