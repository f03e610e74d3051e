"""Queries, their predicates, and the groups in which they share one pass over the events."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from headwater import aggregates
from headwater.aggregates import Aggregate, UserDefined
from headwater.durations import microseconds
from headwater.errors import InvalidQuery, Problem
from headwater.rows import Array, Floats
from headwater.windows import Punctuation, Session, Sliding, Tumbling, Window, is_count, length_and_slide

Scope = Literal["global", "local"]
AggregateSpec = str | UserDefined
# In bytes of UTF-8.
ID_LIMIT = 253


def id_problem(id: object) -> tuple[str, str] | None:
    """What is wrong with the id of a query, and the remedy: it stands in lists, file names and result ids."""
    remedy = f'give 1 to {ID_LIMIT} bytes that print, without "/" and without a space at an end'
    if not isinstance(id, str):
        return f"is {id!r}", remedy
    size = len(id.encode("utf-8", "surrogatepass"))
    if not 0 < size <= ID_LIMIT:
        return f"has {size} bytes", remedy
    if "/" in id or not id.isprintable() or id != id.strip():
        return f"is {id!r}", remedy
    return None


@dataclass(frozen=True, slots=True)
class Where:
    """A selection: a range of values and, if `keys` is given, some keys. All that is given must hold."""

    above: float | None = None
    at_least: float | None = None
    below: float | None = None
    at_most: float | None = None
    keys: frozenset[str] | None = None

    def __post_init__(self) -> None:
        for field in ("above", "at_least", "below", "at_most"):
            bound = getattr(self, field)
            if isinstance(bound, np.number):
                object.__setattr__(self, field, bound.item())
        if self.keys is not None and not isinstance(self.keys, frozenset):
            try:
                keys = frozenset([self.keys] if isinstance(self.keys, str) else self.keys)
            except TypeError:
                return  # `problems` tells it
            object.__setattr__(self, "keys", keys)

    def problems(self) -> Iterator[Problem]:
        wrong = False
        for field in ("above", "at_least", "below", "at_most"):
            bound = getattr(self, field)
            if bound is not None and not _is_bound(bound):
                yield Problem(f"where.{field}", f"is {bound!r}", "give a number")
                wrong = True
        if not wrong:
            low, high = self._low, self._high
            beyond = low[0] == math.inf or high[0] == -math.inf
            if beyond or low[0] > high[0] or (low[0] == high[0] and (low[1] or high[1])):
                yield Problem("where", "no value can match", "widen the bounds")
        if self.keys is None:
            return
        if not isinstance(self.keys, frozenset):
            yield Problem("where.keys", f"is {self.keys!r}", "give the names of keys")
        elif not self.keys:
            yield Problem("where.keys", "is empty, so no event can match", "name at least one key")
        else:
            for key in sorted(repr(key) for key in self.keys if not isinstance(key, str)):
                yield Problem("where.keys", f"holds {key}", "give strings")

    @property
    def _low(self) -> tuple[float, bool]:
        """The tighter lower bound, and whether it is excluded."""
        bounds = [(self.above, True), (self.at_least, False)]
        return max(((float(b), open_) for b, open_ in bounds if b is not None), default=(-np.inf, False))

    @property
    def _high(self) -> tuple[float, bool]:
        bounds = [(self.below, True), (self.at_most, False)]
        found = [(float(b), open_) for b, open_ in bounds if b is not None]
        return min(found, key=lambda bound: (bound[0], not bound[1]), default=(np.inf, False))

    def disjoint(self, other: Where) -> bool:
        """Whether no event can match both."""
        if self.keys is not None and other.keys is not None and not self.keys & other.keys:
            return True
        for one, two in ((self, other), (other, self)):
            (high, high_open), (low, low_open) = one._high, two._low
            if high < low or (high == low and (high_open or low_open)):
                return True
        return False

    def mask(self, value: Floats, keys: Array | None) -> Array:
        """Which rows match; `keys` says it for the keys."""
        (low, low_open), (high, high_open) = self._low, self._high
        mask: Array = np.ones(len(value), bool) if keys is None else keys.copy()
        if low != -np.inf:
            mask &= value > low if low_open else value >= low
        if high != np.inf:
            mask &= value < high if high_open else value <= high
        return mask


def _is_bound(given: Any) -> bool:
    """Whether it is a number that a float can hold."""
    if not isinstance(given, int | float | np.number) or isinstance(given, bool):
        return False
    try:
        # A whole number that a float rounds would select other values than it says.
        return not math.isnan(given) and float(given) == given
    except OverflowError:
        return False


EVERYTHING = Where()


@dataclass(frozen=True, slots=True)
class Query:
    """What to compute: `Query("temp", Sliding("10s", "1s"), ["avg", "max"], key_by="machine")`.

    `scope="local"` computes per site. `deduplicate` counts events with equal key, ts and value once.
    `emit_empty` (without key, tumbling or sliding in time) reports windows that hold no event too.
    """

    id: str
    window: Window
    aggregate: AggregateSpec | Sequence[AggregateSpec] = "count"
    key_by: str | None = None
    where: Where = EVERYTHING
    scope: Scope = "global"
    deduplicate: bool = False
    emit_empty: bool = False

    def __post_init__(self) -> None:
        if isinstance(self.aggregate, str | UserDefined):
            object.__setattr__(self, "aggregate", (self.aggregate,))
        elif isinstance(self.aggregate, Iterable):
            object.__setattr__(self, "aggregate", tuple(self.aggregate))

    @property
    def specs(self) -> tuple[AggregateSpec, ...]:
        """The functions as they were given."""
        return self.aggregate if isinstance(self.aggregate, tuple) else ()

    @property
    def aggregates(self) -> tuple[Aggregate, ...]:
        """The functions, parsed; only for a query that has no problems."""
        parsed = (aggregates.parse(given) for given in self.specs)
        return tuple(found for found in parsed if isinstance(found, Aggregate))

    @property
    def custom(self) -> tuple[UserDefined, ...]:
        return tuple(given for given in self.specs if isinstance(given, UserDefined))

    @property
    def central(self) -> str | None:
        """Why the query is computed at the root from forwarded events, or None if it is distributed."""
        if is_count(self.window):
            return "a count window ends where only the order of all events shows it"
        if self.deduplicate:
            return "only one place sees every copy of an event"
        for given in self.custom:
            if not given.commutative:
                return f"{given.name} is not commutative, so it needs the order of all events"
        return None

    def problems(self) -> Iterator[Problem]:
        if wrong := id_problem(self.id):
            yield Problem("id", *wrong)
        known = isinstance(self.window, Tumbling | Sliding | Session | Punctuation)
        if known:
            yield from self.window.problems()
        else:
            yield Problem("window", f"is {self.window!r}", "give Tumbling, Sliding, Session or Punctuation")
        if not isinstance(self.aggregate, tuple) or not self.aggregate:
            yield Problem("aggregate", "is missing", f"give one of {', '.join(aggregates.NAMES)}")
        else:
            parsed = [aggregates.parse(given) for given in self.aggregate]
            yield from (found for found in parsed if isinstance(found, Problem))
            names = [found.name for found in parsed if isinstance(found, Aggregate)]
            for name in sorted({name for name in names if names.count(name) > 1}):
                yield Problem("aggregate", f"{name!r} stands there twice", "name each aggregate once")
        if self.key_by is not None and not isinstance(self.key_by, str):
            yield Problem("key_by", f"is {self.key_by!r}", "name the column that holds the key")
        if not isinstance(self.where, Where):
            yield Problem("where", f"is {self.where!r}", "give a Where")
        else:
            yield from self.where.problems()
        if self.scope not in ("global", "local"):
            yield Problem("scope", f"is {self.scope!r}", "give global or local")
        if self.emit_empty and (
            self.key_by is not None
            or self.scope == "local"
            or (known and not isinstance(self.window, Tumbling | Sliding))
            or is_count(self.window)
        ):
            yield Problem(
                "emit_empty",
                "needs a tumbling or sliding window in time without key and site",
                "drop emit_empty, key_by or scope",
            )
        if isinstance(self.window, Punctuation) and self.central:
            yield Problem(
                "window",
                f"a punctuation window follows one source, but {self.central}",
                "drop deduplicate, or declare the function commutative",
            )
        if (
            isinstance(self.window, Punctuation)
            and self.window.merge == "overlap"
            and self.window.start == self.window.ends_with
        ):
            yield Problem(
                "window.merge",
                "windows that begin where the last one ended all touch, so none would ever be final",
                "give an end mark, or merge by bounds or order",
            )


def validate(queries: Iterable[Query], beside: Sequence[Query] = ()) -> tuple[Query, ...]:
    """The queries as they are, or one error with everything that is wrong with any of them.

    Those `beside` them are there already and have no problems of their own.
    """
    if not isinstance(queries, Iterable):
        raise InvalidQuery(
            "the queries cannot be taken", [Problem("queries", f"is {queries!r}", "give a list of Query")]
        )
    listed = tuple(queries)
    problems = []
    seen = {query.id for query in beside}
    for place, query in enumerate(listed):
        if not isinstance(query, Query):
            problems.append(Problem(f"queries[{place}]", f"is {query!r}", "give a Query"))
            continue
        for problem in query.problems():
            problems.append(Problem(f"queries[{query.id}].{problem.field}", problem.message, problem.remedy))
        if not isinstance(query.id, str):
            continue
        if query.id in seen:
            problems.append(
                Problem(f"queries[{query.id}].id", "is there already", "give each query its own id")
            )
        seen.add(query.id)
    problems += _contradictions([*beside, *(query for query in listed if isinstance(query, Query))])
    if problems:
        raise InvalidQuery("the queries cannot be taken", problems)
    return listed


def _contradictions(queries: Sequence[Query]) -> Iterator[Problem]:
    names = {query.key_by for query in queries if isinstance(query.key_by, str)}
    if len(names) > 1:
        yield Problem(
            "queries.key_by",
            f"names different columns ({', '.join(sorted(names))}), but an event has one key",
            "use one key column, or run the others apart",
        )
    functions: dict[str, UserDefined] = {}
    for query in queries:
        for given in query.custom:
            if functions.setdefault(given.name, given) != given:
                yield Problem(
                    f"queries[{query.id}].aggregate",
                    f"{given.name!r} names two different functions",
                    "give each function its own name",
                )


def same_functions(known: Iterable[Query], query: Query) -> None:
    """Refuse a function under a name that has meant another one, as long as the node lives."""
    problems = list(_contradictions([*(k for k in known if k.custom), query]))
    problems = [problem for problem in problems if problem.field != "queries.key_by"]
    if problems:
        raise InvalidQuery("the query cannot be added", problems)


def signature(query: Query) -> str:
    """A query in words that are the same on every node; of a function its name alone."""
    kinds = {given.name: "" if given.commutative else "!" for given in query.custom}
    functions = ",".join(function.name + kinds.get(function.name, "") for function in query.aggregates)
    where = query.where
    keys = None if where.keys is None else sorted(where.keys)
    sides = (where.above, where.at_least, where.below, where.at_most)
    bounds = (*(None if side is None else float(side) for side in sides), keys)
    asked = (query.key_by is not None, query.scope, query.deduplicate, query.emit_empty)
    return f"{query.id!r} {_told(query.window)} {functions} {bounds} {asked}"


def _told(window: Window) -> str:
    """The same words however its durations were given."""
    if isinstance(window, Session):
        return f"session {microseconds(window.gap)}"
    if isinstance(window, Punctuation):
        return f"punctuation {window.start!r} {window.ends_with!r} {window.merge} {window.max_open}"
    kind = "tumbling" if isinstance(window, Tumbling) else "sliding"
    measure = "count" if is_count(window) else "time"
    return f"{kind} {measure} {length_and_slide(window)} {microseconds(window.offset)}"


Kind = Literal["sliced", "ordered", "counted", "marked"]
KINDS: tuple[Kind, ...] = ("sliced", "ordered", "counted", "marked")


@dataclass(frozen=True, slots=True)
class Sharing:
    """What queries must have in common to share one pass."""

    kind: Kind
    keyed: bool
    scope: Scope
    deduplicate: bool

    @staticmethod
    def of(query: Query) -> Sharing:
        kind: Kind = "sliced"
        if is_count(query.window):
            kind = "counted"
        elif isinstance(query.window, Punctuation):
            kind = "marked"
        elif query.central:
            kind = "ordered"
        return Sharing(kind, query.key_by is not None, query.scope, query.deduplicate)
