"""JSON lines: an object a line."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any

from headwater.timeunits import TimeUnit
from headwater_source.readers.lines import Block, LineReader
from headwater_source.readers.records import Columns, Raw, Wrong
from headwater_source.readers.tables import Refused, memory_of


class JsonReader(LineReader):
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
        self._fields, self._names = list(columns.names), list(columns.names.values())
        self._as_text = False

    def _begin(self, block: Block) -> Block:
        if not self.fields:
            with suppress(ValueError, RecursionError):
                first = json.loads(block.data.lstrip().partition(b"\n")[0])
                self.fields = tuple(first) if isinstance(first, dict) else ()
        return block

    def _table(self, data: bytes) -> tuple[Any, dict[str, str]]:
        import pyarrow as pa
        import pyarrow.json as arrow_json

        if b"\n\n" in data:
            # An empty line would make up for a line with two objects.
            raise Refused
        for _ in range(2):
            moment = pa.timestamp("us", tz="UTC") if self._as_text else pa.int64()
            types = {"ts": moment, "value": pa.float64()}
            schema = pa.schema(
                [(name, types.get(field, pa.string())) for field, name in self.columns.names.items()]
            )
            try:
                table = arrow_json.read_json(
                    memory_of(data),
                    read_options=arrow_json.ReadOptions(block_size=len(data) + 1),
                    parse_options=arrow_json.ParseOptions(
                        explicit_schema=schema, unexpected_field_behavior="ignore"
                    ),
                )
                return table, dict(self.columns.names)
            except pa.ArrowInvalid:
                self._as_text = not self._as_text
        raise Refused

    def _raw(self, line: str) -> tuple[Raw, Sequence[str]]:
        try:
            found = json.loads(line)
        except ValueError as error:
            raise Wrong(
                f"is no JSON ({error})", 'give an object a line, such as {"ts": 0, "value": 1}'
            ) from None
        except RecursionError:
            raise Wrong(
                "has too many lists or objects within each other",
                'give a flat object a line, such as {"ts": 0, "value": 1}',
            ) from None
        if not isinstance(found, dict):
            raise Wrong("is no object", 'give one, such as {"ts": 0, "value": 1}')
        return [found.get(name) for name in self._names], self._fields
