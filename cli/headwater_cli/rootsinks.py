"""The sinks of a root, as far as the files in its directory show them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

# What the sinks of a root keep: the results of one of JSON lines, and the cursor of a Parquet sink.
LINES, PARQUET_CURSOR = "results.jsonl", "_cursor.json"
# Sinks that keep no results here have directories that are named by their type.
_NAMED = re.compile(r"(?P<by_type>postgres|webhook)-[0-9a-f]{12}|\d+-(?P<by_number>console)")
# Behind the name of the directory of a Parquet sink: the same files once more.
_COPIES = ".files"


@dataclass(frozen=True, slots=True)
class RootSink:
    """A sink by its directory; its name is the path below the directory of the sinks."""

    name: str
    type: str
    directory: Path

    def __str__(self) -> str:
        return f"{self.type} ({self.directory})"

    @property
    def lines(self) -> Path | None:
        """The file of a JSON lines sink."""
        return self.directory / LINES if self.type == "jsonlines" else None


def find_sinks(root: Path) -> list[RootSink]:
    """The sinks that the root in this directory has or had, by their names."""
    home = root / "sinks"
    return sorted(_sinks_below(home, home), key=lambda sink: sink.name)


def _sinks_below(home: Path, directory: Path) -> Iterator[RootSink]:
    if not directory.is_dir():
        return
    for path in directory.iterdir():
        if not path.is_dir() or path.is_symlink() or path.name.startswith(".") or path.suffix == _COPIES:
            continue
        type = _type_of(path)
        if type is not None:
            yield RootSink(path.relative_to(home).as_posix(), type, path)
        if type != "parquet":
            # The path of a sink may have several parts.
            yield from _sinks_below(home, path)


def _type_of(directory: Path) -> str | None:
    if (directory / LINES).is_file():
        return "jsonlines"
    if (directory / PARQUET_CURSOR).exists() or (directory / "results").is_symlink():
        return "parquet"
    named = _NAMED.fullmatch(directory.name)
    return None if named is None else named["by_type"] or named["by_number"]
