"""The windows of a root in shares: each merges its part of every partial, and all of them together are the
root.

What is cut by time is shared by key, and without key by group. What goes by the order of all events, or by
the marks of all sources, is one share, `Whole`: it needs to know the sources, and so is a root itself.

A share is told the watermark, and what queries there are. It does the same to its keys as a root would,
record by record, so that windows are final with the same record.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from headwater.groups.gathered import SelectionPart
from headwater.groups.sliced import SlicedPart
from headwater.merging.sessions import Fragments
from headwater.operators import First, Last
from headwater.partials import Partial
from headwater.queries import Kind
from headwater.root import Root
from headwater.rows import TS_MAX, TS_MIN, Ints

# The share that has a site and key of a group; without either, the group.
ShareOf = Callable[[int, tuple[str, str | None]], int]
# These name sources in their states.
_WITH_SOURCES = {First.name, Last.name}


class Share(Root):
    """The windows that are cut by time, of some keys."""

    _kinds: tuple[Kind, ...] = ("sliced",)

    def take_in(self, partial: Partial) -> None:
        """Merge what is this share's of a partial that the root has counted."""
        self._merge(partial)

    def pass_by(self, watermark: int) -> None:
        """The root's watermark has come so far."""
        if self.watermark is None or watermark > self.watermark:
            self._close(watermark)

    @property
    def next(self) -> int:
        """No window is final before this time."""
        if self._ending:
            return TS_MIN
        return min((sliced.next for sliced in self._grouping.sliced), default=TS_MAX)


class Whole(Root):
    """The windows by rank, by order and by marks."""

    _kinds: tuple[Kind, ...] = ("ordered", "counted", "marked")

    @classmethod
    def beside(cls) -> type[Root]:
        # Only what is cut by time is shared, and all of that is in lane 0.
        return Root


def shares(partial: Partial, share_of: ShareOf) -> dict[int, Partial]:
    """What each share has of a partial; those that have nothing are not there."""
    found: dict[int, Partial] = {}
    for group, part in partial.parts.items():
        if not isinstance(part, SlicedPart):
            continue
        with_sources = not _WITH_SOURCES.isdisjoint(part.operators)
        for share, mine in _parted(group, part, share_of).items():
            if share not in found:
                found[share] = Partial(version=partial.version, largest=partial.largest)
            found[share].parts[group] = mine
            if with_sources:
                found[share].sources = partial.sources
    return found


def _parted(group: int, part: SlicedPart, share_of: ShareOf) -> Mapping[int, SlicedPart]:
    owner: Ints = np.array([share_of(group, name) for name in part.names], np.int64)
    owners = np.unique(owner).tolist()
    if len(owners) == 1:
        return {owners[0]: part}
    found = {}
    for share in owners:
        mine = owner == share
        # Codes go on without gaps.
        code: Ints = np.cumsum(mine) - 1
        selections = {}
        for where, theirs in part.selections.items():
            chosen = mine[theirs.code]
            states = [tuple(column[chosen] for column in columns) for columns in theirs.states]
            fragments = theirs.fragments
            if fragments is not None:
                taken = fragments.take(mine[fragments.code])
                fragments = Fragments(code[taken.code], taken.first, taken.last, taken.states)
            if chosen.any() or fragments is not None:
                selections[where] = SelectionPart(
                    theirs.start[chosen], code[theirs.code[chosen]], states, fragments
                )
        names = [name for name, kept in zip(part.names, mine.tolist(), strict=True) if kept]
        found[share] = SlicedPart(names, part.operators, selections)
    return found
