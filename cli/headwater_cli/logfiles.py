"""What the processes of a run log: a file for each run, of which the last ones are kept."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path
from time import gmtime, strftime

from headwater_cli import resultfiles

# How many logs of runs are kept, and how much of the end of one is looked at for what went wrong.
LOGS, TAIL = 20, 1 << 16


def begin(topology: str, output: Path | None) -> Path:
    """An empty file for the log of a run: in the directory of its results, or in the user's state."""
    if output is not None:
        resultfiles.prepare(output)
        path = output / resultfiles.LOG
    else:
        state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
        directory = Path(state) / "headwater" / "logs"
        directory.mkdir(parents=True, exist_ok=True)
        for old in sorted(directory.glob("*.jsonl"), key=_age)[: -LOGS + 1]:
            old.unlink(missing_ok=True)
        now = strftime("%Y-%m-%dT%H-%M-%S", gmtime())
        path = directory / f"{topology}-{now}-{os.getpid()}.jsonl"
    # Also over the log of an earlier run, whose results stay until there are new ones.
    path.write_bytes(b"")
    return path


def last_problem(path: Path) -> str:
    """The last error in a log and where the log is, to be added to a message."""
    said = ""
    with suppress(OSError):
        with path.open("rb") as file:
            file.seek(max(path.stat().st_size - TAIL, 0))
            lines = file.read().decode(errors="replace").splitlines()
        said = next(filter(None, map(_error, reversed(lines))), "")
    return f"{said}; its log is {path}"


def _error(line: str) -> str:
    """The message of a line that is an error; the text of one that no program of ours wrote."""
    try:
        found = json.loads(line)
        return f": {found['message']}" if found["level"] in ("error", "critical") else ""
    except (ValueError, LookupError, TypeError):
        return ""


def _age(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0
