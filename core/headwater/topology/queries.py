"""Queries as they stand in a manifest: read, and written again."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from headwater import aggregates
from headwater.aggregates import UserDefined
from headwater.durations import human, microseconds
from headwater.errors import Invalid, InvalidQuery, Problem
from headwater.queries import EVERYTHING, AggregateSpec, Query, Where, id_problem, validate
from headwater.topology.sections import (
    TEXT_LIMIT,
    InvalidTopology,
    Section,
    Wrong,
    shown,
    text_problem,
    unit_problem,
)
from headwater.windows import Punctuation, Session, Sliding, Tumbling, Window, is_count

QUERIES_LIMIT = 256
AGGREGATES_LIMIT = 64
KEYS_LIMIT = 1_024
COLUMN_LIMIT = 253
FUNCTION_PREFIX = "function:"

# The function that an installed package offers under a name.
Functions = Callable[[str], UserDefined | None]


def no_functions(name: str) -> None:
    """Of a program that has no packages with functions."""
    return None


def queries_of(documents: Sequence[Any], functions: Functions = no_functions) -> tuple[Query, ...]:
    """Queries as they stand in the list of a manifest, however many: whoever gives them has bounded them."""
    problems: list[Problem] = []
    spec = Section({"queries": list(documents)}, "spec", problems)
    queries = listed_queries(spec, functions, limit=len(documents))
    if problems:
        raise InvalidTopology("the queries cannot be taken", problems)
    return queries


def query_document(query: Query) -> dict[str, Any]:
    """A query as it stands in the list of a manifest; what is as usual is left out."""
    listed = query.aggregate if isinstance(query.aggregate, tuple) else (query.aggregate,)
    names = [
        FUNCTION_PREFIX + given.name if isinstance(given, UserDefined) else str(given) for given in listed
    ]
    document: dict[str, Any] = {
        "id": query.id,
        "aggregate": names[0] if len(names) == 1 else names,
        "window": _window_document(query.window),
    }
    if query.key_by is not None:
        document["keyBy"] = query.key_by
    where = {
        field: bound
        for field, bound in (
            ("above", query.where.above),
            ("atLeast", query.where.at_least),
            ("below", query.where.below),
            ("atMost", query.where.at_most),
        )
        if bound is not None
    }
    if query.where.keys is not None:
        document["where"] = {**where, "keys": sorted(query.where.keys)}
    elif where:
        document["where"] = where
    if query.scope != "global":
        document["scope"] = query.scope
    if query.deduplicate:
        document["deduplicate"] = True
    if query.emit_empty:
        document["emitEmpty"] = True
    return document


def _window_document(window: Window) -> dict[str, Any]:
    document: dict[str, Any] = {"type": type(window).__name__.lower()}
    if isinstance(window, Session):
        return {**document, "gap": human(microseconds(window.gap))}
    if isinstance(window, Punctuation):
        document["start"] = window.start
        if window.end is not None:
            document["end"] = window.end
        document["merge"] = window.merge
        if window.max_open != Punctuation.__dataclass_fields__["max_open"].default:
            document["maxOpen"] = window.max_open
        return document
    if window.count is not None:
        document["count"] = window.count
        if isinstance(window, Sliding):
            document["every"] = window.every
        return document
    document["length"] = human(microseconds(window.length or 0))
    if isinstance(window, Sliding):
        document["slide"] = human(microseconds(window.slide or 0))
    if offset := microseconds(window.offset):
        document["offset"] = human(offset)
    return document


# The engine's names, where a manifest writes them otherwise.
_WRITTEN = {
    "at_least": "atLeast",
    "at_most": "atMost",
    "emit_empty": "emitEmpty",
    "key_by": "keyBy",
    "max_open": "maxOpen",
}
_OURS = re.compile(rf"\b({'|'.join(_WRITTEN)})\b")


def written(text: str) -> str:
    """With fields as a manifest has them."""
    return _OURS.sub(lambda found: _WRITTEN[found[0]], text)


def listed_queries(spec: Section, functions: Functions, limit: int = QUERIES_LIMIT) -> tuple[Query, ...]:
    found = []
    labels: dict[str, str] = {}
    for place, given in enumerate(spec.listed("queries", limit)):
        id = given.get("id") if isinstance(given, Mapping) else None
        wrong = id_problem(id)
        path = f"spec.queries[{place if wrong else id}]"
        section = Section(given, path, spec.problems)
        section.allow("id")
        if wrong:
            said, remedy = wrong
            section.wrong("id", "is missing" if id is None else said, remedy)
        # A query without a name is judged all the same, under one that no other has.
        query = read_query(section, f"\0{place}" if wrong else str(id), functions)
        labels[query.id] = path
        found.append(query)
    queries, problems = validated(found, labels)
    spec.problems += not_yet_told(problems, spec.problems)
    return queries


def validated(given: list[Query], labels: Mapping[str, str]) -> tuple[tuple[Query, ...], list[Problem]]:
    """The queries, and what their own validation says, in the words of a manifest."""
    try:
        return validate(given), []
    except InvalidQuery as error:
        return tuple(given), [_translated(problem, labels) for problem in error.problems]


def _translated(problem: Problem, labels: Mapping[str, str]) -> Problem:
    id, found, field = problem.field.removeprefix("queries[").rpartition("].")
    if found:
        path = f"{labels[id]}.{written(field)}"
    else:
        path = "spec.queries[*]." + written(problem.field.removeprefix("queries."))
    return Problem(path, problem.message, written(problem.remedy))


def not_yet_told(wrong: Iterable[Problem], told: Iterable[Problem]) -> list[Problem]:
    """What is wrong with fields of which nothing is said yet: a stand-in may be judged a second time."""
    known = {problem.field for problem in told}
    return [problem for problem in wrong if problem.field not in known]


def read_query(section: Section, id: str, functions: Functions) -> Query:
    """The query as far as it can be read; the rest is judged by its own validation."""
    window = _window(section.section("window", required=True))
    found = Query(
        id=id,
        window=Tumbling(1) if window is None else window,
        aggregate=_aggregates(section, functions),
        key_by=section.text("keyBy", _column_problem, required=False) or None,
        where=_where(section.section("where")),
        scope="local" if section.choice("scope", ("global", "local"), "global") == "local" else "global",
        deduplicate=section.flag("deduplicate"),
        emit_empty=section.flag("emitEmpty"),
    )
    scheme = section.choice("scheme", _EVERY_SCHEME, "auto")
    section.flag("allowInexact")
    if window is not None and not is_count(window):
        for field in ("scheme", "allowInexact"):
            if field in section:
                section.wrong(
                    field,
                    "only windows of a number of events have one",
                    f"drop {field}, or give window.count",
                )
    elif scheme not in SCHEMES and section.value("scheme") == scheme:
        section.wrong(
            "scheme",
            f"{scheme} is not available yet: count windows are computed at the root, from forwarded events",
            f"give one of {', '.join(SCHEMES)}",
        )
    section.done()
    return found


def _column_problem(given: str) -> Wrong | None:
    if len(given) <= COLUMN_LIMIT:
        return None
    return f"has {len(given)} characters", f"give 1 to {COLUMN_LIMIT}"


_EVERY_SCHEME = ("central", "approx", "mon", "sync", "async", "auto")
SCHEMES = ("central", "auto")


def _aggregates(section: Section, functions: Functions) -> list[AggregateSpec]:
    """The functions that were understood; `count` in place of nothing, so that the rest can be judged."""
    known = f"give one of {', '.join(aggregates.NAMES)} or {FUNCTION_PREFIX}NAME"
    given = section.value("aggregate", known, required=True)
    if given is None:
        return ["count"]
    single = not isinstance(given, list | tuple)
    listed = [given] if single else section.listed("aggregate", AGGREGATES_LIMIT)
    if not listed:
        section.wrong("aggregate", "is empty", known)
    found: list[AggregateSpec] = []
    for place, name in enumerate(listed):
        field = "aggregate" if single else f"aggregate[{place}]"
        meant: AggregateSpec = name
        if isinstance(name, str) and name.startswith(FUNCTION_PREFIX):
            wanted = name.removeprefix(FUNCTION_PREFIX)
            try:
                function = functions(wanted)
            except Invalid as error:
                for problem in error.problems:
                    section.wrong(field, problem.message, problem.remedy)
                continue
            if function is None:
                section.wrong(
                    field,
                    f"{shown(wanted)} is no function of an installed package",
                    "install the package whose entry point has that name wherever the query is read: at "
                    "every node and the root, in a cluster also in the operator's image",
                )
                continue
            if function.name != wanted:
                section.wrong(
                    field,
                    f"the entry point {wanted!r} holds a function called {function.name!r}",
                    "give both the same name",
                )
                continue
            meant = function
        elif not isinstance(name, str):
            section.wrong(field, f"is {shown(name)}", known)
            continue
        parsed = aggregates.parse(meant)
        if isinstance(parsed, Problem):
            section.wrong(field, parsed.message, parsed.remedy)
        else:
            found.append(meant)
    return found or ["count"]


def _where(section: Section | None) -> Where:
    if section is None:
        return EVERYTHING
    bounds = {field: section.value(field) for field in ("above", "atLeast", "below", "atMost")}
    keys: frozenset[str] | None = None
    listed = section.listed("keys", KEYS_LIMIT)
    for place, key in enumerate(listed):
        if not isinstance(key, str) or len(key) > TEXT_LIMIT:
            section.wrong(
                f"keys[{place}]", f"is {shown(key)}", f"give strings of at most {TEXT_LIMIT} characters"
            )
    if "keys" in section and not section.told("keys"):
        keys = frozenset(key for key in listed if isinstance(key, str))
    section.done()
    return Where(bounds["above"], bounds["atLeast"], bounds["below"], bounds["atMost"], keys)


# Fields of each type of window.
WINDOW_FIELDS = {
    "tumbling": ("length", "offset", "count"),
    "sliding": ("length", "slide", "offset", "count", "every"),
    "session": ("gap",),
    "punctuation": ("start", "end", "merge", "maxOpen"),
}
_DURATIONS = ("length", "slide", "offset", "gap")


def _window(section: Section | None) -> Window | None:
    """The window as far as it can be read; None if nobody can say which one is meant."""
    if section is None:
        return None
    kind = section.choice("type", tuple(WINDOW_FIELDS))
    every = dict.fromkeys(field for fields in WINDOW_FIELDS.values() for field in fields)
    values = {field: section.value(field) for field in every}
    section.done()
    if section.value("type") != kind:
        return None
    for field, value in values.items():
        if value is None:
            continue
        if field not in WINDOW_FIELDS[kind]:
            having = [name for name, fields in WINDOW_FIELDS.items() if field in fields]
            section.wrong(
                field, f"a {kind} window has none", f"drop {field}, or make the type {' or '.join(having)}"
            )
        elif field in _DURATIONS:
            values[field] = _length(section, field, value)
        elif field in ("start", "end") and (wrong := text_problem(value)):
            section.wrong(field, *wrong)
    if kind == "session":
        return Session(values["gap"])
    if kind == "punctuation":
        if values["start"] is None:
            section.wrong("start", "is missing", "name the mark that opens a window")
        if values["merge"] is None:
            section.wrong("merge", "is missing", "give one of local, bounds, order, overlap")
        usual = Punctuation("")
        return Punctuation(
            values["start"], values["end"], values["merge"], _or(values["maxOpen"], usual.max_open)
        )
    offset = _or(values["offset"], 0)
    if kind == "tumbling":
        return Tumbling(values["length"], offset, values["count"])
    return Sliding(values["length"], values["slide"], offset, values["count"], values["every"])


def _or(value: Any, usual: Any) -> Any:
    return usual if value is None else value


def _length(section: Section, field: str, given: Any) -> Any:
    """A duration as microseconds; what is none stays as it is, for the window to tell."""
    if wrong := unit_problem(given):
        section.wrong(field, *wrong)
        return given
    try:
        return microseconds(given)
    except ValueError:
        return given
