"""What each kept run guards: its defect, put back for the time of a test."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

import pytest

from headwater.decisions import Kind
from headwater.events import Batch
from headwater.groups import sliced
from headwater.groups.members import Active
from headwater.machines import positions, sizes
from headwater.machines.below import Below
from headwater.machines.commits import Commits
from headwater.machines.holding import Holding
from headwater.machines.kept import Kept
from headwater.machines.lane import Lane, Read, cut
from headwater.machines.messages import Ack, Commit, Outbox, Send
from headwater.machines.node import NodeMachine
from headwater.machines.nonces import Nonces
from headwater.machines.openings import Openings
from headwater.machines.records import Merged
from headwater.machines.room import Room
from headwater.machines.root import RootMachine
from headwater.machines.rootlane import RootLane
from headwater.machines.route import Place, Route
from headwater.partials import Span
from headwater.progress import Source
from headwater.root import Root
from headwater.rows import TS_MAX, Array

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
    patch.setattr(positions, "_is_over", lambda lane, name, span: False)


def _early_goes_across(patch: Patch) -> None:
    """A batch that is ahead of lane 0 waits, also if something was decided in its midst."""

    def is_over(lane: RootLane, name: str, span: Span) -> bool:
        return span.low.position <= lane.prefix(name).position and not lane.fits(name, span.low)

    patch.setattr(positions, "_is_over", is_over)


def _skips_of_numbers(patch: Patch) -> None:
    """A number is skipped, whichever record has it."""
    sound = Root.reopen
    patch.setattr(Root, "reopen", lambda self, name, opening, upto: sound(self, name, opening, sys.maxsize))


def _skips_from_its_beginning(patch: Patch) -> None:
    """A lane does not know what was skipped before it began."""
    sound = Root.stand_beside

    def stand_beside(self: Root, main: Root) -> None:
        sound(self, main)
        self.decisions[:] = [each for each in self.decisions if each.kind != "skip"]

    patch.setattr(Root, "stand_beside", stand_beside)


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
        for group in self._grouping.marked:
            source.marks.setdefault(group.name, {})

    patch.setattr(Root, "_give_up", give_up)


def _echoes_for_ever(patch: Patch) -> None:
    """A nonce is good whatever was logged since it was drawn, and the root knows no opening that it has not
    confirmed: either would do."""
    patch.setattr(Nonces, "renew", lambda self, name: None)
    _ancestors_are_not_logged(patch)


def _forgotten_with_a_batch(patch: Patch) -> None:
    """A query that was removed is forgotten only with a batch of what waits, and states for it are asked for
    until then."""
    sound = NodeMachine.flush

    def flush(self: NodeMachine, now: int) -> list[Send]:
        waiting = {number: lane.moved() for number, lane in self._holding.lanes.items()}
        sends = sound(self, now)
        for number, lane in self._holding.lanes.items():
            if self._holding.watermark is not None and waiting[number] and not lane.moved():
                lane.engine.forget(self._holding.watermark)
        return sends

    def outside(start: Array, members: Sequence[Active]) -> Array:
        return start < min((member.begin for member in members), default=TS_MAX)

    patch.setattr(NodeMachine, "flush", flush)
    patch.setattr(Lane, "let_go", lambda self, watermark: None)
    patch.setattr(sliced, "_outside", outside)


def _no_earlier_openings(patch: Patch) -> None:
    """Of a spool that was not confirmed when it was copied, the root believes to know nothing."""
    patch.setattr(Openings, "_shared", lambda self, hello: hello.opened_at)


def _ancestors_are_not_logged(patch: Patch) -> None:
    """The root knows the openings that it has confirmed, and not those before them."""
    sound = Openings._name
    patch.setattr(Openings, "_name", lambda self, name, held, earlier: sound(self, name, held, ()))


def _every_piece_has_names(patch: Patch) -> None:
    """Each piece of a message is charged for all names of the message."""

    def add(self: Kept, batch: Batch) -> None:
        self.bytes += sizes.of_columns(batch)

    def drop(self: Kept, batches: Iterable[Batch]) -> None:
        self.bytes -= sum(map(sizes.of_columns, batches))

    patch.setattr(Kept, "add", add)
    patch.setattr(Kept, "drop", drop)


def _lanes_end_in_a_commit(patch: Patch) -> None:
    """What waits to be made durable is written, whether or not its lane is still there."""

    def commit(self: Commits, out: Outbox) -> None:
        pending, self._pending = self._pending, []
        for lane in self._state.lanes.values():
            lane.ahead.clear()
        for _, message in pending:
            self._write(Merged(message.partial, message.lane))
        self._sync()
        for sender, message in pending:
            out.add(sender, Ack(message.stream, message.id))

    patch.setattr(Commits, "commit", commit)


def _lanes_end_by_any_message(patch: Patch) -> None:
    """A lane of a query that was removed ends when a parent does not name it, however old the word is."""
    sound = Holding.counted

    def counted(self: Holding, message: Commit) -> None:
        sound(self, replace(message, version=self.version))

    patch.setattr(Holding, "counted", counted)


def _only_the_watermark_waits(patch: Patch) -> None:
    """A source that a lane has read further than lane 0 has no place before others."""

    def is_hungry(self: Room, lane: Lane, name: str) -> bool:
        source, watermark = lane.source(name), self._holding.watermark
        return source is None or watermark is None or source.largest - source.lateness <= watermark

    patch.setattr(Room, "is_hungry", is_hungry)


def _addresses_alone_differ(patch: Patch) -> None:
    """A source whose child was at its first address does not look there for any other child."""

    def others(self: Route) -> list[Place]:
        places = [*self.firsts, *([] if self._assigned is None else [self._assigned])]
        return [place for place in places if place.address != self.place.address]

    patch.setattr(Route, "_others", others)


# By the name of the file.
GUARDS: Mapping[str, Callable[[Patch], None]] = {
    "another-child-at-the-first-address": _addresses_alone_differ,
    "batch-of-a-lane-that-ends-before-it": _lanes_end_in_a_commit,
    "copy-from-before-an-opening-that-was-logged": _ancestors_are_not_logged,
    "copy-of-an-opening-that-was-not-confirmed": _no_earlier_openings,
    "early-batch-across-a-decision": _early_goes_across,
    "early-batch-of-an-older-opening": _early_is_ignored,
    "echo-of-an-opening-that-is-over": _echoes_for_ever,
    "lane-ahead-in-the-midst-of-a-message": _room_for_all,
    "lane-ahead-waits-for-columns-without-place": _only_the_watermark_waits,
    "lane-ahead-without-room": _room_for_all,
    "lane-beyond-the-watermark-of-lane-0": _lanes_by_themselves,
    "decisions-at-one-number": _one_by_one,
    "lane-ended-by-an-old-message": _lanes_end_by_any_message,
    "lane-that-begins-behind-a-skip": _skips_from_its_beginning,
    "marks-without-state": _states_of_nothing,
    "message-read-in-pieces": _every_piece_has_names,
    "removed-query-forgotten-below": _forgotten_with_a_batch,
    "root-dies-between-admission-and-retirement": _successions_stay_cut_short,
    "skipped-record-that-was-lost": _skips_of_numbers,
}
