"""Tables of events as batches: dicts of columns, data frames, Arrow tables, rows.

Data frames and Arrow tables are read by what they can do, so neither library is needed here.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, is_dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from types import NoneType
from typing import Any

import numpy as np

from headwater.durations import Duration
from headwater.errors import InvalidEvents, Problem
from headwater.events import NO_MARK, Batch, is_number, is_whole, name_problem
from headwater.queries import Query, validate
from headwater.results import Results
from headwater.root import Root
from headwater.rows import TS_MAX, TS_MIN, Array, Floats, Ints
from headwater.timeunits import (
    TimeUnit,
    bounded,
    column_to_microseconds,
    decimal_to_microseconds,
    floats_to_microseconds,
    fraction_remedy,
    time_unit_problem,
    to_microseconds,
    unit_problem,
)
from headwater.windows import NEVER, TS_LIMIT

BATCH = 65_536
WHOLE_TABLE = "events"
# What a row is whose event has no key, no mark, no source.
NO_NAME = -1
MICROSECOND = timedelta(microseconds=1)
EPOCH = datetime(1970, 1, 1)  # dates without a zone are UTC
EPOCH_UTC = datetime(1970, 1, 1, tzinfo=UTC)
_TIME_REMEDY = "give numbers (microseconds since the epoch, or of another unit=), dates or ISO 8601 text"


def aggregate(
    events: Any,
    queries: Query | Iterable[Query],
    *,
    lateness: Duration | None = None,
    ts: str = "ts",
    value: str = "value",
    key: str | None = None,
    source: str = "source",
    mark: str = "mark",
    site: str = "site",
    unit: TimeUnit | None = None,
) -> Results:
    """Every window of every query over a table of events, in one pass.

    `events` is a dict of columns, a data frame, an Arrow table, or an iterable of rows (mappings, named
    tuples, data classes). The names say which columns hold what; source, mark and site may be missing.
    The key column is `key`, or what the queries name with `key_by`. Times are numbers, or dates or
    ISO 8601 text. Without a zone these are in UTC, which `Source.send` refuses: if a recording has local
    times, give them their zone first. Numbers are of `unit` (s, ms, us, ns); without one they are whole
    microseconds, and refused if the first ones look like another unit. A missing value (None, null, NA)
    is no value, and beside a mark NaN is none either; any other NaN is rejected. Rows of a source count
    in the order in which they stand.
    Without `lateness` no event is late; with it, an event that lies further behind its source's latest
    is counted in no window. `accounts` of the results say how many were late or rejected, and why.
    """
    listed = validate([queries] if isinstance(queries, Query) else queries)
    key = key or next((query.key_by for query in listed if query.key_by is not None), None)
    blind = [query.id for query in listed if query.where.keys is not None or query.deduplicate]
    if key is None and blind:
        raise InvalidEvents(
            "the events cannot be read",
            [
                Problem(
                    "key", f"{', '.join(blind)} asks for keys, but no column is named", "name it with key="
                )
            ],
        )
    wanted = {"ts": ts, "value": value, "source": source, "mark": mark, "site": site}
    if key is not None:
        wanted["key"] = key
    _require_names(wanted)
    if (wrong := time_unit_problem(unit)) is not None:
        raise InvalidEvents("the events cannot be read", [wrong])
    needs_value = any(map(_needs_value, listed))
    table = _Table(_columns(events, wanted.values()), wanted, unit, needs_value=needs_value)
    root = Root(listed, expected=max(len(table.sources), 1))
    for name, where in table.sources:
        root.admit(name, lateness=NEVER if lateness is None else lateness, site=where)
    for batch in table.batches():
        root.push(batch)
    root.finish()
    accounts = {name: root.account(name) for name, _ in table.sources}
    return Results(root.take().blocks, accounts, known=listed)


def _require_names(wanted: Mapping[str, object]) -> None:
    """Raise unless every field is given the name of a column."""
    problems = [
        Problem(
            field, f"is of type {type(name).__name__}", f'name a column of events, such as {field}="{field}"'
        )
        for field, name in wanted.items()
        if not isinstance(name, Hashable)
    ]
    if problems:
        raise InvalidEvents("the events cannot be read", problems)


def _needs_value(query: Query) -> bool:
    """Whether a query reads values at all: counting events does not."""
    bounds = (query.where.above, query.where.at_least, query.where.below, query.where.at_most)
    return any(function.operators for function in query.aggregates) or any(b is not None for b in bounds)


def _columns(events: Any, wanted: Collection[str]) -> dict[str, Any]:
    """The columns of whatever was given, by name."""
    if isinstance(events, Mapping):
        return dict(events)
    if hasattr(events, "column_names") and hasattr(events, "columns"):
        names = list(events.column_names)
        twice = [name for name in wanted if names.count(name) > 1]
        if twice:
            raise InvalidEvents(
                "the events cannot be read",
                [
                    Problem(name, "stands there more than once", "give each column its own name")
                    for name in twice
                ],
            )
        return dict(zip(names, events.columns, strict=True))
    if hasattr(events, "columns") and hasattr(events, "__getitem__"):
        return {str(name): events[name] for name in events.columns}
    if isinstance(events, Iterable) and not isinstance(events, str | bytes):
        rows = list(events)
        # Without a row nothing says which columns there are, and nothing is missing.
        return _columns_of_rows(rows) if rows else {name: [] for name in wanted}
    raise InvalidEvents(
        "the events cannot be read",
        [
            Problem(
                "events", f"is {type(events).__name__}", "give columns, a data frame, an Arrow table or rows"
            )
        ],
    )


def _columns_of_rows(rows: Sequence[Any]) -> dict[str, list[Any]]:
    mappings: list[Mapping[str, Any]] = []
    problems = []
    for place, row in enumerate(rows):
        if isinstance(row, Mapping):
            mappings.append(row)
        elif hasattr(row, "_asdict"):
            mappings.append(row._asdict())
        elif is_dataclass(row) and not isinstance(row, type):
            mappings.append(asdict(row))
        else:
            problems.append(
                Problem(f"events[{place}]", f"is {type(row).__name__}", "give mappings or named tuples")
            )
    if problems:
        raise InvalidEvents("the events cannot be read", problems)
    names = dict.fromkeys(name for row in mappings for name in row)
    return {name: [row.get(name) for row in mappings] for name in names}


class _Table:
    """The columns that matter, checked, and cut into batches by source."""

    def __init__(
        self,
        given: Mapping[str, Any],
        wanted: Mapping[str, str],
        unit: TimeUnit | None,
        *,
        needs_value: bool,
    ) -> None:
        problems: list[Problem] = []
        missing = [field for field in ("ts", "key") if field in wanted and wanted[field] not in given]
        if needs_value and wanted["value"] not in given:
            missing.append("value")
        known = ", ".join(map(str, given)) or "none"
        for field in missing:
            how = "key_by in the queries, or key=" if field == "key" else f"{field}="
            problems.append(
                Problem(
                    field,
                    f"there is no column {wanted[field]!r}",
                    f"name it with {how} (columns: {known})",
                )
            )
        columns: dict[str, Any] = {}
        for field, name in wanted.items():
            if name in given and (column := _sized(name, given[name], problems)) is not None:
                columns[field] = column
        sizes = {field: len(column) for field, column in columns.items()}
        if len(set(sizes.values())) > 1:
            told = ", ".join(f"{wanted[field]} {size}" for field, size in sizes.items())
            problems.append(
                Problem("events", f"the columns have different lengths ({told})", "give one row an event")
            )
        self._size = next(iter(sizes.values()), 0)
        self._ts = np.empty(0, np.int64)
        if "ts" in columns:
            self._ts = _times(wanted["ts"], columns["ts"], unit, problems)
        self._bare: Array | None = None
        self._value: Array = np.zeros(self._size)
        if "value" in columns:
            self._value, self._bare = _values(wanted["value"], columns["value"], problems)
        self._key, self._keys = _names(wanted.get("key", ""), columns.get("key"), problems)
        self._mark, self._marks = _names(wanted["mark"], columns.get("mark"), problems, missing=None)
        source, names = _names(wanted["source"], columns.get("source"), problems, missing=WHOLE_TABLE)
        site, sites = _names(wanted["site"], columns.get("site"), problems)
        if not problems:
            self.sources = self._with_sites(source, names, site, sites, problems)
        if problems:
            raise InvalidEvents("the events cannot be read", problems)
        self._source = source
        if self._mark is not None:
            empty = np.isnan(self._value) & (self._mark != NO_MARK)
            if empty.any():
                self._bare = empty if self._bare is None else self._bare | empty

    def _with_sites(
        self,
        source: Array | None,
        names: tuple[str, ...],
        site: Array | None,
        sites: tuple[str, ...],
        problems: list[Problem],
    ) -> list[tuple[str, str]]:
        if source is None:
            names, source = (WHOLE_TABLE,), np.zeros(self._size, np.int32)
        if site is None:
            return [(name, "") for name in names]
        pairs = np.unique(source.astype(np.int64) * max(len(sites), 1) + site)
        found: dict[int, str] = {}
        for pair in pairs.tolist():
            code, place = divmod(pair, max(len(sites), 1))
            if found.setdefault(code, sites[place]) != sites[place]:
                problems.append(
                    Problem("site", f"source {names[code]!r} has two sites", "give each source one site")
                )
        return [(name, found.get(code, "")) for code, name in enumerate(names)]

    def batches(self) -> Iterator[Batch]:
        """The events of each stretch of rows by source, in the order in which they stand."""
        next_of = [1] * len(self.sources)
        for begin in range(0, self._size, BATCH):
            rows = slice(begin, min(begin + BATCH, self._size))
            if self._source is None or len(self.sources) == 1:
                yield self._batch(0, next_of, rows)
                continue
            source = self._source[rows]
            order = np.argsort(source, kind="stable") + begin
            bounds = source[order - begin].searchsorted(np.arange(len(self.sources) + 1)).tolist()
            for code in np.unique(source).tolist():
                yield self._batch(code, next_of, order[bounds[code] : bounds[code + 1]])

    def _batch(self, code: int, next_of: list[int], rows: slice | Ints) -> Batch:
        batch = Batch(
            self.sources[code][0],
            next_of[code],
            self._ts[rows],
            self._value[rows],
            key=None if self._key is None else self._key[rows],
            keys=self._keys,
            mark=None if self._mark is None else self._mark[rows],
            marks=self._marks,
            bare=None if self._bare is None else self._bare[rows],
        )
        next_of[code] += len(batch)
        return batch


def _sized(name: str, column: Any, problems: list[Problem]) -> Any:
    """The column as something that has a length, or a problem and None."""
    if getattr(column, "ndim", 1) != 1:
        problems.append(Problem(name, f"has {column.ndim} dimensions", "give a one-dimensional column"))
        return None
    if hasattr(column, "to_numpy"):
        return column
    if not isinstance(column, Iterable) or isinstance(column, str | bytes | Mapping):
        problems.append(Problem(name, f"is {column!r}", "give a column: a list, an array..."))
        return None
    return column if isinstance(column, np.ndarray) else list(column)


def _is_arrow(column: Any) -> bool:
    return hasattr(column, "dictionary_encode")


def _plain(column: Any) -> tuple[Array | list[Any], Array | None]:
    """A column as an array, or as a list of objects, and where it is known to hold nothing."""
    nulls: Any = None
    if isinstance(column, list):
        # Each is judged by itself: numpy would make floats of large integers, and strings of mixtures.
        return column, None
    if isinstance(column, np.ndarray):
        array = column
    elif _is_arrow(column):
        array = column.to_numpy(zero_copy_only=False)
        if column.null_count:
            nulls = column.is_null().to_numpy(zero_copy_only=False)
    else:
        dtype = column.dtype
        if getattr(dtype, "tz", None) is not None:
            # As plain objects these would be read one by one.
            array = column.to_numpy(f"datetime64[{dtype.unit}]")
        else:
            array = np.asarray(column.to_numpy())
        if hasattr(column, "is_null"):
            nulls = column.is_null().to_numpy()
        elif not isinstance(dtype, np.dtype):
            # In pandas' plain columns NaN may be a null or a NaN: it stays what it is.
            nulls = np.asarray(column.isna(), bool)
    return array.tolist() if array.dtype == object else array, nulls if np.any(nulls) else None


def _times(name: str, column: Any, unit: TimeUnit | None, problems: list[Problem]) -> Ints:
    """Times as microseconds; what int64 cannot hold becomes a time that is rejected."""
    given, nulls = _plain(column)
    if isinstance(given, list):
        kinds = set(map(type, given))
        if kinds == {float}:
            return _times_of_floats(name, np.array(given), unit, problems)
        if any(issubclass(kind, float | np.floating | Decimal) for kind in kinds):
            return _times_of_numbers(name, given, unit, problems)
        try:
            if kinds <= {int}:
                return _of_unit(name, np.array(given, np.int64), unit, problems)
        except OverflowError:
            pass
        found = [_time(moment, unit) for moment in given]
        if None in found:
            row = found.index(None)
            problems.append(Problem(name, f"holds {given[row]!r} (row {row})", _TIME_REMEDY))
            return np.empty(0, np.int64)
        return np.array(found, np.int64)
    if given.dtype.kind == "f":
        return _times_of_floats(name, given, unit, problems)
    if given.dtype.kind == "M":
        return _microseconds(given)
    if given.dtype == np.uint64:
        bounded = np.where(given > np.uint64(TS_MAX), np.uint64(TS_MAX), given).astype(np.int64)
        return _of_unit(name, bounded, unit, problems)
    if given.dtype.kind in "iu":
        return _of_unit(name, given.astype(np.int64, copy=False), unit, problems)
    if given.dtype.kind == "U":
        return _times(name, given.tolist(), unit, problems)
    if nulls is not None:
        problems.append(_absent_time(name, int(nulls.argmax())))
    elif len(given):
        problems.append(Problem(name, f"has dtype {given.dtype}", _TIME_REMEDY))
    return np.empty(0, np.int64)


def _of_unit(name: str, numbers: Ints, unit: TimeUnit | None, problems: list[Problem]) -> Ints:
    """Numbers of that unit as microseconds; a problem if no unit is given and they look like another."""
    if unit is not None:
        return column_to_microseconds(numbers, unit)
    problem = unit_problem(name, numbers, 'unit="{unit}"', strict=False)
    if problem is not None:
        problems.append(problem)
    return numbers


def _times_of_floats(name: str, given: Floats, unit: TimeUnit | None, problems: list[Problem]) -> Ints:
    """Floats as microseconds."""
    if len(given) and given.dtype.itemsize < 8:
        said = f"has dtype {given.dtype}, whose numbers are too far apart for times"
        problems.append(Problem(name, said, "give float64"))
        return np.empty(0, np.int64)
    numbers = given.astype(np.float64)
    problem = _float_problem(name, numbers, unit)
    if problem is not None:
        problems.append(problem)
        return np.empty(0, np.int64)
    times = floats_to_microseconds(numbers, unit or "us")
    return times if unit is not None else _of_unit(name, times, unit, problems)


def _float_problem(name: str, numbers: Floats, unit: TimeUnit | None) -> Problem | None:
    """What is wrong with the first of the floats that is no time."""
    wrong = ~np.isfinite(numbers)
    if unit is None:
        wrong |= numbers != np.rint(numbers)
    if not wrong.any():
        return None
    row = int(wrong.argmax())
    number = float(numbers[row])
    return _absent_time(name, row) if math.isnan(number) else _number_problem(name, row, number)


def _absent_time(name: str, row: int) -> Problem:
    return Problem(name, f"has no time in row {row}", "give each event a time")


def _number_problem(name: str, row: int, number: float | Decimal) -> Problem:
    """What is wrong with an infinite number, or one with a fraction and no unit."""
    if not math.isfinite(number):
        return Problem(name, f"holds {number} (row {row})", _TIME_REMEDY)
    said = f"holds {number} (row {row}), with a fraction"
    return Problem(name, said, fraction_remedy(Decimal(str(number)), 'unit="{unit}"'))


def _times_of_numbers(
    name: str, given: Sequence[Any], unit: TimeUnit | None, problems: list[Problem]
) -> Ints:
    """Integers, floats and decimal numbers as microseconds, each by itself."""
    absent = next((row for row, number in enumerate(given) if _absent(number)), None)
    if absent is not None:
        # First of all: in a column of text or dates NaN stands for what is missing, and is no number.
        problems.append(_absent_time(name, absent))
        return np.empty(0, np.int64)
    found = np.empty(len(given), np.int64)
    for row, number in enumerate(given):
        problem = None
        if is_whole(number):
            found[row] = bounded(to_microseconds(int(number), unit or "us"))
        elif isinstance(number, np.floating) and number.itemsize < 8:
            said = f"holds a {number.dtype} (row {row}), whose numbers are too far apart for times"
            problem = Problem(name, said, "give float64")
        elif not isinstance(number, float | Decimal):
            problem = Problem(name, f"holds {number!r} beside numbers (row {row})", _TIME_REMEDY)
        elif not math.isfinite(number) or (unit is None and number != math.floor(number)):
            problem = _number_problem(name, row, number)
        else:
            found[row] = bounded(decimal_to_microseconds(Decimal(str(number)), unit or "us"))
        if problem is not None:
            problems.append(problem)
            return np.empty(0, np.int64)
    return found if unit is not None else _of_unit(name, found, unit, problems)


def _time(moment: Any, unit: TimeUnit | None) -> int | None:
    """One time as microseconds within int64; None for what is no time."""
    if is_whole(moment):
        return bounded(to_microseconds(int(moment), unit or "us"))
    if isinstance(moment, str):
        try:
            moment = datetime.fromisoformat(moment.strip())
        except ValueError:
            return None
    if isinstance(moment, np.datetime64):
        return int(_microseconds(np.array([moment]))[0])
    if not isinstance(moment, date):
        return None
    if moment != moment:
        return TS_MIN
    if not isinstance(moment, datetime):
        return (moment - EPOCH.date()) // MICROSECOND
    try:
        since = moment - (EPOCH if moment.utcoffset() is None else EPOCH_UTC)
    except (OverflowError, ValueError):
        return TS_MAX
    return int(since // MICROSECOND)


def _microseconds(moments: Array) -> Ints:
    """Dates as microseconds. What is no date, or wraps round beyond int64, becomes one that is rejected."""
    found: Ints = moments.astype("datetime64[us]").astype(np.int64)
    if len(moments) and np.datetime_data(moments.dtype)[0] not in ("us", "ns", "ps", "fs", "as", "generic"):
        # Compared in their own unit: a year more than the limit still fits into int64.
        high, low = (np.datetime64(end, "us").astype(moments.dtype) for end in (TS_LIMIT, -TS_LIMIT))
        found[(moments > high) | (moments < low)] = TS_MAX
    return found


def _values(name: str, column: Any, problems: list[Problem]) -> tuple[Array, Array | None]:
    """Values as float64, and where there is none."""
    given, nulls = _plain(column)
    if isinstance(given, list):
        bare = np.array([value is None for value in given], bool)
        if not set(map(type, given)) <= {int, float, NoneType}:
            bare = np.array([not is_number(value) and _absent(value) for value in given], bool)
            for row in np.flatnonzero(~bare).tolist():
                if not is_number(given[row]):
                    problems.append(Problem(name, f"holds {given[row]!r} (row {row})", "give numbers"))
                    return np.empty(0), None
            given = [None if empty else value for value, empty in zip(given, bare.tolist(), strict=True)]
        try:
            # numpy reads None as NaN.
            return np.array(given, np.float64), bare if bare.any() else None
        except OverflowError:
            problems.append(Problem(name, "holds an integer beyond float64", "give numbers that fit"))
            return np.empty(0), None
    if given.dtype.kind in "iuf":
        return given.astype(np.float64, copy=False), nulls
    if len(given):
        problems.append(Problem(name, f"has dtype {given.dtype}", "give numbers"))
    return np.empty(0), None


def _absent(given: Any) -> bool:
    """None, NaN, NaT and NA: all but None differ from themselves, or do not say whether they do."""
    if given is None:
        return True
    try:
        return bool(given != given)
    except (TypeError, ArithmeticError):
        return True
    except ValueError:
        return False


def _names(
    name: str, column: Any, problems: list[Problem], missing: str | None = ""
) -> tuple[Array | None, tuple[str, ...]]:
    """A column of names as codes and a dictionary; no name is `missing`, or else the code -1."""
    if column is None:
        return None, ()
    rows, listed = _coded(column)
    # One place more, for the rows that have no name.
    codes = np.full(len(listed) + 1, NO_MARK, np.int32)
    used = np.zeros(len(listed) + 1, bool)
    used[rows] = True
    found: dict[str, int] = {}
    for place in np.flatnonzero(used).tolist():
        given = listed[place] if place < len(listed) else None
        text = missing if _absent(given) else str(given) or missing
        if text is not None:
            codes[place] = found.setdefault(text, len(found))
    for text in found:
        if wrong := name_problem(text):
            problems.append(Problem(name, f"{text[:20]!r}... {wrong[0]}", wrong[1]))
    return codes[rows], tuple(found)


def _coded(column: Any) -> tuple[Array, list[Any]]:
    """A column as codes and what they stand for, by whatever is fast; -1 is nothing."""
    if _is_arrow(column):
        try:
            coded = column.dictionary_encode()
        except NotImplementedError:
            return _coded(column.to_pylist())
        if hasattr(coded, "unify_dictionaries"):
            coded = coded.unify_dictionaries().combine_chunks()
        rows: Array = coded.indices.fill_null(0).to_numpy(zero_copy_only=False)
        if coded.indices.null_count:
            empty = coded.indices.is_null().to_numpy(zero_copy_only=False)
            rows = np.where(empty, NO_NAME, rows.astype(np.int64))
        return rows, coded.dictionary.to_pylist()
    if hasattr(column, "factorize") and not isinstance(column.dtype, np.dtype):
        rows, found = column.factorize()
        return rows, found.tolist()
    listed: list[Any] = column if isinstance(column, list) else _listed(column)
    if len(set(map(type, listed)) - {NoneType}) > 1:
        # As keys of a dictionary 1, 1.0 and True are one; as names they are three.
        listed = [v if type(v) is str else None if _absent(v) else str(v) for v in listed]
    try:
        codes = dict.fromkeys(listed, 0)
    except TypeError:
        listed = list(map(str, listed))
        codes = dict.fromkeys(listed, 0)
    for code, given in enumerate(codes):
        codes[given] = code
    return np.fromiter(map(codes.__getitem__, listed), np.int64, len(listed)), list(codes)


def _listed(column: Any) -> list[Any]:
    found: list[Any] = column.tolist() if hasattr(column, "tolist") else column.to_list()
    return found
