"""What a node has to know before it can ask: a file, overridden by the environment."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from headwater.durations import SECOND, microseconds
from headwater.errors import Invalid, Problem
from headwater.machines.bounds import Settings
from headwater.sources import NAME_LIMIT
from headwater.topology import Archive, archive_of
from headwater_wire.credentials import FIELDS, Credentials
from headwater_wire.monitor import address_of

ROLES = ("child", "intermediate")
REQUIRED = ("name", "role", "listen")
PARENT = ("parent", "parent_address")
TEXTS = (*REQUIRED, *PARENT, "root_address", "metrics", "advertise", "ingest_tls")
SWITCH = ("on", "off")
# How everybody calls the root.
ROOT = "root"
DURATIONS = ("flush_interval", "future", "idle_after", "horizon")
KNOWN = (*TEXTS, *DURATIONS, "tls", "archive", "ingest_limit")
FLUSH_INTERVAL = SECOND // 10
FUTURE = 86_400 * SECOND
_DEFAULTS = {
    "flush_interval": FLUSH_INTERVAL,
    "future": FUTURE,
    "idle_after": Settings().silence,
    "horizon": Settings().horizon,
}
# Bounds in microseconds, and the remedy.
_BOUNDS = {
    "flush_interval": (1_000, 60 * SECOND, "give seconds from 0.001 to 60, or a duration such as 100ms"),
    "future": (0, 36_500 * FUTURE, "give seconds from 0 on, or a duration such as 1d"),
    "idle_after": (1_000, 2**63, "give seconds from 0.001 on, or a duration such as 1m"),
    "horizon": (1, 2**63, "give seconds above 0, or a duration such as 1h"),
}


@dataclass(frozen=True, slots=True)
class Configuration:
    """One node; times in microseconds."""

    name: str
    role: str
    listen: str
    # The root where `follows`: who else is its parent, that says.
    parent: str
    parent_address: str
    follows: bool = False
    flush_interval: int = FLUSH_INTERVAL
    future: int = FUTURE
    # After what silence a child calls a source idle, and how far ahead of the watermark it reads one.
    idle_after: int = _DEFAULTS["idle_after"]
    horizon: int = _DEFAULTS["horizon"]
    metrics: str | None = None
    advertise: str | None = None
    credentials: Credentials | None = None
    # Whether those below speak plain text, whatever those above do.
    plain_below: bool = False
    archive: Archive | None = None
    # Items a second that it takes at most: to see what an overrun does.
    ingest_limit: float | None = None

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Configuration:
        """As configured, or one error with everything that is wrong with it."""
        problems = [_unknown(field) for field in given if field not in KNOWN]
        problems += [problem for field in TEXTS if (problem := _text_problem(given, field))]
        told = {problem.field for problem in problems}
        if given.get("role") is not None and "role" not in told and given["role"] not in ROLES:
            problems.append(Problem("role", f"is {given['role']!r}", f"give one of {', '.join(ROLES)}"))
        found: dict[str, Any] = {field: given.get(field) or None for field in TEXTS}
        problems += _parent_problems(found)
        root = found.pop("root_address")
        if root:
            found |= {"parent": ROOT, "parent_address": root, "follows": True}
        switch = found.pop("ingest_tls")
        found["plain_below"] = switch == "off"
        if switch is not None and switch not in SWITCH:
            problems.append(Problem("ingest_tls", f"is {switch!r}", f"give one of {', '.join(SWITCH)}"))
        if found["plain_below"] and given.get("role") == "intermediate":
            problems.append(Problem("ingest_tls", "is off at an intermediate node", "give it to children"))
        for field in DURATIONS:
            found[field], wrong = _duration(given.get(field), field, _DEFAULTS[field])
            problems += wrong
        found["ingest_limit"], wrong = _limit(given.get("ingest_limit"))
        problems += wrong
        tls = given.get("tls") or {}
        try:
            if not isinstance(tls, Mapping):
                problems.append(Problem("tls", f"is {tls!r}", f"give {', '.join(FIELDS)}"))
            else:
                found["credentials"] = Credentials.of(tls)
        except Invalid as error:
            problems += error.problems
        try:
            if found["metrics"] and "metrics" not in told:
                address_of(found["metrics"], "metrics")
        except Invalid as error:
            problems += error.problems
        try:
            if given.get("archive") is not None:
                found["archive"] = archive_of(given["archive"])
                if given.get("role") == "intermediate":
                    problem = Problem("archive", "stands at an intermediate node", "archive at the children")
                    problems.append(problem)
        except Invalid as error:
            problems += error.problems
        if problems:
            raise Invalid("the node cannot be started", problems)
        return cls(**found)


def read(path: str | None, environment: Mapping[str, str]) -> Configuration:
    """The file, overridden by the environment."""
    given = {} if path is None else _document(Path(path))
    for field in (*TEXTS, *DURATIONS, "ingest_limit"):
        if value := environment.get(f"HEADWATER_{field.upper()}"):
            given[field] = value
    tls = {field: environment.get(f"HEADWATER_TLS_{field.upper()}") for field in FIELDS}
    if any(tls.values()):
        held = given.get("tls")
        given["tls"] = {**(held if isinstance(held, dict) else {}), **{f: v for f, v in tls.items() if v}}
    return Configuration.of(given)


def _document(path: Path) -> dict[str, Any]:
    try:
        document = json.loads(path.read_text())
    except OSError as error:
        problem = Problem("--config", f"{path} cannot be read ({error.strerror})", "give a file of JSON")
        raise Invalid("the node cannot be started", [problem]) from error
    except ValueError as error:
        problem = Problem("--config", f"{path} is no JSON ({error})", "give a file of JSON")
        raise Invalid("the node cannot be started", [problem]) from error
    if not isinstance(document, dict):
        problem = Problem("--config", f"{path} holds no object", 'give one, such as {"name": "l1-0", ...}')
        raise Invalid("the node cannot be started", [problem])
    return document


def _unknown(field: str) -> Problem:
    near = get_close_matches(field, KNOWN, 1)
    remedy = f"did you mean {near[0]}?" if near else f"known are {', '.join(KNOWN)}"
    return Problem(field, "is not known", remedy)


def _text_problem(given: Mapping[str, Any], field: str) -> Problem | None:
    value = given.get(field)
    if value is None or value == "":
        if field not in REQUIRED:
            return None
        return Problem(field, "is missing", f"give it, or set HEADWATER_{field.upper()}")
    if not isinstance(value, str) or len(value.encode(errors="replace")) > NAME_LIMIT:
        return Problem(field, f"is {value!r}", f"give a text of at most {NAME_LIMIT} bytes")
    return None


def _parent_problems(found: Mapping[str, Any]) -> list[Problem]:
    if found["root_address"]:
        return [
            Problem(field, "stands beside root_address", "drop it: the root says who the parent is")
            for field in PARENT
            if found[field]
        ]
    if not any(found[field] for field in PARENT):
        remedy = "give it, or set HEADWATER_ROOT_ADDRESS; or give parent and parent_address"
        return [Problem("root_address", "is missing", remedy)]
    return [
        Problem(field, "is missing", f"give it, or set HEADWATER_{field.upper()}")
        for field in PARENT
        if not found[field]
    ]


def _limit(given: Any) -> tuple[float | None, list[Problem]]:
    if given is None:
        return None, []
    try:
        found = math.nan if isinstance(given, bool) else float(given)
    except (TypeError, ValueError):
        found = math.nan
    if found > 0 and math.isfinite(found):
        return found, []
    return None, [Problem("ingest_limit", f"is {given!r}", "give items a second, above 0")]


def _duration(given: Any, field: str, default: int) -> tuple[int, list[Problem]]:
    """Microseconds of a number of seconds or of a duration in words."""
    low, high, remedy = _BOUNDS[field]
    if given is None:
        return default, []
    try:
        number = float(given)
    except (TypeError, ValueError):
        number = math.nan
    try:
        if math.isfinite(number) and not isinstance(given, bool):
            found = round(number * SECOND)
        else:
            found = microseconds(given) if isinstance(given, str) else low - 1
    except ValueError:
        found = low - 1
    if low <= found <= high:
        return found, []
    return default, [Problem(field, f"is {given!r}", remedy)]
