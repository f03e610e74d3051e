"""Results as tables of Parquet.

All files of a directory have one schema, whatever the queries, because a reader takes the schema of the first
file for that of all. So functions are no columns but entries of two maps: `values` holds what is a number (a
whole one only if a double holds it exactly, and null for a function that has no value), `others` holds all
else as JSON.
Texts that Parquet cannot hold are written as `texts` says.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headwater_root import resultlines
from headwater_root.sinks.texts import storable, storable_in

if TYPE_CHECKING:
    import pyarrow as pa

# Columns that releases before did not write.
_TIMED = ("measure", "first_time", "last_time")
# Rows of a row group, and so how many are in memory at once when files are merged.
GROUP_ROWS = 65_536


def encoded(rows: bytes, *, timed: bool = True) -> bytes:
    """The rows as a Parquet file; `timed` says whether it has the columns of count windows."""
    import pyarrow as pa

    table, columns = [_parted(row) for row in resultlines.decode(rows)], schema(timed=timed)
    return _written([pa.Table.from_pylist(table, schema=columns)], columns)


def merged(paths: Iterable[Path], *, timed: bool = True) -> bytes:
    """The rows of several files as one, in the order given."""
    columns = schema(timed=timed)
    return _written((_completed(group, columns) for group in _groups(paths)), columns)


def is_timed(path: Path) -> bool:
    """Whether a file has the columns of count windows; a damaged one is left to its reader."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return _TIMED[0] in pq.read_schema(path).names
    except pa.ArrowInvalid:
        return True


def _completed(group: pa.Table, columns: pa.Schema) -> pa.Table:
    """Rows with all columns; what a release before has not written is null."""
    import pyarrow as pa

    for field in columns:
        if field.name not in group.column_names:
            group = group.append_column(field, pa.nulls(len(group), field.type))
    return group.select(columns.names)


def _groups(paths: Iterable[Path]) -> Iterator[pa.Table]:
    """The rows of files in tables of GROUP_ROWS, or less at the end."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    held: list[pa.RecordBatch] = []
    count = 0
    for path in paths:
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(batch_size=GROUP_ROWS):
                if held and count + batch.num_rows > GROUP_ROWS:
                    yield pa.Table.from_batches(held)
                    held, count = [], 0
                held.append(batch)
                count += batch.num_rows
    if held:
        yield pa.Table.from_batches(held)


def _written(tables: Iterable[pa.Table], columns: pa.Schema) -> bytes:
    import pyarrow as pa
    import pyarrow.parquet as pq

    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(sink, columns) as writer:
        for table in tables:
            writer.write_table(table.cast(columns), row_group_size=GROUP_ROWS)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def schema(*, timed: bool = True) -> pa.Schema:
    """The schema of every file of a directory; without `timed` that of releases before."""
    import pyarrow as pa

    time = pa.timestamp("us", tz="UTC")
    fields: list[pa.Field[Any]] = [
        pa.field("id", pa.string(), nullable=False),
        pa.field("query", pa.string(), nullable=False),
        pa.field("incarnation", pa.int64(), nullable=False),
        pa.field("site", pa.string(), nullable=False),
        pa.field("key", pa.string()),
        pa.field("start", pa.int64(), nullable=False),
        pa.field("end", pa.int64(), nullable=False),
        pa.field("count", pa.int64(), nullable=False),
        pa.field("ordinal", pa.int64()),
        pa.field("values", pa.map_(pa.string(), pa.float64()), nullable=False),
        pa.field("others", pa.map_(pa.string(), pa.string()), nullable=False),
    ]
    if timed:
        kinds = (pa.string(), time, time)
        fields += [pa.field(name, kind) for name, kind in zip(_TIMED, kinds, strict=True)]
    return pa.schema(fields)


def _parted(row: dict[str, Any]) -> dict[str, Any]:
    numbers: list[tuple[str, float | None]] = []
    others: list[tuple[str, str]] = []
    for name, value in row["values"].items():
        if value is None:
            numbers.append((storable(name), None))
        elif _is_number(value):
            numbers.append((storable(name), float(value)))
        else:
            others.append((storable(name), resultlines.text(storable_in(value))))
    texts = {name: storable_in(row[name]) for name in ("query", "site", "key")}
    times = {name: resultlines.time_of(row.get(name)) for name in _TIMED[1:]}
    return {**row, **texts, **times, "values": numbers, "others": others}


def _is_number(value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return isinstance(value, float) or (abs(value) <= 2**1023 and int(float(value)) == value)
