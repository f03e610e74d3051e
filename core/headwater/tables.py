"""Tables of events as batches: dicts of columns, data frames, Arrow tables, rows.

Data frames and Arrow tables are read by what they can do, so neither library is needed here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, is_dataclass
from typing import Any

import numpy as np

from headwater.durations import Duration
from headwater.errors import InvalidEvents, Problem
from headwater.events import KEY_LIMIT, NO_MARK, Batch
from headwater.operators import TS_MAX, Array, Ints
from headwater.queries import Query, validate
from headwater.results import Results
from headwater.root import Root
from headwater.windows import TS_LIMIT

BATCH = 65_536
WHOLE_TABLE = "events"


def aggregate(
    events: Any,
    queries: Query | Iterable[Query],
    *,
    lateness: Duration | None = None,
    ts: str = "ts",
    value: str = "value",
    source: str = "source",
    mark: str = "mark",
    site: str = "site",
) -> Results:
    """Every window of every query over a table of events, in one pass.

    `events` is a dict of columns, a data frame, an Arrow table, or an iterable of rows (mappings, named
    tuples, data classes). The names say which columns hold what; source, mark and site may be missing.
    The key column is what the queries name with `key_by`. Times are integers (microseconds) or dates.
    Rows of a source count in the order in which they stand. Without `lateness` no event is late; with
    it, an event that lies further behind its source's latest is counted in no window.
    """
    listed = validate([queries] if isinstance(queries, Query) else queries)
    key = next((query.key_by for query in listed if query.key_by is not None), None)
    wanted = {"ts": ts, "value": value, "source": source, "mark": mark, "site": site}
    if key is not None:
        wanted["key"] = key
    table = _Table(_columns(events), wanted, needs_value=any(_needs_value(query) for query in listed))
    root = Root(listed, expected=max(len(table.sources), 1))
    for name, where in table.sources:
        root.admit(name, lateness=TS_LIMIT if lateness is None else lateness, site=where)
    for batch in table.batches():
        root.push(batch)
    root.finish()
    return root.take()


def _needs_value(query: Query) -> bool:
    """Whether a query reads values at all: counting events does not."""
    bounds = (query.where.above, query.where.at_least, query.where.below, query.where.at_most)
    return any(function.operators for function in query.aggregates) or any(b is not None for b in bounds)


def _columns(events: Any) -> dict[str, Any]:
    """The columns of whatever was given, by name."""
    if isinstance(events, Mapping):
        return dict(events)
    if hasattr(events, "column_names") and hasattr(events, "column"):
        return {name: events.column(name) for name in events.column_names}
    if hasattr(events, "columns") and hasattr(events, "__getitem__"):
        return {str(name): events[name] for name in events.columns}
    if isinstance(events, Iterable) and not isinstance(events, str | bytes):
        return _columns_of_rows(list(events))
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
    for place, row in enumerate(rows):
        if isinstance(row, Mapping):
            mappings.append(row)
        elif hasattr(row, "_asdict"):
            mappings.append(row._asdict())
        elif is_dataclass(row) and not isinstance(row, type):
            mappings.append(asdict(row))
        else:
            raise InvalidEvents(
                "the events cannot be read",
                [Problem(f"events[{place}]", f"is {type(row).__name__}", "give mappings or named tuples")],
            )
    names = dict.fromkeys(name for row in mappings for name in row)
    return {name: [row.get(name) for row in mappings] for name in names}


class _Table:
    """The columns that matter, checked, and cut into batches by source."""

    def __init__(self, given: Mapping[str, Any], wanted: Mapping[str, str], *, needs_value: bool) -> None:
        problems: list[Problem] = []
        missing = [field for field in ("ts", "key") if field in wanted and wanted[field] not in given]
        if needs_value and wanted["value"] not in given:
            missing.append("value")
        known = ", ".join(map(str, given)) or "none"
        for field in missing:
            problems.append(
                Problem(
                    field,
                    f"there is no column {wanted[field]!r}",
                    f"name it with {field}= (columns: {known})",
                )
            )
        arrays = {field: _array(given[name]) for field, name in wanted.items() if name in given}
        sizes = {field: len(array) for field, array in arrays.items()}
        if len(set(sizes.values())) > 1:
            told = ", ".join(f"{wanted[field]} {size}" for field, size in sizes.items())
            problems.append(
                Problem("events", f"the columns have different lengths ({told})", "give one row an event")
            )
        self._size = next(iter(sizes.values()), 0)
        if "ts" in arrays:
            arrays["ts"] = _times(wanted["ts"], arrays["ts"], problems)
        value = arrays.get("value")
        self._bare: Array | None = None
        if value is not None:
            value, self._bare = _values(wanted["value"], value, problems)
        self._ts = arrays.get("ts", np.empty(0, np.int64))
        self._value = value if value is not None else np.zeros(self._size)
        self._key, self._keys = self._names(wanted.get("key", ""), arrays.get("key"), problems)
        self._mark, self._marks = self._names(wanted["mark"], arrays.get("mark"), problems, missing=NO_MARK)
        source, names = self._names(wanted["source"], arrays.get("source"), problems)
        site, sites = self._names(wanted["site"], arrays.get("site"), problems)
        self._source = source
        self.sources = self._with_sites(source, names, site, sites, problems)
        if problems:
            raise InvalidEvents("the events cannot be read", problems)

    def _names(
        self, name: str, column: Array | None, problems: list[Problem], missing: int | None = None
    ) -> tuple[Array | None, tuple[str, ...]]:
        """A column of names as codes and a dictionary; no name is the empty one, or `missing`."""
        if column is None:
            return None, ()
        codes: dict[str, int] = {}
        found = np.empty(len(column), np.int32)
        for row, given in enumerate(column.tolist()):
            if given is None or given != given:
                found[row] = codes.setdefault("", len(codes)) if missing is None else missing
            else:
                found[row] = codes.setdefault(given if isinstance(given, str) else str(given), len(codes))
        for text in codes:
            if len(text.encode()) > KEY_LIMIT:
                problems.append(
                    Problem(
                        name,
                        f"{text[:20]!r}... is {len(text.encode())} bytes long",
                        f"keep within {KEY_LIMIT}",
                    )
                )
        return found, tuple(codes)

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
        if site is None or len(site) != len(source):
            return [(name or WHOLE_TABLE, "") for name in names]
        pairs = np.unique(source.astype(np.int64) * max(len(sites), 1) + site)
        found: dict[int, str] = {}
        for pair in pairs.tolist():
            code, place = divmod(pair, max(len(sites), 1))
            if found.setdefault(code, sites[place]) != sites[place]:
                problems.append(
                    Problem("site", f"source {names[code]!r} has two sites", "give each source one site")
                )
        return [(name or WHOLE_TABLE, found.get(code, "")) for code, name in enumerate(names)]

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


def _array(column: Any) -> Array:
    """A column as an array, whatever it is made of."""
    if isinstance(column, np.ndarray):
        return column
    if hasattr(column, "to_numpy"):
        return np.asarray(column.to_numpy())
    listed = list(column)
    # Lists may mix numbers and None, or hold integers beyond 64 bits: each is judged by itself later.
    try:
        return np.asarray(listed)
    except (ValueError, OverflowError):
        array = np.empty(len(listed), object)
        array[:] = listed
        return array


def _times(name: str, column: Array, problems: list[Problem]) -> Ints:
    """Times as microseconds; what int64 cannot hold becomes a time that is rejected."""
    if column.dtype.kind == "M":
        return column.astype("datetime64[us]").astype(np.int64)
    if column.dtype.kind == "i":
        return column.astype(np.int64)
    if column.dtype == np.uint64:
        return np.where(column > np.uint64(TS_MAX), np.uint64(TS_MAX), column).astype(np.int64)
    if column.dtype.kind == "u":
        return column.astype(np.int64)
    if column.dtype == object and all(isinstance(t, int) and not isinstance(t, bool) for t in column):
        return np.array([t if abs(t) <= TS_MAX else TS_MAX for t in column], np.int64)
    if not len(column):
        return np.empty(0, np.int64)
    problems.append(
        Problem(name, f"has dtype {column.dtype}", "give integers (microseconds since the epoch) or dates")
    )
    return np.empty(0, np.int64)


def _values(name: str, column: Array, problems: list[Problem]) -> tuple[Array, Array | None]:
    """Values as float64, and where there is none."""
    if column.dtype.kind in "iuf":
        return column.astype(np.float64), None
    if column.dtype == object and all(v is None or isinstance(v, int | float) for v in column):
        bare = np.array([v is None for v in column], bool)
        return np.array(
            [np.nan if v is None else v for v in column], np.float64
        ), bare if bare.any() else None
    if not len(column):
        return np.empty(0), None
    problems.append(Problem(name, f"has dtype {column.dtype}", "give numbers"))
    return np.empty(0), None
