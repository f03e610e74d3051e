"""The simulator notices what it is there to notice: each rule of the protocol that is left out shows."""

from __future__ import annotations

import pytest

from headwater_simulator.runs import run
from tests.simulation.mutants import COVERED, MUTANTS, SEEDS, Mutant


def _name(mutant: Mutant) -> str:
    return mutant.name


@pytest.mark.parametrize("mutant", MUTANTS, ids=_name)
def test_a_mutant_is_caught(mutant: Mutant) -> None:
    found = mutant.caught()
    assert found is not None, f"{mutant.name}: none of {SEEDS} seeds from {mutant.first} on fails"
    seed = found.plan.seed
    print(f"{mutant.name}: {seed + 1} seeds, {found.failure}")
    # What it leaves out shows, and not that it replaces a method that is called otherwise by now.
    assert found.failure is not None
    assert not found.failure.startswith(("TypeError", "AttributeError", "NameError")), found.failure
    # It is the mutant that fails, and not the run.
    assert run(seed).failure is None


@pytest.mark.parametrize("mutant", COVERED, ids=_name)
def test_what_other_rules_cover_does_no_harm(mutant: Mutant) -> None:
    # It does leave something out: some runs go another way, and come to the same.
    changed = 0
    for seed in range(50):
        outcome = mutant.run(seed)
        assert outcome.failure is None, (seed, outcome.failure)
        changed += outcome.transitions != run(seed).transitions
    assert changed
