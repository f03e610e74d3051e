"""Who writes to a sink: a topology, with the epoch of its log and a word by which logs are told apart."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from pathlib import Path

from headwater_root import files


@dataclass(frozen=True, slots=True)
class Writer:
    """One opening of the log of a topology: of two, the one with the higher epoch goes on."""

    topology: str = ""
    epoch: int = 0


# Of a log that is never opened again.
NOBODY = Writer()


def word_of(directory: Path) -> str:
    """The word of the log that a directory belongs to, made with the directory.

    Positions of two logs say nothing about each other. Whoever lost the volume, or gave the same name to
    another topology, has another word.
    """
    path = directory / "word"
    if not path.exists():
        files.replace(path, f"{secrets.token_hex(8)}\n".encode())
    return path.read_text().strip()
