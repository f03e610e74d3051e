"""The present files of a sink in a real directory, for tools that copy no links.

`kubectl cp` passes over symbolic links, so a copy of a sink whose files are behind one would hold no files.
The mirror holds hard links to the files of the present generation and takes no room of its own. It lies
beside the directory of the sink (`all.files` beside `all`), not in it: whoever reads that directory, or a
pattern below it, follows the link `results` to the same rows, and would find each of them twice.

A copy sees all files of one generation: a merge renames the mirror away and the next one into its place.
`tar` reads on in the directory that it has opened, so the mirror before stays until the next merge. Nothing
here is made durable: a sink that is opened compares the mirror with the generation, and makes it again if
they differ.
"""

from __future__ import annotations

import os
from pathlib import Path

from headwater_root import files
from headwater_root.files import Damaged

_SUFFIX = ".files"
# Where the mirror was before, in the directory of the sink.
_EARLIER = "_files"
_TEMPORARY = ".{}.tmp"
_NEXT, _BEFORE = "mirror-next", "mirror-before"


def path_of(directory: Path) -> Path:
    """Where the mirror of a sink's directory is."""
    return directory.with_name(directory.name + _SUFFIX)


class Mirror:
    """Hard links to the files of a generation; only one process changes them.

    `home` is the hidden directory of the generations, on the same volume.
    """

    def __init__(self, directory: Path, home: Path) -> None:
        self.path = path_of(directory)
        self._earlier = directory / _EARLIER
        self._home = home

    def refuse_copy(self, link: Path) -> None:
        """Refuse a directory whose files are here and that has no link: a copy made without links."""
        if os.path.lexists(link):
            return
        for path in (self.path, self._earlier):
            if path.is_dir() and any(path.iterdir()):
                remedy = "copy links as links, with the directories beside this one, or begin in another"
                said = f"the link is missing, but {path} has files, as in a copy by kubectl cp"
                raise Damaged(link, 0, said, remedy)

    def add(self, file: Path) -> None:
        """Name a file of the present generation here too, in the place of one with its name."""
        temporary = self.path / _TEMPORARY.format(file.name)
        try:
            os.link(file, temporary)
        except FileExistsError:
            # An attempt before has failed behind this.
            temporary.unlink()
            os.link(file, temporary)
        os.replace(temporary, self.path / file.name)

    def follow(self, generation: Path) -> None:
        """Hold the files of this generation and no others."""
        self._remove_earlier()
        if self.path.is_dir() and _inodes(self.path) == _inodes(generation):
            return
        following, before = self._home / _NEXT, self._home / _BEFORE
        files.remove_directory(following)
        following.mkdir()
        for path in sorted(generation.iterdir()):
            os.link(path, following / path.name)
        files.remove_directory(before)
        if self.path.is_dir():
            os.rename(self.path, before)
        os.rename(following, self.path)

    def _remove_earlier(self) -> None:
        """Remove the mirror from where it was before, out of sight first: a reader sees all of it or none."""
        if self._earlier.is_dir():
            gone = self._home / _BEFORE
            files.remove_directory(gone)
            os.rename(self._earlier, gone)


def _inodes(directory: Path) -> dict[str, int]:
    return {entry.name: entry.inode() for entry in os.scandir(directory)}
