"""`headwater run`: a whole tree as local processes, with generated or piped sources."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import tempfile
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import pairwise
from math import ceil, inf
from pathlib import Path
from time import monotonic, sleep, time
from typing import Any

from click import ClickException
from rich.live import Live
from rich.text import Text

from headwater.events import Batch
from headwater.planning.assignment import Move
from headwater.planning.hysteresis import largest
from headwater.planning.planner import Planner, limits_of
from headwater.planning.trees import fixed_tree
from headwater.prefix import NO_SKIPS, judge
from headwater.rows import TS_MAX, TS_MIN
from headwater.topology import NodeSpec, Topology
from headwater_cli import generator, headroom, runs, scales
from headwater_cli.ahead import Ahead
from headwater_cli.client import At, connected
from headwater_cli.feeds import Cut, Feed, Generated, Repeated, beat
from headwater_cli.generator import AFTER, SECOND, Sensor, needed, sensors
from headwater_cli.headroom import Headroom
from headwater_cli.latency import Latency
from headwater_cli.localtree import LocalTree
from headwater_cli.nodes import Nodes
from headwater_cli.picture import Picture, Row
from headwater_cli.piped import UNNAMED, VERIFIABLE, Piped, expecting
from headwater_cli.processes import Process
from headwater_cli.rates import Rates
from headwater_cli.results import Results
from headwater_cli.scales import Phase
from headwater_cli.summary import Layer, Summary
from headwater_cli.tally import Tally
from headwater_cli.verify import differing
from headwater_source import Source
from headwater_source.client import SourceClient
from headwater_source.columns import Events
from headwater_source.origin import directory_name

PATIENCE = 120.0
# How often is looked whether a source is still taken, in seconds.
LOOK = 0.1
# From how many sources on that is looked at less often; and how many of them begin at once.
MANY, TOGETHER = 100, 50
# So many sources the root is asked about: all that there are.
EVERY = 1_000_000_000
# For as long as sources go on that are ended by somebody, in seconds.
ENDLESS = 86_400
# How many windows of those that come at once are printed.
ECHOED = 3
# How often is told what is waited for, in seconds.
TELL = 5.0
# How long sinks may take for what they lack at the end, in seconds.
SINKS_PATIENCE = 60.0
# Where neither a plan nor anybody says how many there are: children, and widths of the layers above them.
CHILDREN, LAYERS = 2, (1,)
# How often is looked whether the plan holds, in seconds; from when on what nodes send is known; and how long
# those below a node that ends have to turn elsewhere, at least and at most.
REPLANNED, SETTLED, TURNING, LEAVING = 1.0, 5.0, 1.0, 30.0
# How many times a second a source sends where nodes are held to a limit: at once, it would all have to wait.
PIECES = 10
# How soon a source that sends as fast as it is let looks whether it is let, in seconds.
RUSH = 0.005
# Where files are memory, on Linux.
SHARED = "/dev/shm"
Echo = Callable[[str], None]


class Run:
    """One run: processes, sources, and what they came to."""

    def __init__(
        self,
        topology: Topology,
        document: dict[str, Any],
        children: int | None,
        layers: Sequence[int] | None,
        seconds: int,
        events: int | None = None,
        piped: Piped | None = None,
        engine: str | None = None,
        *,
        scale: Sequence[Phase] = (),
        limited: bool = False,
        rush: bool = False,
    ) -> None:
        """Without `children` and `layers` the tree is planned, if the topology says what a node takes.
        `events` in all, if given; the seconds follow from them then. `piped` are sources that are read
        from somewhere, instead of generated ones. `engine` is what the root is, if not as the topology says.
        `scale` are numbers of sources, one after the other; `limited` holds nodes to what they are said to
        take; `rush` has sources send as fast as they are let."""
        self._asked = topology
        if piped is not None:
            topology, document = expecting(topology, document, piped.expected)
        elif scale:
            topology, document = scales.expecting(topology, document, scale[0].sources)
            # They go on until they are ended: nodes take their time to start.
            seconds = ENDLESS
        self.topology, self.document, self.seconds = topology, document, seconds
        self._scale = list(scale)
        # Who sends in each slot of a class, and how many have sent in it.
        self._slots: dict[tuple[int, int], Sensor] = {}
        self._times: Counter[tuple[int, int]] = Counter()
        self._spark = (engine or topology.root.engine) == "spark"
        self.piped = piped
        self.feeds: list[Feed] = []
        if piped is None:
            found = self._sensors(scale[0]) if scale else sensors(topology)
            if events is not None:
                found = generator.limited(found, events)
                self.seconds = needed(found)
            kind = Repeated if rush else Generated
            self.feeds = [kind(sensor, self.seconds) for sensor in found]
        node = topology.node
        self.planner: Planner | None = None
        if children is None and layers is None and node is not None:
            self.planner = Planner(topology, node)
            # A pipe has no rates of its own: those of the manifest hold.
            given = {feed.name: feed.sensor.rate for feed in self._generated} or _expected(topology)
            self.first = self.planner.replan(0, given).tree
            # Better now than in the midst of it.
            later = [self._planned(topology, node, phase) for phase in scale]
            self.largest = largest([self.first.widths, *later])
        else:
            widths = [children or CHILDREN, *(LAYERS if layers is None else layers), 1]
            self.first = fixed_tree(widths, [feed.name for feed in self.feeds])
            self.largest = self.first.widths
        # A disk would hold back who sends as fast as it is let.
        memory = SHARED if rush and os.access(SHARED, os.W_OK) else None
        self.directory = Path(tempfile.mkdtemp(prefix="headwater-", dir=memory))
        limits = None if node is None else limits_of(topology, node)
        self.headroom = None if limits is None else Headroom(*limits)
        held = limits if limited else None
        self.local = LocalTree(topology, document, self.directory, spark=self._spark, limits=held)
        self._limited, self._rush = limited, rush
        self._feeding: set[asyncio.Task[None]] = set()
        # Feeds that go on, by name, and when the first of them began.
        self._going: dict[str, Generated] = {}
        self._begun = 0.0
        self.clients: list[SourceClient] = []
        self.tally = Tally()
        # The sources of which the root takes nothing more, and what it has told them.
        self.fenced: dict[str, str] = {}
        self.summary = Summary(topology.name, len(self.feeds))
        # What the sources have handed over: their largest times, how fast, and since when.
        self._largest: dict[str, int] = {}
        # Until when everything has to be counted, if that is known.
        self._until = inf
        # Sources that are generated and not gone for good.
        self._open: set[str] = set()
        # Of each source that is generated, how many parts it was given.
        self._given: dict[str, int] = {}
        self._sending = Rates()
        waited_for = len(self.feeds) if piped is None else piped.expected
        self._latency = Latency(waited_for)
        # What is to be ended with the run.
        self._closing: list[Callable[[], None]] = []
        self._results = Results(self.directory / "root" / "outbox", topology.queries, self._latency)

    async def run(
        self, *, verify: bool, live: Live | None = None, echo: Echo | None = None, windows: bool = True
    ) -> Summary:
        """`live` shows the tree; without a screen `echo` takes how far it is and, if asked for, some of the
        `windows` as they come."""
        # Whoever asks a run to end in this way means the same as with Ctrl-C; only the code is another one.
        if (task := asyncio.current_task()) is not None:
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
        begin = monotonic()
        try:
            await self.local.start(self.first)
            self.summary.nodes = len(self.local.processes)
            self.summary.widths = [self.first.widths]
            leaves = [self.local.process(name) for name in self.first.layers[0]]
            if self._spark:
                await self._until_merging(begin, live, echo)
            with runs.announced(f"127.0.0.1:{self.root.port}", self.topology.name):
                begin = self._begun = monotonic()
                for feed in self._generated:
                    self._go(feed, self.first.sources[feed.name])
                if self.piped is not None:
                    self._feeding.add(asyncio.create_task(self._pipe(self.piped, leaves)))
                elif self.planner is not None:
                    tell = partial(_show, live=live, echo=echo)
                    self._feeding.add(asyncio.create_task(self._keep_planned(self.planner, tell)))
                try:
                    await self._until_counted(live, echo if windows else None)
                except asyncio.CancelledError:
                    # The tree is still there, or ends by the same signal.
                    with suppress(RuntimeError):
                        await asyncio.to_thread(self._ask_why)
                    raise
                await asyncio.to_thread(self._ask_why)
                self.summary.seconds = round(monotonic() - begin, 2)
                await self._until_delivered(live, echo)
        except asyncio.CancelledError:
            _show("stopping", live, echo)
            self.summary.seconds = round(monotonic() - begin, 2)
            self.summary.problems = ["stopped before everything was sent and counted"]
            raise
        finally:
            ended = await self._stop()
            if self.local.processes and self.root.last:
                self._results.look()
                self._sum_up(ended)
        if verify:
            self._verify()
        self.summary.judge()
        return self.summary

    def _verify(self) -> None:
        if self.piped is None or self.piped.verifiable:
            read = self.tally.read
            feeds = [Cut(feed, read[feed.name]) if feed.name in read else feed for feed in self.feeds]
            self.summary.differing = differing(self.topology, self.directory, feeds)
        else:
            self.summary.unverified = (
                f"{self.piped.events:,} events are too many to verify; at most {VERIFIABLE:,} are compared"
            )

    def clean(self) -> None:
        shutil.rmtree(self.directory, ignore_errors=True)

    # Processes

    async def _stop(self) -> dict[str, int | None]:
        """End everything; gives the code of each process."""
        for close in self._closing:
            close()
        for task in self._feeding:
            task.cancel()
        await asyncio.gather(*self._feeding, return_exceptions=True)
        for client in self.clients:
            await client.stop()
        return await self.local.stop()

    # The plan

    @property
    def _generated(self) -> list[Generated]:
        return [feed for feed in self.feeds if isinstance(feed, Generated)]

    def _sensors(self, phase: Phase) -> list[Sensor]:
        """The sources of a phase, in the order of their slots; new ones for slots that were left."""
        found = []
        for slot in scales.wanted(self._asked, phase.sources):
            if slot not in self._slots:
                kind, times = self._asked.sources[slot[0]], self._times[slot]
                self._times[slot] += 1
                name = f"{kind.name}-{kind.site}-{slot[1]}" + (f".{times + 1}" if times else "")
                seed = (slot[0] * 1_000_003 + slot[1]) * 1_009 + times
                self._slots[slot] = Sensor(name, kind.site, phase.rate or kind.rate, kind.lateness, seed)
            found.append(self._slots[slot])
        self._slots = {slot: self._slots[slot] for slot in scales.wanted(self._asked, phase.sources)}
        return found

    def _planned(self, topology: Topology, node: NodeSpec, phase: Phase) -> list[int]:
        """The widths that a phase is planned with, by the bound; raises if there are none."""
        rates = {
            f"{slot}": phase.rate or self._asked.sources[slot[0]].rate
            for slot in scales.wanted(self._asked, phase.sources)
        }
        return Planner(topology, node).replan(0, rates).tree.widths

    async def _keep_planned(self, planner: Planner, tell: Echo) -> None:
        """Have the tree that the sources need, as the script and what is measured say."""
        phases = self._scale or [Phase(len(self.feeds), self.seconds)]
        for number, phase in enumerate(phases):
            if number:
                await self._resize(planner, phase, tell)
            until = monotonic() + phase.seconds
            while monotonic() < until:
                await asyncio.sleep(min(REPLANNED, max(until - monotonic(), 0)))
                measured = headroom.reductions(self.local.layers())
                await self._replan(planner, {}, tell, measured if monotonic() - self._begun > SETTLED else {})
        if self._scale:
            self.finish()
            self._until = monotonic() + PATIENCE

    async def _resize(self, planner: Planner, phase: Phase, tell: Echo) -> None:
        """Others from now on: nodes come before those who need them, and go behind them."""
        wanted = {sensor.name: sensor for sensor in self._sensors(phase)}
        for name in [name for name in self._going if name not in wanted]:
            self._end(self._going.pop(name))
        fresh = {name: sensor for name, sensor in wanted.items() if name not in self._going}
        kinds = {sensor.name: self._asked.sources[slot[0]] for slot, sensor in self._slots.items()}
        for name, feed in self._going.items():
            rate = phase.rate or kinds[name].rate
            if rate != feed.sensor.latest_rate:
                feed.sensor.changes.append((self._given.get(name, 0), rate))
        await self._replan(planner, {name: sensor.rate for name, sensor in fresh.items()}, tell, {})
        for number, (name, sensor) in enumerate(fresh.items()):
            second = ceil(monotonic() - self._begun)
            feed = Generated(replace(sensor, begin=second), self.seconds)
            self.feeds.append(feed)
            self.summary.sources = len(self.feeds)
            self._go(feed, planner.tree.sources[name])
            if number % TOGETHER == TOGETHER - 1:
                await asyncio.sleep(LOOK)

    async def _replan(
        self, planner: Planner, fresh: Mapping[str, float], tell: Echo, measured: Mapping[int, float]
    ) -> None:
        rates = {name: feed.sensor.latest_rate for name, feed in self._going.items()} | dict(fresh)
        if not rates:
            return
        sends = {
            process.name: process.steady.rate("items_up")
            for nodes in self.local.layers()
            for process in nodes.processes
            if measured and process.steady.full
        }
        step = planner.replan(int(monotonic() * SECOND), rates, sends, measured)
        if planner.beyond is not None and not self.summary.beyond:
            self.summary.beyond = str(planner.beyond.problems[0])
            tell(f"nodes send more than a tree can be planned for: {self.summary.beyond}")
        if not (step.begin or step.end or step.nodes or any(move.before for move in step.sources)):
            self.local.tree = step.tree
            return
        tell(headroom.told(step, step.tree.widths))
        self.summary.widths.append(step.tree.widths)
        self.summary.moved += [move.item for move in step.sources if move.before is not None]
        await self.local.begin(step.tree, step.begin)
        for move in step.nodes:
            self.local.turn(move.item, move.after)
        await self._move([move for move in step.sources if move.before is not None])
        if step.end:
            await self._until_left(set(step.end), {move.item for move in step.sources if move.before})
            await self.local.end(step.end)
        self.summary.nodes = max(self.summary.nodes, len(self.local.processes))

    async def _until_left(self, ending: set[str], moved: set[str]) -> None:
        """Until nobody sends to nodes that are to end: sources have turned elsewhere, or are counted to their
        end. Nodes below them turn at once."""
        until = monotonic() + LEAVING
        await asyncio.sleep(TURNING)
        while monotonic() < until:
            left = [
                client
                for client in self.clients
                if client.name in self._open
                and (
                    client.exchange.uplink.parent in ending
                    or (client.name in moved and not client.exchange.uplink.connected)
                )
            ]
            if not left:
                return
            await asyncio.sleep(LOOK)

    async def _move(self, moves: Sequence[Move]) -> None:
        """One source of each child at a time: each move makes batches of its child anew."""
        left = list(moves)
        while left:
            now: dict[str, Move] = {}
            for move in left:
                now.setdefault(move.before or "", move)
            left = [move for move in left if move not in now.values()]
            asked = {move.item: move.after for move in now.values()}
            await asyncio.to_thread(self._assign, asked)
            await asyncio.sleep(self.topology.flush_interval / SECOND)

    def _assign(self, assignment: Mapping[str, str]) -> None:
        """A child that has just begun may not be known yet."""
        until = monotonic() + LEAVING
        while True:
            try:
                with connected(At(f"127.0.0.1:{self.root.port}")) as root:
                    root.assign(assignment)
                return
            except ClickException as error:
                if monotonic() > until:
                    raise RuntimeError(error.message) from error
            sleep(LOOK)

    def _go(self, feed: Generated, child: str) -> None:
        self._going[feed.name] = feed
        self._feeding.add(asyncio.create_task(self._feed(feed, self.local.process(child))))

    @property
    def is_feeding(self) -> bool:
        """Whether sources have begun to send, and the root has heard of it."""
        return bool(self._begun and self.root.figure("items"))

    def finish(self) -> None:
        """Have all sources end with the second that they are in."""
        for feed in self._going.values():
            self._end(feed)

    def _end(self, feed: Generated) -> None:
        """A source ends with the second that it is in."""
        feed.seconds = min(feed.seconds, self._given.get(feed.name, 0))

    # Sources

    async def _feed(self, feed: Feed, child: Process) -> None:
        source = self._source(feed, child)
        self._open.add(feed.name)
        try:
            await self._sent(feed, source)
        finally:
            self._going.pop(feed.name, None)
            if self._scale:
                # It is gone for good, and its child may go too.
                await self._client(feed.name).stop()
                self._open.discard(feed.name)

    async def _sent(self, feed: Feed, source: Source) -> None:
        if self._scale:
            # What it would have sent before would come at once, and overrun its child.
            while not source.connected and source.fenced is None:
                await asyncio.sleep(self._look)
            if isinstance(feed, Generated) and feed.sensor.begin:
                feed.sensor = replace(feed.sensor, begin=ceil(monotonic() - self._begun))
        begin = monotonic()
        for number, part in enumerate(feed.parts(), start=1):
            self._given[feed.name] = number
            if self._scale:
                # Nor does it make up for time that it was late.
                begin = max(begin, monotonic() - number)
            if self._rush:
                # No further ahead than that: whoever only fills spools sends nothing meanwhile.
                while source.accepted > source.sent and source.fenced is None:
                    await asyncio.sleep(RUSH)
            else:
                # A second of events a second: what a sensor does.
                await asyncio.sleep(max(begin + number - 1 - monotonic(), 0))
            # Events that are generated have values: what has none is the heartbeat behind them.
            last = part.bare is not None
            for place, piece in enumerate(self._pieces(part)):
                if place:
                    await asyncio.sleep(max(begin + number - 1 + place / PIECES - monotonic(), 0))
                await self._give(feed, source, piece, last=last)
            if feed.name in self.fenced:
                return
        await self._unless_fenced(source, self._flushed(source))

    def _pieces(self, part: Events) -> Iterable[Events]:
        """What is sent at once: a second of events, or where nodes are held to a limit, as they come."""
        if not self._limited:
            return [part] if len(part) else []
        edges = [len(part) * place // PIECES for place in range(PIECES + 1)]
        return [part.part(slice(low, high)) for low, high in pairwise(edges) if low < high]

    async def _pipe(self, piped: Piped, leaves: Sequence[Process]) -> None:
        """Events as fast as they come, and behind all of them a heartbeat of every source."""
        opened: dict[str, Source] = {}
        latest = TS_MIN
        ahead = Ahead(piped)
        self._closing.append(ahead.close)
        while (part := await ahead.next()) is not None:
            for name, events in part.by_source(UNNAMED):
                feed = piped.feed(name, None if events.site is None else events.site.at(0))
                if name not in opened:
                    opened[name] = self._source(feed, leaves[len(opened) % len(leaves)])
                    self.feeds.append(feed)
                    self.summary.sources = len(self.feeds)
                latest = max(latest, int(events.ts.max()))
                if name not in self.fenced:
                    accepted = await self._give(feed, opened[name], events)
                    piped.sent(feed, events.part(slice(accepted)))
        for name, source in opened.items():
            if name not in self.fenced:
                feed, last = piped.feeds[name], beat(latest + AFTER)
                accepted = await self._give(feed, source, last, last=True)
                piped.sent(feed, last.part(slice(accepted)))
        for name, source in opened.items():
            if name not in self.fenced:
                await self._unless_fenced(source, self._flushed(source))

    def _source(self, feed: Feed, child: Process) -> Source:
        source = Source(
            feed.name,
            f"127.0.0.1:{child.port}",
            spool=self.directory / "spools" / directory_name(feed.name),
            site=feed.site,
            lateness=feed.lateness,
            child=child.name,
        )
        source.open()
        self.clients.append(source.start())
        return source

    async def _give(self, feed: Feed, source: Source, events: Events, *, last: bool = False) -> int:
        """Gives how many of them were accepted: all, unless the root takes nothing more of the source."""
        before = source.accepted
        try:
            await self._unless_fenced(source, source.append(events))
        finally:
            # Also what was accepted before an interruption.
            self.tally.records[feed.name] = source.accepted
            if last and source.accepted > before:
                self.tally.ended.add(feed.name)
        at, accepted = time(), source.accepted - before
        if feed.name in self.fenced:
            return accepted
        known = self._largest.get(feed.name, TS_MIN)
        batch = Batch(feed.name, 1, events.ts, events.value, bare=events.bare)
        largest = judge(batch, 0, known, feed.lateness, TS_MAX, NO_SKIPS).largest
        if largest > TS_MIN:
            self._largest[feed.name] = largest
            self._latency.handed(feed.name, largest - feed.lateness, at)
        return accepted

    async def _flushed(self, source: Source) -> None:
        """As `source.flush`, but many of them look less often."""
        while not source.done and source.fenced is None:
            await asyncio.sleep(self._look)
        if not source.done:
            return
        await source.flush()

    @property
    def _uncounted(self) -> int:
        """How many events sources hold that the root has not counted."""
        return max(self.tally.accepted - self.root.figure("accepted"), 0)

    @property
    def _look(self) -> float:
        return LOOK * max(1.0, len(self.clients) / MANY)

    async def _unless_fenced(self, source: Source, work: Coroutine[Any, Any, object]) -> None:
        """Do what waits for the root, as long as that takes anything of the source. Whatever becomes of its
        name later: for this run it is over, and the others go on."""
        task = asyncio.create_task(work)
        try:
            while not task.done():
                if source.fenced is not None:
                    self.fenced[source.name] = source.fenced
                    break
                await asyncio.wait({task}, timeout=self._look)
            else:
                task.result()
        finally:
            # Before anything else is waited for: it would go on meanwhile.
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        if source.name in self.fenced:
            self._latency.give_up(source.name, time())
            await self._client(source.name).stop()

    def _client(self, name: str) -> SourceClient:
        return next(client for client in self.clients if client.name == name)

    def _ask_why(self) -> None:
        """What the root says of those who are fenced."""
        if not self.fenced:
            return
        try:
            with connected(At(f"127.0.0.1:{self.root.port}")) as root:
                status = root.status(EVERY)
        except ClickException as error:
            raise RuntimeError(error.message) from error
        reasons = {each.name: each.reason for each in status.quarantined}
        # In the order of their names: who notices first is chance.
        for name, told in sorted(self.fenced.items()):
            if name in reasons:
                self.summary.quarantined[name] = reasons[name]
            else:
                # For another reason, or it was released since.
                self.summary.fenced[name] = told
        read = dict.fromkeys(self.fenced, 0)
        for each in status.sources:
            if each.name in read:
                # Its incarnations follow each other.
                read[each.name] += each.position
        self.tally.read = read

    async def _until_counted(self, live: Live | None, echo: Echo | None) -> None:
        # How long a pipe goes on, nobody knows.
        if self.piped is None and not self._scale:
            self._until = monotonic() + self.seconds + PATIENCE
        while self._feeding:
            done, _ = await asyncio.wait(self._feeding, timeout=0.2)
            self._feeding -= done
            for task in done:
                task.result()
            if self.headroom is not None:
                self.headroom.look(self.local.processes, monotonic())
                self.summary.held_back = max(self.summary.held_back, self._uncounted)
            self._refuse_ended()
            if monotonic() > self._until:
                raise RuntimeError("not everything was counted in time")
            self._sending.take(monotonic(), {"events": self.tally.accepted, "bytes_up": self._raw})
            found = self._results.look()
            if live is not None:
                live.update(self.picture())
            elif found and echo is not None:
                for line in list(self._results.latest)[-min(found, ECHOED) :]:
                    echo(line)

    async def _until_merging(self, begin: float, live: Live | None, echo: Echo | None) -> None:
        """Spark takes its time to start: sources that wait for it show their windows as they come."""
        told = 0.0
        while not self.root.figure("merged"):
            self._refuse_ended()
            waited = monotonic() - begin
            if waited > PATIENCE:
                raise RuntimeError(f"Spark has not come up in {waited:.0f} s")
            line = f"Spark is starting, for {waited:.0f} s now"
            if live is not None:
                live.update(Text(line))
            elif echo is not None and waited >= told:
                echo(line)
                told = waited + TELL
            await asyncio.sleep(LOOK)
        ui = self.root.last.get("ui")
        if echo is not None:
            echo(f"Spark is up after {monotonic() - begin:.0f} s{f', its page is {ui}' if ui else ''}")

    async def _until_delivered(self, live: Live | None, echo: Echo | None) -> None:
        """What sinks have not got when the root ends is gone with the run: they have some time."""
        begin, told, before = monotonic(), TELL, self.root.last
        while self.root.ended is None:
            found = self.root.last
            # Not what was said before everything was counted.
            if found is not before and not found.get("unmerged") and not found.get("lags"):
                return
            waited = monotonic() - begin
            if waited > SINKS_PATIENCE:
                self.summary.undelivered = dict(found.get("lags") or {})
                return
            if waited >= told:
                late = found.get("lags")
                _show(f"waiting for sinks: {', '.join(late)}" if late else "waiting for Spark", live, echo)
                told = waited + TELL
            await asyncio.sleep(LOOK)

    def _refuse_ended(self) -> None:
        for process in self.local.processes:
            if process.ended is not None and process.name not in self.local.ended:
                raise RuntimeError(f"{process.name} ended with code {process.ended}")

    # What is shown

    @property
    def root(self) -> Process:
        return self.local.root

    @property
    def _raw(self) -> int:
        """Bytes that the sources have sent to the children."""
        return sum(client.exchange.bytes_up for client in self.clients)

    def picture(self, *, whole: bool = False) -> Picture:
        """The tree as it is; `whole`: with the rates of the whole run, once it is over."""
        over = max(self.summary.seconds, 0.001) if whole else None
        root, reached = Nodes("root", [self.root]), self._latency.reached
        watermark = self.root.last.get("watermark")
        sent, raw = self._sending.rate("events"), self._sending.rate("bytes_up")
        if over is not None:
            sent, raw = self.tally.accepted / over, self._raw / over
        rows = [Row("sources", len(self.clients), None, sent, raw, None)]
        rows += [
            Row(
                nodes.layer,
                len(nodes.processes),
                nodes.rate("events", over),
                nodes.rate("counted", over),
                nodes.rate("bytes_up", over),
                _behind(reached, nodes.low),
                self._left(nodes),
            )
            for nodes in self.local.layers()
        ]
        accepted, lag = root.rate("accepted", over), _behind(reached, watermark)
        rows.append(Row("root", 1, accepted, None, None, lag, self._left(root)))
        return Picture(
            self.topology.name,
            rows,
            watermark,
            _behind(reached, watermark),
            root.total("windows"),
            root.rate("windows", over),
            self._latencies(),
            list(self._results.latest),
            self.root.last.get("ui"),
            self._headrooms(),
        )

    def _headrooms(self) -> dict[str, float]:
        """Of each node, from the root down."""
        if self.headroom is None:
            return {}
        return {process.name: self.headroom.of(process) for process in self.local.processes}

    def _left(self, nodes: Nodes) -> float | None:
        """The least headroom of a layer."""
        if self.headroom is None:
            return None
        return min((self.headroom.of(process) for process in nodes.processes), default=None)

    def _latencies(self) -> tuple[float, float] | None:
        """p50 and p99 in milliseconds."""
        found = [round(1e3 * seconds, 1) for seconds in self._latency.quantiles(0.5, 0.99)]
        return (found[0], found[1]) if found else None

    def _sum_up(self, ended: dict[str, int | None]) -> None:
        root, summary = self.root, self.summary
        # Each source ends with one heartbeat, which the root counts too: those that were sent before an
        # interruption, and have come there.
        summary.sent, summary.unread = self.tally.sent, self.tally.unread
        summary.counted = root.figure("counted") - min(self.tally.beats, root.figure("heartbeats"))
        summary.late = root.figure("late")
        summary.bad = 0 if self.piped is None else self.piped.bad
        summary.rejected, summary.windows = root.figure("rejected"), root.figure("windows")
        summary.events_per_second = round(summary.sent / max(summary.seconds, 0.001), 1)
        summary.raw_bytes = self._raw
        summary.layers = list(self._bytes())
        if found := self._latencies():
            summary.latency_p50_ms, summary.latency_p99_ms = found
        if self.headroom is not None:
            summary.headroom = {name: round(left, 3) for name, left in self.headroom.least.items()}
            summary.overrun = {
                name: [round(busy.rate, 1), busy.limit, busy.waiting]
                for name, busy in self.headroom.overrun.items()
            }
        summary.failed = {name: code for name, code in ended.items() if code != 0}

    def _bytes(self) -> Iterable[Layer]:
        for nodes in self.local.layers():
            total = nodes.total("bytes_up")
            share = round(total / max(self._raw, 1), 4)
            yield Layer(nodes.layer, len(nodes.processes), total, share if self._raw else 0.0)


def _show(line: str, live: Live | None, echo: Echo | None) -> None:
    if live is not None:
        live.console.print(line)
    elif echo is not None:
        echo(line)


def _expected(topology: Topology) -> dict[str, float]:
    """Sources that are expected, with the rates that are."""
    return {f"{each.name}-{n}": each.rate for each in topology.sources for n in range(each.expected)}


def _behind(reached: int | None, low: int | None) -> int | None:
    return None if reached is None or low is None else max(reached - low, 0)
