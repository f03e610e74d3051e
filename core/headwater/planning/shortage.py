"""Why there is no plan: what does not fit, by how much."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from headwater.errors import InvalidPlan, Problem
from headwater.planning.csa import exact
from headwater.planning.figures import at_least_three_digits
from headwater.planning.inventory import Kind


class TooLarge(InvalidPlan):
    """Single sources that send more than any child takes."""

    def __init__(self, largest: Kind, margin: float, sources: Iterable[tuple[str, str, float]]) -> None:
        kept = 1 - exact(margin)
        takes = f"{float(exact(largest.limit) * kept):g} items a second"
        if margin:
            takes += f" ({largest.limit:g} less a margin of {margin:g})"
        super().__init__(
            Problem(
                f"{field}.rate",
                f"one source of {name!r} sends {rate:g} items a second, but a child takes at most {takes}",
                f"raise {largest.field} to {at_least_three_digits(exact(rate) / kept)} if the nodes take "
                "that (headwater bench node measures it), or split the source",
            )
            for field, name, rate in sources
        )


class LayersDoNotEnd(InvalidPlan):
    """A root that takes less than any number of layers sends it, or any number for which there are nodes."""

    def __init__(self, root: Kind, margin: float, rate: Fraction, *, forwarded: bool) -> None:
        raised = f"raise it to {at_least_three_digits(rate / (1 - exact(margin)))}"
        super().__init__(
            [
                Problem(
                    root.field,
                    f"is {root.limit:g} for the root, but {float(rate):g} items a second reach it behind "
                    + ("any number of layers" if forwarded else "as many layers as there are nodes for"),
                    raised if forwarded else f"{raised}, or have more nodes, also by spec.limits.maxNodes",
                )
            ]
        )


class TooFew(InvalidPlan):
    """A layer for which there are too few nodes; `problem` of `remedies` says what would help."""

    def __init__(
        self, role: str, below: Sequence[int], total: int, capacities: NDArray[np.int64], most: int
    ) -> None:
        super().__init__(())
        self.role, self.below, self.total, self.capacities, self.most = (
            role,
            list(below),
            total,
            capacities,
            most,
        )
