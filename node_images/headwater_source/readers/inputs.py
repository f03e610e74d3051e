"""An input: a file or the standard input, and the reader for its format."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Protocol

from headwater.errors import Invalid, Problem
from headwater.timeunits import TimeUnit
from headwater_source.columns import Events
from headwater_source.readers import tablefiles
from headwater_source.readers.arrivals import Arrivals
from headwater_source.readers.csvlines import CsvReader
from headwater_source.readers.jsonlines import JsonReader
from headwater_source.readers.records import FIELDS, BadRecord, Columns
from headwater_source.readers.tables import NoArrow, arrow

TABLES = ("arrow", "parquet")
FORMATS = ("csv", "jsonl", *TABLES)
STDIN = "-"
TIME_UNIT_HELP = "The unit of numbers in ts.  [default: us, if the first ones lie between 1990 and 2100]"
_SUFFIXES = {
    ".csv": "csv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".arrow": "arrow",
    ".arrows": "arrow",
    ".feather": "arrow",
    ".ipc": "arrow",
    ".parquet": "parquet",
    ".pq": "parquet",
}
CHUNK = 1 << 20


class Reader(Protocol):
    """Gives events as columns; at a bad record it gives what stands before it and raises BadRecord."""

    name: str
    unit: str
    # What the input calls its columns, once it was looked into.
    fields: tuple[str, ...]
    # How its bytes arrive.
    arrivals: Arrivals | None
    # The first of those that were passed over, and how many there were.
    skipped: list[BadRecord]
    skipped_count: int

    def __iter__(self) -> Iterator[Events]: ...


def columns_of(text: str) -> Columns:
    """`ts=time,value=temp` as what the input calls the fields."""
    given: dict[str, str] = {}
    problems = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        field, _, name = (each.strip() for each in part.partition("="))
        if field not in FIELDS or not name:
            problems.append(
                Problem(field or part, f"is given as {part!r}", f"write FIELD=NAME, with {', '.join(FIELDS)}")
            )
        elif field in given:
            problems.append(Problem(field, "is given twice", "name one column for it"))
        given[field] = name
    if problems:
        raise Invalid("the columns cannot be used", problems)
    return Columns({field: field for field in FIELDS} | given, frozenset(given))


def format_of(path: str, given: str | None, option: str = "--format") -> str:
    """The format that was asked for (with an `option`), or the one that the suffix says."""
    found = given or _SUFFIXES.get(Path(path).suffix.lower())
    if found not in FORMATS:
        what = "comes from the standard input" if path == STDIN else f"is not told by the name {path!r}"
        raise Invalid(
            "the input cannot be read", [Problem("format", what, f"give {option} {'|'.join(FORMATS)}")]
        )
    return found


def open_input(
    path: str,
    format: str | None = None,
    columns: Columns | None = None,
    *,
    skip_bad: bool = False,
    time_unit: TimeUnit | None = None,
    strict_times: bool = False,
    format_option: str = "--format",
) -> Reader:
    """A reader of a file, or of the standard input as it comes (`-`).

    Times that are numbers are in `time_unit`. Without one they are microseconds, and the reader raises
    InvalidEvents if the first ones look like another unit or, with `strict_times`, if they lie before 1990
    or after 2100. `format_option` is what errors call the option of the format.
    """
    if path != STDIN and Path(path).is_dir():
        raise Invalid(f"{path} cannot be read", [Problem("file", "is a directory", "give one of its files")])
    format = format_of(path, format, format_option)
    columns = columns or columns_of("")
    name = "standard input" if path == STDIN else path
    if format in TABLES and arrow() is None:
        raise NoArrow(format)
    try:
        file: IO[bytes] = sys.stdin.buffer if path == STDIN else Path(path).open("rb")  # noqa: SIM115  # the reader closes it
        seekable = stat.S_ISREG(os.fstat(file.fileno()).st_mode)
    except OSError as error:
        problem = Problem("file", f"cannot be opened ({error.strerror})", "give a file that can be read")
        raise Invalid(f"{path} cannot be read", [problem]) from error
    arrivals = Arrivals(file.fileno())
    reader: CsvReader | JsonReader | tablefiles.TableReader
    if format == "csv":
        reader = CsvReader(name, _chunks(arrivals), columns, skip_bad=skip_bad, time_unit=time_unit)
    elif format == "jsonl":
        reader = JsonReader(name, _chunks(arrivals), columns, skip_bad=skip_bad, time_unit=time_unit)
    elif format == "arrow":
        batches = tablefiles.arrow_batches(file if seekable else arrivals)
        reader = tablefiles.TableReader(name, batches, columns, skip_bad=skip_bad, time_unit=time_unit)
    elif seekable:
        batches = tablefiles.parquet_batches(file)
        reader = tablefiles.TableReader(name, batches, columns, skip_bad=skip_bad, time_unit=time_unit)
    else:
        problem = Problem("format", "is parquet, which is not read from a pipe", "write it to a file first")
        raise Invalid(f"{name} cannot be read", [problem])
    reader.close, reader.arrivals = file.close, arrivals
    reader.times.strict = strict_times
    return reader


def _chunks(arrivals: Arrivals) -> Iterator[bytes]:
    """Bytes as they come: a pipe gives what it has, however little."""
    while chunk := arrivals.read(CHUNK):
        yield chunk
