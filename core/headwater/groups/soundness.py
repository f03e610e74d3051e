"""Whether a part that another node has sent can be merged: looked at before it is logged, or merged at all.

A part that is sound may still be wrong, as any sum may be. It raises nothing, neither at once nor when a
window is lowered that it is in; what the states of users' functions hold is known to the functions alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from headwater.errors import InvalidPartial
from headwater.operators import COUNTERS, Columns, Operator
from headwater.rows import Array, Ints


@dataclass(frozen=True, slots=True)
class Extent:
    """What a partial is of: the codes of its sources, how many records, and the times of its events."""

    sources: Ints
    records: int
    low: int
    high: int


def check_ints(field: str, column: Array, size: int, low: int, high: int) -> None:
    """A column of so many whole numbers in `[low, high]`."""
    if column.dtype.kind not in "iu" or column.shape != (size,):
        said = f"is a column of {column.dtype} of the shape {column.shape}"
        raise InvalidPartial(field, said, f"send {size} whole numbers")
    if size and not (int(column.min()) >= low and int(column.max()) <= high):
        said = f"has numbers from {int(column.min())} to {int(column.max())}"
        raise InvalidPartial(field, said, f"send numbers from {low} to {high}")


def check_states(
    operators: Sequence[Operator],
    named: Sequence[str],
    states: Sequence[Columns],
    size: int,
    extent: Extent,
    incomplete: Mapping[str, Array],
) -> None:
    """States of operators by name; what is not computed here is not looked at. `incomplete` says for each
    operator which cells may hold nothing of it: those for which nobody asks."""
    if len(states) != len(named):
        said = f"are of {len(states)} operators instead of {len(named)}"
        raise InvalidPartial("states", said, "send one for each operator")
    known = {operator.name: operator for operator in operators}
    count = _count(named[0], states[0], size, extent)
    for name, columns in zip(named, states, strict=True):
        operator = known.get(name)
        if operator is None:
            continue
        if (problem := operator.problem(columns, count, extent.sources)) is not None:
            raise InvalidPartial(f"states of {name}", problem, "send what the operator makes")
        absent = operator.absent(columns)
        if absent is not None and (absent & ~incomplete[name]).any():
            raise InvalidPartial(f"states of {name}", "are missing in some cells", "send one for each cell")
    for name, unasked in incomplete.items():
        if name not in named and not unasked.all():
            raise InvalidPartial("operators", f"lack {name!r}, for which a query asks", "send its states")


def _count(name: str, columns: Columns, size: int, extent: Extent) -> Ints:
    """How many events each cell holds."""
    for kind in COUNTERS:
        if kind.name != name:
            continue
        operator = kind()
        problem = operator.problem(columns, np.zeros(size, np.int64), extent.sources)
        if problem is not None:
            raise InvalidPartial(f"states of {name}", problem, "send what the operator makes")
        given = columns[0].imag if columns[0].dtype.kind == "c" else columns[0]
        if size and not ((given >= 1) & (given <= extent.records) & (given == np.floor(given))).all():
            said = f"count less than one event, or more than {extent.records}"
            raise InvalidPartial(f"states of {name}", said, "send cells that hold events of the partial")
        return operator.counts(columns)
    raise InvalidPartial("operators", f"begin with {name!r}", "send first the one that counts")
