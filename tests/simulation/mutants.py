"""Deliberate mistakes: each leaves out one rule of the protocol, and the simulator has to notice.

A mutant replaces a method of the machines or of the engine for the time of a test; the product knows nothing
of it. `python -m tests.simulation.mutants` runs each until a seed fails, and prints the table of
docs/reliability.md.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from headwater import node as engine
from headwater import prefix as prefixes
from headwater import roster as rosters
from headwater.changes import Change, Versions
from headwater.errors import OtherQueries, StaleVersion
from headwater.events import Batch
from headwater.machines import below, positions
from headwater.machines.below import Below
from headwater.machines.commits import Commits
from headwater.machines.lane import Lane
from headwater.machines.link import Link
from headwater.machines.messages import (
    Ack,
    Commit,
    Delivery,
    Hello,
    Message,
    Outbox,
    Probe,
    Register,
    Resync,
    Silent,
    Standing,
    Stream,
    Tell,
)
from headwater.machines.node import NodeMachine
from headwater.machines.openings import Openings
from headwater.machines.positions import Positions
from headwater.machines.records import Body, Idled, Opened, Resumed, Retired, Skipped
from headwater.machines.room import Room
from headwater.machines.root import RootMachine
from headwater.machines.rootlane import Later, RootLane
from headwater.machines.route import Place, Route
from headwater.machines.source import SourceMachine
from headwater.machines.state import State
from headwater.machines.terms import Terms
from headwater.merging.closings import FOREVER
from headwater.merging.ordered import OrderedEvents
from headwater.merging.sessions import Fragments, Sessions
from headwater.node import Node
from headwater.partials import Partial
from headwater.prefix import Judged, Prefix
from headwater.progress import Source
from headwater.root import Root
from headwater.roster import Roster
from headwater.rows import Array
from headwater_root.snapshots import Snapshots
from headwater_simulator.runs import Outcome, run
from tests.simulation.guards import GUARDS

Patch = pytest.MonkeyPatch

# Within so many seeds each is caught.
SEEDS = 500
# So many records a source may be ahead of another one where flow control goes by arrival.
AHEAD = 8
# How a mutant shows.
RESULTS, INVARIANT, STUCK = "wrong results", "a broken invariant", "never finishing"


@dataclass(frozen=True)
class Mutant:
    """A rule that is left out; `caught_as` is how it mostly shows, for who reads it, and `first` the first of
    its seeds where it shows rarely."""

    name: str
    rule: int
    breaks: str
    caught_as: str
    apply: Callable[[Patch], None]
    first: int = 0

    def run(self, seed: int) -> Outcome:
        with pytest.MonkeyPatch.context() as patch:
            self.apply(patch)
            return run(seed)

    def caught(self) -> Outcome | None:
        """The first of its runs that fails."""
        seeds = range(self.first, self.first + SEEDS)
        return next((outcome for outcome in map(self.run, seeds) if outcome.failure), None)


# Those that the simulator catches, and those that do no harm since other rules cover what they leave out.
MUTANTS: list[Mutant] = []
COVERED: list[Mutant] = []

Applied = Callable[[Patch], None]


def mutant(name: str, rule: int, breaks: str, caught_as: str, first: int = 0) -> Callable[[Applied], Applied]:
    def added(apply: Applied) -> Applied:
        MUTANTS.append(Mutant(name, rule, breaks, caught_as, apply, first))
        return apply

    return added


def covered(name: str, rule: int, breaks: str, by: str) -> Callable[[Applied], Applied]:
    """`by` says what makes up for it."""

    def added(apply: Applied) -> Applied:
        COVERED.append(Mutant(name, rule, breaks, by, apply))
        return apply

    return added


# What fits


def _fits_if(patch: Patch, fits: Callable[[Prefix, Prefix], bool], *, root: bool = True) -> None:
    """On every hop, or on those below the root alone: `fits(where the receiver stands, low)`."""
    sound = Node._fits

    def at_node(self: Node, name: str, low: Prefix) -> bool:
        if isinstance(self, Root) and not root:
            return sound(self, name, low)
        return name in self.sources and fits(self.sources[name].prefix, low)

    patch.setattr(Node, "_fits", at_node)
    if root:
        patch.setattr(RootLane, "fits", lambda self, name, low: fits(self.prefix(name), low))


@mutant("apply on overlap", 6, "a batch that begins below what was applied is applied all the same", RESULTS)
def _(patch: Patch) -> None:
    _fits_if(patch, lambda held, low: held == low or low.position < held.position)


@mutant("apply on gap", 6, "a batch that begins above what was applied is applied all the same", RESULTS)
def _(patch: Patch) -> None:
    _fits_if(patch, lambda held, low: held == low or low.position > held.position)


@mutant("trust the sender's lo", 6, "where a batch begins is believed, not compared", RESULTS)
def _(patch: Patch) -> None:
    _fits_if(patch, lambda held, low: True)


@mutant("prefix state not checked", 6, "only numbers are compared, not what the prefix comes to", RESULTS)
def _(patch: Patch) -> None:
    _fits_if(patch, lambda held, low: held.position == low.position)


@mutant("checked at the root only", 6, "nodes below the root apply whatever comes", RESULTS)
def _(patch: Patch) -> None:
    _fits_if(patch, lambda held, low: True, root=False)


@mutant("prefix state checked at the root only", 6, "nodes below the root compare numbers alone", RESULTS)
def _(patch: Patch) -> None:
    _fits_if(patch, lambda held, low: held.position == low.position, root=False)


# What is remembered


@mutant(
    "prefix state lost when a child is replaced",
    7,
    "who asks where a source stands is told its number, not what its prefix comes to",
    STUCK,
)
def _(patch: Patch) -> None:
    def bare(standing: Standing | None) -> Standing | None:
        if standing is None:
            return None
        return replace(standing, prefix=Prefix(standing.prefix.position, opening=standing.prefix.opening))

    of_lane, of_root = Lane.standings, RootLane.standing
    patch.setattr(
        Lane,
        "standings",
        lambda self, names: {name: bare(held) for name, held in of_lane(self, names).items()},
    )
    patch.setattr(RootLane, "standing", lambda self, name, opening: bare(of_root(self, name, opening)))


@mutant(
    "heed a Resync of another stream",
    9,
    "an answer counts on whatever stream and to whatever batch it comes",
    INVARIANT,
)
def _(patch: Patch) -> None:
    heard = Link.mine

    def mine(self: Link, stream: Stream, now: int) -> bool:
        return heard(self, self.stream, now)

    sound = SourceMachine._resynced

    def resynced(self: SourceMachine, message: Resync) -> None:
        if self._under_way:
            message = replace(message, id=self._under_way[0].columns.id)
        sound(self, message)

    patch.setattr(Link, "mine", mine)
    patch.setattr(Lane, "concerns", lambda self, id: True)
    patch.setattr(SourceMachine, "_resynced", resynced)


@mutant("heed a Resync of another lane", 9, "where one lane stands is taken for where lane 0 stands", STUCK)
def _(patch: Patch) -> None:
    sound = NodeMachine._answered

    def answered(self: NodeMachine, message: Tell | Ack | Resync | Commit, now: int, out: Outbox) -> None:
        sound(self, replace(message, lane=0) if isinstance(message, Resync) else message, now, out)

    patch.setattr(NodeMachine, "_answered", answered)
    patch.setattr(Lane, "concerns", lambda self, id: True)


@mutant("nobody asks how things stand", 9, "probes name no source", STUCK)
def _(patch: Patch) -> None:
    sound = Outbox.add

    def add(self: Outbox, to: str, message: Message) -> None:
        sound(self, to, replace(message, heads={}) if isinstance(message, Probe) else message)

    patch.setattr(Outbox, "add", add)


@mutant(
    "accept a stale generation", 10, "a process whose name another one has since still takes part", INVARIANT
)
def _(patch: Patch) -> None:
    def is_member(self: RootMachine, sender: str, stream: Stream, out: Outbox) -> bool:
        return stream.opener == sender and self.members.generation(sender) > 0

    registers, silent = RootMachine._register, RootMachine._silent

    def register(self: RootMachine, sender: str, message: Register, now: int, out: Outbox) -> None:
        if not message.generation or self.members.holds(message):
            registers(self, sender, message, now, out)

    def heeded(self: RootMachine, message: Silent, now: int, out: Outbox) -> None:
        silent(self, replace(message, generation=self.members.generation(message.child)), now, out)

    patch.setattr(RootMachine, "_is_member", is_member)
    patch.setattr(RootMachine, "_register", register)
    patch.setattr(RootMachine, "_silent", heeded)
    patch.setattr(Below, "_is_stale", lambda self, stream, now: False)


# Time


def _advance(self: Root, heard: Callable[[Source], bool]) -> None:
    """The watermark of some of the roster."""
    lows = [s.largest - s.lateness for s in self._roster if heard(s)]
    if lows and (self.watermark is None or min(lows) > self.watermark) and min(lows) >= -FOREVER:
        self._lowest = min(lows)
        self._close(min(lows))


@mutant(
    "watermark of those heard from",
    12,
    "the watermark is the minimum over the sources of which something has come",
    RESULTS,
)
def _(patch: Patch) -> None:
    patch.setattr(Root, "_advance", lambda self: _advance(self, lambda source: source.position > 0))


@mutant(
    "watermark of the last batch",
    12,
    "the watermark is the minimum over the sources of the child that was heard last",
    RESULTS,
)
def _(patch: Patch) -> None:
    sound = Root.merge

    def merge(self: Root, partial: Partial) -> None:
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(Root, "_advance", lambda root: _advance(root, lambda s: s.name in partial.vector))
            sound(self, partial)

    patch.setattr(Root, "merge", merge)


@mutant("watermark before all are there", 13, "sources that are expected are not waited for", RESULTS)
def _(patch: Patch) -> None:
    patch.setattr(Root, "_advance", lambda self: _advance(self, lambda source: True))


@mutant("lateness by the child's view", 11, "a child judges lateness by all that it has read", RESULTS)
def _(patch: Patch) -> None:
    sound = Node.push

    def push(self: Node, batch: Batch) -> int:
        source = self.sources[batch.source]
        own = source.largest
        source.largest = max(each.largest for each in self.sources.values())
        read = sound(self, batch)
        source.largest = max(own, int(batch.ts[:read].max()) if read else own)
        return read

    patch.setattr(Node, "push", push)


@mutant("heartbeat forgotten", 3, "a heartbeat has a number and raises nothing", RESULTS)
def _(patch: Patch) -> None:
    _judge_as(patch, lambda batch, found: ~_bare(batch))


@mutant("rejected record raises M", 15, "a record that is rejected moves the largest time", RESULTS)
def _(patch: Patch) -> None:
    _judge_as(patch, lambda batch, found: np.ones(len(batch), bool))


def _bare(batch: Batch) -> Array:
    return np.zeros(len(batch), bool) if batch.bare is None else batch.bare


def _judge_as(patch: Patch, raises: Callable[[Batch, Judged], Array]) -> None:
    """Those of a batch that raise the largest time of its source."""
    sound = prefixes.judge

    def judge(batch: Batch, source: int, largest: int, *others: Any) -> Judged:
        found = sound(batch, source, largest, *others)
        times = batch.ts[: found.read][raises(batch, found)[: found.read]]
        times = times[abs(times) <= 2**62]
        found.largest = max(largest, int(times.max())) if len(times) else largest
        return found

    patch.setattr(engine, "judge", judge)


@mutant("count windows by arrival", 12, "events are put into count windows as they come", RESULTS)
def _(patch: Patch) -> None:
    sound = OrderedEvents.release
    patch.setattr(OrderedEvents, "release", lambda self, watermark, **rest: sound(self, FOREVER, **rest))


@mutant("session merged across the gap", 12, "sessions that are exactly the gap apart become one", RESULTS)
def _(patch: Patch) -> None:
    sound = Sessions._all

    def wide(self: Sessions) -> Fragments:
        self.gap += 1
        try:
            return sound(self)
        finally:
            self.gap -= 1

    patch.setattr(Sessions, "_all", wide)


# Who comes and goes


def _keep(source: Source, largest: int, root: Root) -> None:
    """What was decided last has raised nothing."""
    source.largest = largest
    root.decisions[-1] = replace(root.decisions[-1], floor=None)


@mutant("admit below W", 13, "a source that joins later begins at its own time", RESULTS)
def _(patch: Patch) -> None:
    sound = Root._admitted

    def admitted(self: Root, source: Source) -> None:
        largest = source.largest
        sound(self, source)
        _keep(source, largest, self)
        source.since = source.prefix

    patch.setattr(Root, "_admitted", admitted)


@mutant("resume without raising M", 14, "a source that was idle goes on at its own time", RESULTS)
def _(patch: Patch) -> None:
    sound = Root.resume

    def resume(self: Root, name: str, *, floor: int | None = None) -> None:
        source = self.sources[name]
        largest, decided = source.largest, len(self.decisions)
        sound(self, name, floor=floor)
        if len(self.decisions) > decided:
            _keep(source, largest, self)

    patch.setattr(Root, "resume", resume)


@mutant("ordinal not raised at resume", 14, "a source that was idle goes on at its own ordinal", RESULTS)
def _(patch: Patch) -> None:
    sound = Root.resume

    def resume(self: Root, name: str, *, floor: int | None = None) -> None:
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(Roster, "raise_ordinals", lambda roster, source, groups: None)
            sound(self, name, floor=floor)

    patch.setattr(Root, "resume", resume)


@mutant("idle leaves a mark window open", 14, "a source that is given up keeps its open mark window", RESULTS)
def _(patch: Patch) -> None:
    patch.setattr(rosters, "close_all", lambda states, at: ([], states))


@mutant(
    "idle decided by a child",
    14,
    "a child's word is enough, whoever it is and however little of the source it knows",
    INVARIANT,
)
def _(patch: Patch) -> None:
    def silent(self: RootMachine, message: Silent, now: int, out: Outbox) -> None:
        source = self.engine.sources.get(message.source)
        there = source is not None and not (source.idle or source.retired)
        if there and self.engine.watermark is not None:
            self._commits.decide_behind(out, Idled(message.source))

    patch.setattr(RootMachine, "_silent", silent)


@mutant("retired incarnation still fits", 2, "what is under way of a retired source is counted", RESULTS)
def _(patch: Patch) -> None:
    patch.setattr(RootLane, "is_gone", lambda self, name: name not in self.engine.sources)
    patch.setattr(Root, "_refuse_late_comers", lambda self, source, what="": None)


@mutant("spool that came back older not noticed", 2, "a spool may open below what was counted", RESULTS)
def _(patch: Patch) -> None:
    patch.setattr(Openings, "_shared", lambda self, hello: 2**62)


@mutant("opening not part of P", 2, "what was under way from an earlier opening still fits", RESULTS)
def _(patch: Patch) -> None:
    patch.setattr(Root, "reopen", lambda self, name, opening, upto: None)
    patch.setattr(Lane, "may_read", lambda self, columns: True)


@mutant(
    "columns of another opening judged", 2, "a child reads columns of an earlier opening", RESULTS, first=500
)
def _(patch: Patch) -> None:
    patch.setattr(Lane, "may_read", lambda self, columns: True)


# Of the two ways by which a process is known that has ended, either suffices in most runs.
@mutant(
    "nonce not required",
    2,
    "a hello is logged although no living process has echoed the nonce, and openings before it are not",
    STUCK,
)
def _(patch: Patch) -> None:
    sound, name = RootMachine._hello, Openings._name

    def hello(self: RootMachine, sender: str, message: Hello, now: int, out: Outbox) -> None:
        sound(self, sender, replace(message, echo=self._nonces.of(message.name, message.opening)), now, out)

    patch.setattr(RootMachine, "_hello", hello)
    patch.setattr(Openings, "_name", lambda self, source, held, earlier: name(self, source, held, ()))


@mutant("late mark acts", 11, "a mark that is late opens or closes a window", RESULTS)
def _(patch: Patch) -> None:
    sound = prefixes._marks
    patch.setattr(
        prefixes,
        "_marks",
        lambda batch, read, kept, counted: sound(batch, read, np.ones(read, bool), counted),
    )


# Lanes


@mutant("forget a lane", 1, "what lane 0 has counted is trimmed, whatever the others have", STUCK)
def _(patch: Patch) -> None:
    def counted(self: State, name: str) -> int | None:
        source = self.engine.sources.get(name)
        return None if source is None else source.position

    patch.setattr(State, "counted", counted)


@mutant(
    "P change not tied to a number in another lane",
    14,
    "a decision holds in each lane from where that lane stands",
    INVARIANT,
)
def _(patch: Patch) -> None:
    def changed(self: State, body: Opened | Idled | Resumed | Skipped | Retired) -> None:
        if isinstance(body, Opened):
            self.openings.opened(body)
        for lane in self.lanes.values():
            source, watermark = lane.engine.sources[body.source], self.engine.watermark
            floor = None if watermark is None else watermark + source.lateness
            lane.take(body.source, Later(source.position, body, floor))

    patch.setattr(State, "_prefix_changed", changed)


@mutant("a lane goes beyond lane 0", 14, "a lane counts what lane 0 has not come to", INVARIANT)
def _(patch: Patch) -> None:
    patch.setattr(Positions, "_is_early", lambda self, name, number: False)


@mutant("batch across a decision", 14, "a batch of a lane may go across a number where P changes", INVARIANT)
def _(patch: Patch) -> None:
    patch.setattr(RootLane, "parts", lambda self, name, low, high: False)
    patch.setattr(RootLane, "barrier", lambda self, name, opening: None)
    sound = RootLane.settle

    def settle(self: RootLane, source: str) -> None:
        waiting, position = self.later.get(source, []), self.engine.sources[source].position
        waiting[:] = [replace(each, number=position) if each.number < position else each for each in waiting]
        sound(self, source)

    patch.setattr(RootLane, "settle", settle)


# The root's log


@mutant("trim before commit", 1, "a source forgets what its child has acknowledged", INVARIANT)
def _(patch: Patch) -> None:
    sound = SourceMachine._acked

    def acked(self: SourceMachine, id: str, now: int) -> None:
        sound(self, id, now)
        self.spool.trim(self._offset + self._acknowledged)

    patch.setattr(SourceMachine, "_acked", acked)


@mutant("acknowledge before fsync", 16, "what was appended is acknowledged and made durable later", INVARIANT)
def _(patch: Patch) -> None:
    calls = 0

    def sync(self: Commits) -> None:
        nonlocal calls
        calls += 1
        if calls % 2:
            self._journal.sync()
        self._publish()

    patch.setattr(Commits, "_sync", sync)


@mutant("results before fsync", 16, "results leave before their record is durable", INVARIANT)
def _(patch: Patch) -> None:
    sound = Commits._write

    def write(self: Commits, body: Body) -> None:
        sound(self, body)
        self._publish()

    patch.setattr(Commits, "_write", write)


@mutant("decision not logged", 16, "that a source is idle or speaks again is not in the log", INVARIANT)
def _(patch: Patch) -> None:
    sound = Commits._write

    def write(self: Commits, body: Body) -> None:
        if isinstance(body, Idled | Resumed):
            self._apply(self._state.position, body)
        else:
            sound(self, body)

    patch.setattr(Commits, "_write", write)


@mutant("truncation that drops A", 16, "a snapshot has the windows, not how far they were counted", INVARIANT)
def _(patch: Patch) -> None:
    sound = Snapshots.decode

    def decode(self: Snapshots, data: bytes) -> Any:
        state = sound(self, data)
        for lane in state.lanes.values():
            for source in lane.engine.sources.values():
                source.position = 0
                source.since = source.prefix
        return state

    patch.setattr(Snapshots, "decode", decode)


@mutant("echo not checked", 17, "a root goes on although the tree has heard more than its log has", INVARIANT)
def _(patch: Patch) -> None:
    patch.setattr(Terms, "knows", lambda self, echo, position: True)


# Queries


@mutant(
    "query edge without a version check",
    18,
    "a batch of an older version is applied beyond the edge",
    RESULTS,
)
def _(patch: Patch) -> None:
    def check(self: Versions, partial: Partial) -> None:
        if partial.version > self.current:
            raise StaleVersion(partial.version, self.current)
        if partial.signature != self.signatures[partial.version]:
            raise OtherQueries

    patch.setattr(Versions, "check", check)


@mutant("batch of two versions merged", 5, "a node takes a new version without a flush before it", RESULTS)
def _(patch: Patch) -> None:
    def take_changes(self: Lane, changes: Sequence[Change]) -> None:
        for change in changes:
            if change.version > self.engine.version:
                self.engine.apply(change)

    patch.setattr(Node, "_is_flushed", lambda self: True)
    patch.setattr(Lane, "take_changes", take_changes)


@mutant("edge below what was applied", 18, "a query begins at the watermark, not behind all events", RESULTS)
def _(patch: Patch) -> None:
    sound = Root._edge

    def edge(self: Root, query: Any) -> int:
        largest = self.largest
        if self.watermark is not None:
            self.largest = self.watermark - 1
        try:
            return sound(self, query)
        finally:
            self.largest = largest

    patch.setattr(Root, "_edge", edge)


# Connections


@mutant(
    "an address is a child",
    9,
    "a source goes on talking to the child that it first met, whoever is at the other end by now",
    STUCK,
)
def _(patch: Patch) -> None:
    sound = SourceMachine.connect

    def connect(self: SourceMachine, child: str, now: int) -> None:
        sound(self, self.__dict__.setdefault("_met", child), now)

    patch.setattr(SourceMachine, "connect", connect)


@mutant(
    "the assigned child is at its address",
    9,
    "a source takes whoever answers at the address of its child for that child",
    STUCK,
)
def _(patch: Patch) -> None:
    sound, connected = SourceMachine.connect, Route.on_connected

    def on_tried(self: Route, place: Place, peer: str, now: int) -> None:
        self._trying.discard(place)
        self._reached = (place, peer) if peer else None

    def on_connected(self: Route, peer: str, now: int) -> None:
        connected(self, self.place.child or peer, now)

    def connect(self: SourceMachine, child: str, now: int) -> None:
        assigned = "" if self.assigned is None else self.assigned[0]
        sound(self, assigned or child, now)

    patch.setattr(Route, "on_tried", on_tried)
    patch.setattr(Route, "on_connected", on_connected)
    patch.setattr(SourceMachine, "connect", connect)


# Flow control


@mutant(
    "flow control by arrival",
    19,
    "nobody is read further ahead of the others in records, whatever their times are",
    STUCK,
)
def _(patch: Patch) -> None:
    def arrived(lane: Lane) -> int:
        return min(source.position for source in lane.engine.sources.values())

    def is_hungry(self: Room, lane: Lane, name: str) -> bool:
        source = lane.source(name)
        return source is None or source.position <= arrived(lane)

    def is_ahead(self: Room, lane: Lane, name: str) -> bool:
        return lane.engine.sources[name].position > arrived(lane) + AHEAD

    patch.setattr(Room, "is_hungry", is_hungry)
    patch.setattr(Room, "is_ahead", is_ahead)


@mutant("no reserve", 19, "nothing is kept for the sources that the watermark waits for", STUCK)
def _(patch: Patch) -> None:
    patch.setattr(Room, "is_hungry", lambda self, lane, name: False)


# What the simulator has found: defects that have been, of those that show in few seeds. The others have kept
# runs (guards.py).

mutant("copy not recognised", 2, "of a spool that was copied unconfirmed the root knows nothing", INVARIANT)(
    GUARDS["copy-of-an-opening-that-was-not-confirmed"]
)
mutant(
    "decisions one by one", 14, "the watermark moves between decisions at one number", RESULTS, first=1_000
)(GUARDS["decisions-at-one-number"])
mutant("early batch that is over", 14, "what is ahead of lane 0 waits, also if it can never fit", STUCK)(
    GUARDS["early-batch-of-an-older-opening"]
)


# What other rules cover. Whoever is told something wrong believes to be further than the other side is, or
# less far: what it sends next does not fit there (rule 6) or is a duplicate, or its next probe says so
# (rule 9), and the answer puts it right. A source trims by what the root says was counted (rule 1), so that
# nothing is lost meanwhile. What is left out here saves work, not events.


@covered(
    "keep the stream on a new connection",
    9,
    "what was sent on the connection before is not sent again at once",
    "it is sent again when its time comes, only later",
)
def _(patch: Patch) -> None:
    patch.setattr(Link, "reset", lambda self: None)


@covered(
    "acknowledge what does not fit",
    6,
    "a node acknowledges a batch that it does not apply",
    "the next probe of the sender finds where it stands (rule 9)",
)
def _(patch: Patch) -> None:
    sound = Below._delivery

    def delivery(self: Below, sender: str, lane: Lane, message: Delivery, now: int, out: Outbox) -> None:
        given = Outbox()
        sound(self, sender, lane, message, now, given)
        for send in given.sends:
            refused = isinstance(send.message, Resync)
            out.add(send.to, Ack(message.stream, message.id) if refused else send.message)

    patch.setattr(Below, "_delivery", delivery)


@covered(
    "duplicate if one source is",
    6,
    "a batch is acknowledged as a duplicate if one of its sources is that far",
    "the next probe of the sender finds where it stands (rule 9)",
)
def _(patch: Patch) -> None:
    for module in (below, positions):
        patch.setattr(module, "all", any, raising=False)


def main() -> None:
    """Print the table."""
    print("| Mutant | Rule | What is left out | First seen as | Seeds |")
    print("|---|---|---|---|---|")
    for each in MUTANTS:
        found = each.caught()
        seen, seeds = ("nothing", f"> {SEEDS}") if found is None else (_seen(found), str(found.plan.seed + 1))
        print(f"| {each.name} | {each.rule} | {each.breaks} | {seen} | {seeds} |", flush=True)
    for each in COVERED:
        print(f"| {each.name} | {each.rule} | {each.breaks} | does no harm: {each.caught_as} | - |")


def _seen(outcome: Outcome) -> str:
    """What broke first, in short."""
    kind, _, said = (outcome.failure or "").partition(": ")
    what = said.partition(":")[0] if kind in ("Broken", "AssertionError") else kind
    return {"I3": RESULTS, "I6": RESULTS, "I8": STUCK}.get(what, INVARIANT) + f" ({what})"


if __name__ == "__main__":
    main()
