"""CSV: a header that names the columns, then a record a line; a quoted field does not go on to the next."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from typing import Any

from headwater.timeunits import TimeUnit
from headwater_source.readers.lines import Block, LineReader, text_of
from headwater_source.readers.records import BadRecord, Columns, Raw, Wrong
from headwater_source.readers.tables import Refused, memory_of


class CsvReader(LineReader):
    def __init__(
        self,
        name: str,
        chunks: Iterable[bytes],
        columns: Columns,
        *,
        skip_bad: bool,
        time_unit: TimeUnit | None = "us",
    ) -> None:
        super().__init__(name, chunks, columns, skip_bad=skip_bad, time_unit=time_unit)
        self._header: list[str] | None = None
        self._found: dict[str, str] = {}
        self._places: list[int] = []
        self._as_text = False

    def _begin(self, block: Block) -> Block:
        if self._header is not None:
            return block
        number, offset, data = block.number, block.offset, block.data
        while data:
            line, end, rest = data.partition(b"\n")
            size = len(line) + len(end)
            if line.strip():
                self._read_header(line, number, offset)
                return Block(number + 1, offset + size, rest)
            number, offset, data = number + 1, offset + size, rest
        return Block(number, offset, b"")

    def _read_header(self, line: bytes, number: int, offset: int) -> None:
        try:
            header = [column.strip() for column in _cells(text_of(line))]
            self.fields = tuple(header)
            self._found = self.columns.found(header)
        except Wrong as wrong:
            raise BadRecord(self.name, "line", number, [wrong.problem], offset) from None
        self._header, self._places = header, [header.index(name) for name in self._found.values()]

    def _table(self, data: bytes) -> tuple[Any, dict[str, str]]:
        import pyarrow as pa
        import pyarrow.csv as arrow_csv

        names = pa.dictionary(pa.int32(), pa.string())
        types: dict[str, Any] = dict.fromkeys(self._found.values(), names)
        if "value" in self._found:
            types[self._found["value"]] = pa.float64()
        # Several fields may share a column, which the table must hold only once.
        wanted = list(dict.fromkeys(self._found.values()))
        for _ in range(2):
            types[self._found["ts"]] = pa.timestamp("us", tz="UTC") if self._as_text else pa.int64()
            try:
                table = arrow_csv.read_csv(
                    memory_of(data),
                    read_options=arrow_csv.ReadOptions(column_names=self._header, block_size=len(data) + 1),
                    parse_options=arrow_csv.ParseOptions(ignore_empty_lines=False),
                    convert_options=arrow_csv.ConvertOptions(
                        column_types=types,
                        include_columns=wanted,
                        null_values=[""],
                        strings_can_be_null=False,
                    ),
                )
                return table, self._found
            except pa.ArrowInvalid:
                # Numbers or text: what its times are, an input seldom changes.
                self._as_text = not self._as_text
        raise Refused

    def _raw(self, line: str) -> tuple[Raw, Sequence[str]]:
        assert self._header is not None
        cells = _cells(line)
        if len(cells) != len(self._header):
            raise Wrong(
                f"has {len(cells)} fields instead of {len(self._header)}",
                "give as many as the header; put a field with a comma in quotes",
            )
        return [cells[place] for place in self._places], list(self._found)


def _cells(line: str) -> list[str]:
    try:
        for cells in csv.reader([line], strict=True):
            return cells
    except csv.Error as error:
        raise Wrong(f"is no CSV ({error})", "close every quote on its line") from None
    return []
