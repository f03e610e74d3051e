"""Plans that failed once, cut down: each is a defect that was mended, and stays so."""

from __future__ import annotations

from pathlib import Path

import pytest

from headwater_simulator.plans import Plan
from headwater_simulator.runs import run

KEPT = sorted((Path(__file__).parent / "kept").glob("*.json"))


@pytest.mark.parametrize("path", KEPT, ids=lambda path: path.stem)
def test_it_no_longer_fails(path: Path) -> None:
    outcome = run(Plan.of_json(path.read_text()))
    assert outcome.failure is None, outcome.failure


def test_there_are_some() -> None:
    assert KEPT
