"""Records one by one: what each field may be, and what is wrong with one that it may not.

Slow and exact. Formats have a quick way for blocks of good records, which takes no more than this does.
"""

from __future__ import annotations

import math
import re
import reprlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import numpy as np

from headwater.durations import SECOND
from headwater.errors import PermanentError, Problem
from headwater.events import name_problem
from headwater.rows import TS_MAX, TS_MIN
from headwater.sources import source_name_problem
from headwater.timeunits import (
    WORDS,
    TimeUnit,
    decimal_to_microseconds,
    fraction_remedy,
    other_unit,
    to_microseconds,
)
from headwater_source.columns import Coded, Events
from headwater_source.readers.arrivals import Arrivals
from headwater_source.readers.times import TIME_UNIT_OPTION, Times

FIELDS = ("ts", "value", "key", "mark", "source", "site")
# A record as a format gives it: one thing a field, None for none.
Raw = Sequence[Any]

# So many bad records are kept to be told of.
TOLD = 10

_WHOLE = re.compile(r"[+-]?[0-9]+")
_DECIMAL = re.compile(r"[+-]?[0-9]{1,20}\.[0-9]{1,20}([eE][+-]?[0-9]{1,2})?")
_TS_REMEDY = (
    "give whole microseconds since 1970 (or say which unit it is), or a time such as 2026-01-31T12:00:00.5Z"
)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# A value in a message: cut, for a record may hold anything.
_shown = reprlib.Repr()
_shown.maxstring = _shown.maxother = _shown.maxlong = 80


class BadRecord(PermanentError):
    """A record that is no event; `unit` is what the input counts in, `offset` the byte where it begins."""

    def __init__(
        self, name: str, unit: str, number: int, problems: Sequence[Problem], offset: int | None = None
    ) -> None:
        self.name, self.unit, self.number, self.offset = name, unit, number, offset
        self.problems = tuple(problems)
        super().__init__(f"{name}, {unit} {number}: " + "; ".join(map(str, problems)))


class Wrong(Exception):
    """What is wrong with a field, and the remedy."""

    def __init__(self, message: str, remedy: str, field: str = "record") -> None:
        super().__init__(message)
        self.problem = Problem(field, message, remedy)


@dataclass(frozen=True, slots=True)
class Row:
    """A record and where it stands, or what is wrong with it as a whole."""

    number: int
    raw: Raw | Wrong
    fields: Sequence[str] = ()
    offset: int | None = None


@dataclass(frozen=True, slots=True)
class Columns:
    """What the input calls the fields; `named` are those that somebody has given a name.

    `options` says by field with which option that is done, where it is not --columns FIELD=NAME.
    """

    names: Mapping[str, str]
    named: frozenset[str] = frozenset()
    options: Mapping[str, str] = field(default_factory=dict)

    def found(self, there: Sequence[str]) -> dict[str, str]:
        """Field to column, of those that are there; Wrong if that makes no event."""
        listed = ", ".join(map(repr, there)) or "none"
        if len(set(there)) < len(there):
            raise Wrong(f"has a column twice ({listed})", "give every column a name of its own", "header")
        found = {field: name for field, name in self.names.items() if name in there}
        missing = {"ts", *self.named} - set(found)
        if missing:
            first = min(missing)
            option = self.options.get(first, f"--columns {first}=NAME")
            remedy = f"the columns are {listed}; say which it is with {option}"
            raise Wrong(f"has no column {self.names[first]!r}", remedy, first)
        if not {"value", "mark"} & set(found):
            remedy = f"the columns are {listed}; say which it is with --columns value=NAME"
            raise Wrong("has neither a value nor a mark", remedy, "value")
        return found


class RecordReader(ABC):
    """What every reader does with records one by one; `skipped` are the first of those passed over."""

    unit = "record"

    def __init__(
        self, name: str, columns: Columns, *, skip_bad: bool, time_unit: TimeUnit | None = "us"
    ) -> None:
        self.name, self.columns, self._skip_bad = name, columns, skip_bad
        self.times = Times(name, time_unit)
        # What the input calls its columns, once it was looked into; of JSON lines those of the first object.
        self.fields: tuple[str, ...] = ()
        self.skipped: list[BadRecord] = []
        self.skipped_count = 0
        # How its bytes arrive; None if it is given them.
        self.arrivals: Arrivals | None = None
        # Called once nothing more is read.
        self.close: Callable[[], object] = lambda: None

    def __iter__(self) -> Iterator[Events]:
        try:
            for part in self._parts():
                self.times.check()
                yield part
        finally:
            self.close()

    @abstractmethod
    def _parts(self) -> Iterator[Events]: ...

    def _gathered(self, rows: Iterable[Row]) -> Iterator[Events]:
        """The good ones as columns; at a bad one what stands before it, then the error."""
        good: list[list[Any]] = []
        fields: Sequence[str] = ()
        for row in rows:
            if isinstance(row.raw, Wrong):
                problems = [row.raw.problem]
            else:
                fields = row.fields
                found, problems = read(row.raw, fields, self.times)
            if not problems:
                good.append(found)
                continue
            bad = BadRecord(self.name, self.unit, row.number, problems, row.offset)
            if not self._skip_bad:
                if good:
                    yield events(good, fields)
                raise bad
            self.skipped_count += 1
            if len(self.skipped) < TOLD:
                self.skipped.append(bad)
        if good:
            yield events(good, fields)


