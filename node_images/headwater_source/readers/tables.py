"""Arrow tables as events: the quick way for blocks in which everything is as it should be."""

from __future__ import annotations

from collections.abc import Mapping
from types import ModuleType
from typing import Any

import numpy as np

from headwater.errors import PermanentError
from headwater.events import name_problem
from headwater.rows import TS_MAX, TS_MIN, Array
from headwater.sources import source_name_problem
from headwater.timeunits import column_to_microseconds
from headwater_source.columns import Coded, Events
from headwater_source.readers.times import Times


class NoArrow(PermanentError):
    """pyarrow is not installed, and the format needs it."""

    def __init__(self, format: str) -> None:
        super().__init__(f"{format} needs pyarrow, which is not installed; pip install 'headwater[arrow]'")


class Refused(Exception):
    """Something is not as it should be: record by record it is found out what."""


def arrow() -> ModuleType | None:
    """pyarrow, if it is installed; it is large, so only those load it who read something."""
    try:
        import pyarrow
    except ImportError:
        return None
    return pyarrow


def memory_of(data: bytes) -> Any:
    """Bytes as an input of Arrow, copied into its own memory.

    Arrow's threads may still hold an input after an error. If it were a Python object, a thread that lets go
    of it while Python ends would abort the process.
    """
    pa: Any = arrow()
    buffer = pa.allocate_buffer(len(data))
    memoryview(buffer).cast("B")[:] = data
    return pa.BufferReader(buffer)


def events_of(table: Any, found: Mapping[str, str], times: Times) -> Events:
    """The columns of a table, by field; Refused if one of its records may be bad."""
    pa: Any = arrow()
    try:
        return Events(
            _moments(pa, table[found["ts"]], times),
            *_numbers(pa, table[found["value"]] if "value" in found else None, len(table)),
            key=_names(pa, table, found.get("key"), absent=""),
            mark=_names(pa, table, found.get("mark")),
            source=_names(pa, table, found.get("source"), of_source=True),
            site=_names(pa, table, found.get("site")),
        )
    except pa.ArrowException as error:
        raise Refused from error


def _moments(pa: Any, column: Any, times: Times) -> Any:
    if column.null_count:
        raise Refused
    if pa.types.is_timestamp(column.type):
        if column.type.tz is None:
            raise Refused
        if column.type.unit == "ns":
            return _plain(column.cast(pa.int64())) // 1_000
        column = column.cast(pa.timestamp("us", tz=column.type.tz))
        return _plain(column.cast(pa.int64()))
    if not pa.types.is_integer(column.type):
        raise Refused
    numbers = _plain(column.cast(pa.int64()))
    times.note_column(numbers)
    found = column_to_microseconds(numbers, times.unit or "us")
    if found is not numbers and len(found) and (found.max() == TS_MAX or found.min() == TS_MIN):
        raise Refused
    return found


def _numbers(pa: Any, column: Any, rows: int) -> tuple[Any, Array | None]:
    if column is None:
        return np.full(rows, np.nan), np.ones(rows, np.bool_)
    if not (pa.types.is_floating(column.type) or pa.types.is_integer(column.type)):
        raise Refused
    bare = _plain(column.is_null()) if column.null_count else None
    return _plain(column.cast(pa.float64(), safe=False)), bare


def _plain(column: Any) -> Any:
    return column.to_numpy()


def _names(
    pa: Any, table: Any, name: str | None, *, absent: str | None = None, of_source: bool = False
) -> Coded | None:
    if name is None:
        return None
    column = table[name]
    if pa.types.is_integer(column.type):
        column = column.cast(pa.string())
    if not pa.types.is_dictionary(column.type):
        if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
            raise Refused
        column = column.dictionary_encode()
    if column.num_chunks != 1:
        column = column.unify_dictionaries().combine_chunks()
        if isinstance(column, pa.ChunkedArray):
            # Without rows there are no chunks.
            return Coded(np.empty(0, np.int32), ())
    else:
        column = column.chunk(0)
    codes = column.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int32)
    names = column.dictionary.to_pylist()
    if None in names or any(name_problem(given) for given in names):
        raise Refused
    if of_source and any(given and source_name_problem(given) for given in names):
        raise Refused
    empty = names.index("") if "" in names else -1
    if absent is None:
        codes[codes == empty] = -1
        return Coded(codes, tuple(names)) if names and bool((codes >= 0).any()) else None
    if empty < 0:
        empty = len(names)
        names.append("")
    codes[codes < 0] = empty
    return Coded(codes, tuple(names))
