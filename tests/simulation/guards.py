"""What each kept run guards: its defect, put back for the time of a test."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import pytest

from headwater.machines import positions
from headwater.machines.below import Below
from headwater.machines.lane import Read, cut
from headwater.machines.messages import Outbox
from headwater.machines.nonces import Nonces
from headwater.machines.root import RootMachine
from headwater.node import Source
from headwater.root import Kind, Root

Patch = pytest.MonkeyPatch


def _room_for_all(patch: Patch) -> None:
    """Every lane is asked for room, also one that takes nothing of it."""

    def read(self: Below, columns: Read, now: int, out: Outbox) -> bool:
        name, lanes = columns.source, self._holding.reading(columns.source)
        portion = min(lane.portion for lane in lanes)
        while (begin := self._holding.position(name)) < columns.high:
            end = min(begin + portion, columns.high)
            for lane in lanes:
                if not self._make_room(lane, [name], (end - begin) * lane.record_bytes, now, out):
                    return False
            for lane in lanes:
                lane.read(Read(cut(columns.batch, begin - columns.low, end - columns.low), columns.opening))
            if self._holding.position(name) < end:
                break
        return True

    patch.setattr(Below, "_read", read)


def _early_is_ignored(patch: Patch) -> None:
    """A batch that is ahead of lane 0 waits, whether or not it still fits."""
    patch.setattr(positions, "_is_over", lambda stands, low: False)


def _successions_stay_cut_short(patch: Patch) -> None:
    """A root that begins does not look for sources whose next incarnation was admitted."""
    patch.setattr(RootMachine, "_superseded", lambda self: [])


def _lanes_by_themselves(patch: Patch) -> None:
    """Each lane has a watermark of its own."""
    patch.setattr(Root, "stay_behind", lambda self, watermark: None)


def _one_by_one(patch: Patch) -> None:
    """What is decided at one number is taken one by one."""

    @contextmanager
    def deciding(self: Root) -> Iterator[None]:
        yield

    patch.setattr(Root, "deciding", deciding)


def _states_of_nothing(patch: Patch) -> None:
    """Who is given up has an empty state of each mark query."""
    sound = Root._give_up

    def give_up(self: Root, source: Source, kind: Kind) -> None:
        sound(self, source, kind)
        for group in self._marked:
            source.marks.setdefault(group.name, {})

    patch.setattr(Root, "_give_up", give_up)


def _echoes_for_ever(patch: Patch) -> None:
    """A nonce is good whatever was logged since it was drawn."""
    patch.setattr(Nonces, "renew", lambda self, name: None)


# By the name of the file.
GUARDS: Mapping[str, Callable[[Patch], None]] = {
    "early-batch-of-an-older-opening": _early_is_ignored,
    "echo-of-an-opening-that-is-over": _echoes_for_ever,
    "lane-ahead-in-the-midst-of-a-message": _room_for_all,
    "lane-ahead-without-room": _room_for_all,
    "lane-beyond-the-watermark-of-lane-0": _lanes_by_themselves,
    "decisions-at-one-number": _one_by_one,
    "marks-without-state": _states_of_nothing,
    "root-dies-between-admission-and-retirement": _successions_stay_cut_short,
}
