"""Results of a run in a directory: as JSON lines, CSV and Parquet, and how they are read again.

`results.jsonl` has the lines of the outbox unchanged. In the two tables times are times, functions are
columns, and a count window has its ranks in `first_rank` and `last_rank`, and in `first_time` and `last_time`
when its first and its last event was. `queries.json` says how each query calls its key and which of them have
count windows.
"""

from __future__ import annotations

import csv
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from importlib import import_module
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

from headwater.queries import Query
from headwater.windows import is_count
from headwater_cli.rootsinks import find_sinks
from headwater_root import resultlines
from headwater_root.resultlines import Bounds, NoResults

LINES, TABLE, COLUMNS, QUERIES = "results.jsonl", "results.csv", "results.parquet", "queries.json"
LOG = "log.jsonl"
# In an outbox: up to where results were dropped, since all sinks have them.
TRIMMED = "trimmed"
_RESULTS = (LINES, TABLE, COLUMNS, QUERIES)
# Behind the name of a file that is being written.
_UNFINISHED = ".new"
# A file of an outbox: the position and the epoch.
_OF_OUTBOX = re.compile(r"\d+-\d+")
# What tells a file from another one of the same name: device and inode.
_FileId: TypeAlias = tuple[int, int]
# What every result has, by type, and what it has that may be null.
_REQUIRED = {"id": str, "query": str, "incarnation": int, "site": str, "start": int, "end": int, "count": int}
_NULLABLE = {"key", "ordinal"}
# What is to be named, and what brings the first results of a root.
_WHERE = "name the directory of headwater run --output, of a root, or of a jsonLines sink"
_CLOSED = "they come when a window closes"
_FIXED = (
    "query",
    "incarnation",
    "site",
    "key",
    "start",
    "end",
    "first_rank",
    "last_rank",
    "ordinal",
    "count",
)
# Of count windows; behind all other columns, which stay where they were.
_TIMES = ("first_time", "last_time")


class NoResultFiles(Exception):
    """A directory without results, or one that a run must not write to."""


class NoResultsYet(NoResultFiles):
    """A directory of `run --output` that has no results before the run ends, or of a root of which no window
    has closed; `event` is what brings them."""

    def __init__(self, message: str, event: str) -> None:
        super().__init__(message)
        self.event = event


def prepare(directory: Path) -> None:
    """Make the directory of a run, or refuse one that holds anything else than results.

    The results of an earlier run stay until `write` replaces them; only what a write left unfinished goes.
    """
    if directory.exists() and not directory.is_dir():
        raise NoResultFiles(f"{directory} is a file; name a directory")
    present = {path.name for path in directory.iterdir()} if directory.is_dir() else set()
    unfinished = {name + _UNFINISHED for name in _RESULTS}
    if strange := present - {*_RESULTS, *unfinished, LOG}:
        shown = ", ".join(sorted(strange)[:3])
        raise NoResultFiles(f"{directory} holds other files ({shown}); name an empty or a new directory")
    directory.mkdir(parents=True, exist_ok=True)
    for name in present & unfinished:
        (directory / name).unlink()


def write(directory: Path, outbox: Iterable[bytes], queries: Iterable[Query]) -> list[str]:
    """Write the results of a run in place of those of an earlier one; gives the names of the files.

    All files are written under other names first: if one fails, the earlier results stay as they are.
    """
    fresh = {name: directory / (name + _UNFINISHED) for name in _RESULTS}
    try:
        names = _write_all(fresh, outbox, list(queries))
        for name in names:
            fresh[name].replace(directory / name)
        for name in set(_RESULTS) - set(names):
            (directory / name).unlink(missing_ok=True)
    finally:
        for path in fresh.values():
            path.unlink(missing_ok=True)
    return names


def _write_all(paths: Mapping[str, Path], outbox: Iterable[bytes], queries: Sequence[Query]) -> list[str]:
    known = {query.id: {"keyBy": query.key_by, "counts": is_count(query.window)} for query in queries}
    paths[QUERIES].write_text(json.dumps(known, indent=1) + "\n", encoding="utf-8")
    rows: list[dict[str, Any]] = []
    with paths[LINES].open("wb") as file:
        for lines in outbox:
            file.write(lines)
            rows += resultlines.decode(lines)
    counts = {query.id for query in queries if is_count(query.window)}
    flat = [flatten(row, counts) for row in rows]
    functions = list(dict.fromkeys(name for row in rows for name in row["values"] if name != "count"))
    write_csv(paths[TABLE], flat, functions)
    names = [QUERIES, LINES, TABLE]
    if find_spec("pyarrow") is not None:
        _write_parquet(paths[COLUMNS], flat, functions)
        names.append(COLUMNS)
    return names


