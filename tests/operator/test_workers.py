"""Workers: what becomes of what a topology's look gives or raises."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from headwater.errors import Invalid, OutOfSequence, Problem
from headwater_operator.access import Right
from headwater_operator.metrics import Metrics
from headwater_operator.workers import Workers
from headwater_operator.workqueue import Turns, WorkQueue

Key = tuple[str, str]


def shown(metrics: Metrics) -> str:
    registry = CollectorRegistry()
    registry.register(metrics)
    return generate_latest(registry).decode()


def until(reached: Callable[[], object]) -> None:
    end = time.monotonic() + 10
    while not reached():
        assert time.monotonic() < end
        time.sleep(0.005)


class Looks:
    """Gives or raises one after the other, and then nothing more."""

    def __init__(self, *outcomes: float | Exception | None) -> None:
        self._outcomes = list(outcomes)
        self.times: list[float] = []

    def __call__(self, namespace: str, name: str) -> float | None:
        assert (namespace, name) == ("plant", "a")
        self.times.append(time.monotonic())
        outcome = self._outcomes.pop(0) if self._outcomes else None
        if isinstance(outcome, Exception):
            raise outcome
        return outcome


def test_outcomes_are_looks_again_and_figures(caplog: pytest.LogCaptureFixture) -> None:
    queue, metrics = WorkQueue(Turns[Key](first=0.02)), Metrics()
    looks = Looks(
        0.03,
        Invalid("no tree can be planned", [Problem("spec.node", "is too small", "raise it")]),
        OutOfSequence("s", 1, 2),
        KeyError("a mistake"),
        None,
    )
    Workers(queue, looks, metrics, 2).start()
    queue.add(("plant", "a"))
    until(lambda: len(looks.times) == 5)
    assert queue.end(5)
    pauses = [after - before for before, after in zip(looks.times, looks.times[1:], strict=False)]
    # Asked for, then after failures.
    for pause, expected in zip(pauses, [0.03, 0.02, 0.04, 0.08], strict=True):
        assert expected <= pause < expected + 2
    told = [(record.levelname, record.getMessage()) for record in caplog.records]
    assert told == [
        ("ERROR", "a topology cannot be had as it says"),
        ("WARNING", "a topology is to be looked at again"),
        ("ERROR", "an error of the operator itself"),
    ]
    assert "raise it" in vars(caplog.records[0])["problem"]
    page = shown(metrics)
    for line in (
        'headwater_operator_reconciles_total{outcome="again"} 1.0',
        'headwater_operator_reconciles_total{outcome="failed"} 3.0',
        'headwater_operator_reconciles_total{outcome="done"} 1.0',
        'headwater_operator_errors_total{reason="Invalid"} 1.0',
        'headwater_operator_errors_total{reason="KeyError"} 1.0',
        "headwater_operator_reconcile_seconds_count 5.0",
        "headwater_operator_lag_seconds_count 5.0",
    ):
        assert line in page


def test_a_slow_topology_does_not_hold_up_others() -> None:
    queue, free = WorkQueue[Key](), threading.Event()
    done: list[str] = []

    def look(namespace: str, name: str) -> float | None:
        if name == "slow":
            assert free.wait(10)
        done.append(name)
        return None

    Workers(queue, look, Metrics(), 2).start()
    for name in ("slow", "b", "c"):
        queue.add(("plant", name))
    until(lambda: len(done) == 2)
    assert not queue.end(0.01)
    free.set()
    assert queue.end(5)
    assert done == ["b", "c", "slow"]


def test_figures_are_read_when_they_are_asked_for() -> None:
    metrics = Metrics()
    metrics.depth = lambda: 7
    metrics.leading = lambda: True
    metrics.watch_age = lambda: 1.5
    metrics.calls = lambda: {("list", "pods", "200"): 3}
    metrics.missing = lambda: [Right("watch", "nodes", None), Right("list", "pods", "plant")]
    metrics.heard("pods")
    metrics.watches_restarted()
    metrics.planned("plant", "a", [4, 2, 1])
    metrics.planned("plant", "a", [3, 1])
    metrics.planned("plant", "b", [1])
    metrics.forget("plant", "b")
    metrics.forget("plant", "never")
    page = shown(metrics)
    for line in (
        "headwater_operator_queue_depth 7.0",
        "headwater_operator_leading 1.0",
        "headwater_operator_watch_age_seconds 1.5",
        'headwater_operator_api_calls_total{outcome="200",resource="pods",verb="list"} 3.0',
        'headwater_operator_rights_missing{namespace="",resource="nodes",verb="watch"} 1.0',
        'headwater_operator_rights_missing{namespace="plant",resource="pods",verb="list"} 1.0',
        'headwater_operator_events_total{resource="pods"} 1.0',
        "headwater_operator_watch_restarts_total 1.0",
        'headwater_operator_planned_nodes{namespace="plant",topology="a"} 4.0',
        'headwater_operator_planned_width{layer="2",namespace="plant",topology="a"} 1.0',
    ):
        assert line in page
    assert 'layer="3"' not in page
    assert 'topology="b"' not in page


class Glances(Looks):
    """Has to be looked at in full at the third glance."""

    def __init__(self, *outcomes: float | Exception | None) -> None:
        super().__init__(*outcomes)
        self.glances = 0

    def glance(self, namespace: str, name: str) -> float | None:
        self.glances += 1
        return 0.01 if self.glances < 3 else None


def test_when_time_alone_has_passed_a_glance_says_whether_to_look() -> None:
    queue, glances = WorkQueue(Turns[Key]()), Glances(0.01)
    Workers(queue, glances, Metrics(), 1).start()
    queue.add(("plant", "a"))
    until(lambda: len(glances.times) == 2)
    assert glances.glances == 3
    # What happens is looked at whatever a glance would say.
    queue.add(("plant", "a"))
    until(lambda: len(glances.times) == 3)
    assert glances.glances == 3
    assert queue.end(10)
