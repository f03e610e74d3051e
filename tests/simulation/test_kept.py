"""Plans that failed once, cut down: each guards what has mended its defect, and fails without it."""

from __future__ import annotations

from pathlib import Path

import pytest

from headwater_simulator.plans import Plan
from headwater_simulator.runs import run
from tests.simulation.guards import GUARDS

KEPT = {path.stem: path for path in (Path(__file__).parent / "kept").glob("*.json")}


def test_each_file_guards_something() -> None:
    assert KEPT.keys() == GUARDS.keys()


@pytest.mark.parametrize("name", sorted(GUARDS))
def test_it_no_longer_fails(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = Plan.of_json(KEPT[name].read_text())
    assert run(plan).failure is None
    # Or it would guard nothing: find it anew (headwater simulate, with the defect put back) if plans mean
    # something else by now.
    GUARDS[name](monkeypatch)
    failure = run(plan).failure
    assert failure is not None
    # It is the defect that shows, and no method that is called otherwise by now.
    assert not failure.startswith(("TypeError", "AttributeError", "NameError"))
