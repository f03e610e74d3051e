"""What buckets have made final, on its way to the outbox: lines of results, and what they are ordered by.

Of each record of the log the lines come in the order in which one root writes them; so what lies in the
outbox is the same bytes, whoever made it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa

from headwater.results import Results
from headwater_root import resultlines

_ORDER = ("position", "end", "query", "site", "key", "start", "ordinal")
_COLUMNS: dict[str, Any] = {
    "position": pa.int64(),
    "end": pa.int64(),
    "query": pa.int64(),
    "site": pa.binary(),
    "key": pa.binary(),
    "start": pa.int64(),
    "ordinal": pa.int64(),
    "line": pa.large_binary(),
}
_SCHEMA = pa.schema(_COLUMNS)


def packed(finals: Iterable[tuple[int, Results]]) -> bytes:
    """Results by the record that made them final; empty if there are none."""
    rows = [
        (position, *order, resultlines.encode([result]))
        for position, results in finals
        for block in results.blocks
        for order, result in block.rows()
    ]
    if not rows:
        return b""
    columns = [
        pa.array(column, field.type) for column, field in zip(zip(*rows, strict=True), _SCHEMA, strict=True)
    ]
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, _SCHEMA) as writer:
        writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=_SCHEMA))
    found: bytes = sink.getvalue().to_pybytes()
    return found


def merged(given: Sequence[bytes]) -> bytes:
    """The lines of all buckets, in their order."""
    tables = [pa.ipc.open_stream(data).read_all() for data in given if data]
    if not tables:
        return b""
    ordered = pa.concat_tables(tables).sort_by([(name, "ascending") for name in _ORDER])
    lines: list[Any] = ordered.column("line").to_pylist()
    return b"".join(lines)
