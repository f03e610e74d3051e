"""How many bytes things take, about: bounds are kept by them (protocol, rule 19)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from headwater.events import Batch
from headwater.groups.sliced import SlicedPart
from headwater.node import Node
from headwater.operators import Columns, Operator
from headwater.partials import Partial, Span
from headwater.prefix import KeyedMarks, Prefix

# What a name in a dictionary takes; an event that is forwarded as it is; where a cell belongs; what is said
# of a source, and of each of its mark windows; the state of a user's function.
NAME, RAW, CELL, SPAN, MARK, OBJECT = 80, 32, 24, 128, 32, 64
VALUE = 8


def of_columns(batch: Batch) -> int:
    """A batch of records in memory."""
    return of_arrays(batch) + of_names(batch.keys) + of_names(batch.marks)


def of_arrays(batch: Batch) -> int:
    arrays = (batch.ts, batch.value, batch.key, batch.mark, batch.bare)
    return sum(array.nbytes for array in arrays if array is not None)


def of_names(names: Sequence[str]) -> int:
    """The dictionary of a batch."""
    return NAME * len(names)


def of_partial(partial: Partial) -> int:
    """A batch of a node."""
    total = sum(map(_of_span, partial.vector.values()))
    total += RAW * sum(map(len, partial.events))
    for part in partial.parts.values():
        total += _of_names(part.names)
        if isinstance(part, SlicedPart):
            for chosen in part.selections.values():
                total += _of_cells(len(chosen.start), chosen.states)
                if chosen.fragments is not None:
                    total += _of_cells(len(chosen.fragments), chosen.fragments.states)
        else:
            total += _of_cells(len(part.cells.code), part.cells.states) + MARK * len(part.cells.ended)
    return total


def rows(partial: Partial) -> int:
    """Rows of states, and events that are forwarded as they are: what a node above has to take."""
    total = sum(map(len, partial.events))
    for part in partial.parts.values():
        if isinstance(part, SlicedPart):
            for chosen in part.selections.values():
                total += len(chosen.start) + (0 if chosen.fragments is None else len(chosen.fragments))
        else:
            total += len(part.cells.code)
    return total


def of_gathered(engine: Node, records: int) -> int:
    """What an engine has gathered from records that were read since its last flush; never much less than
    the batch that it makes of them."""
    total = RAW * engine.waiting
    for group in engine.groups().values():
        # Groups that are made at the root alone hold nothing here; and where cells are kept by code, some of
        # them hold nothing: a record begins one slice and one session at most.
        if cells := min(len(group), 2 * records):
            total += cells * (CELL + sum(map(_of_state, group.operators)))
            total += VALUE * records * sum(map(_holds_values, group.operators))
    return total


def of_record(engine: Node) -> tuple[int, int]:
    """By how much a record that is read makes a batch grow: where it falls into cells that are there, and at
    most, where it begins a slice and a session in each group."""
    operators = [operator for group in engine.groups().values() for operator in group.operators]
    least = RAW + VALUE * sum(map(_holds_values, operators))
    return least, least + 2 * (CELL * len(engine.groups()) + sum(map(_of_state, operators)))


def _holds_values(operator: Operator) -> bool:
    return object in operator.dtypes


def _of_state(operator: Operator) -> int:
    return sum(OBJECT if dtype is object else np.dtype(dtype).itemsize for dtype in operator.dtypes)


def _of_span(span: Span) -> int:
    return SPAN + MARK * (_marks(span.low) + _marks(span.high))


def _marks(prefix: Prefix) -> int:
    held: Iterable[KeyedMarks] = prefix.marks.values()
    return sum(map(len, held))


def _of_names(names: Sequence[tuple[str, str | None]]) -> int:
    return sum(len(key) + VALUE for _, key in names if key is not None)


def _of_cells(cells: int, states: Iterable[Columns]) -> int:
    columns = (column for each in states for column in each)
    return CELL * cells + sum(
        sum(map(_of_object, column)) if column.dtype == object else column.nbytes for column in columns
    )


def _of_object(state: object) -> int:
    """Values are arrays, in lists or tuples; any other is a user's."""
    if isinstance(state, np.ndarray):
        return state.nbytes
    if isinstance(state, list | tuple):
        return sum(map(_of_object, state))
    return 0 if state is None else OBJECT
