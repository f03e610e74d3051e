"""Raw events that a child has read, as Parquet files for batch jobs.

A thread of its own writes: delivery never waits for it. What it cannot take in time is dropped and counted,
and so is what does not reach the disk. The alternative would be to hold up sources for a copy that no result
needs; a gap in the archive shows in the numbers of the records, and whoever reads it sees it.

Files are `<path>/<node>/<time>-<number>.parquet`; each appears whole. The same record may be in several of
them (another child reads it again after a move): readers take each source, incarnation and number once.
"""

from __future__ import annotations

import logging
import os
import re
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import numpy as np

from headwater import topology
from headwater.durations import SECOND
from headwater.errors import Invalid, Problem
from headwater.machines.messages import Columns
from headwater.machines.node import NodeMachine
from headwater.machines.sizes import of_columns
from headwater.rows import TS_MIN
from headwater.sources import SourceId
from headwater_node.accepted import Accepted, Portion
from headwater_wire.clock import wall

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger(__name__)
# Bytes of columns that wait for the thread; and of one file, before they are encoded.
QUEUED, FILE = 64 << 20, 32 << 20
# For how long the end of a node waits for the last file, in seconds.
PATIENCE = 10.0
# There if the archive was closed in order: it then lacks nothing at its end.
CLOSED = "_closed"
_NAME = re.compile(r"(\d{20})-\d{6}\.parquet")


class Archive:
    """The archive of one child; all but the thread is called by the node's loop."""

    def __init__(self, node: str, given: topology.Archive) -> None:
        """Raises if there is no pyarrow: it is no part of a node image by default."""
        try:
            import pyarrow.parquet  # noqa: F401 - the thread needs it
        except ImportError as error:
            problem = Problem("archive", "needs pyarrow, which is not installed", "add headwater[archive]")
            raise Invalid("the node cannot be started", [problem]) from error
        self.directory = Path(given.path) / quote(node, safe="")
        self.written = self.dropped = self.files = 0
        # Why nothing can be written at present.
        self.problem: str | None = None
        self._given = given
        self._accepted = Accepted()
        self._queue: list[Portion] = []
        self._queued = 0
        self._full = self._ending = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._write_all, name="archive", daemon=True)
        self._number = 0

    def start(self) -> None:
        self._thread.start()

    def came(self, message: Columns, machine: NodeMachine) -> None:
        """Columns that the machine is given next."""
        self._accepted.came(message, machine.sources)

    def look(self, machine: NodeMachine) -> None:
        """Take what the machine has read since."""
        missed = self._accepted.missed
        portions = list(self._accepted.read(machine.sources))
        lost = self._accepted.missed - missed
        if not portions and not lost:
            return
        size = sum(of_columns(portion.batch) for portion in portions)
        with self._changed:
            if self._queued + size > QUEUED:
                lost += sum(len(portion.batch) for portion in portions)
            else:
                self._queue += portions
                self._queued += size
                self._changed.notify()
            self.dropped += lost
        if bool(lost) != self._full:
            self._full = bool(lost)
            said = (
                "the archive cannot keep up: records are dropped from it" if lost else "the archive keeps up"
            )
            log.log(logging.WARNING if lost else logging.INFO, said, extra={"dropped": self.dropped})

    def close(self) -> None:
        """Write what is there, as far as that is possible within a time."""
        with self._changed:
            self._ending = True
            self._changed.notify()
        self._thread.join(PATIENCE)

    # The thread

    def _write_all(self) -> None:
        self._begin()
        while True:
            portions, ending = self._gathered()
            if portions:
                self._write(portions)
            if ending:
                break
        if not self.dropped and self.problem is None:
            with suppress(OSError):
                (self.directory / CLOSED).touch()

    def _begin(self) -> None:
        with suppress(OSError):
            (self.directory / CLOSED).unlink(missing_ok=True)
            for leftover in self.directory.glob(".*.tmp"):
                leftover.unlink(missing_ok=True)

    def _gathered(self) -> tuple[list[Portion], bool]:
        """What makes the next file: after a time, or when it is large enough."""
        until = monotonic() + self._given.rotate / SECOND
        with self._changed:
            while not self._ending and self._queued < FILE and (rest := until - monotonic()) > 0:
                self._changed.wait(rest)
            portions, self._queue, self._queued = self._queue, [], 0
            return portions, self._ending

    def _write(self, portions: Sequence[Portion]) -> None:
        records = sum(len(portion.batch) for portion in portions)
        at = wall()
        self._number += 1
        path = self.directory / f"{at:020}-{self._number:06}.parquet"
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            # First: a full disk may have room behind it.
            self._trim(at)
            _write_file(path, encoded(portions, at))
        # Whatever it is (the disk is full, the folder is gone): the tree goes on without an archive.
        except Exception as error:
            self.dropped += records
            if self.problem is None:
                log.error("the archive cannot be written", extra={"path": str(path), "problem": str(error)})
            self.problem = str(error)
            return
        if self.problem is not None:
            log.info("the archive is written again", extra={"dropped": self.dropped})
        self.problem = None
        self.written += records
        self.files += 1

    def _trim(self, at: int) -> None:
        """Remove what is too old, then the oldest of what is too much."""
        found = [(path, match) for path in self.directory.iterdir() if (match := _NAME.fullmatch(path.name))]
        kept = sorted((int(match[1]), path, path.stat().st_size) for path, match in found)
        total = sum(size for _, _, size in kept)
        for written, path, size in kept:
            if written >= at - self._given.retain and total <= self._given.max_bytes:
                break
            path.unlink(missing_ok=True)
            total -= size


