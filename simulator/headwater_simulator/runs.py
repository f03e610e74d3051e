"""Runs of seeds, and what came of them."""

from __future__ import annotations

import traceback
from collections import Counter
from dataclasses import dataclass, field

from headwater_simulator.plans import Plan, draw
from headwater_simulator.world import Watch, World


@dataclass(slots=True)
class Outcome:
    """How a run went; `failure` is what broke, if something did."""

    plan: Plan
    failure: str | None = None
    # Where it broke: two runs with the same have failed alike.
    kind: str | None = None
    steps: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    logged: Counter[str] = field(default_factory=Counter)
    transitions: Counter[tuple[str, str, str]] = field(default_factory=Counter)


def run(plan: Plan | int, watch: Watch | None = None) -> Outcome:
    """Run a plan, or that of a seed."""
    plan = draw(plan) if isinstance(plan, int) else plan
    outcome = Outcome(plan)
    world = None
    try:
        world = World(plan) if watch is None else World(plan, watch)
        world.run()
    except Exception as error:
        outcome.failure = f"{type(error).__name__}: {error}"
        frame = traceback.extract_tb(error.__traceback__)[-1]
        outcome.kind = f"{type(error).__name__} {str(error).partition(':')[0][:40]} in {frame.name}"
    if world is not None:
        outcome.steps, outcome.faults = world.steps, world.happened
        outcome.logged, outcome.transitions = world.judge.logged, world.transitions
    return outcome
