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

# Generations before the present one that stay.
KEPT = 10
_LINK = ".results.tmp"


class Generations:
    """The generations of one directory; only one process changes them."""

    def __init__(self, directory: Path, kept: int = KEPT) -> None:
        self._kept = kept
        self.link = directory / "results"
        self._home = directory.parent / f".{directory.name}"
        files.make_directory(directory)
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

    def replace(self, gone: Iterable[Path], name: str, data: bytes) -> None:
        """Put one file with this name in the place of others."""
        following = self._number + 1
        target = self._at(following)
        _remove(target)
        target.mkdir()
        kept = {path.name for path in self.current.iterdir()} - {path.name for path in gone}
        for each in sorted(kept):
            os.link(self.current / each, target / each)
        files.replace(target / name, data)
        files.sync_directory(self._home)
        self._point(following)
        self._number = following
        self._drop()

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
                _remove(path)

    def _at(self, number: int) -> Path:
        return self._home / f"{number:010}"


def _remove(directory: Path) -> None:
    if directory.is_dir():
        for path in directory.iterdir():
            path.unlink()
        directory.rmdir()
