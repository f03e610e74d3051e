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
    return f"| {' | '.join(map(_escaped, (*row, *counts)))} |\n"


def _escaped(cell: str) -> str:
    return cell.replace("|", "\\|")


def _place(row: str) -> tuple[str, str]:
    """By which a row is known: what happens where."""
    what, where, *_ = row.split(" | ")
    return what.removeprefix("| "), where


def recovery(outcome: Outcome) -> str:
    return "; ".join(
        f"{seconds:.1f}" + ("" if what == "-" else f" ({what})") for what, seconds in outcome.recoveries
    )


def write(outcomes: Sequence[Outcome], page: Path = PAGE) -> None:
    """Put the rows between the markers of the page; those of cells that were not run stay as they are."""
    before, _, rest = page.read_text().partition(BEGIN)
    held, _, behind = rest.partition(END)
    found = {_place(each): f"{each}\n" for each in held.splitlines() if each.startswith("| ")}
    found |= {_place(each): each for each in map(line, outcomes)}
    places = [(_escaped(cell.what), _escaped(cell.where)) for cell in CELLS.values()]
    rows = "".join(found[place] for place in places if place in found)
    page.write_text(f"{before}{BEGIN}\n\n{HEAD}{rows}\n{END}{behind}")
