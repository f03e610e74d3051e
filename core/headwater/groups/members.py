"""Queries as members of a group, and the operators that they need."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from headwater import aggregates
from headwater.durations import microseconds
from headwater.operators import Columns, Count, Operator, SumCount
from headwater.queries import Query
from headwater.rows import TS_MAX, TS_MIN, SourceOrder
from headwater.slicing.edges import Periodic
from headwater.windows import Session, Sliding, Tumbling, is_count, length_and_slide


@dataclass(frozen=True, slots=True)
class Active:
    """A query that sees the events with `begin <= ts < end`; `index` is its number for ever."""

    index: int
    query: Query
    begin: int = TS_MIN
    end: int = TS_MAX
    # Its windows, if they are tumbling or sliding (in time, or in ranks).
    periodic: Periodic | None = field(init=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "periodic", self._periodic())

    def _periodic(self) -> Periodic | None:
        window = self.query.window
        if not isinstance(window, Tumbling | Sliding):
            return None
        length, slide = length_and_slide(window)
        if window.count is not None:
            return Periodic(length, slide, 0, begin=0)
        return Periodic(length, slide, microseconds(window.offset), self.begin, self.end)

    @property
    def last_end(self) -> int:
        """No window that it begins before its `end` ends later."""
        window = self.query.window
        if isinstance(window, Session):
            return self.end + microseconds(window.gap)
        if self.periodic is not None and not is_count(window):
            return self.end + self.periodic.length
        return self.end


def operators_of(members: Iterable[Active], order: SourceOrder) -> list[Operator]:
    """The operators that the members need, each once; the first of them counts."""
    # Of a thousand queries most ask for the same.
    asked: dict[tuple[str | int, ...], Query] = {}
    for member in members:
        same = tuple(given if isinstance(given, str) else id(given) for given in member.query.specs)
        asked.setdefault(same, member.query)
    names = (name for query in asked.values() for function in query.aggregates for name in function.operators)
    custom = {f"custom {given.name}": given for query in asked.values() for given in query.custom}
    return aggregates.build(names, order, custom)


def adapted(old: Sequence[str], states: Sequence[Columns], new: Sequence[Operator]) -> list[Columns]:
    """States of some operators (by name) as states of others: a new operator has seen nothing yet."""
    size = len(states[0][0])
    known = dict(zip(old, states, strict=True))
    result: list[Columns] = []
    for operator in new:
        if operator.name in known:
            result.append(known[operator.name])
        elif operator.name == SumCount.name:
            (column,) = operator.empty(size)
            column.imag = known[Count.name][0]
            result.append((column,))
        elif operator.name == Count.name:
            result.append((known[SumCount.name][0].imag.astype(np.int64),))
        else:
            result.append(operator.empty(size))
    return result


def names(operators: Iterable[Operator]) -> tuple[str, ...]:
    """What states belong to, in a form that can be compared and sent."""
    return tuple(operator.name for operator in operators)