def _write_file(path: Path, data: bytes) -> None:
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise


def encoded(portions: Sequence[Portion], at: int) -> bytes:
    """The portions as a Parquet file; docs/audit.md says what the columns mean."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.concat_tables([_table(portion, at) for portion in portions], promote_options="permissive")
    sink = pa.BufferOutputStream()
    pq.write_table(table.unify_dictionaries(), sink, compression="zstd")
    data: bytes = sink.getvalue().to_pybytes()
    return data


def _table(portion: Portion, at: int) -> pa.Table:
    import pyarrow as pa

    batch = portion.batch
    size, source = len(batch), SourceId.of(batch.source)
    seq = np.arange(batch.first, batch.first + size)
    text, whole = pa.dictionary(pa.int32(), pa.string()), pa.int64()
    known = portion.largest is not None and portion.largest > TS_MIN
    columns: dict[str, Any] = {
        "source": _same(source.name, size),
        "incarnation": pa.array(np.full(size, source.incarnation), whole),
        "seq": pa.array(seq, whole),
        "ts": pa.array(batch.ts, whole),
        "key": pa.nulls(size, text) if batch.key is None else _named(batch.key, batch.keys),
        "value": pa.array(batch.value, pa.float64(), mask=batch.bare),
        "mark": pa.nulls(size, text) if batch.mark is None else _named(batch.mark, batch.marks),
        "bare": pa.array(np.zeros(size, bool) if batch.bare is None else batch.bare, pa.bool_()),
        "skipped": pa.array(np.isin(seq, list(portion.skips)), pa.bool_()),
        "site": _same(portion.site, size),
        "lateness": pa.array(np.full(size, portion.lateness), whole),
        "largest": pa.array(np.full(size, portion.largest), whole) if known else pa.nulls(size, whole),
        "opening": _same(portion.opening, size),
        "archived": pa.array(np.full(size, at), whole),
    }
    return pa.table(columns)


def _same(text: str, size: int) -> Any:
    return _named(np.zeros(size, np.int32), (text,))


def _named(codes: Any, names: Sequence[str]) -> Any:
    import pyarrow as pa

    codes = np.asarray(codes, np.int32)
    return pa.DictionaryArray.from_arrays(pa.array(codes, mask=codes < 0), pa.array(names, pa.string()))
