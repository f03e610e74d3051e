"""Simulated runs: whatever befalls the tree, every event is counted once and every window is the oracle's."""

from __future__ import annotations

import pytest

from headwater_simulator.runs import run


@pytest.mark.parametrize("block", range(10))
def test_nothing_breaks(block: int) -> None:
    failed = [outcome for outcome in map(run, range(block * 30, block * 30 + 30)) if outcome.failure]
    assert not failed, [(outcome.plan.seed, outcome.failure) for outcome in failed]
