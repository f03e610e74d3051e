"""The table of docs/reliability.md: a cell that is run alone renews its own row."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.faults import table
from tests.faults.cell import Outcome
from tests.faults.tree import Verdict


# The second has a bar in its words.
@pytest.mark.parametrize("name", ["torn", "partition"])
def test_rows_of_other_cells_stay(name: str, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    shutil.copy(table.PAGE, page)
    outcome = Outcome(name, [("-", 0.7)], Verdict(events=123_456_789, windows=7))
    table.write([outcome], page)
    before, after = table.PAGE.read_text().splitlines(), page.read_text().splitlines()
    (renewed,) = set(after) - set(before)
    assert renewed == table.line(outcome).rstrip()
    assert len(after) == len(before)
    assert [line for line in after if line != renewed] == [line for line in before if line in after]