def flatten(row: Mapping[str, Any], counts: Iterable[str] = ()) -> dict[str, Any]:
    """A result as one row of a table; `counts` are the queries with count windows."""
    bounds = bounds_of(row, counts)
    first, last = resultlines.time_of(bounds.first), resultlines.time_of(bounds.last)
    found = {name: row.get(name) for name in (*_FIXED, *_TIMES)}
    ranked = bounds.measure == "count"
    found["start"], found["end"] = (None, None) if ranked else (first, last)
    found["first_rank"], found["last_rank"] = (row["start"] + 1, row["end"]) if ranked else (None, None)
    found["first_time"], found["last_time"] = (first, last) if ranked else (None, None)
    return found | {name: value for name, value in row["values"].items() if name != "count"}


def bounds_of(row: Mapping[str, Any], counts: Iterable[str]) -> Bounds:
    """The bounds of a line as times; `counts` are the queries with count windows."""
    if "measure" not in row and row["query"] in counts:
        return Bounds("count", None, None)
    return resultlines.bounds_of(row)


def write_csv(to: Any, rows: Iterable[Mapping[str, Any]], functions: Iterable[str]) -> None:
    """Rows of `flatten` as CSV, to a path or a stream."""
    if isinstance(to, Path):
        with to.open("w", newline="", encoding="utf-8") as file:
            write_csv(file, rows, functions)
        return
    names = [*_FIXED, *functions, *_TIMES]
    writer = csv.writer(to, lineterminator="\n")
    writer.writerow(names)
    for row in rows:
        writer.writerow([_cell(row.get(name)) for name in names])


def _cell(value: Any) -> Any:
    if value is None:
        return ""
    if isinstance(value, datetime):
        return value.isoformat()
    return value if isinstance(value, str | int | float) else resultlines.text(value)


def _write_parquet(path: Path, rows: list[dict[str, Any]], functions: list[str]) -> None:
    pa, parquet = import_module("pyarrow"), import_module("pyarrow.parquet")
    time = pa.timestamp("us", tz="UTC")
    types = dict.fromkeys(_FIXED, pa.int64()) | {"start": time, "end": time}
    types |= dict.fromkeys(("query", "site", "key"), pa.string())
    columns: dict[str, Any] = {name: pa.array([row[name] for row in rows], types[name]) for name in _FIXED}
    for name in functions:
        values = [row.get(name) for row in rows]
        if all(value is None or type(value) in (int, float) for value in values):
            columns[name] = pa.array(
                [None if value is None else float(value) for value in values], pa.float64()
            )
        else:
            # Lists of top(k), texts of functions of one's own: as they stand in JSON.
            columns[name] = pa.array(
                [None if value is None else resultlines.text(value) for value in values], pa.string()
            )
    columns |= {name: pa.array([row[name] for row in rows], time) for name in _TIMES}
    parquet.write_table(pa.table(columns), path)


