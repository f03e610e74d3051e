"""What fails is cut down to something short that fails alike."""

from __future__ import annotations

import pytest

from headwater.machines.source import SourceMachine
from headwater_simulator.plans import draw
from headwater_simulator.runs import run
from headwater_simulator.shrinking import shrink, smaller
from headwater_simulator.traces import trace


def test_a_run_that_fails_is_cut_down(monkeypatch: pytest.MonkeyPatch) -> None:
    # A source that does not go back when it is told to: whatever is lost on the way is lost for good.
    monkeypatch.setattr(SourceMachine, "_resynced", lambda self, message: None)
    failed = next(outcome for outcome in map(run, range(200)) if outcome.failure is not None)
    least = shrink(failed, tries=150)
    assert least.kind == failed.kind
    before, after = failed.plan, least.plan
    assert sum(len(f.records) for f in after.feeds) < sum(len(f.records) for f in before.feeds)
    assert len(after.faults) <= len(before.faults)
    lines, again = trace(after)
    assert again.failure == least.failure
    assert lines


def test_smaller_plans_are_smaller() -> None:
    plan = draw(5)
    size = len(plan.to_json())
    for less in smaller(plan):
        assert less != plan
        assert len(less.to_json()) <= size + 8  # `false` is longer than `true`
