"""A set of files that changes as a whole: whoever lists it sees all of one state or all of the next.

`results` in the directory of a sink is a link to the present generation, a directory of files. A further file
is named in it at once. Where a file is to take the place of others, the next generation is made beside it,
with hard links to what stays; then the link is replaced, which is one step for whoever opens the directory.

The generations before stay for a while: whoever has resolved the link can still open what was listed. Their
files are the same or small ones, so that costs little. They lie in a hidden directory beside the sink's,
not in it: DuckDB's `**` looks into hidden directories too, and would read several. It follows no links.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from headwater_root import files
from headwater_root.files import Damaged
from headwater_root.sinks.mirror import Mirror

# Generations before the present one that stay.
KEPT = 10
_LINK = ".results.tmp"


class Generations:
    """The generations of one directory; only one process changes them."""

    def __init__(self, directory: Path, kept: int = KEPT) -> None:
        self._kept = kept
        self.link = directory / "results"
        self._home = directory.parent / f".{directory.name}"
        self._mirror = Mirror(directory, self._home)
        files.make_directory(directory)
        self._mirror.refuse_copy(self.link)
        files.make_directory(self._home)
        if not self.link.is_symlink():
            if self.link.exists():
                remedy = "copy links as links, with the hidden directory beside this one, or begin in another"
                raise Damaged(self.link, 0, "this is no link, as in a copy that has followed it", remedy)
            files.make_directory(self._at(1))
            self._point(1)
        self._number = 0
        self.recall()
        if not self.current.is_dir():
            remedy = f"put {self.current} back, or begin in another directory"
            raise Damaged(self.link, 0, "the link leads nowhere", remedy)
        files.sweep(self.current)
        self._drop()
        self._mirror.follow(self.current)

    @property
    def current(self) -> Path:
        """The directory that the link leads to."""
        return self._at(self._number)

    @property
    def number(self) -> int:
        """Of the present generation; they are counted from 1 on."""
        return self._number

    def recall(self) -> None:
        """See where the link leads, and make that durable: a change that raised may have happened."""
        self._number = int(Path(os.readlink(self.link)).name)
        files.sync_directory(self.link.parent)
        if self.current.is_dir():
            self._mirror.follow(self.current)

    def add(self, name: str, data: bytes) -> None:
        """Put a file into the present generation, durably; one with the same name is replaced."""
        files.replace(self.current / name, data)
        self._mirror.add(self.current / name)

    def adopt(self, paths: Iterable[Path]) -> None:
        """Move files into the present generation, durably."""
        for path in paths:
            os.replace(path, self.current / path.name)
        files.sync_directory(self.current)
        self._mirror.follow(self.current)

    def replace(self, gone: Iterable[Path], name: str, data: bytes) -> None:
        """Put one file with this name in the place of others."""
        following = self._number + 1
        target = self._at(following)
        files.remove_directory(target)
        target.mkdir()
        kept = {path.name for path in self.current.iterdir()} - {path.name for path in gone}
        for each in sorted(kept):
            os.link(self.current / each, target / each)
        files.replace(target / name, data)
        files.sync_directory(self._home)
        self._point(following)
        self._number = following
        self._drop()
        self._mirror.follow(self.current)

    def _point(self, number: int) -> None:
        temporary = self.link.with_name(_LINK)
        temporary.unlink(missing_ok=True)
        # From the directory of the sink, so that all of it can be moved.
        os.symlink(os.path.join("..", self._home.name, f"{number:010}"), temporary)
        os.replace(temporary, self.link)
        files.sync_directory(self.link.parent)

    def _drop(self) -> None:
        """Remove generations that are over, and one that was never finished."""
        for path in sorted(self._home.iterdir()):
            if path.name.isdigit() and not self._number - self._kept <= int(path.name) <= self._number:
                files.remove_directory(path)

    def _at(self, number: int) -> Path:
        return self._home / f"{number:010}"
