"""What the sources of a cell send: events that follow from the source's name and their number alone.

So a source that was killed goes on where its spool ends, and whoever compares knows what it has sent.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from zlib import crc32

import numpy as np

from headwater.durations import SECOND
from headwater_cli.feeds import beat
from headwater_source.columns import Coded, Events

# Events that are appended at once, with one fsync.
CHUNK = 20
LATENESS = 1 * SECOND
# Event time between two events.
STEP = SECOND // 200
KEYS = ("a", "b", "c", "d")
# How far behind the last event the heartbeat is that lets every window close.
AFTER = 60 * SECOND


def events(name: str, start: int, first: int, count: int) -> Events:
    """Some events of a source from a number on, in some disorder, some of them late and some broken."""
    last = first + count - 1
    chunks = [_chunk(name, start, number) for number in range((first - 1) // CHUNK, (last - 1) // CHUNK + 1)]
    ts, value, key = (np.concatenate(column) for column in zip(*chunks, strict=True))
    kept = slice((first - 1) % CHUNK, (first - 1) % CHUNK + count)
    return Events(ts[kept], value[kept], key=Coded(key[kept], KEYS))


Columns = tuple[
    "np.ndarray[tuple[int], np.dtype[np.int64]]",
    "np.ndarray[tuple[int], np.dtype[np.float64]]",
    "np.ndarray[tuple[int], np.dtype[np.int32]]",
]


def _chunk(name: str, start: int, number: int) -> Columns:
    rng = np.random.default_rng((crc32(name.encode()), number))
    late = np.where(rng.random(CHUNK) < 0.05, rng.integers(0, 2 * LATENESS, CHUNK), 0)
    ts = start + (number * CHUNK + np.arange(CHUNK)) * STEP - late
    value = np.where(rng.random(CHUNK) < 0.002, np.nan, rng.integers(-50, 50, CHUNK).astype(np.float64))
    return ts, value, rng.integers(0, len(KEYS), CHUNK).astype(np.int32)


@dataclass(frozen=True, slots=True)
class Sent:
    """A source that has sent so many events and then the heartbeat behind them."""

    name: str
    start: int
    count: int
    site: str = "here"
    lateness: int = LATENESS

    def parts(self) -> Iterator[Events]:
        for first in range(1, self.count + 1, 50 * CHUNK):
            yield events(self.name, self.start, first, min(50 * CHUNK, self.count + 1 - first))
        yield beat(last_beat(self.start, self.count))


def last_beat(start: int, count: int) -> int:
    return start + count * STEP + AFTER


class Desk:
    """The directory through which a source is told what to do, and tells how far it is."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        directory.mkdir(parents=True, exist_ok=True)

    def ask(self, rate: float, *, end: bool = False) -> None:
        """Send so many events a second from now on, or come to the end."""
        self._write("asked", {"rate": rate, "end": end})

    @property
    def asked(self) -> tuple[float, bool]:
        found = json.loads((self.directory / "asked").read_text())
        return float(found["rate"]), bool(found["end"])

    def tell(self, head: int, counted: int) -> None:
        self._write("told", {"head": head, "counted": counted})

    @property
    def told(self) -> tuple[int, int]:
        """Up to where records are accepted, and up to where they are counted for good."""
        try:
            found = json.loads((self.directory / "told").read_text())
        except FileNotFoundError:
            return 0, 0
        return int(found["head"]), int(found["counted"])

    def close(self, count: int) -> None:
        """That is how many events there are: known before the last heartbeat is."""
        self._write("events", {"count": count})

    @property
    def count(self) -> int | None:
        """How many events there are; None while more may come."""
        try:
            return int(json.loads((self.directory / "events").read_text())["count"])
        except FileNotFoundError:
            return None

    def _write(self, name: str, content: object) -> None:
        temporary = self.directory / f".{name}"
        temporary.write_text(json.dumps(content))
        temporary.replace(self.directory / name)
