"""What a program gives as events: lists, arrays, or single ones; as columns."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import numpy as np

from headwater.errors import InvalidEvents, Problem
from headwater_source.columns import Coded, Events
from headwater_source.readers import records


def events(name: str, ts: Any, values: Any, keys: Any, marks: Any) -> Events:
    """Columns of what was given; InvalidEvents tells everything that is wrong with it."""
    problems: list[Problem] = []
    moments = _moments(ts, problems)
    rows = len(moments)
    numbers, bare = _numbers(values, rows, problems)
    key = None if keys is None else _names("keys", keys, rows, "", problems)
    mark = None if marks is None else _names("marks", marks, rows, None, problems)
    if problems:
        raise InvalidEvents(f"the events of source {name!r} cannot be taken", problems)
    return Events(moments, numbers, bare, key, mark)


def _moments(given: Any, problems: list[Problem]) -> Any:
    if isinstance(given, int | str | datetime | np.integer | np.datetime64):
        given = [given]
    if isinstance(given, np.ndarray) and given.dtype.kind in "iuM" and given.ndim == 1:
        if given.dtype.kind == "M":
            given = given.astype("datetime64[us]")
        return given.astype(np.int64)
    found = []
    for place, each in enumerate(given):
        try:
            plain = each.item() if isinstance(each, np.integer) else each
            if isinstance(plain, np.datetime64):
                plain = int(plain.astype("datetime64[us]").astype(np.int64))
            found.append(records.moment(plain))
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
