"""Text in lines: blocks of whole lines, each read the quick way if it can be, else line by line."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from headwater.errors import Problem
from headwater.timeunits import TimeUnit
from headwater_source.columns import Events
from headwater_source.readers.records import BadRecord, Columns, Raw, RecordReader, Row, Wrong
from headwater_source.readers.tables import Refused, arrow, events_of

LINE_LIMIT = 1 << 20
_BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class Block:
    """Whole lines; the number of the first one, and the byte at which it begins."""

    number: int
    offset: int
    data: bytes


def blocks(chunks: Iterable[bytes], name: str) -> Iterator[Block]:
    """Bytes as they come, cut behind the last line that is whole."""
    number, offset, held = 1, 0, b""
    for chunk in chunks:
        end = chunk.rfind(b"\n") + 1
        if not end:
            held += chunk
            if len(held) > LINE_LIMIT:
                problem = Problem("line", f"is longer than {LINE_LIMIT} bytes", "give one record a line")
                raise BadRecord(name, "line", number, [problem], offset)
            continue
        data = held + chunk[:end]
        yield Block(number, offset, data)
        number, offset, held = number + data.count(b"\n"), offset + len(data), chunk[end:]
    if held:
        yield Block(number, offset, held)


class LineReader(RecordReader):
    """Reads one input of text."""

    unit = "line"

    def __init__(
        self,
        name: str,
        chunks: Iterable[bytes],
        columns: Columns,
        *,
        skip_bad: bool,
        time_unit: TimeUnit | None = "us",
    ) -> None:
        super().__init__(name, columns, skip_bad=skip_bad, time_unit=time_unit)
        self._blocks = blocks(chunks, name)
        self._arrow = arrow()

    def _parts(self) -> Iterator[Events]:
        for block in self._blocks:
            if not block.offset and block.data.startswith(_BOM):
                block = Block(block.number, len(_BOM), block.data[len(_BOM) :])
            yield from self._read(self._begin(block))

    def _begin(self, block: Block) -> Block:
        """What is left of a block once a format has taken what belongs to itself."""
        return block

    @abstractmethod
    def _table(self, data: bytes) -> tuple[Any, dict[str, str]]:
        """The lines as a table, and which column is which field; Refused if it is not sure of one."""

    @abstractmethod
    def _raw(self, line: str) -> tuple[Raw, Sequence[str]]:
        """The record of a line, and which fields it has; Wrong if it is none."""

    def _read(self, block: Block) -> Iterator[Events]:
        if not block.data:
            return
        if self._arrow is not None:
            try:
                table, found = self._table(block.data)
                # A record that is not a line would make every number wrong that is told to somebody.
                if len(table) == block.data.count(b"\n") + (not block.data.endswith(b"\n")):
                    yield events_of(table, found, self.times)
                    return
            except (Refused, self._arrow.ArrowException):
                pass
        yield from self._gathered(self._rows(block))

    def _rows(self, block: Block) -> Iterator[Row]:
        offset = block.offset
        for number, line in enumerate(block.data.split(b"\n"), start=block.number):
            begin, offset = offset, offset + len(line) + 1
            if not line.strip():
                continue
            try:
                raw, fields = self._raw(text_of(line))
                yield Row(number, raw, fields, begin)
            except Wrong as wrong:
                yield Row(number, wrong, offset=begin)


def text_of(line: bytes) -> str:
    try:
        return line.decode().rstrip("\r")
    except UnicodeDecodeError as error:
        raise Wrong(f"is no UTF-8 ({error.reason} at byte {error.start})", "save it as UTF-8") from None
