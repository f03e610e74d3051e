"""Arrow (a file or a stream of it) and Parquet."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from typing import Any

from headwater.errors import Problem
from headwater.timeunits import TimeUnit
from headwater_source.columns import Events
from headwater_source.readers.arrivals import Arrivals
from headwater_source.readers.records import BadRecord, Columns, RecordReader, Row, Wrong
from headwater_source.readers.tables import Refused, arrow, events_of

_FILE_MAGIC = b"ARROW1"
PARQUET_ROWS = 50_000


class TableReader(RecordReader):
    """Reads record batches as they come; records are counted from 1."""

    def __init__(
        self,
        name: str,
        batches: Iterable[Any],
        columns: Columns,
        *,
        skip_bad: bool,
        time_unit: TimeUnit | None = "us",
    ) -> None:
        super().__init__(name, columns, skip_bad=skip_bad, time_unit=time_unit)
        self._batches = batches

    def _parts(self) -> Iterator[Events]:
        pa: Any = arrow()
        number = 1
        try:
            for batch in self._batches:
                table = pa.Table.from_batches([batch])
                self.fields = tuple(table.column_names)
                try:
                    found = self.columns.found(table.column_names)
                except Wrong as wrong:
                    raise BadRecord(self.name, self.unit, number, [wrong.problem]) from None
                try:
                    yield events_of(table, found, self.times)
                except Refused:
                    yield from self._gathered(_rows(table, found, number))
                number += len(table)
        except pa.ArrowInvalid as error:
            problem = Problem("file", f"does not read ({error})", "give a whole file of that format")
            raise BadRecord(self.name, self.unit, number, [problem]) from error


def _rows(table: Any, found: dict[str, str], first: int) -> Iterator[Row]:
    fields = list(found)
    columns = [table[name].to_pylist() for name in found.values()]
    for number, raw in enumerate(zip(*columns, strict=True), start=first):
        yield Row(number, raw, fields)


def arrow_batches(file: Any) -> Iterator[Any]:
    """Record batches of an Arrow file or stream: a file shows by its first bytes which of both it is.

    A pipe (`Arrivals`) is a stream.
    """
    import pyarrow as pa

    if isinstance(file, Arrivals):
        with _Pipe(file) as pipe:
            yield from pa.ipc.open_stream(pipe)
        return
    magic = file.read(len(_FILE_MAGIC))
    file.seek(0)
    if magic == _FILE_MAGIC:
        reader = pa.ipc.open_file(file)
        for place in range(reader.num_record_batches):
            yield reader.get_batch(place)
        return
    yield from pa.ipc.open_stream(file)


class _Pipe(io.RawIOBase):
    """Whole reads without a lock: a process that ends does not wait for a thread that reads a silent pipe."""

    def __init__(self, arrivals: Arrivals) -> None:
        super().__init__()
        self._arrivals = arrivals

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        found = bytearray()
        while len(found) != size and (data := self._arrivals.read(size - len(found))):
            found += data
        return bytes(found)


def parquet_batches(file: Any) -> Iterator[Any]:
    import pyarrow.parquet as pq

    yield from pq.ParquetFile(file).iter_batches(PARQUET_ROWS)
