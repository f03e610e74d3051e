"""Which spec of a topology is to run: the one that is asked for, or the last good one if that cannot be."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from enum import Enum, auto
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


class Way(Enum):
    """How a spec is to be had: with every query that is asked for; without those for which every event would
    have to come to the root, but for what is computed already; or with the nodes that there are, where
    machines are too few for any plan."""

    ASKED = auto()
    COMPUTED = auto()
    HELD = auto()


def choose(
    owner: Owner, document: Document, generation: int, kept: Kept, plan: Callable[[Document, Way], Planned]
) -> Chosen:
    """`plan` raises `Invalid` for what cannot be had. Only a spec that was begun is held: no other one is
    what the nodes that there are have been made for."""
    rolled_back = kept.why if kept.failed == generation and kept.generation not in (0, generation) else None
    before = kept.document(owner) if kept.generation != generation else None
    specs = [(document, generation)] if rolled_back is None else []
    specs += [(before, kept.generation)] if before is not None else []
    problem: Invalid | None = None
    for each, number in specs:
        for way in Way:
            if way is Way.HELD and kept.begun != number:
                continue
            try:
                planned = plan(each, way)
            except Invalid as error:
                problem = problem or error
                continue
            if number == generation and way is not Way.HELD:
                # What is wrong with a query alone is told of that.
                return Chosen(planned)
            return Chosen(planned, problem, number, rolled_back)
    if rolled_back is not None and kept.begun == generation:
        # It was given up, and the one before it cannot be had any more.
        with suppress(Invalid):
            return Chosen(plan(document, Way.HELD), problem, generation)
    return Chosen(None, problem, None, rolled_back)


def after(kept: Kept, generation: int, document: Document, *, settled: bool, own: bool) -> Kept:
    """What is kept once a look is over: a spec that is `settled` is the last good one, if it is the `own` of
    this generation and none that runs instead of it."""
    if settled and own and kept.generation != generation:
        return replace(kept, generation=generation, spec=document["spec"], failed=0, why="")
    return kept


def given_up(kept: Kept, generation: int, seconds: float) -> Kept:
    """A generation that did not come to be, where there is another one."""
    why = f"nothing more of generation {generation} came to be for {seconds:g} s"
    return replace(kept, failed=generation, why=why)
