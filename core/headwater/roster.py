"""The roster: whom the root waits for, and where they stand with the order of marks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from headwater.groups.marked import MarkedGroup
from headwater.merging.closings import FOREVER
from headwater.merging.marks import Member
from headwater.prefix import KeyedMarks, MarkState
from headwater.progress import Source
from headwater.slicing.marks import close_all


class Roster:
    """The sources that are not given up, among all that were ever admitted."""

    def __init__(self, sources: list[Source]) -> None:
        """`sources` are those of the root, by code."""
        self._known = sources
        # Who is not retired: there may be many more who are.
        self.present: list[Source] = []

    def __iter__(self) -> Iterator[Source]:
        return (source for source in self.present if not source.idle)

    def name(self, code: int) -> str:
        return self._known[code].name

    def site(self, code: int) -> str:
        return self._known[code].site

    def drop_retired(self) -> None:
        self.present = [source for source in self.present if not source.retired]

    # Marks

    def members(self, group: MarkedGroup) -> list[Member]:
        return [Member(s.code, s.site, s.marks.get(group.name, {})) for s in self]

    def marks(self, group: MarkedGroup) -> dict[int, KeyedMarks]:
        """Where every source stands that there ever was."""
        return {s.code: s.marks.get(group.name, {}) for s in self._known}

    def raise_ordinals(self, source: Source, groups: Iterable[MarkedGroup]) -> None:
        """A source that comes (back) starts at the next ordinal that is not decided.

        That is the lowest of the roster; where nobody is left, the highest there ever was, since nobody
        was waited for.
        """
        for group in groups:
            near = [
                s for s in self._known if s is not source and (not group.by_site or s.site == source.site)
            ]
            roster = [s for s in near if not (s.idle or s.retired)]
            others = [s.marks.get(group.name, {}) for s in roster or near]
            states = dict(source.marks.get(group.name, {})) or {None: MarkState()}
            for own in sorted({key for other in others for key in other if key is not None} - set(states)):
                default = states[None]
                states[own] = MarkState(default.ordinal, default.opened, default.ordinal)
            for key, state in states.items():
                reached = [_state(other, key).ordinal for other in others]
                undecided = (min if roster else max)(reached, default=0)
                if undecided > state.ordinal:
                    states[key] = MarkState(undecided, state.opened, state.since)
            source.marks[group.name] = states

    def end_marks_of(self, source: Source, groups: Iterable[MarkedGroup]) -> None:
        """A source is given up: its open windows end where it stands."""
        for group in groups:
            at = min(source.largest, FOREVER, group.member.end)
            ended, states = close_all(source.marks.get(group.name, {}), at)
            # No state and an empty one are the same to who judges, but not to who compares prefixes.
            if states:
                source.marks[group.name] = states
            if not group.over:
                group.end(source.code, ended)

    def end_group(self, group: MarkedGroup) -> None:
        """The query was removed, and the watermark is past its end: what is open ends there.

        Where sources stand with its marks is part of their prefixes and stays.
        """
        group.over = True
        for source in self._known:
            ended, _ = close_all(source.marks.get(group.name, {}), group.member.end)
            group.end(source.code, ended)


def _state(states: KeyedMarks, key: str | None) -> MarkState:
    return states.get(key) or states.get(None) or MarkState()
