"""What the processes of a run log: a file for each run, of which the last ones are kept."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from time import gmtime, strftime

from headwater_cli import resultfiles, userfiles

# How many logs of runs are kept, and how much of the end of one is looked at for what went wrong.
LOGS, TAIL = 20, 1 << 16
_TRACEBACK = "Traceback (most recent call last)"


def begin(topology: str, output: Path | None) -> Path:
    """An empty file for the log of a run: in the directory of its results, or in the user's state.

    Where the user has no home, or one that cannot be written, it is in a temporary directory.
    """
    if output is not None:
        resultfiles.prepare(output)
        path = output / resultfiles.LOG
        # Also over the log of an earlier run, whose results stay until there are new ones.
        path.write_bytes(b"")
        return path
    state = os.environ.get("XDG_STATE_HOME")
    home = userfiles.home()
    with suppress(OSError):
        if state:
            return _fresh(Path(state), topology)
        if home is not None:
            return _fresh(home / ".local" / "state", topology)
    return _fresh(userfiles.temporary(), topology)


def _fresh(state: Path, topology: str) -> Path:
    """An empty file in a directory of logs, from which old ones are removed."""
    directory = state / "headwater" / "logs"
    directory.mkdir(parents=True, exist_ok=True)
    now = strftime("%Y-%m-%dT%H-%M-%S", gmtime())
    path = directory / f"{topology}-{now}-{os.getpid()}.jsonl"
    path.touch()
    for old in sorted(directory.glob("*.jsonl"), key=_age)[:-LOGS]:
        old.unlink(missing_ok=True)
    return path


def last_problem(path: Path) -> str:
    """What a log says last that went wrong, and where it is, to be added to a message."""
    said = ""
    with suppress(OSError):
        with path.open("rb") as file:
            begin = max(path.stat().st_size - TAIL, 0)
            file.seek(begin)
            lines = file.read().decode(errors="replace").splitlines()
        # The first one is cut, unless it is the first of the file.
        said = _error(lines[1:] if begin else lines)
    return f"{f': {said}' if said else ''}; its log is {path}"


def _error(lines: Sequence[str]) -> str:
    """The message of the last error; of a process that died with a traceback the exception, and without
    either the last line that none of our programs has formatted."""
    texts: list[str] = []
    for line in reversed(lines):
        try:
            found = json.loads(line)
            if found["level"] in ("error", "critical"):
                return str(found["message"])
        except ValueError:
            if line.startswith(_TRACEBACK):
                # Frames are indented, the exception behind them is not.
                return next((text for text in reversed(texts) if text[0] != " "), "")
            if line.strip():
                texts.append(line.rstrip())
        except (LookupError, TypeError):
            continue
    return texts[0].strip() if texts else ""


def _age(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0
