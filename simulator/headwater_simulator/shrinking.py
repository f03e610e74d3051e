"""A plan that fails, cut down to one that fails alike and is as small as can be found."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TypeVar

from headwater_simulator.plans import Feed, Plan
from headwater_simulator.runs import Outcome, run

_T = TypeVar("_T")


def shrink(outcome: Outcome, tries: int = 400, progress: Callable[[Plan], None] | None = None) -> Outcome:
    """The smallest that at most so many runs come to."""
    best = outcome
    found = True
    while found:
        found = False
        for plan in smaller(best.plan):
            if not tries:
                return best
            tries -= 1
            again = run(plan)
            if again.kind == best.kind:
                best, found = again, True
                if progress is not None:
                    progress(plan)
                break
    return best


def smaller(plan: Plan) -> Iterator[Plan]:
    """Plans with less in them, those with much less first."""
    for faults in _fewer(plan.faults):
        yield replace(plan, faults=faults)
    for queries in _fewer(plan.queries):
        if queries:
            yield replace(plan, queries=queries)
    for feed in plan.feeds:
        if len(plan.feeds) > 1:
            kept_feeds = tuple(other for other in plan.feeds if other is not feed)
            yield replace(plan, feeds=kept_feeds, expected=min(plan.expected, len(kept_feeds)))
    for place, feed in enumerate(plan.feeds):
        for records in _fewer(feed.records):
            yield replace(plan, feeds=_with(plan.feeds, place, replace(feed, records=records)))
    for calmer in (
        replace(plan, loss=0.0),
        replace(plan, repeat=0.0),
        replace(plan, delay=1),
        replace(plan, lanes=False),
        replace(plan, wire=False),
        replace(plan, snapshots=False),
        replace(plan, tight=False),
        replace(plan, cap=0),
    ):
        if calmer != plan:
            yield calmer
    yield from _flatter(plan)


def _flatter(plan: Plan) -> Iterator[Plan]:
    """The tree without a layer, or without a node that has nobody below it."""
    if len(plan.layers) > 1:
        gone = set(plan.layers[-1])
        parents = {
            name: "root" if above in gone else above
            for name, above in plan.parents.items()
            if name not in gone
        }
        yield replace(plan, layers=plan.layers[:-1], parents=parents)
    used = set(plan.parents.values())
    for depth, layer in enumerate(plan.layers):
        for name in layer:
            if name not in used and len(layer) > 1:
                kept = tuple(other for other in layer if other != name)
                layers = (*plan.layers[:depth], kept, *plan.layers[depth + 1 :])
                faults = tuple(fault for fault in plan.faults if name not in (fault.who, fault.other))
                parents = {below: above for below, above in plan.parents.items() if below != name}
                yield replace(plan, layers=layers, parents=parents, faults=faults)


def _with(feeds: tuple[Feed, ...], place: int, feed: Feed) -> tuple[Feed, ...]:
    return (*feeds[:place], feed, *feeds[place + 1 :])


def _fewer(given: tuple[_T, ...]) -> Iterator[tuple[_T, ...]]:
    """Without all, a half, a quarter, and so on down to one."""
    size = len(given)
    while size:
        for begin in range(0, len(given), size):
            yield given[:begin] + given[begin + size :]
        size //= 2
