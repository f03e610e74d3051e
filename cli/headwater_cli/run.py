"""`headwater run`: a whole tree as local processes, with generated or piped sources."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import tempfile
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import partial
from math import inf
from pathlib import Path
from time import monotonic
from typing import Any

from click import ClickException
from rich.live import Live
from rich.text import Text

from headwater.errors import HeadwaterError
from headwater.merging.unbroken import EMPTY_LIMIT
from headwater.planning.hysteresis import largest
from headwater.planning.planner import Planner, limits_of
from headwater.planning.trees import fixed_tree
from headwater.topology import NodeSpec, Topology, queries_of
from headwater_cli import generator, runs, scales
from headwater_cli.client import EVERY, At, connected
from headwater_cli.feeds import Cut, Generated, Repeated
from headwater_cli.following import ENDLESS, Following
from headwater_cli.forwarding import forwarding
from headwater_cli.generator import needed, sensors
from headwater_cli.headroom import Headroom
from headwater_cli.heartbeats import AFTER, are_all_closed, closing_span
from headwater_cli.inputwarnings import input_warnings
from headwater_cli.latency import Latency
from headwater_cli.localtree import LocalTree
from headwater_cli.nodes import Nodes
from headwater_cli.picture import Picture, Row
from headwater_cli.piped import VERIFIABLE, Piped, expecting
from headwater_cli.processes import Process
from headwater_cli.rates import Rates
from headwater_cli.results import Results
from headwater_cli.scales import Cast, Phase
from headwater_cli.screen import Echo
from headwater_cli.senders import LOOK, Manner, Senders
from headwater_cli.summary import Layer, Summary
from headwater_cli.times import moment
from headwater_cli.verify import differing
from headwater_wire.functions import Functions

PATIENCE = 120.0
# How many windows are printed at a time. What is not used is left for the next time, up to the second number.
ECHOED, ECHOED_AT_ONCE = 3, 12
# For so long sources send what came while they were connecting, in seconds.
BEGINNING = 2.0
# How often is told what is waited for, in seconds.
TELL = 5.0
# How long sinks may take for what they lack at the end, in seconds.
SINKS_PATIENCE = 60.0
# Where neither a plan nor anybody says how many there are: children, and widths of the layers above them.
CHILDREN, LAYERS = 2, (1,)
# Where files are memory, on Linux, and how much of it is enough; a container may have very little.
SHARED, ENOUGH = "/dev/shm", 1 << 30


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
        fast: bool = False,
        log: Path | None = None,
    ) -> None:
        """Without `children` and `layers` the tree is planned, if the topology says what a node takes.
        `events` in all, if given; the seconds follow from them then. `piped` are sources that are read
        from somewhere, instead of generated ones. `engine` is what the root is, if not as the topology says.
        `scale` are numbers of sources, one after the other; `limited` holds nodes to what they are said to
        take; `rush` has sources send as fast as they are let, the same events again and again; `fast` has
        them send their events once, as fast as they are let. Processes log to `log`."""
        self._asked = topology
        if piped is not None:
            topology, document = expecting(topology, document, piped.expected)
        elif scale:
            topology, document = scales.expecting(topology, document, scale[0].sources)
            # They go on until they are ended: nodes take their time to start.
            seconds = ENDLESS
        self.topology, self.document, self.seconds = topology, document, seconds
        self._scale = list(scale)
        self._cast = Cast(self._asked)
        self._spark = (engine or topology.root.engine) == "spark"
        self.piped = piped
        feeds: list[Generated] = []
        # How far behind the last event the heartbeats lie with which sources end.
        self._closing_span = AFTER if piped is None else piped.closing_span
        if piped is None:
            found = self._cast.sensors(scale[0]) if scale else sensors(topology)
            if events is not None:
                found = generator.limited(found, events)
                self.seconds = needed(found)
            kind = Repeated if rush else Generated
            # Where sources end one after the other, none may hold back those that go on.
            self._closing_span = AFTER if scale or rush else closing_span(topology)
            feeds = [kind(sensor, self.seconds, self._closing_span) for sensor in found]
        node = topology.node
        self.planner: Planner | None = None
        if children is None and layers is None and node is not None:
            self.planner = Planner(topology, node)
            # A pipe has no rates of its own: those of the manifest hold.
            given = {feed.name: feed.sensor.rate for feed in feeds} or _expected(topology)
            self.first = self.planner.replan(0, given).tree
            # Better now than in the midst of it.
            later = [self._planned(topology, node, phase) for phase in scale]
            self.largest = largest([self.first.widths, *later])
        else:
            widths = [children or CHILDREN, *(LAYERS if layers is None else layers), 1]
            self.first = fixed_tree(widths, [feed.name for feed in feeds])
            self.largest = self.first.widths
        self.directory = Path(tempfile.mkdtemp(prefix="headwater-"))
        # A disk would hold back who sends as fast as it is let, and a thousand that one process plays.
        memory = SHARED if (rush or fast or scale) and _has_memory() else None
        self._spools = Path(tempfile.mkdtemp(prefix="headwater-", dir=memory))
        limits = None if node is None else limits_of(topology, node)
        self.headroom = None if limits is None else Headroom(*limits)
        held = limits if limited else None
        self.local = LocalTree(topology, document, self.directory, spark=self._spark, limits=held, log=log)
        self.summary = Summary(topology.name, len(feeds))
        self.summary.forwarding = forwarding(topology.queries)
        self.summary.log = None if log is None else str(log)
        # Whether it is being ended before its time, and whether by Ctrl-C.
        self._stopping = self.interrupted = False
        # Until when everything has to be counted, if that is known.
        self._until = inf
        self._sending = Rates()
        waited_for = len(feeds) if piped is None else piped.expected
        self._latency = Latency(waited_for)
        # Where rates are held against limits: at once, a second of events would be more than any.
        paced = self.headroom is not None and not rush and not fast
        manner = Manner(paced=paced, scripted=bool(scale), rush=rush or fast)
        self.senders = Senders(self._spools, self._latency, manner)
        self.senders.feeds += feeds
        # Those of the topology, and those that were added meanwhile, as far as they are known.
        self.queries = list(topology.queries)
        self._results = Results(self.directory / "root" / "outbox", topology.queries, self._latency)

    async def run(
        self, *, verify: bool, live: Live | None = None, echo: Echo | None = None, windows: bool = True
    ) -> Summary:
        """`live` shows the tree; without a screen `echo` takes how far it is and, if asked for, some of the
        `windows` as they come."""
        # Whoever asks a run to end in this way means the same as with Ctrl-C; only the code is another one.
        if (task := asyncio.current_task()) is not None:
            loop = asyncio.get_running_loop()
            loop.add_signal_handler(signal.SIGTERM, self._interrupt, task, False)
            if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
                loop.add_signal_handler(signal.SIGINT, self._interrupt, task, True)
        begin = monotonic()
        try:
            await self.local.start(self.first)
            self.summary.nodes = len(self.local.processes)
            self.summary.widths = [self.first.widths]
            node = self.topology.node
            if self.planner is not None and node is not None and node.classes:
                said = f"planned for {node.ingest_limit:,g} items/s a node (spec.node.ingestLimit); of "
                _show(f"{said}spec.node.classes only the root's counts on one machine", live, echo)
            leaves = [self.local.process(name) for name in self.first.layers[0]]
            if self._spark:
                await self._until_merging(begin, live, echo)
            with runs.announced(f"127.0.0.1:{self.root.port}", self.topology.name):
                begin = self.senders.begun = monotonic()
                for feed in self._generated:
                    self.senders.go(feed, self.local.process(self.first.sources[feed.name]))
                if self.piped is not None:
                    self.senders.pipe(self.piped, leaves)
                elif self.planner is not None:
                    tell = partial(_show, live=live, echo=echo)
                    self.senders.tasks.add(asyncio.create_task(self._follow(self.planner, tell)))
                try:
                    await self._until_counted(live, echo if windows else None)
                except asyncio.CancelledError:
                    # The tree is still there, or ends by the same signal.
                    with suppress(RuntimeError):
                        await asyncio.to_thread(self._ask_why)
                    raise
                await asyncio.to_thread(self._ask_why)
                self.summary.seconds = round(monotonic() - begin, 2)
                # Also of a query whose first windows come out when the root ends.
                await asyncio.to_thread(self._learn_queries)
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
            # From here on Ctrl-C is an exception again: nothing is left that has to end in order.
            for number in (signal.SIGTERM, signal.SIGINT):
                asyncio.get_running_loop().remove_signal_handler(number)
            self.verify()
        self.summary.judge()
        return self.summary

    def verify(self) -> None:
        """Compare every window with the oracle, once the run is over."""
        if self.piped is None or self.piped.verifiable:
            self.summary.unverified = "it was ended before every window was compared with the oracle"
            read, feeds = self.senders.tally.read, self.senders.feeds
            feeds = [Cut(feed, read[feed.name]) if feed.name in read else feed for feed in feeds]
            self.summary.differing = differing(self.topology, self.directory, feeds)
            self.summary.unverified = None
        else:
            self.summary.unverified = (
                f"{self.piped.events:,} events are too many to verify; at most {VERIFIABLE:,} are compared"
            )

    def clean(self) -> None:
        for directory in (self.directory, self._spools):
            shutil.rmtree(directory, ignore_errors=True)

    # Processes

    def _interrupt(self, task: asyncio.Task[Any], by_hand: bool) -> None:
        """Everything ends in order; asked once more, it ends at once."""
        if self._stopping:
            self.local.kill()
            return
        self._stopping, self.interrupted = True, by_hand
        task.cancel()

    async def _stop(self) -> dict[str, int | None]:
        """End everything; gives the code of each process."""
        await self.senders.stop()
        return await self.local.stop()

    @property
    def _generated(self) -> list[Generated]:
        return [feed for feed in self.senders.feeds if isinstance(feed, Generated)]

    def _planned(self, topology: Topology, node: NodeSpec, phase: Phase) -> list[int]:
        """The widths that a phase is planned with, by the bound; raises if there are none."""
        rates = {
            f"{slot}": phase.rate or self._asked.sources[slot[0]].rate
            for slot in scales.wanted(self._asked, phase.sources)
        }
        return Planner(topology, node).replan(0, rates).tree.widths

    async def _follow(self, planner: Planner, tell: Echo) -> None:
        following = Following(self.topology, planner, self.local, self.senders, self.summary)
        script = self._scale or [Phase(len(self.senders.feeds), self.seconds)]
        await following.follow(script, self._cast, tell)
        if self._scale:
            self.finish()
            self._until = monotonic() + PATIENCE

    @property
    def is_feeding(self) -> bool:
        """Whether sources have begun to send, and the root has heard of it."""
        return bool(self.senders.begun and self.root.figure("items"))

    def finish(self) -> None:
        """Have all sources end with the second that they are in."""
        self.senders.finish()

    @property
    def _uncounted(self) -> int:
        """How many events sources hold that the root has not counted."""
        return max(self.senders.tally.accepted - self.root.figure("accepted"), 0)

    def _ask_why(self) -> None:
        """What the root says of those who are fenced."""
        if not self.senders.fenced:
            return
        try:
            with connected(At(f"127.0.0.1:{self.root.port}")) as root:
                status = root.status(EVERY)
        except ClickException as error:
            raise RuntimeError(error.message) from error
        reasons = {each.name: each.reason for each in status.quarantined}
        # In the order of their names: who notices first is chance.
        for name, told in sorted(self.senders.fenced.items()):
            if name in reasons:
                self.summary.quarantined[name] = reasons[name]
            else:
                # For another reason, or it was released since.
                self.summary.fenced[name] = told
        read = dict.fromkeys(self.senders.fenced, 0)
        for each in status.sources:
            if each.name in read:
                # Its incarnations follow each other.
                read[each.name] += each.position
        self.senders.tally.read = read

    async def _until_counted(self, live: Live | None, echo: Echo | None) -> None:
        # How long a pipe goes on, nobody knows.
        if self.piped is None and not self._scale:
            self._until = monotonic() + self.seconds + PATIENCE
        tasks, printable, asked = self.senders.tasks, 0, -inf
        while tasks:
            done, _ = await asyncio.wait(tasks, timeout=0.2)
            tasks -= done
            for task in done:
                task.result()
            if self.headroom is not None:
                self.headroom.look(self.local.processes, monotonic(), self.senders.begun + BEGINNING)
                self.summary.held_back = max(self.summary.held_back, self._uncounted)
            self._refuse_ended()
            if monotonic() > self._until:
                raise RuntimeError("not everything was counted in time")
            accepted = self.senders.tally.accepted
            self._sending.take(monotonic(), {"events": accepted, "bytes_up": self.senders.bytes_up})
            found, printable = self._results.look(), min(printable + ECHOED, ECHOED_AT_ONCE)
            if self._results.has_unknown and monotonic() > asked + TELL:
                asked = monotonic()
                await asyncio.to_thread(self._learn_queries)
            if live is not None:
                live.update(self.picture())
            elif echo is not None:
                lines = self._results.mixed(printable, found)
                printable -= len(lines)
                self.summary.printed = (self.summary.printed or 0) + len(lines)
                for line in lines:
                    echo(line)

    def _learn_queries(self) -> None:
        """Ask the root for queries that were added to the run: results say nothing of keys and windows."""
        try:
            with connected(At(f"127.0.0.1:{self.root.port}")) as root:
                documents = {each.id: json.loads(each.document) for each in root.queries()}
            known = {query.id for query in self.queries}
            functions = Functions()
            # One at a time: a function that is no longer installed is no matter of the others.
            for id in sorted(documents.keys() - known):
                with suppress(HeadwaterError):
                    self.queries += queries_of([documents[id]], functions)
        except (ClickException, ValueError):
            # The root ends, or is busy: keys go without names.
            return
        self._results.add(self.queries)

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

    def picture(self, *, whole: bool = False) -> Picture:
        """The tree as it is; `whole`: with the rates of the whole run, once it is over."""
        over = max(self.summary.seconds, 0.001) if whole else None
        root, reached = Nodes("root", [self.root]), self._latency.reached
        watermark = self.root.last.get("watermark")
        sent, raw = self._sending.rate("events"), self._sending.rate("bytes_up")
        if over is not None:
            sent, raw = self.senders.tally.accepted / over, self.senders.bytes_up / over
        rows = [Row("sources", len(self.senders.clients), None, sent, raw, None)]
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
            self._results.mixed(),
            self.root.last.get("ui"),
            self._headrooms(),
            self._end(watermark),
        )

    def _end(self, watermark: int | None) -> str | None:
        """What is shown in place of the watermark once the closing heartbeats have moved it."""
        reached, ended = self._latency.reached, self.senders.tally.ended
        has_ended = ended and all(
            feed.name in ended or feed.name in self.senders.fenced for feed in self.senders.feeds
        )
        if not has_ended or watermark is None or reached is None or watermark < reached:
            return None
        if are_all_closed(self.topology, self._closing_span):
            return "the input has ended, and all windows are closed"
        return f"the input has ended, and all windows that end up to {moment(watermark)} are closed"

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
        root, summary, tally = self.root, self.summary, self.senders.tally
        summary.sources = len(self.senders.feeds)
        # Each source ends with one heartbeat, which the root counts too: those that were sent before an
        # interruption, and have come there.
        summary.sent, summary.unread = tally.sent, tally.unread
        summary.counted = root.figure("counted") - min(tally.beats, root.figure("heartbeats"))
        summary.late = root.figure("late")
        summary.bad = 0 if self.piped is None else self.piped.bad
        summary.rejected, summary.windows = root.figure("rejected"), root.figure("windows")
        if self.piped is not None:
            furthest = self.senders.furthest_behind
            summary.warnings += input_warnings(summary.sent, summary.late, summary.rejected, furthest)
        summary.warnings += [
            f"{query} has no result for {count:,} more empty windows: "
            f"of emitEmpty at most {EMPTY_LIMIT:,} in a row are reported"
            for query, count in self._results.left_out.items()
        ]
        summary.events_per_second = round(summary.sent / max(summary.seconds, 0.001), 1)
        summary.raw_bytes = self.senders.bytes_up
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
            share = round(total / max(self.senders.bytes_up, 1), 4)
            yield Layer(nodes.layer, len(nodes.processes), total, share if self.senders.bytes_up else 0.0)


def _show(line: str, live: Live | None, echo: Echo | None) -> None:
    if live is not None:
        live.console.print(line)
    elif echo is not None:
        echo(line)


def _has_memory() -> bool:
    try:
        return os.access(SHARED, os.W_OK) and shutil.disk_usage(SHARED).free >= ENOUGH
    except OSError:
        return False


def _expected(topology: Topology) -> dict[str, float]:
    """Sources that are expected, with the rates that are."""
    return {f"{each.name}-{n}": each.rate for each in topology.sources for n in range(each.expected)}


def _behind(reached: int | None, low: int | None) -> int | None:
    return None if reached is None or low is None else max(reached - low, 0)
