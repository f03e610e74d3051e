"""Every operator: rows that are lifted one by one and folded give the states of runs of rows."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.aggregates import build
from headwater.operators import Columns, Operator
from headwater.rows import Ints, Rows, SourceOrder
from tests.strategies import SQUARES

NAMES = (
    *("sum", "count", "multiplication", "moments", "min", "max", "values", "first", "last", "top(2)"),
    f"custom {SQUARES.name}",
)


def shown(operator: Operator, columns: Columns) -> list[object]:
    """States as plain values: lists of values do not show how they were joined."""
    if operator.name == "values":
        return [np.sort(np.concatenate(state)).tolist() for state in columns[0]]
    return [column.tolist() for column in columns]


@pytest.mark.parametrize("name", NAMES)
@given(st.lists(st.integers(-9, 9), min_size=1, max_size=30), st.data())
def test_lifted_rows_fold_into_the_states_of_runs(name: str, values: list[int], data: st.DataObject) -> None:
    order = SourceOrder()
    order.code("s")
    operator = build([name], order, {f"custom {SQUARES.name}": SQUARES})[-1]
    size = len(values)
    cuts = data.draw(st.sets(st.integers(1, size - 1))) if size > 1 else set()
    starts: Ints = np.array([0, *sorted(cuts)])
    rows = Rows(np.arange(size), np.array(values, float), 1, 0, True)
    lifted = operator.lift(rows)
    assert all(len(column) == size for column in lifted)
    folded, expected = operator.fold(lifted, starts), operator.runs(rows, starts)
    if name == "moments":
        # Another order of additions rounds otherwise.
        for found, wanted in zip(folded, expected, strict=True):
            np.testing.assert_allclose(found, wanted, rtol=1e-12, atol=1e-12)
    else:
        assert shown(operator, folded) == shown(operator, expected)
