"""The table of docs/reliability.md, made from what the cells have found."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tests.faults.cell import Outcome
from tests.faults.listed import CELLS

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reliability.md"
BEGIN, END = "<!-- faults: begin -->", "<!-- faults: end -->"
ROLES = ("source", "child", "intermediate", "root")
HEAD = """\
| fault | where | what happens | recovery, seconds | peak memory, MiB | events | windows checked | wrong |
|---|---|---|---|---|---|---|---|
"""


def line(outcome: Outcome) -> str:
    """One cell as a row."""
    cell, verdict = CELLS[outcome.cell], outcome.verdict
    memory = " / ".join(str(verdict.memory.get(role, "-")) for role in ROLES)
    row = (cell.what, cell.where, cell.happens, recovery(outcome), memory)
    counts = (f"{verdict.events:,}", f"{verdict.windows:,}", str(verdict.wrong))
    escaped = (each.replace("|", "\\|") for each in (*row, *counts))
    return f"| {' | '.join(escaped)} |\n"


def recovery(outcome: Outcome) -> str:
    return "; ".join(
        f"{seconds:.1f}" + ("" if what == "-" else f" ({what})") for what, seconds in outcome.recoveries
    )


def write(outcomes: Sequence[Outcome], page: Path = PAGE) -> None:
    """Put the rows between the markers of the page."""
    before, _, rest = page.read_text().partition(BEGIN)
    _, _, behind = rest.partition(END)
    rows = "".join(line(outcome) for outcome in outcomes)
    page.write_text(f"{before}{BEGIN}\n\n{HEAD}{rows}\n{END}{behind}")
