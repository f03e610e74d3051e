"""How much sources send in truth, against what a manifest says of them: more is planned for soon, less only
when it has been less for a while. Times are seconds of a clock that never goes back."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from headwater.errors import InvalidPlan

# Over so many seconds a rate is measured; it counts when it has been as large in so many of these, of so many
# at most: who was cut off sends what has piled up, and that passes; and what is held up for a moment, as on a
# machine with too much to do, is missing in one span and comes in the next.
SPAN, SPANS, OF_SPANS = 10.0, 3, 5
# Factors are rounded up to so much: a rate that trembles plans nothing anew.
STEP = 0.1


Tree = TypeVar("Tree")


def largest(plan: Callable[[float], Tree], factor: float) -> tuple[Tree, float]:
    """What is planned for the largest factor for which there is a plan, and that factor: this one or fewer
    steps, but 1 at least. Raises `InvalidPlan` where there is none for that either."""
    try:
        return plan(factor), factor
    except InvalidPlan:
        if factor <= 1.0:
            raise
    found, low, high = (plan(1.0), 1.0), round(1.0 / STEP), round(factor / STEP)
    while high - low > 1:
        middle = (low + high) // 2
        times = round(middle * STEP, 1)
        try:
            found, low = (plan(times), times), middle
        except InvalidPlan:
            high = middle
    return found


@dataclass(slots=True)
class Measured:
    """What the root has accepted of all sources, now and then."""

    rate: float | None = None
    _rates: deque[float] = field(default_factory=lambda: deque(maxlen=OF_SPANS))
    # The root was silent: whoever was behind meanwhile catches up, and that is no rate.
    _behind: bool = False
    _counted: tuple[float, int] | None = None
    # Factors that were needed, each with its time; the oldest first.
    _needed: deque[tuple[float, float]] = field(default_factory=deque)

    def begin(self, now: float, factor: float) -> None:
        """Another process has planned for so much: that holds for a while yet."""
        if factor > 1.0 and not self._needed:
            self._needed.append((now, factor))

    def take(self, now: float, accepted: int | None) -> None:
        """So many events were accepted by now; None: the root does not say."""
        before = self._counted
        if accepted is None:
            self.rate = self._counted = None
            self._behind = True
        elif before is None or accepted < before[1]:
            self._counted = (now, accepted)
        elif now - before[0] >= SPAN:
            self.rate = (accepted - before[1]) / (now - before[0])
            self._counted = (now, accepted)
            if not self._behind:
                self._rates.append(self.rate)
            self._behind = False

    def exceeds(self, planned: float) -> bool:
        """Whether more came over the last span than is planned for: it is looked at again soon, to see
        whether that lasts."""
        return self.rate is not None and self.rate > planned * (1 + STEP)

    def factor(self, now: float, declared: float, margin: float, patience: float) -> float:
        """How many times as much as declared is to be planned for, 1 at least: what fits into the margin is
        no reason. Less than before only behind `patience` seconds."""
        needed, lasting = 1.0, sorted(self._rates)[-SPANS] if len(self._rates) >= SPANS else 0.0
        if declared > 0 and lasting > declared * (1 + max(margin, STEP)):
            needed = round(math.ceil(lasting / declared / STEP) * STEP, 1)
        if self.rate is not None:
            self._needed.append((now, needed))
        while len(self._needed) > 1 and self._needed[1][0] <= now - patience:
            self._needed.popleft()
        return max((each for _, each in self._needed), default=1.0)
