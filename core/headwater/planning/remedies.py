"""What would help where there are too few nodes: how many more, or which limit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from fractions import Fraction

from headwater.errors import Problem
from headwater.planning.amounts import MOST, UNIT
from headwater.planning.csa import exact
from headwater.planning.figures import at_least_three_digits
from headwater.planning.inventory import Inventory, Kind
from headwater.planning.shortage import TooFew

# How many nodes a tree has with these kinds of nodes, in at most so many; None if they are too few.
Tried = Callable[[Inventory, int], list[int] | None]
UNBOUNDED = 1_000_000
_DOUBLINGS, _HALVINGS = 30, 12


def problem(short: TooFew, inventory: Inventory, load: Fraction, tried: Tried) -> Problem:
    """What is wrong, and what would help."""
    # Those that are too few alone, if that suffices.
    limits = _limits(inventory, short.most, tried, inventory.of(short.role)) or _limits(
        inventory, short.most, tried, inventory.kinds
    )
    or_raise = f", or raise {limits}" if limits else ""
    free = tried(inventory, UNBOUNDED)
    if free is not None:
        shown = f"[{' '.join(map(str, free))}]"
        return Problem(
            "spec.limits.maxNodes",
            f"is {short.most}, but {float(load):g} items a second need {sum(free):,} nodes, {shown}",
            f"raise it to {sum(free):,}{or_raise}",
        )
    return _too_few(short, inventory, or_raise, tried)


def _too_few(short: TooFew, inventory: Inventory, or_raise: str, tried: Tried) -> Problem:
    layer = {"child": "the children", "root": "the root"}.get(short.role, f"layer {len(short.below) + 1}")
    counts = Counter(map(int, short.capacities))
    takes = int(short.capacities.sum())
    sums = " + ".join(f"{count} x {each / UNIT:g}" for each, count in counts.items())
    missing = short.total - takes
    largest = max(inventory.of(short.role), key=lambda kind: kind.limit)
    message = f"for {layer} there is no node left"
    if counts:
        message = (
            f"{layer} must take {short.total / UNIT:g} items a second, but {len(short.capacities)} nodes "
            f"take {sums} = {takes / UNIT:g}"
        )
        if short.role != "root" and inventory.root == inventory.of(short.role):
            message += " (one more is the root)"
        too_few = f", {missing / UNIT:g} too little"
        message += too_few if missing > 0 else ", and none below is split between two"
    more = _more(largest, inventory, short.most, tried)
    add = f"add {more} more of {largest.name}" if more else f"add nodes of {largest.name}"
    # Of a class with so many nodes, it is their number that is too low.
    field = largest.field if largest.count is None else largest.field.replace(".ingestLimit", ".count")
    return Problem(field, message, f"{add}{or_raise}")


def _more(kind: Kind, inventory: Inventory, most: int, tried: Tried) -> int | None:
    """How many more of a kind suffice; None where more do not help, or there are as many as are asked for."""
    if kind.count is None:
        return None
    high = 1
    for _ in range(_DOUBLINGS):
        if tried(inventory.with_more(kind, high), most) is not None:
            break
        high *= 2
        if high > UNBOUNDED:
            return None
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        if tried(inventory.with_more(kind, middle), most) is None:
            low = middle
        else:
            high = middle
    return high


def _limits(inventory: Inventory, most: int, tried: Tried, kinds: Sequence[Kind]) -> str:
    """To what the limits of some kinds would have to be raised for these nodes to do; empty where nothing
    helps."""
    low, high = Fraction(1), Fraction(2)
    largest = max((exact(kind.limit) for kind in kinds), default=Fraction(MOST))
    while tried(inventory.scaled(high, kinds), most) is None:
        low, high = high, high * 2
        if largest * high > MOST:
            return ""
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        if tried(inventory.scaled(middle, kinds), most) is None:
            low = middle
        else:
            high = middle
    # The same field with the same limit is told once.
    given = {(kind.field, kind.limit): kind.name for kind in kinds}
    fields = [field for field, _ in given]
    raised = [
        (field if fields.count(field) == 1 else f"{field} of {name}", limit)
        for (field, limit), name in given.items()
    ]
    return " and ".join(f"{field} to {at_least_three_digits(exact(limit) * high)}" for field, limit in raised)
