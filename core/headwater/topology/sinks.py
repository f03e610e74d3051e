"""The sinks of a manifest: which fields each type has, and what may stand in them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from itertools import product
from typing import get_args

from headwater.durations import MILLISECOND, SECOND, human
from headwater.topology.sections import VARIABLE, Section, Wrong, shown, subdomain
from headwater.topology.tree import SINK_TIMEOUT, Sink, SinkType

SINKS_LIMIT = 16
HEADERS_LIMIT = 16
TIMEOUT_LIMIT = 3_600 * SECOND
# A shorter one would delete results before anybody has read them.
RETENTION_LEAST = 3_600 * SECOND
# Kept beside the table of results.
CURSORS = "headwater_cursors"

# Fields of each type of sink, and whether it must have them.
FIELDS: dict[SinkType, dict[str, bool]] = {
    "console": {},
    "jsonlines": {"path": True},
    "parquet": {"path": True},
    "postgres": {
        "dsn": False,
        "dsnEnv": False,
        "secretRef": False,
        "table": False,
        "timeout": False,
        "retention": False,
    },
    "webhook": {"url": True, "headersEnv": False, "secretRef": False, "timeout": False},
}
_TEXTS: dict[str, tuple[Callable[[str], Wrong | None], str]] = {
    "path": (lambda given: _path_problem(given), "give a folder on the root's volume, such as results"),
    "secretRef": (subdomain, "name the Secret that holds the address and the password"),
    "url": (lambda given: _url_problem(given), "give an address such as https://example.org/results"),
    "dsn": (lambda given: _dsn_problem(given), "give an address such as postgresql://mill@db/plant"),
    "dsnEnv": (lambda given: _variable_problem(given), "name an environment variable, such as MILL_DSN"),
    "table": (lambda given: _table_problem(given), "give a table, such as results or plant.results"),
}
_ALL = (*_TEXTS, "headersEnv", "timeout", "retention")

NAME = re.compile(r"[a-z_][a-z0-9_]{0,62}")
# What HTTP calls a token.
HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,64}")
# In an address between user and host, and as a parameter of either form.
PASSWORD = re.compile(r"://[^/]*:[^/]*@|(?i:password)\s*=")
DSN = re.compile(r"postgres(ql)?://|\s*[a-z_]+\s*=")
# Those that the sink writes itself.
OURS = frozenset(
    {
        "connection",
        "content-length",
        "content-type",
        "host",
        "idempotency-key",
        "transfer-encoding",
        "user-agent",
    }
)
URL = re.compile(r"https?://(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(:(?P<port>[0-9]{1,5}))?([/?#][!-~]*)?")


def read_sinks(section: Section) -> tuple[Sink, ...]:
    """The sinks of a root."""
    found: list[Sink] = []
    for place, given in enumerate(section.listed("sinks", SINKS_LIMIT)):
        inner = Section(given, f"{section.path}.sinks[{place}]", section.problems)
        sink = _sink(inner)
        if sink is not None:
            if sink in found:
                inner.wrong("type", "stands there twice with the same target", "give each sink once")
            elif any(_overlap(sink, other) for other in found):
                said = f"is {shown(sink.path)}, where another sink writes"
                inner.wrong("path", said, "give each sink a folder of its own, not one within another")
            found.append(sink)
    return tuple(found)


def _overlap(one: Sink, other: Sink) -> bool:
    """Whether a folder of one is a folder of the other, or within one."""
    for first, second in product(_folders(one), _folders(other)):
        shorter = min(len(first), len(second))
        if first[:shorter] == second[:shorter]:
            return True
    return False


def _folders(sink: Sink) -> list[list[str]]:
    if sink.path is None:
        return []
    parts = [part for part in sink.path.split("/") if part not in ("", ".")]
    # A Parquet sink has its files a second time beside its own folder.
    beside = [[*parts[:-1], f"{parts[-1]}.files"]] if parts and sink.type == "parquet" else []
    return [parts, *beside]


def _sink(section: Section) -> Sink | None:
    known = get_args(SinkType)
    asked = section.choice("type", known)
    given_type = section.value("type")
    kind = next((name for name in FIELDS if name == asked and name == given_type), None)
    if kind is None:
        section.allow(*_ALL)
        section.done()
        return None
    fields = FIELDS[kind]
    for field in _ALL:
        if field not in fields and field in section:
            section.allow(field)
            section.wrong(field, f"a {kind} sink has none", f"drop {field}")
    texts = {
        field: _text(section, field, rule, fields[field], remedy)
        for field, (rule, remedy) in _TEXTS.items()
        if field in fields
    }
    headers = _headers(section) if "headersEnv" in fields else ()
    timeout = _timeout(section) if "timeout" in fields else SINK_TIMEOUT
    retention = _retention(section) if "retention" in fields else None
    section.done()
    if kind == "postgres" and not any(field in section for field in ("dsn", "dsnEnv", "secretRef")):
        remedy = (
            "name the environment variable that holds the address of the database, or give dsn or secretRef"
        )
        section.wrong("dsnEnv", "is missing", remedy)
    return Sink(
        kind,
        path=texts.get("path"),
        secret_ref=texts.get("secretRef"),
        url=texts.get("url"),
        dsn=texts.get("dsn"),
        dsn_env=texts.get("dsnEnv"),
        table=texts.get("table"),
        headers_env=headers,
        timeout=timeout,
        retention=retention,
    )


def _text(
    section: Section, field: str, rule: Callable[[str], Wrong | None], required: bool, remedy: str
) -> str | None:
    if field in ("dsn", "dsnEnv") and not isinstance(section.value(field), str | None):
        # Not shown: it may hold a password.
        section.wrong(field, "is no string", remedy)
        return None
    return section.text(field, rule, required=required, remedy=remedy) or None


def _headers(section: Section) -> tuple[tuple[str, str], ...]:
    """Names of headers and of the environment variables that hold them, sorted."""
    remedy = "give headers and the environment variables that hold them, such as Authorization: MILL_TOKEN"
    found = section.value("headersEnv")
    if found is None:
        return ()
    if not isinstance(found, Mapping):
        # Whoever mistakes the field may have put a secret there.
        section.wrong("headersEnv", "is no mapping", remedy)
        return ()
    if len(found) > HEADERS_LIMIT:
        section.wrong("headersEnv", f"has {len(found)} headers", f"give at most {HEADERS_LIMIT}")
    headers: dict[str, tuple[str, str]] = {}
    for name, variable in found.items():
        if not isinstance(name, str) or not HEADER.fullmatch(name):
            section.wrong("headersEnv", f"has the header {shown(name)}", remedy)
        elif name.lower() in OURS:
            section.wrong(f"headersEnv[{name}]", "is a header that the sink writes itself", "drop it")
        elif name.lower() in headers:
            section.wrong(f"headersEnv[{name}]", "stands there twice", "give each header once")
        elif not isinstance(variable, str) or not VARIABLE.fullmatch(variable):
            said = "is no name of an environment variable"
            section.wrong(f"headersEnv[{name}]", said, "put the value into one, and give its name")
        else:
            headers[name.lower()] = (name, variable)
    return tuple(headers[name] for name in sorted(headers))


def _timeout(section: Section) -> int:
    found = section.duration("timeout", SINK_TIMEOUT, at_least=MILLISECOND)
    if found > TIMEOUT_LIMIT:
        section.wrong("timeout", f"is {human(found)}", f"give {human(TIMEOUT_LIMIT)} at most")
    return found


def _retention(section: Section) -> int | None:
    if section.value("retention") is None:
        return None
    return section.duration("retention", RETENTION_LEAST, at_least=RETENTION_LEAST)


def _path_problem(given: str) -> Wrong | None:
    # The same manifest runs on a laptop and in a pod whose file system is read-only elsewhere.
    if given.startswith("/") or ".." in given.split("/") or "\0" in given:
        return f"is {shown(given)}", 'give a path relative to the root\'s volume, without ".."'
    return None


def _url_problem(given: str) -> Wrong | None:
    found = URL.fullmatch(given)
    if found and 0 < int(found["port"] or 80) < 65_536:
        return None
    if "@" in given:
        # It may hold a password.
        said = "has a user or a password"
    else:
        said = f"is {shown(given)}"
    return (
        said,
        "give an address such as https://example.org/results (a password goes into headersEnv or secretRef)",
    )


def _dsn_problem(given: str) -> Wrong | None:
    # Never shown: it may hold a password.
    if PASSWORD.search(given):
        return "holds a password", "put the address with the password into an environment variable: dsnEnv"
    if "\0" in given or not DSN.match(given):
        return (
            "is no address of a database",
            "give one such as postgresql://mill@db/plant or host=db dbname=plant",
        )
    return None


def _variable_problem(given: str) -> Wrong | None:
    if VARIABLE.fullmatch(given):
        return None
    # Not shown: whoever mistakes it for the address may have put a password there.
    return (
        "is no name of an environment variable",
        "give letters, digits and _, and put the address into that variable",
    )


def _table_problem(given: str) -> Wrong | None:
    parts = given.split(".")
    if len(parts) > 2 or not all(NAME.fullmatch(part) for part in parts):
        return (
            f"is {shown(given)}",
            "give a table, or a schema, a dot and a table, each of at most 63 of a-z, 0-9 and _, not "
            "beginning with a digit",
        )
    if parts[-1] == CURSORS:
        return f"is {shown(given)}", "give another table: this one holds the cursors"
    return None
