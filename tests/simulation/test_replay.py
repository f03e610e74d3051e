"""A seed is one run: in whatever process it is run, byte for byte, also when it is kept as a file."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from headwater_simulator.plans import KINDS, LETTERS, Plan, draw
from headwater_simulator.traces import trace

# Draws and traces; prints a digest of each.
PROGRAM = """
import hashlib, sys
from headwater_simulator.traces import trace
for seed in map(int, sys.argv[1:]):
    lines, outcome = trace(seed)
    print(seed, len(lines), hashlib.sha256("\\n".join(lines).encode()).hexdigest())
"""


def test_another_process_runs_it_byte_for_byte_alike() -> None:
    seeds = [str(seed) for seed in range(12)]
    told = [
        subprocess.run(
            [sys.executable, "-c", PROGRAM, *seeds],
            env={**os.environ, "PYTHONHASHSEED": salt},
            capture_output=True,
            text=True,
            timeout=300,
            check=True,
        ).stdout
        for salt in ("1", "2")
    ]
    assert told[0] == told[1]
    assert len(told[0].splitlines()) == len(seeds)


@pytest.mark.parametrize("seed", range(3))
def test_a_plan_that_was_kept_is_the_same_run(seed: int) -> None:
    plan = draw(seed)
    again = Plan.of_json(plan.to_json())
    assert again == plan
    assert trace(again)[0] == trace(plan)[0]


def test_seeds_draw_everything_there_is() -> None:
    plans = list(map(draw, range(2_000)))
    assert {len(plan.layers) for plan in plans} == set(range(1, len(LETTERS) + 1))
    assert {fault.kind for plan in plans for fault in plan.faults} == KINDS.keys()
    assert {name for plan in plans for name in plan.queries} >= {"session", "ordered", "counted", "sliding"}
