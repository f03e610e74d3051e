"""What a program has to say: one JSON object a line, on its standard error."""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from types import TracebackType

from headwater.errors import Invalid, Problem

LEVELS = ("debug", "info", "warning", "error", "critical")
VARIABLE = "HEADWATER_LOG_LEVEL"
# What every record has; all else was given as `extra`.
_OWN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class JsonLines(logging.Formatter):
    """A record with its `extra` fields; `always` stands in every line."""

    def __init__(self, always: Mapping[str, object]) -> None:
        super().__init__()
        self._always = dict(always)

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "message": record.getMessage(),
            "logger": record.name,
            **self._always,
        }
        line |= {field: value for field, value in vars(record).items() if field not in _OWN}
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        # Whatever was given: a log must not fail over a value that JSON has no word for.
        return json.dumps(line, default=str)


def level_of(environment: Mapping[str, str]) -> int:
    """The least level that is told."""
    given = environment.get(VARIABLE, "info").lower()
    if given not in LEVELS:
        problem = Problem(VARIABLE, f"is {given!r}", f"give one of {', '.join(LEVELS)}")
        raise Invalid("the log cannot be set up", [problem])
    return logging.getLevelNamesMapping()[given.upper()]


def configure(program: str, environment: Mapping[str, str]) -> None:
    """Everything that is logged in this process, as lines. Call it before gRPC is imported.

    gRPC's core writes lines of its own to the same place, and looks only when it is loaded whether it may.
    """
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    handler = logging.StreamHandler()
    handler.setFormatter(JsonLines({"program": program}))
    logging.basicConfig(handlers=[handler], level=logging.INFO, force=True)
    logging.captureWarnings(True)
    sys.excepthook = _uncaught
    logging.getLogger().setLevel(level_of(environment))


def told(what: str, error: Exception) -> str:
    """An error as one line: what is wrong, each problem with its field and remedy."""
    if isinstance(error, Invalid):
        return f"{error.what}: " + " | ".join(map(str, error.problems))
    return f"{what}: {error}"


def _uncaught(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    logging.getLogger(__name__).critical("ended by an error", exc_info=(kind, error, trace))
