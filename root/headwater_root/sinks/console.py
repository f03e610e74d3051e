"""Results for the eye: a line each, at least once."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, TextIO

from headwater_root import files, resultlines
from headwater_root.sinks.cursor import Cursor
from headwater_wire import failpoints


class Console:
    """Writes to a stream; what was written when the process died is written again."""

    name = "console"

    def __init__(self, directory: Path | str, stream: TextIO | None = None) -> None:
        directory = Path(directory)
        files.make_directory(directory)
        files.sweep(directory)
        self._cursor = Cursor(directory / "cursor.json")
        self._stream = stream

    @property
    def cursor(self) -> int:
        """The last position that is delivered."""
        return self._cursor.position

    def deliver(self, position: int, rows: bytes) -> None:
        """Write a line for every result."""
        if position <= self.cursor:
            return
        # Looked up late: whoever captures the output has put another stream there.
        stream = self._stream or sys.stdout
        stream.write("".join(f"{readable(row)}\n" for row in resultlines.decode(rows)))
        stream.flush()
        failpoints.reached("root.sink.written")
        self._cursor.move(position)

    def recall(self) -> None:
        """Read the cursor again."""
        self._cursor.load()

    def tidy(self) -> None:
        """Nothing waits to be tidied."""

    def close(self) -> None:
        """Nothing is held open."""


def readable(row: dict[str, Any]) -> str:
    """One result, such as

    `load  site=hall key=m7  2026-01-31T12:00:00+00:00 to 2026-01-31T12:00:10+00:00  #3  12 events  avg=0.5`
    """
    parts = [row["query"] if row["incarnation"] == 1 else f"{row['query']}/{row['incarnation']}"]
    where = [f"site={row['site']}"] if row["site"] else []
    where += [f"key={row['key']}"] if row["key"] is not None else []
    parts += [" ".join(where)] if where else []
    parts.append(_bounds(row))
    parts += [f"#{row['ordinal']}"] if row["ordinal"] is not None else []
    parts.append(f"{row['count']} event{'' if row['count'] == 1 else 's'}")
    values = " ".join(f"{name}={_shown(value)}" for name, value in row["values"].items() if name != "count")
    parts += [values] if values else []
    line = "  ".join(parts)
    # A name may hold anything; on a terminal it must neither break the line nor send commands.
    return line if line.isprintable() else "".join(c if c.isprintable() else repr(c)[1:-1] for c in line)


def _bounds(row: dict[str, Any]) -> str:
    bounds = resultlines.bounds_of(row)
    if bounds.measure == "time":
        return f"{_moment(bounds.first)} to {_moment(bounds.last)}"
    given = f"[{row['start']}, {row['end']})"
    if bounds.measure is None:
        # A release before wrote it, and these may be ranks.
        return given
    return f"{given} from {_moment(bounds.first)} to {_moment(bounds.last)}"


def _moment(microseconds: int | None) -> str:
    time = resultlines.time_of(microseconds)
    if time is not None:
        return time.isoformat()
    return "?" if microseconds is None else str(microseconds)


def _shown(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    return value if isinstance(value, str) else resultlines.text(value)