def moment(given: Any, unit: TimeUnit | None = None, option: str = TIME_UNIT_OPTION) -> int:
    """Microseconds since the epoch, of a number in that unit (None: microseconds) or of ISO 8601 text with
    a zone. A number with a fraction is a time only if its unit is given; `option` is how that is done."""
    if isinstance(given, str):
        given = given.strip()
        if _WHOLE.fullmatch(given):
            try:
                given = int(given)
            except ValueError:
                # Python reads no longer ones.
                raise Wrong(f"has {len(given)} digits, beyond 64 bits", _TS_REMEDY) from None
        elif _DECIMAL.fullmatch(given):
            given = Decimal(given)
        elif given:
            try:
                given = datetime.fromisoformat(given)
            except ValueError:
                raise Wrong(f"is {_shown.repr(given)}", _TS_REMEDY) from None
    if isinstance(given, datetime):
        if given.tzinfo is None:
            raise Wrong(f"is {given.isoformat()} without a zone", "add Z, or an offset such as +02:00")
        past = given - _EPOCH
        return (past.days * 86_400 + past.seconds) * SECOND + past.microseconds
    if given is None or given == "":
        raise Wrong("is missing", _TS_REMEDY)
    if isinstance(given, float) and math.isfinite(given):
        # The shortest text of a float has all digits that were written.
        given = Decimal(repr(given))
    if isinstance(given, Decimal) and given.is_finite():
        if given == given.to_integral_value():
            given = int(given)
        elif unit is None:
            raise Wrong(f"is {given}, with a fraction", fraction_remedy(given, option))
        else:
            return _bounded(decimal_to_microseconds(given, unit), math.floor(given), unit, option)
    if not isinstance(given, int) or isinstance(given, bool):
        raise Wrong(f"is {_shown.repr(given)}", _TS_REMEDY)
    if not TS_MIN <= given <= TS_MAX:
        raise Wrong(f"is {_shown.repr(given)}, beyond 64 bits", _TS_REMEDY)
    return _bounded(to_microseconds(given, unit or "us"), given, unit or "us", option)


def _bounded(ts: int, number: int, unit: TimeUnit, option: str) -> int:
    if not TS_MIN <= ts <= TS_MAX:
        other = other_unit(number, unit)
        looks = (
            _TS_REMEDY if other is None else f"this looks like {WORDS[other]}: {option.format(unit=other)}"
        )
        raise Wrong(f"is {ts} microseconds, beyond 64 bits", looks)
    return ts


def number(given: Any) -> float | None:
    if isinstance(given, str):
        text = given.strip()
        if not text:
            return None
        try:
            if text.isascii() and "_" not in text:
                return float(text)
        except ValueError:
            pass
    elif given is None:
        return None
    elif isinstance(given, float | int) and not isinstance(given, bool):
        try:
            return float(given)
        except OverflowError:
            raise Wrong("is an integer beyond float64", "give a number that fits") from None
    raise Wrong(f"is {_shown.repr(given)}", "give a number, or nothing")


def name(given: Any) -> str:
    """A name; "" if there is none. Whole numbers are often names of devices."""
    if isinstance(given, int) and not isinstance(given, bool):
        given = str(given)
    if given is None or given == "":
        return ""
    if not isinstance(given, str):
        raise Wrong(f"is {_shown.repr(given)}", "give strings")
    if wrong := name_problem(given):
        raise Wrong(*wrong)
    return given


def source(given: Any) -> str:
    found = name(given)
    if found and (wrong := source_name_problem(found)):
        raise Wrong(*wrong)
    return found


_READ = {"value": number, "key": name, "mark": name, "source": source, "site": name}


def read(raw: Raw, fields: Sequence[str], times: Times) -> tuple[list[Any], list[Problem]]:
    """The fields of a record, and everything that is wrong with them."""
    found: list[Any] = []
    problems = []
    for column, given in zip(fields, raw, strict=True):
        try:
            if column == "ts":
                found.append(moment(given, times.unit))
                times.note(given)
            else:
                found.append(_READ[column](given))
        except Wrong as wrong:
            problems.append(Problem(column, wrong.problem.message, wrong.problem.remedy))
    return found, problems


def events(records: Iterable[Sequence[Any]], fields: Sequence[str]) -> Events:
    """Records that were read, as columns."""
    rows = list(records)
    columns = dict(zip(fields, zip(*rows, strict=True), strict=True)) if rows else dict.fromkeys(fields, ())
    values = columns.get("value", (None,) * len(rows))
    bare = np.array([value is None for value in values], np.bool_)

    def coded(field: str, absent: str | None) -> Coded | None:
        if field not in columns:
            return None
        found = Coded.of(given or absent for given in columns[field])
        return found if found.names or absent is not None else None

    return Events(
        np.array(columns["ts"], np.int64),
        np.array([np.nan if value is None else value for value in values], np.float64),
        bare if bare.any() else None,
        key=coded("key", ""),
        mark=coded("mark", None),
        source=coded("source", None),
        site=coded("site", None),
    )
