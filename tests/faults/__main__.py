"""All cells, and the table of docs/reliability.md: `make faults`; ARGS="--only NAME" for one and its row."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from tests.faults import table
from tests.faults.cell import Outcome
from tests.faults.listed import CELLS
from tests.faults.running import Running


def main(given: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument(
        "--only", nargs="+", choices=CELLS, metavar="CELL", help=f"some of {', '.join(CELLS)}"
    )
    parser.add_argument(
        "--jobs", type=int, default=1, help="so many at a time; with more than one recovery takes longer"
    )
    parser.add_argument("--no-table", action="store_true", help="leave docs/reliability.md as it is")
    options = parser.parse_args(given)
    names = options.only or list(CELLS)
    found: list[Outcome] = []
    try:
        with Running(names, options.jobs) as running:
            for place, name in enumerate(names, 1):
                outcome = running.future(name).result()
                found.append(outcome)
                print(f"{place:3}/{len(names)}  {_told(outcome)}", flush=True)
    except KeyboardInterrupt:
        print("stopped; the table is as it was")
        return 130
    failed = [outcome for outcome in found if outcome.problem or outcome.verdict.wrong]
    for outcome in failed:
        problem = outcome.problem or f"{outcome.verdict.wrong} windows are wrong"
        print(f"\n{'=' * 100}\n{outcome.cell}: {problem}")
    print(f"{len(found)} cells, {len(failed)} failed")
    if not failed and not options.no_table:
        table.write(found)
        print(f"the table is in {table.PAGE}")
    return 1 if failed else 0


def _told(outcome: Outcome) -> str:
    if outcome.problem:
        return f"{outcome.cell}: FAILED"
    verdict = outcome.verdict
    return (
        f"{outcome.cell}: recovery {table.recovery(outcome)}; {verdict.events:,} events, {verdict.windows:,} "
        f"windows, {verdict.wrong} wrong; peak {max(verdict.memory.values())} MiB; {outcome.seconds:.0f} s"
    )


if __name__ == "__main__":
    sys.exit(main())
