"""A seed is one run: in whatever process it is run, byte for byte, also when it is kept as a file."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import replace

import pytest

from headwater_simulator.plans import ADDRESS_KINDS, FAR, KINDS, LETTERS, MEANT, Fault, Feed, Plan, Said, draw
from headwater_simulator.shrinking import smaller
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
    assert {fault.kind for plan in plans for fault in plan.faults} == MEANT.keys()
    assert {name for plan in plans for name in plan.queries} >= {"session", "ordered", "counted", "sliding"}


# Three layers, and two sources.
PLAN = Plan(
    seed=1,
    queries=("tumbling", "counted"),
    layers=(("c0", "c1"), ("i0",), ("a0",)),
    parents={"c0": "i0", "c1": "i0", "i0": "a0", "a0": "root", "s0": "c0", "s1": "c1"},
    feeds=(
        Feed("s0", "", 3, 0, (Said(2, 5, "k", 1.0), Said(9, FAR, value=1.0))),
        Feed("s1", "north", 0, 20, (Said(21, -4, mark="S"), Said(30, 8, value=float("inf")))),
    ),
    faults=(),
    expected=2,
    loss=0,
    repeat=0.1,
    delay=4,
    lanes=True,
    wire=False,
    snapshots=True,
    tight=False,
)


@pytest.mark.parametrize(
    "field, given, said",
    [
        ("seed", "1", "seed is '1'"),
        ("seed", -1, "seed is -1"),
        ("expected", 0, "expected is 0"),
        ("delay", 0, "delay is 0"),
        ("delay", 1.5, "delay is 1.5"),
        ("cap", -1, "cap is -1"),
        ("loss", "0.1", "loss is '0.1'"),
        ("loss", float("nan"), "loss is nan"),
        ("repeat", 1.5, "repeat is 1.5"),
        ("wire", 1, "wire is 1"),
        ("queries", ["nowhere"], "no such query: nowhere"),
        ("queries", [], "each query"),
        ("queries", ["tumbling", "tumbling"], "each query"),
        ("feeds", [], "each feed"),
        ("layers", [], "each node"),
        ("layers", [["c0", "c0"], ["i0"], ["a0"]], "each node"),
        ("layers", [["c0", "x1"], ["i0"], ["a0"]], "no such node: x1"),
        ("layers", [["c0", "c1"], ["a0"], ["i0"]], "no such node: a0"),
        ("layers", [["c0"], ["i0"], ["a0"], ["b0"], ["b1"]], "5 layers"),
        ("parents", [], "parents is []"),
        ("parents", {}, "no such parent of c0: None"),
    ],
)
def test_a_plan_with_a_value_that_no_run_can_have_is_none(field: str, given: object, said: str) -> None:
    with pytest.raises(ValueError, match=re.escape(said)):
        Plan.of_json(json.dumps({**json.loads(PLAN.to_json()), field: given}))


@pytest.mark.parametrize(
    "field, given",
    [
        ("lateness", -1),
        ("lateness", "3"),
        ("begins", 10**9),
        ("site", 3),
        ("name", "c0"),
        ("name", "zz"),
        ("when", "2"),
        ("when", 10**9),
        ("ts", 3.5),
        ("ts", 1 << 80),
        ("key", 3),
        ("value", "1"),
        ("mark", 0),
    ],
)
def test_a_feed_with_a_value_that_no_run_can_have_is_none(field: str, given: object) -> None:
    read = json.loads(PLAN.to_json())
    feed = read["feeds"][0]
    (feed if field in feed else feed["records"][0])[field] = given
    with pytest.raises(ValueError, match=f"{given}.*; "):
        Plan.of_json(json.dumps(read))


@pytest.mark.parametrize(
    "who, above",
    # The first two go round in circles.
    [("i0", "c0"), ("a0", "a0"), ("c0", "a0"), ("c0", "root"), ("i0", "root"), ("s0", "i0"), ("zz", "root")],
)
def test_a_way_that_does_not_lead_up_layer_by_layer_is_refused(who: str, above: str) -> None:
    with pytest.raises(ValueError, match="no such"):
        replace(PLAN, parents={**PLAN.parents, who: above}).check()


@pytest.mark.parametrize(
    "fault",
    [
        Fault(40, "crash", "zz"),
        Fault(40, "crash", "s0"),
        Fault(40, "crash", "root"),
        Fault(40, "crash"),
        Fault(40, "restart", "zz"),
        Fault(40, "restart", "s7"),
        Fault(40, "restart", "c0"),
        Fault(40, "move", "s0", "zz"),
        Fault(40, "move", "s0", "i0"),
        Fault(40, "move", "s0"),
        Fault(40, "move", "i0", "c0"),
        Fault(40, "move", "i0", "root"),
        Fault(40, "move", "zz", "c0"),
        Fault(40, "assign", "s0", "i0"),
        Fault(40, "join", "c1", "i0"),
        Fault(40, "join", "zz", "i0"),
        Fault(40, "join", "c2", "root"),
        Fault(40, "kill", "root", "nowhere"),
        Fault(40, "kill", "c0", "sync"),
        Fault(40, "cut", "c0", "zz"),
        Fault(40, "cut", "c0"),
        Fault(40, "slow", "c0", "zz"),
        Fault(40, "pause", "zz"),
        Fault(40, "clock_back", "i0"),
        Fault(40, "add", "c0"),
        Fault(40, "nothing", "c0"),
        Fault("40", "crash", "c0"),  # type: ignore[arg-type]  # as a file may have it
        Fault(-1, "crash", "c0"),
        Fault(200, "crash", "c0"),
        Fault(40, "crash", "c0", span=-1),
        Fault(40, "crash", "c0", span=10**9),
        Fault(40, "crash", "c0", number=-1),
    ],
)
def test_a_fault_that_cannot_be_is_refused(fault: Fault) -> None:
    with pytest.raises(ValueError, match=r"faults\[0\]"):
        replace(PLAN, faults=(fault,)).check()


def test_faults_may_name_those_who_join_and_those_who_were_cut_away() -> None:
    joins = (Fault(30, "join", "c2", "i0"), Fault(40, "crash", "c2"), Fault(50, "move", "s0", "c2"))
    whole = replace(PLAN, faults=joins)
    whole.check()
    assert not whole.futile
    without = replace(PLAN, faults=joins[1:], feeds=PLAN.feeds[1:])
    without.check()
    assert without.futile == joins[1:]
    gone = (Fault(30, "join", "b0", "root"), Fault(40, "crash", "b0"), Fault(50, "join", "a1", "b0"))
    flat = replace(PLAN, faults=gone)
    flat.check()
    assert flat.futile == gone[:2]


def test_all_that_is_drawn_and_cut_down_is_a_plan() -> None:
    assert MEANT.keys() == KINDS.keys() | ADDRESS_KINDS.keys()
    for seed in range(40):
        plan = draw(seed)
        assert not plan.futile
        # Down to almost nothing; those that cut the tree come last.
        while less := list(smaller(plan)):
            for each in less:
                each.check()
            plan = less[-1] if seed % 2 else less[seed % len(less)]
