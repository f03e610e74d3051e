"""Results as a growing Parquet dataset, each exactly once.

Every position of the outbox is a file `<position>.parquet` that appears whole; `_cursor.json` says how far
they count. pyarrow and Spark pass over names that begin with a dot or an underscore, so the directory can be
read as a dataset at any time.

All files have one schema, whatever the queries, because a reader takes the schema of the first file for that
of all. So functions are no columns but entries of two maps: `values` holds what is a number (a whole one only
if a double holds it exactly, and null for a function that has no value), `others` holds all else as JSON.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from headwater_root import files, resultlines
from headwater_root.sinks.cursor import Cursor

if TYPE_CHECKING:
    import pyarrow as pa


class Parquet:
    """Writes a file a position into a directory of its own."""

    name = "parquet"

    def __init__(self, directory: Path | str) -> None:
        self.directory = Path(directory)
        files.make_directory(self.directory)
        files.sweep(self.directory)
        self._cursor = Cursor(self.directory / "_cursor.json")
        for path in self.directory.glob("*.parquet"):
            # It was being delivered when the process died, and is delivered again.
            if path.stem.isdigit() and int(path.stem) > self.cursor:
                path.unlink()

    @property
    def cursor(self) -> int:
        """The last position that is delivered, durably."""
        return self._cursor.position

    def deliver(self, position: int, rows: bytes) -> None:
        """Write the rows as a file, then move the cursor behind it."""
        if position <= self.cursor:
            return
        if rows:
            files.replace(self.directory / f"{position:020}.parquet", encoded(rows))
        self._cursor.move(position)

    def close(self) -> None:
        """Nothing is held open."""


def encoded(rows: bytes) -> bytes:
    """The rows as a Parquet file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = [_parted(row) for row in resultlines.decode(rows)]
    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist(table, schema=schema()), sink)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def schema() -> pa.Schema:
    """The schema of every file."""
    import pyarrow as pa

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
    return pa.schema(fields)


def _parted(row: dict[str, Any]) -> dict[str, Any]:
    numbers: list[tuple[str, float | None]] = []
    others: list[tuple[str, str]] = []
    for name, value in row["values"].items():
        if value is None:
            numbers.append((name, None))
        elif _is_number(value):
            numbers.append((name, float(value)))
        else:
            others.append((name, resultlines.text(value)))
    return {**row, "values": numbers, "others": others}


def _is_number(value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return isinstance(value, float) or (abs(value) <= 2**1023 and int(float(value)) == value)
