"""Which spec of a topology is to run: the one that is asked for, or the last good one if that cannot be."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from headwater.errors import Invalid
from headwater.topology import Topology
from headwater_operator.asking import Asked
from headwater_operator.keeping import Kept
from headwater_operator.layout import Layout
from headwater_operator.rendering import Owner

Document = Mapping[str, Any]
NOTHING = Asked((), (), {}, {})


@dataclass(frozen=True, slots=True)
class Planned:
    """A spec that can be had; without a layout if it is to rest. Sources send `factor` times as much."""

    topology: Topology
    document: Document
    asked: Asked
    layout: Layout | None
    factor: float = 1.0


@dataclass(frozen=True, slots=True)
class Chosen:
    """What is to run, if there is anything, and what is wrong with what was asked for."""

    planned: Planned | None = None
    problem: Invalid | None = None
    # The generation that runs in place of the one that is asked for, and why that was given up if it was.
    instead: int | None = None
    rolled_back: str | None = None
    asked: Asked = field(default=NOTHING)


def choose(
    owner: Owner, document: Document, generation: int, kept: Kept, plan: Callable[[Document, bool], Planned]
) -> Chosen:
    """`plan` raises `Invalid` for what cannot be had. Of a spec that has run before it is asked at last for
    that which runs: machines are lost, and what there is left is seen to all the same."""
    rolled_back = kept.why if kept.failed == generation and kept.generation not in (0, generation) else None
    problem: Invalid | None = None
    if rolled_back is None:
        try:
            return Chosen(plan(document, False))
        except Invalid as error:
            problem = error
    tried = kept.generation == generation
    before = document if tried else kept.document(owner)
    if before is not None:
        for running in (True,) if tried else (False, True):
            try:
                return Chosen(plan(before, running), problem, kept.generation, rolled_back)
            except Invalid as error:
                problem = problem or error
    return Chosen(None, problem, None, rolled_back)


def after(kept: Kept, generation: int, document: Document, *, settled: bool, own: bool) -> Kept:
    """What is kept once a look is over: a spec that is `settled` is the last good one, if it is the `own` of
    this generation and none that runs instead of it."""
    if settled and own and kept.generation != generation:
        return replace(kept, generation=generation, spec=document["spec"], failed=0, why="")
    return kept


def given_up(kept: Kept, generation: int, seconds: float) -> Kept:
    """A generation that did not come to be, where there is another one."""
    return replace(kept, failed=generation, why=f"generation {generation} was not there after {seconds:g} s")
