"""Windows that are final: what groups have closed, as results that can be taken."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from headwater.catalog import Catalog
from headwater.errors import FunctionFailed
from headwater.grouping import Group
from headwater.groups.marked import MarkedGroup
from headwater.merging.closed import Closed, joined
from headwater.results import Block, Results, lowered


class Finals:
    """Blocks of results until somebody takes them."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._blocks: list[Block] = []
        self._unlowered: FunctionFailed | None = None

    def take(self) -> Results:
        """What became final since the last time; raises what a user's function has raised meanwhile."""
        if self._unlowered is not None:
            # Once: the windows of everybody else can be taken afterwards.
            error, self._unlowered = self._unlowered, None
            raise error
        blocks, self._blocks = self._blocks, []
        return Results(blocks, known=self._catalog.queries)

    def collect(self, groups: Iterable[Group]) -> FunctionFailed | None:
        """Lower what groups have closed; gives what a user's function raised in doing so, if one did."""
        raised: list[FunctionFailed] = []
        for group in groups:
            if isinstance(group, MarkedGroup):
                self._collect_marked(group, raised)
            elif chunks := group.take():
                closed = joined(group.operators, chunks)
                self._blocks += self._lowered(group, closed, group.space.names.listed, raised)
        return raised[-1] if raised else None

    def _collect_marked(self, group: MarkedGroup, raised: list[FunctionFailed]) -> None:
        for closed, sites, ordinals in group.take():
            names = [
                (site, group.space.names.listed[code][1])
                for site, code in zip(sites, closed.code.tolist(), strict=True)
            ]
            closed.code = np.arange(len(names))
            merge = group.window.merge
            for block in self._lowered(group, closed, names, raised):
                if merge in ("local", "order"):
                    block.ordinal = np.array(ordinals, np.int64)
                block.by_bounds = merge == "bounds"
                self._blocks.append(block)

    def _lowered(
        self, group: Group, closed: Closed, names: list[tuple[str, str | None]], raised: list[FunctionFailed]
    ) -> Iterator[Block]:
        """One block for each list of functions that queries of the group ask for."""
        kinds = self._catalog.kind[closed.query]
        least, most = int(kinds.min()), int(kinds.max())
        for kind in [least] if least == most else np.unique(kinds).tolist():
            part = closed
            if least < most:
                part = closed.take(kinds == kind)
            try:
                block = lowered(
                    self._catalog.queries,
                    self._catalog.incarnations,
                    group.operators,
                    self._catalog.aggregates[kind],
                    part.query,
                    part.code,
                    part.start,
                    part.end,
                    part.states,
                    names,
                )
                block.first_time, block.last_time = part.first, part.last
                yield block
            except FunctionFailed as error:
                self._unlowered = error
                raised.append(error)
