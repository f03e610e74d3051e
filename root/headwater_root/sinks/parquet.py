"""Results as a growing Parquet dataset, each exactly once.

The files are in `results/`, and again in a directory beside the sink's, for copies (`mirror`). Each delivery
is one, named by the first position that it is of, and appears whole; `_cursor.json` says how far they count.
A file beyond the cursor was being delivered when the process died: it is replaced by one with the same name,
with the same results and perhaps more.

From time to time small files become one. Whoever lists the directory sees them or the one, never both
(`generations`), and the one has a name that no file had before: a reader with an old list finds a file
missing, and never a row twice.
"""

from __future__ import annotations

import logging
import os
import re
from pathlib import Path
from time import monotonic

from headwater_root import files
from headwater_root.files import Damaged
from headwater_root.sinks import columns, compaction, mirror
from headwater_root.sinks.cursor import Cursor
from headwater_root.sinks.generations import Generations
from headwater_wire import failpoints

log = logging.getLogger(__name__)
# How long at least from one merge to the next, in seconds: a reader with an old list must begin anew.
PERIOD = 60.0
_OURS = re.compile(r"(\d{20})(-\d{10})?\.parquet")
_BEFORE = re.compile(r"\d{20}\.parquet")


class Parquet:
    """Writes a file a delivery into a directory of its own."""

    name = "parquet"

    def __init__(
        self, directory: Path | str, *, period: float = PERIOD, fewest: int = compaction.FEWEST
    ) -> None:
        directory = Path(directory)
        files.make_directory(directory)
        files.sweep(directory)
        self._cursor = Cursor(directory / "_cursor.json")
        self._refuse_copy(directory)
        self._refuse_strangers(mirror.path_of(directory))
        self._generations = Generations(directory)
        self._period, self._fewest, self._merged = period, fewest, monotonic()
        # A release before had the files here, and delivered those beyond the cursor again.
        found = sorted(path for path in directory.iterdir() if _BEFORE.fullmatch(path.name))
        for path in found:
            if int(path.stem) > self.cursor:
                path.unlink()
        self._generations.adopt(path for path in found if int(path.stem) <= self.cursor)
        self._timed = self._complete()

    @property
    def cursor(self) -> int:
        """The last position that is delivered, durably."""
        return self._cursor.position

    def deliver(self, position: int, rows: bytes) -> None:
        """Write the rows as a file, then move the cursor behind it."""
        if position <= self.cursor:
            return
        if rows:
            data = columns.encoded(rows, timed=self._timed)
            self._generations.add(f"{self.cursor + 1:020}.parquet", data)
        failpoints.reached("root.sink.written")
        self._cursor.move(position)

    def recall(self) -> None:
        """Read the cursor again, and where the link leads."""
        self._cursor.load()
        self._generations.recall()

    def tidy(self) -> None:
        """Make one file of many small ones, if it is time."""
        if monotonic() - self._merged < self._period:
            return
        self._merged = monotonic()
        found = self._delivered()
        places = compaction.due([path.stat().st_size for path in found], self._fewest)
        if places is not None:
            self._merge([found[place] for place in places])

    def close(self) -> None:
        """Nothing is held open."""

    def _refuse_copy(self, directory: Path) -> None:
        """Refuse a cursor without files: a copy that was made without links, of this directory alone."""
        link = directory / "results"
        if self.cursor and not os.path.lexists(link) and not any(directory.glob("*.parquet")):
            remedy = (
                f"copy links as links, with the hidden directory beside, or remove {self._cursor.path.name}"
            )
            raise Damaged(link, 0, "the link is missing, but results were delivered", remedy)

    def _refuse_strangers(self, path: Path) -> None:
        """Refuse to take somebody else's directory for the mirror, whose files are replaced."""
        names = sorted(each.name for each in path.iterdir()) if path.is_dir() else ()
        strange = next((name for name in names if not _OURS.search(name)), None)
        if strange is not None:
            remedy = "move it away, or give the sink another path"
            raise Damaged(path, 0, f"the sink needs this directory, which holds {strange!r}", remedy)

    def _delivered(self) -> list[Path]:
        """The files in the order of their positions; one that is beyond the cursor may yet be replaced."""
        return sorted(
            path
            for path in self._generations.current.iterdir()
            if (match := _OURS.fullmatch(path.name)) and int(match[1]) <= self.cursor
        )

    def _merge(self, gone: list[Path]) -> None:
        name = f"{gone[0].name[:20]}-{self._generations.number + 1:010}.parquet"
        self._generations.replace(gone, name, columns.merged(gone, timed=self._timed))

    def _complete(self) -> bool:
        """Whether all files may have the columns that releases before did not write.

        Files of different schemas are refused by some readers. So files of a release before become one with
        all columns if they are small; large ones would take too long, and the directory stays as it is.
        """
        # One beyond the cursor is delivered again under its name.
        found = self._delivered()
        self._timed = True
        if all(map(columns.is_timed, found)):
            return True
        if sum(path.stat().st_size for path in found) <= compaction.LARGE:
            self._merge(found)
            return True
        remedy = "for the times of count windows, give the sink another path; these files stay as they are"
        problem = "its files lack the columns measure, first_time and last_time"
        log.warning(
            "a sink keeps its columns", extra={"sink": self.name, "problem": problem, "remedy": remedy}
        )
        return False
