"""What a program gives as events: lists, arrays, or single ones; as columns."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import numpy as np

from headwater.errors import InvalidEvents, Problem
from headwater.events import is_whole
from headwater.timeunits import (
    FIRST,
    TimeUnit,
    column_to_microseconds,
    time_unit_problem,
    unit_problem,
)
from headwater_source.columns import Coded, Events
from headwater_source.readers import records

# How a program gives the unit of times.
UNIT_ARGUMENT = 'unit="{unit}"'


def events(
    name: str,
    ts: Any,
    values: Any,
    keys: Any,
    marks: Any,
    *,
    unit: TimeUnit | None = None,
    judge: bool = False,
) -> Events:
    """Columns of what was given; InvalidEvents tells everything that is wrong with it. `judge`: refuse times
    that look like another unit, if none is given."""
    problems: list[Problem] = []
    wrong = time_unit_problem(unit)
    if wrong is not None:
        raise InvalidEvents(f"the events of source {name!r} cannot be taken", [wrong])
    moments = _moments(ts, unit, problems)
    if judge and unit is None and not problems:
        problems += _judged(ts)
    rows = len(moments)
    numbers, bare = _numbers(values, rows, problems)
    key = None if keys is None else _names("keys", keys, rows, "", problems)
    mark = None if marks is None else _names("marks", marks, rows, None, problems)
    if problems:
        raise InvalidEvents(f"the events of source {name!r} cannot be taken", problems)
    return Events(moments, numbers, bare, key, mark)


def _judged(given: Any) -> list[Problem]:
    """The problem of the first times, if they are whole numbers of another unit than microseconds."""
    first = given[:FIRST] if isinstance(given, list | tuple | np.ndarray) else [given]
    if len(first) and all(is_whole(each) for each in first):
        problem = unit_problem("ts", np.array(first, np.int64), UNIT_ARGUMENT, strict=False)
        return [] if problem is None else [problem]
    return []


def _moments(given: Any, unit: TimeUnit | None, problems: list[Problem]) -> Any:
    if isinstance(given, int | float | str | datetime | np.integer | np.datetime64):
        given = [given]
    if isinstance(given, np.ndarray) and given.dtype.kind in "iuM" and given.ndim == 1:
        if given.dtype.kind == "M":
            return given.astype("datetime64[us]").astype(np.int64)
        return column_to_microseconds(given.astype(np.int64), unit or "us")
    found = []
    for place, each in enumerate(given):
        try:
            plain = each.item() if isinstance(each, np.integer) else each
            if isinstance(plain, np.datetime64):
                found.append(int(plain.astype("datetime64[us]").astype(np.int64)))
            else:
                found.append(records.moment(plain, unit, UNIT_ARGUMENT))
        except records.Wrong as wrong:
            problems.append(Problem(f"ts[{place}]", wrong.problem.message, wrong.problem.remedy))
            found.append(0)
    return np.array(found, np.int64)


def _numbers(given: Any, rows: int, problems: list[Problem]) -> tuple[Any, Any]:
    if given is None:
        return np.full(rows, np.nan), np.ones(rows, np.bool_)
    if isinstance(given, np.ndarray) and given.dtype.kind in "iuf" and given.ndim == 1:
        _as_long("values", given, rows, problems)
        return given.astype(np.float64), None
    if isinstance(given, float | int):
        given = [given] * rows
    found = []
    for place, each in enumerate(given):
        try:
            plain = each.item() if isinstance(each, np.generic) else each
            found.append(records.number(plain))
        except records.Wrong as wrong:
            problems.append(Problem(f"values[{place}]", wrong.problem.message, wrong.problem.remedy))
            # It has its place: the others are not one too few.
            found.append(None)
    _as_long("values", found, rows, problems)
    bare = np.array([each is None for each in found], np.bool_)
    numbers = np.array([np.nan if each is None else each for each in found], np.float64)
    return numbers, bare if bare.any() else None


def _names(field: str, given: Any, rows: int, absent: str | None, problems: list[Problem]) -> Coded:
    if isinstance(given, str):
        given = [given] * rows
    names = [each if each else absent for each in given]
    _as_long(field, names, rows, problems)
    found = Coded.of(each if each is None else str(each) for each in names)
    for each in found.names:
        try:
            records.name(each)
        except records.Wrong as wrong:
            problems.append(
                Problem(f"{field}[{names.index(each)}]", wrong.problem.message, wrong.problem.remedy)
            )
    return found


def _as_long(field: str, column: Sequence[Any] | Any, rows: int, problems: list[Problem]) -> None:
    if len(column) != rows:
        problems.append(
            Problem(field, f"has {len(column)} rows, ts {rows}", "give one an event, or one for all")
        )
