"""Real processes under load, each with a real fault: nothing lost, nothing twice, every window as the oracle
says, memory in bounds. `make faults` runs longer ones too, and writes the table of docs/reliability.md."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.faults import table
from tests.faults.listed import CELLS
from tests.faults.running import Running

# A cell waits most of the time.
JOBS = int(os.environ.get("HEADWATER_FAULTS_JOBS", "3"))
# The longest first: then the last one to end is a short one.
LONG = ("long-suspended-intermediate", "established", "root-failpoints-in-a-row", "partition")
# Those with Spark need all cores: each has a turn of its own (tests/spark).
BRIEF = [name for name, cell in CELLS.items() if cell.brief and not cell.shape.spark]
BRIEF.sort(key=lambda name: name not in LONG)
# `make test` has one fault of each kind: a process dies or stops, a link, too much load, a disk, a clock.
FIRST = {
    "nothing",
    "root-failpoints-in-a-row",
    "random-kills",
    "other-queries",
    "suspended-child",
    "partition",
    "overload",
    "full-volume",
    "torn",
    "clock-back",
}
assert set(BRIEF) >= FIRST, "a fault of `make test` is gone"
OTHERS = pytest.mark.extended("another place or length of a fault that `make test` has")
NAMES = [name if name in FIRST else pytest.param(name, marks=OTHERS) for name in BRIEF]


@pytest.fixture(scope="session")
def running(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """The cells of which there is a test to be run, beside each other; also if workers share the tests."""
    asked = [item.callspec.params.get("name") for item in request.session.items if hasattr(item, "callspec")]
    outcomes = None
    if "PYTEST_XDIST_WORKER" in os.environ:
        outcomes = tmp_path_factory.getbasetemp().parent / "outcomes"
        outcomes.mkdir(exist_ok=True)
    with Running([name for name in BRIEF if name in asked], JOBS, outcomes) as found:
        yield found


@pytest.mark.parametrize("name", NAMES)
def test_a_tree_is_exact_whatever_the_fault(name: str, running: Running) -> None:
    outcome = running.future(name).result()
    assert not outcome.problem, outcome.problem
    verdict = outcome.verdict
    print(f"{name}: recovery {table.recovery(outcome)}; memory {verdict.memory}; {outcome.seconds:.1f} s")
    assert verdict.wrong == 0
    # There was something to compare.
    assert verdict.windows > 50
    assert verdict.events > 500
