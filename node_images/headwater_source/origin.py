"""Where the records of a spool come from: who the source is, and how far which inputs were accepted.

`origin.json` stands beside the spool. Of an input that is being read it says at which head it began, once
and durably before the first record; how far it was accepted is the head since then. So a process that is
killed at any moment has said enough, and the same input given again goes on behind what was accepted.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from headwater.errors import InvalidSource, PermanentError, Problem
from headwater_source.keys import Keys
from headwater_source.segments import sync_directory

FORMAT = 1
# An input is known by so many bytes at its beginning: it may grow, be copied, and be mended behind them.
KNOWN_BY = 64 << 10
# So many inputs are remembered.
INPUTS = 1_000


class OriginDamaged(PermanentError):
    def __init__(self, path: Path, why: object) -> None:
        super().__init__(
            f"{path} does not read ({why}); restore it, or remove it: then the inputs that were accepted "
            "are forgotten"
        )


@dataclass(frozen=True, slots=True)
class Beginning:
    """The first bytes of an input."""

    size: int
    digest: str

    @classmethod
    def of(cls, path: str | os.PathLike[str], size: int = KNOWN_BY) -> Beginning | None:
        """None if it is no file that can be read twice."""
        if not stat.S_ISREG(Path(path).stat().st_mode):
            return None
        with Path(path).open("rb") as file:
            data = file.read(size)
        return cls(len(data), hashlib.sha256(data).hexdigest())


@dataclass(frozen=True, slots=True)
class Input:
    """An input of which `accepted` records were accepted, and since the spool's `head` all that follow."""

    beginning: Beginning
    accepted: int
    head: int | None = None

    def settled(self, head: int) -> Input:
        if self.head is None:
            return self
        return Input(self.beginning, self.accepted + max(head - self.head, 0))


@dataclass(frozen=True, slots=True)
class Origin:
    """What stands in the file; a change gives another one."""

    name: str
    site: str = ""
    lateness: int = 0
    inputs: tuple[Input, ...] = ()
    keys: Keys = "none"
    # Whether values without a key were accepted before the root had said whether queries compute by one.
    unanswered: bool = False
    # Up to which number the root had settled the records of the spool when it was last closed.
    counted: int = 0

    def settled(self, head: int) -> Origin:
        """No input is being read any more; those of which nothing was accepted are forgotten."""
        inputs = (each.settled(head) for each in self.inputs)
        return replace(self, inputs=tuple(each for each in inputs if each.accepted)[-INPUTS:])

    def known(self, path: str | os.PathLike[str]) -> Input | None:
        """The input that begins like this file, the last one of several."""
        for each in reversed(self.inputs):
            if Beginning.of(path, each.beginning.size) == each.beginning:
                return each
        return None

    def begun(self, beginning: Beginning, head: int, accepted: int = 0) -> Origin:
        """An input is read from now on, of which so much was accepted before."""
        others = [each for each in self.inputs if each.beginning != beginning]
        return replace(self, inputs=(*others, Input(beginning, accepted, head)))

    def shortened(self, path: str | os.PathLike[str], size: int) -> Origin:
        """The input that is being read is known by no more than so many bytes: what follows may be mended."""
        *others, last = self.inputs
        beginning = Beginning.of(path, min(size, last.beginning.size))
        assert beginning is not None
        return replace(self, inputs=(*others, replace(last, beginning=beginning)))


def read(directory: Path, name: str) -> Origin | None:
    """The origin of the spool in a directory; None if nothing is known. Another source's is refused."""
    path = directory / "origin.json"
    try:
        given = json.loads(path.read_bytes())
        if given["format"] != FORMAT:
            raise OriginDamaged(path, f"format {given['format']}")
        inputs = [Input(Beginning(**each.pop("beginning")), **each) for each in given["inputs"]]
        # A release that did not look at keys has accepted what came.
        keys = given.get("keys", "optional")
        unanswered = bool(given.get("unanswered", False))
        counted = int(given.get("counted", 0))
        found = Origin(
            given["name"], given["site"], given["lateness"], tuple(inputs), keys, unanswered, counted
        )
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as error:
        raise OriginDamaged(path, error) from error
    if found.name != name:
        problem = Problem("spool", f"{directory} is that of {found.name!r}", "give every source its own")
        raise InvalidSource(f"the spool of {name!r} cannot be opened", [problem])
    return found


def write(directory: Path, origin: Origin) -> None:
    """Durable when it returns, and whole or not at all."""
    temporary = directory / "origin.tmp"
    with temporary.open("w") as file:
        json.dump({"format": FORMAT, **asdict(origin)}, file)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(directory / "origin.json")
    sync_directory(directory)


def directory_name(name: str) -> str:
    """A name for the directory of a source: readable, and another one for every name."""
    plain = "".join(each if each.isascii() and (each.isalnum() or each in "-_") else "_" for each in name)
    if plain == name and len(name) <= 64:
        return plain
    return f"{plain[:64]}.{hashlib.sha256(name.encode()).hexdigest()[:16]}"


def spools() -> Path:
    """Where the spools of this user are kept unless told otherwise."""
    state = os.environ.get("XDG_STATE_HOME")
    return Path(state or Path.home() / ".local" / "state") / "headwater" / "sources"
