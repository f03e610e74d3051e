"""The present files of a sink in a real directory, for tools that copy no links.

`kubectl cp` passes over symbolic links, so a copy of a sink whose files are behind one would hold no files.
The mirror holds hard links to the files of the present generation and takes no room of its own. Its name
begins with an underscore: pyarrow, pandas and Spark pass over it when they read the directory above, where
they follow the link `results` to the same rows.

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

NAME = "_files"
_TEMPORARY = ".{}.tmp"
_NEXT, _BEFORE = "mirror-next", "mirror-before"


class Mirror:
    """Hard links to the files of a generation; only one process changes them.

    `home` is the hidden directory of the generations, on the same volume.
    """

    def __init__(self, directory: Path, home: Path) -> None:
        self.path = directory / NAME
        self._home = home

    def refuse_copy(self, link: Path) -> None:
        """Refuse a directory that has files here and no link: a copy that was made without links."""
        if self.path.is_dir() and any(self.path.iterdir()) and not os.path.lexists(link):
            remedy = "copy links as links, with the hidden directory beside this one, or begin in another"
            raise Damaged(
                link, 0, f"the link is missing, but {self.path} has files, as in a copy by kubectl cp", remedy
            )

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


def _inodes(directory: Path) -> dict[str, int]:
    return {entry.name: entry.inode() for entry in os.scandir(directory)}
