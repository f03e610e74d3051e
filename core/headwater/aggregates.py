"""Aggregate functions: which operators each is built from, and how it is lowered from them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Any

import numpy as np

from headwater import operators
from headwater.errors import FunctionFailed, Problem
from headwater.operators import Columns, Operator
from headwater.rows import Array, Floats, SourceOrder

# What `lower` reads: the columns of each operator by its name.
States = Mapping[str, Columns]

TOP_LIMIT = 1_000
# Columns that every result has.
RESERVED = ("query", "incarnation", "site", "key", "start", "end", "ordinal")


@dataclass(frozen=True, slots=True)
class Aggregate:
    """One function over the events of a window, by name: `avg`, `quantile(0.99)`, `top(3)`..."""

    name: str
    operators: tuple[str, ...]
    lower: Callable[[States], Array]


@dataclass(frozen=True, slots=True)
class UserDefined:
    """A function of one's own: lift a value, combine two states, lower the last one.

    `combine` must be associative and leave its arguments as they are. Without `commutative` the events
    are combined in the total order, which only one place can know: such a query is computed centrally
    from forwarded events.

    `invert` makes the function invertible: `invert(combine(a, b), a)` must be b exactly, as it is for whole
    numbers, fractions and counters (and is not for floats). A sliding window then moves on by what enters
    and what leaves it instead of being combined anew.
    """

    name: str
    lift: Callable[[float], Any]
    combine: Callable[[Any, Any], Any]
    lower: Callable[[Any], Any]
    commutative: bool = True
    invert: Callable[[Any, Any], Any] | None = None


def _sum(states: States) -> Array:
    return states["sum"][0]


def _count(states: States) -> Array:
    return states["count"][0]


def _avg(states: States) -> Array:
    average: Array = states["sum"][0] / states["count"][0]
    return average


def _product(states: States) -> Array:
    mantissa, exponent = states["multiplication"]
    # Beyond these exponents ldexp gives infinity and zero anyway, and it takes C integers only.
    with np.errstate(over="ignore", under="ignore"):
        product: Array = np.ldexp(mantissa, np.clip(exponent, -5_000, 5_000).astype(np.int32)) + 0.0
    return product


def _geometric_mean(states: States) -> Array:
    """The real n-th root of the product; an even root of a negative one is NaN."""
    mantissa, exponent = states["multiplication"]
    count = states["count"][0]
    with np.errstate(divide="ignore", invalid="ignore"):
        size = np.exp2((np.log2(np.abs(mantissa)) + exponent) / count)
    root = np.where(mantissa < 0, np.where(count % 2 == 1, -size, np.nan), size)
    return np.where(mantissa == 0, 0.0, root)


def _variance(ddof: int, *, root: bool) -> Callable[[States], Array]:
    def lower(states: States) -> Array:
        count, _, deviation = states["moments"]
        free = count - ddof
        share = np.divide(count, free, out=np.full(len(count), np.nan), where=free > 0)
        found: Array = deviation * np.sqrt(share)
        return found if root else found * found

    return lower


def _range(states: States) -> Array:
    spread: Array = states["max"][0] - states["min"][0]
    return spread


def _one(name: str, column: int) -> Callable[[States], Array]:
    return lambda states: states[name][column]


def interpolated(pieces: list[Floats], q: float) -> float:
    """Quantile q of all values in the pieces, linear between the two neighbouring ranks."""
    values = pieces[0] if len(pieces) == 1 else np.concatenate(pieces)
    size = len(values)
    place = q * (size - 1)
    low = min(int(place), size - 1)
    if low == place:
        return float(np.partition(values, low)[low]) + 0.0
    # One kth and the minimum above it: two kth in one call take four times as long.
    split = np.partition(values, low)
    below, above = float(split[low]), float(split[low + 1 :].min())
    share = place - low
    if not isfinite(above - below):
        # The way between them is longer than a float; their parts are not.
        return below * (1.0 - share) + above * share + 0.0
    return below + (above - below) * share + 0.0


def _quantile(q: float) -> Callable[[States], Array]:
    def lower(states: States) -> Array:
        return np.array([interpolated(pieces, q) for pieces in states["values"][0]], np.float64)

    return lower


def _distinct(states: States) -> Array:
    return np.array([len(np.unique(np.concatenate(pieces))) for pieces in states["values"][0]], np.int64)


def _mode(states: States) -> Array:
    modes = []
    for pieces in states["values"][0]:
        values, counts = np.unique(np.concatenate(pieces), return_counts=True)
        modes.append(float(values[counts.argmax()]) + 0.0)
    return np.array(modes, np.float64)


def _ends(size: int, *, largest: bool) -> tuple[str, Callable[[States], Array]]:
    operator = operators.Ends(size, largest=largest)

    def lower(states: States) -> Array:
        found = operator.values(states[operator.name][0])
        column = np.empty(len(found), object)
        column[:] = found
        return column

    return operator.name, lower


_PLAIN: dict[str, tuple[tuple[str, ...], Callable[[States], Array]]] = {
    "sum": (("sum",), _sum),
    "count": ((), _count),
    "avg": (("sum",), _avg),
    "product": (("multiplication",), _product),
    "geomean": (("multiplication",), _geometric_mean),
    "variance": (("moments",), _variance(0, root=False)),
    "stddev": (("moments",), _variance(0, root=True)),
    "variance(ddof=1)": (("moments",), _variance(1, root=False)),
    "stddev(ddof=1)": (("moments",), _variance(1, root=True)),
    "min": (("min",), _one("min", 0)),
    "max": (("max",), _one("max", 0)),
    "range": (("min", "max"), _range),
    "first": (("first",), _one("first", 3)),
    "last": (("last",), _one("last", 3)),
    "median": (("values",), _quantile(0.5)),
    "distinct": (("values",), _distinct),
    "mode": (("values",), _mode),
}
NAMES = (*_PLAIN, "quantile(q)", "top(k)", "bottom(k)")
_CALL = re.compile(r"(quantile|top|bottom)\(\s*([^()\s]+)\s*\)")


def parse(given: str | UserDefined) -> Aggregate | Problem:
    """The aggregate that is meant, or what is wrong with it."""
    if isinstance(given, UserDefined):
        if not isinstance(given.name, str) or not given.name.isidentifier():
            return Problem("aggregate", f"{given.name!r} is no name", "name the function like a variable")
        if given.name in _PLAIN or given.name in RESERVED:
            return Problem(
                "aggregate", f"{given.name!r} has a meaning already", "give the function another name"
            )
        if not (callable(given.lift) and callable(given.combine) and callable(given.lower)):
            return Problem("aggregate", f"{given.name!r} lacks a function", "give lift, combine and lower")
        if given.invert is not None and not callable(given.invert):
            return Problem("aggregate", f"invert of {given.name!r} is no function", "give one, or drop it")
        return Aggregate(given.name, (f"custom {given.name}",), _lower_custom(given))
    name = given.replace(" ", "") if isinstance(given, str) else ""
    if name in _PLAIN:
        needed, lower = _PLAIN[name]
        return Aggregate(name, needed, lower)
    call = _CALL.fullmatch(name)
    if call is None:
        return Problem("aggregate", f"{given!r} is not known", f"give one of {', '.join(NAMES)}")
    function, argument = call.groups()
    if function == "quantile":
        try:
            q = float(argument)
        except ValueError:
            q = float("nan")
        if not 0.0 <= q <= 1.0:
            return Problem("aggregate", f"{given!r} is no quantile", "give a number from 0 to 1")
        return Aggregate(name, ("values",), _quantile(q))
    if not argument.isdecimal() or not 1 <= int(argument) <= TOP_LIMIT:
        return Problem(
            "aggregate", f"{given!r} has no usable k", f"give a whole number from 1 to {TOP_LIMIT}"
        )
    operator, lower = _ends(int(argument), largest=function == "top")
    return Aggregate(name, (operator,), lower)


def _lower_custom(given: UserDefined) -> Callable[[States], Array]:
    def lower(states: States) -> Array:
        states_of = states[f"custom {given.name}"][0]
        column = np.empty(len(states_of), object)
        for row, state in enumerate(states_of):
            try:
                column[row] = given.lower(state)
            except Exception as error:
                raise FunctionFailed(given.name, "lower") from error
        return column

    return lower


_OPERATORS: dict[str, Callable[[], Operator]] = {
    "multiplication": operators.Product,
    "moments": operators.Moments,
    "min": operators.Min,
    "max": operators.Max,
    "values": operators.Values,
}


def build(names: Iterable[str], order: SourceOrder, custom: Mapping[str, UserDefined]) -> list[Operator]:
    """The operators of these names, each once, behind `count`, which every result needs."""
    needed = dict.fromkeys(names)
    counter = operators.SumCount() if "sum" in needed else operators.Count()
    built: dict[str, Operator] = {"count": counter, "sum": counter}
    for name in needed:
        if name in built:
            continue
        if name in _OPERATORS:
            built[name] = _OPERATORS[name]()
        elif name == "first":
            built[name] = operators.First(order)
        elif name == "last":
            built[name] = operators.Last(order)
        elif name.startswith("custom "):
            given = custom[name]
            built[name] = operators.Custom(
                given.name, given.lift, given.combine, given.invert, commutative=given.commutative
            )
        else:
            kind, _, size = name.rstrip(")").partition("(")
            built[name] = operators.Ends(int(size), largest=kind == "top")
    return list(dict.fromkeys(built.values()))
