"""Cells whose root is a Spark job, one at a time; `make faults` has more of them."""

from __future__ import annotations

import pytest

from tests.faults import table
from tests.faults.listed import CELLS
from tests.faults.running import Running

BRIEF = [name for name, cell in CELLS.items() if cell.brief and cell.shape.spark]
assert "spark-failpoints" in BRIEF, "the fault of `make test` is gone"
OTHERS = pytest.mark.extended("each takes minutes; `make test` has the crashes of the driver")
NAMES = [name if name == "spark-failpoints" else pytest.param(name, marks=OTHERS) for name in BRIEF]


@pytest.mark.parametrize("name", NAMES)
def test_a_tree_with_a_spark_root_is_exact_whatever_the_fault(name: str) -> None:
    with Running([name], 1) as running:
        outcome = running.future(name).result()
    assert not outcome.problem, outcome.problem
    verdict = outcome.verdict
    print(f"{name}: recovery {table.recovery(outcome)}; memory {verdict.memory}; {outcome.seconds:.1f} s")
    assert verdict.wrong == 0
    assert verdict.windows > 50
    assert verdict.events > 500
