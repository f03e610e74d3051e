"""Results as JSON lines in UTF-8: what the outbox holds and the sinks take.

One result a line, with the fields id, query, incarnation, site, key, start, end, count, values, ordinal,
measure, first_time and last_time, in this order. `id` is what no other result has (`id_of`): whoever gets a
result twice knows it by that. A `site` that is a source is written as its label. `values` has one entry a
function, in the order of the query. JSON has no NaN and no infinity: they are the texts "NaN", "Infinity" and
"-Infinity", and are numbers again after `decode`. Of the values of user-defined functions, tuples, arrays and
sets become lists (sets in order), mappings become objects in the order of their keys, and what JSON does not
know becomes its text; so the same result is the same bytes.

`measure` says what start and end are: microseconds ("time"), or ranks of events ("count"), where first_time
and last_time are the times of the first and the last event. A line of an earlier release has none of the
three; `bounds_of` never takes a rank of such a line for a time.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from math import inf, isfinite, isinf, isnan, nan
from typing import Any
from urllib.parse import quote

import numpy as np

from headwater.errors import PermanentError
from headwater.results import Measure, Result
from headwater.sources import SourceId

_NUMBERS = {"NaN": nan, "Infinity": inf, "-Infinity": -inf}
_BITS = 8192
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# Of so many names what is written of them is not made anew for each line.
NAMES = 1 << 16
_JSON = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False)


@dataclass(frozen=True, slots=True)
class Bounds:
    """When a window was, as far as its line says: in microseconds, for a count window of its first and its
    last event. `measure` is None if the line does not say what its bounds are."""

    measure: Measure | None
    first: int | None
    last: int | None


class NoResults(PermanentError):
    """Bytes that hold no results: the file was damaged since it was written."""

    def __init__(self, line: int) -> None:
        super().__init__(f"line {line} is no result; restore the directory from a copy, whole")


def encode(results: Iterable[Result]) -> bytes:
    """The results, a line each, in the order given."""
    # A lone surrogate has no UTF-8, but as backslash and digits it is the escape that JSON has for it.
    return "".join(map(_line, results)).encode("utf-8", "backslashreplace")


def decode(rows: bytes) -> Iterator[dict[str, Any]]:
    """The lines as dictionaries; raises `NoResults`."""
    # Not `splitlines`: other characters that part lines may stand in a key.
    for number, line in enumerate(rows.split(b"\n"), 1):
        if line:
            try:
                row = json.loads(line)
                row["values"] = {name: _number(value) for name, value in row["values"].items()}
            # Whatever stands there instead.
            except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
                raise NoResults(number) from error
            yield row


def bounds_of(row: Mapping[str, Any]) -> Bounds:
    """The bounds of a line as times; raises nothing for a line of a release before."""
    measure: Measure | None = row.get("measure")
    if measure == "count":
        return Bounds("count", row.get("first_time"), row.get("last_time"))
    if measure is None and row["end"] - row["start"] == row["count"] and row["ordinal"] is None:
        # So many events as ranks, as in every count window: these may be no times.
        return Bounds(None, None, None)
    return Bounds("time", row["start"], row["end"])


def time_of(microseconds: int | None) -> datetime | None:
    """A time since 1970; None for none, and beyond the years 1 to 9999."""
    try:
        return None if microseconds is None else _EPOCH + timedelta(microseconds=microseconds)
    except OverflowError:
        return None


def text(value: Any) -> str:
    """A value as JSON, as it stands in a line."""
    return _JSON.encode(_plain(value))


def id_of(result: Result) -> str:
    """The identity of a result in ASCII: `query/incarnation/site/key/place`, the same at every replay.

    Place is the ordinal or the start (a rank, for count windows), or `start..end` where windows go by both.
    What is no letter, no digit and none of `_.-~` stands there as in an address (`%2F`); no key is `*`.
    """
    query, incarnation, site, key, place = result.identity
    parts = [_quoted(query), str(int(incarnation)), _quoted(_label(site))]
    parts.append("*" if key is None else _quoted(key))
    bounds = place if isinstance(place, tuple) else (place,)
    parts.append("..".join(str(int(bound)) for bound in bounds))
    return "/".join(parts)


@lru_cache(maxsize=NAMES)
def _quoted(name: str) -> str:
    return quote(name, safe="", errors="surrogatepass")


def _line(result: Result) -> str:
    # By hand: this is most of what a window costs.
    values = ",".join([f"{_string(name)}:{_value(value)}" for name, value in result.values.items()])
    key = "null" if result.key is None else _string(result.key)
    return (
        # An id has nothing that would have to be escaped.
        f'{{"id":"{id_of(result)}","query":{_string(result.query)},"incarnation":{int(result.incarnation)},'
        f'"site":{_string(_label(result.site))},"key":{key},'
        f'"start":{int(result.start)},"end":{int(result.end)},"count":{int(result.count)},'
        f'"values":{{{values}}},"ordinal":{_integer(result.ordinal)}{_measured(result)}}}\n'
    )


def _measured(result: Result) -> str:
    if result.measure == "time":
        return ',"measure":"time","first_time":null,"last_time":null'
    first, last = _integer(result.first_time), _integer(result.last_time)
    return f',"measure":"count","first_time":{first},"last_time":{last}'


def _integer(value: int | None) -> str:
    return "null" if value is None else str(int(value))


def _value(value: Any) -> str:
    if type(value) is float and isfinite(value):
        return repr(value)
    return _JSON.encode(_plain(value))


@lru_cache(maxsize=NAMES)
def _string(name: str) -> str:
    return _JSON.encode(name)


@lru_cache(maxsize=NAMES)
def _label(site: str) -> str:
    return SourceId.of(site).label


def _plain(value: Any) -> Any:
    """A value of what JSON knows."""
    if isinstance(value, np.generic | np.ndarray):
        value = value.tolist()
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, int):
        # Python refuses to write longer ones in digits.
        return int(value) if value.bit_length() <= _BITS else hex(value)
    if isinstance(value, float):
        if isnan(value):
            return "NaN"
        if isinf(value):
            return "Infinity" if value > 0 else "-Infinity"
        return float(value)
    if isinstance(value, Mapping):
        named = {key if isinstance(key, str) else text(key): _plain(each) for key, each in value.items()}
        return {key: named[key] for key in sorted(named)}
    if isinstance(value, AbstractSet):
        return sorted(map(_plain, value), key=text)
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    shown = str(value)
    # The text that an object has by default holds its address, which is another one on every replay.
    return f"<{type(value).__qualname__}>" if shown == object.__repr__(value) else shown


def _number(value: Any) -> Any:
    if isinstance(value, str):
        return _NUMBERS.get(value, value)
    if isinstance(value, list):
        return [_number(each) for each in value]
    if isinstance(value, dict):
        return {key: _number(each) for key, each in value.items()}
    return value