class ResultFiles:
    """Results in a directory: one of `run --output`, of a root, of its outbox, or of a JSON lines sink."""

    def __init__(self, directory: Path) -> None:
        """Raises `NoResultFiles` where none are."""
        self._at, self._root = _found(directory)
        self._queries = directory / QUERIES
        # By file that grows: which one it was, and how many bytes and lines of it were read; of an outbox,
        # the positions that were read.
        self._read: dict[Path, tuple[_FileId, int, int]] = {}
        self._positions: set[str] = set()
        # Of a root, the results that were given: they stand in its outbox and in sinks.
        self._ids: set[str] = set()
        # How queries call their key, and which of them have count windows.
        self.keys: dict[str, str | None] = {}
        self.counts: set[str] = set()
        # That results of a root are missing here, and where they are.
        self.missing: str | None = None
        self._read_queries()
        if self._root is not None:
            self._look_for_results(self._root)

    def fresh(self) -> Iterator[dict[str, Any]]:
        """The results that were not read yet, in the order in which they came."""
        if self._root is None:
            yield from self._fresh_lines(self._growing())
            yield from self._fresh_of_outbox()
            return
        # The outbox first: what is trimmed of it meanwhile stands in the sinks by then.
        undelivered = list(self._fresh_of_outbox())
        delivered = self._fresh_lines(path for sink in find_sinks(self._root) if (path := sink.lines))
        for row in chain(delivered, undelivered):
            if row["id"] not in self._ids:
                self._ids.add(row["id"])
                yield row

    def _look_for_results(self, root: Path) -> None:
        """Raise where a root has no results, with where they go; note where it has some of them alone."""
        sinks = find_sinks(root)
        named = ", ".join(map(str, sinks))
        lines = [path for sink in sinks if (path := sink.lines)]
        was_trimmed = (self._at / TRIMMED).exists()
        is_empty = not any(_OF_OUTBOX.fullmatch(path.name) for path in self._at.iterdir())
        if lines:
            if is_empty and not any(path.stat().st_size for path in lines):
                where = ", ".join(map(str, lines))
                raise NoResultsYet(f"{root} holds no results yet: they come in {where}", _CLOSED)
            return
        remedy = "read them there, or give the root a sink of type jsonlines as well: it keeps what follows"
        where = f"its sinks are {named}" if sinks else "its sinks keep nothing here"
        if is_empty and was_trimmed:
            raise NoResultFiles(
                f"{root} holds no results: a root drops what all of its sinks have taken; {where}; {remedy}"
            )
        if is_empty:
            told = f"; they go to its sinks, which are {named}" if sinks else ""
            raise NoResultsYet(f"{root} holds no results yet{told}", _CLOSED)
        if was_trimmed and sinks:
            others = f"the others went to {named}: {remedy}"
            self.missing = f"{root} holds only results that a sink has not taken yet; {others}"

    def _fresh_lines(self, paths: Iterable[Path]) -> Iterator[dict[str, Any]]:
        """What was added to files of JSON lines."""
        for path in paths:
            try:
                with path.open("rb") as file:
                    begin, lines = self._place_in(path, file)
                    file.seek(begin)
                    data = file.read()
                    id = _file_id(file)
            except FileNotFoundError:
                # Somebody has removed it since it was listed.
                continue
            if begin == 0:
                # `write` replaces the queries before the lines, so they are at least as new.
                self._read_queries()
            # The last line may still be written.
            whole = data[: data.rfind(b"\n") + 1]
            self._read[path] = id, begin + len(whole), lines + whole.count(b"\n")
            yield from _decode(path, whole, lines)

    def _read_queries(self) -> None:
        """Read what `run --output` has written; a root has another file of this name in its directory."""
        try:
            known = json.loads(self._queries.read_text(encoding="utf-8"))
            keys = {name: each["keyBy"] for name, each in known.items()}
            counts = {name for name, each in known.items() if each["counts"]}
        except (OSError, ValueError, LookupError, TypeError, AttributeError):
            return
        self.keys, self.counts = keys, counts

    def _place_in(self, path: Path, file: BinaryIO) -> tuple[int, int]:
        """How many bytes and lines of a file were read; none where another file has taken its name, or it was
        cut."""
        id, offset, lines = self._read.get(path, (None, 0, 0))
        is_same = id == _file_id(file) and os.fstat(file.fileno()).st_size >= offset
        return (offset, lines) if is_same else (0, 0)

    def _growing(self) -> list[Path]:
        """Files of JSON lines."""
        return [self._at] if self._at.is_file() else sorted(self._at.glob("*.jsonl"))

    def _fresh_of_outbox(self) -> Iterator[dict[str, Any]]:
        """The results of positions that were not read yet; a file of an outbox appears whole."""
        newest: dict[str, Path] = {}
        for path in sorted(self._at.glob("*-*")) if self._at.is_dir() else ():
            if _OF_OUTBOX.fullmatch(path.name):
                # Of one position the file of the highest epoch counts.
                newest[path.name.partition("-")[0]] = path
        # What was trimmed does not come again.
        self._positions = {each for each in self._positions if newest and each >= min(newest)}
        for position, path in newest.items():
            # A file of a later epoch has the same results once more.
            if position in self._positions:
                continue
            try:
                data = path.read_bytes()
            except FileNotFoundError:
                # A live root has trimmed it since it was listed: all its sinks have these results.
                continue
            self._positions.add(position)
            yield from _decode(path, data)


def _decode(path: Path, data: bytes, lines: int = 0) -> Iterator[dict[str, Any]]:
    """The results in whole lines of a file, `lines` of which were read before; raises `NoResultFiles`."""
    given = data.split(b"\n")
    for number, line in enumerate(given, lines + 1):
        row = _decode_line(line) if line else None
        if row is not None:
            yield row
        elif line and lines == 0 and not any(map(_decode_line, given)):
            raise NoResultFiles(f"{path} holds no results of Headwater: line {number} is none; {_WHERE}")
        elif line:
            raise NoResultFiles(
                f"{path}: line {number} is no result: the file was damaged since it was written; restore the "
                "directory from a copy, whole"
            )


def _decode_line(line: bytes) -> dict[str, Any] | None:
    """The result in a line; None if it holds none."""
    try:
        row = next(resultlines.decode(line), None)
    except NoResults:
        return None
    if row is None or any(type(row.get(name)) is not kind for name, kind in _REQUIRED.items()):
        return None
    return row if row.keys() >= _NULLABLE else None


def _file_id(file: BinaryIO) -> _FileId:
    status = os.fstat(file.fileno())
    return status.st_dev, status.st_ino


def _found(directory: Path) -> tuple[Path, Path | None]:
    """Where the results are, and the directory of the root if they are one's."""
    if directory.is_file() or (directory / LINES).exists():
        return (directory if directory.is_file() else directory / LINES), None
    for root in (directory / "root", directory):
        if (root / "outbox").is_dir():
            return root / "outbox", root
    if [path.name for path in directory.glob("*.jsonl")] == [LOG]:
        raise NoResultsYet(
            f"{directory} holds no results yet: headwater run writes them when it ends, and --follow waits "
            "for them; a run that failed before its first window writes none",
            "the run writes them when it ends",
        )
    if any(directory.glob("*.jsonl")) or any(directory.glob("[0-9]*-[0-9]*")):
        return directory, None
    raise NoResultFiles(f"{directory} holds no results; {_WHERE}")
