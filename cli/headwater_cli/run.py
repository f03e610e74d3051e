"""`headwater run`: a whole tree as local processes, with generated or piped sources."""

from __future__ import annotations

import asyncio
import json
import shutil
import signal
import tempfile
from collections.abc import Callable, Coroutine, Iterable, Sequence
from contextlib import suppress
from math import inf
from pathlib import Path
from time import monotonic, time
from typing import Any

from click import ClickException
from rich.live import Live
from rich.text import Text

from headwater.events import Batch
from headwater.prefix import NO_SKIPS, judge
from headwater.rows import TS_MAX, TS_MIN
from headwater.topology import Topology
from headwater_cli import runs
from headwater_cli.ahead import Ahead
from headwater_cli.client import At, connected
from headwater_cli.feeds import Cut, Feed, Generated, beat
from headwater_cli.generator import AFTER, SECOND, limited, needed, sensors
from headwater_cli.latency import Latency
from headwater_cli.nodes import Nodes
from headwater_cli.picture import Picture, Row
from headwater_cli.piped import UNNAMED, VERIFIABLE, Piped, expecting
from headwater_cli.processes import Process
from headwater_cli.rates import Rates
from headwater_cli.results import Results
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
# So many sources the root is asked about: all that there are.
EVERY = 1_000_000_000
# How many windows of those that come at once are printed.
ECHOED = 3
# How often is told what is waited for, in seconds.
TELL = 5.0
# How long sinks may take for what they lack at the end, in seconds.
SINKS_PATIENCE = 60.0
Echo = Callable[[str], None]


class Run:
    """One run: processes, sources, and what they came to."""

    def __init__(
        self,
        topology: Topology,
        document: dict[str, Any],
        children: int,
        layers: Sequence[int],
        seconds: int,
        events: int | None = None,
        piped: Piped | None = None,
        engine: str | None = None,
    ) -> None:
        """`events` in all, if given; the seconds follow from them then. `piped` are sources that are read
        from somewhere, instead of generated ones. `engine` is what the root is, if not as the topology says.
        """
        if piped is not None:
            topology, document = expecting(topology, document, piped.expected)
        self.topology, self.document, self.seconds = topology, document, seconds
        self._spark = (engine or topology.root.engine) == "spark"
        self.children, self.layers = children, list(layers)
        self.directory = Path(tempfile.mkdtemp(prefix="headwater-"))
        self.processes: list[Process] = []
        self.piped = piped
        self.feeds: list[Feed] = []
        if piped is None:
            found = sensors(topology)
            if events is not None:
                found = limited(found, events)
                self.seconds = needed(found)
            self.feeds = [Generated(sensor, self.seconds) for sensor in found]
        self.clients: list[SourceClient] = []
        self.tally = Tally()
        # The sources of which the root takes nothing more, and what it has told them.
        self.fenced: dict[str, str] = {}
        self.summary = Summary(topology.name, len(self.feeds))
        # The layers of nodes, from the children up.
        self._tree: list[Nodes] = []
        # What the sources have handed over: their largest times, how fast, and since when.
        self._largest: dict[str, int] = {}
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
            leaves = await self._start()
            self.summary.nodes = len(self.processes)
            if self._spark:
                await self._until_merging(begin, live, echo)
            with runs.announced(f"127.0.0.1:{self.root.port}", self.topology.name):
                begin = monotonic()
                feeding = [
                    asyncio.create_task(self._feed(feed, leaves[n % len(leaves)]))
                    for n, feed in enumerate(self.feeds)
                ]
                if self.piped is not None:
                    feeding.append(asyncio.create_task(self._pipe(self.piped, leaves)))
                try:
                    await self._until_counted(feeding, live, echo if windows else None)
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
            if self.processes and self.root.last:
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

    async def _start(self) -> Sequence[Process]:
        """The root, layers from the top down, children last; gives the children."""
        manifest = self.directory / "topology.json"
        manifest.write_text(json.dumps(self.document))
        program = ["headwater_spark", "--brief"] if self._spark else ["headwater_root"]
        command = ["-m", *program, "--topology", str(manifest), "--directory", str(self.directory / "root")]
        root = Process("root", [*command, "--status", "--keep-results"])
        await self._begin(root)
        above: Sequence[Process] = [root]
        for number, width in enumerate([*reversed(self.layers), self.children]):
            role = "child" if number == len(self.layers) else "intermediate"
            layer = len(self.layers) + 1 - number
            above = await _all(
                [self._node(f"l{layer}-{n}", role, above[n % len(above)]) for n in range(width)]
            )
            self._tree.insert(0, Nodes("children" if role == "child" else f"layer {layer}", above))
        return above

    async def _node(self, name: str, role: str, parent: Process) -> Process:
        given = {
            "name": name,
            "role": role,
            "listen": "127.0.0.1:0",
            "parent": parent.name,
            "parent_address": f"127.0.0.1:{parent.port}",
            "flush_interval": self.topology.flush_interval / SECOND,
        }
        if role == "child" and (archive := self.document["spec"].get("archive")):
            given["archive"] = archive
        path = self.directory / f"{name}.json"
        path.write_text(json.dumps(given))
        process = Process(name, ["-m", "headwater_node", "--config", str(path), "--status"])
        await self._begin(process)
        return process

    async def _begin(self, process: Process) -> None:
        self.processes.append(process)
        await process.start()

    async def _stop(self) -> dict[str, int | None]:
        """End everything; gives the code of each process."""
        for close in self._closing:
            close()
        for client in self.clients:
            await client.stop()
        # From the edge to the root: what a node still holds, its parent takes.
        return {process.name: await process.stop() for process in reversed(self.processes)}

    # Sources

    async def _feed(self, feed: Feed, child: Process) -> None:
        source = self._source(feed, child)
        begin = monotonic()
        for number, part in enumerate(feed.parts(), start=1):
            # A second of events a second: what a sensor does.
            await asyncio.sleep(max(begin + number - 1 - monotonic(), 0))
            # Events that are generated have values: what has none is the heartbeat behind them.
            await self._give(feed, source, part, last=part.bare is not None)
            if feed.name in self.fenced:
                return
        await self._unless_fenced(source, source.flush())

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
                await self._unless_fenced(source, source.flush())

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

    async def _unless_fenced(self, source: Source, work: Coroutine[Any, Any, object]) -> None:
        """Do what waits for the root, as long as that takes anything of the source. Whatever becomes of its
        name later: for this run it is over, and the others go on."""
        task = asyncio.create_task(work)
        try:
            while not task.done():
                if source.fenced is not None:
                    self.fenced[source.name] = source.fenced
                    break
                await asyncio.wait({task}, timeout=LOOK)
            else:
                task.result()
        finally:
            # Before anything else is waited for: it would go on meanwhile.
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        if source.name in self.fenced:
            self._latency.give_up(source.name, time())
            await next(client for client in self.clients if client.name == source.name).stop()

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

    async def _until_counted(
        self, feeding: Sequence[asyncio.Task[None]], live: Live | None, echo: Echo | None
    ) -> None:
        waiting = set(feeding)
        # How long a pipe goes on, nobody knows.
        until = inf if self.piped is not None else monotonic() + self.seconds + PATIENCE
        while waiting:
            done, waiting = await asyncio.wait(waiting, timeout=0.2)
            for task in done:
                task.result()
            self._refuse_ended()
            if monotonic() > until:
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
        for process in self.processes:
            if process.ended is not None:
                raise RuntimeError(f"{process.name} ended with code {process.ended}")

    # What is shown

    @property
    def root(self) -> Process:
        return self.processes[0]

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
            )
            for nodes in self._tree
        ]
        rows.append(Row("root", 1, root.rate("accepted", over), None, None, _behind(reached, watermark)))
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
        )

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
        summary.failed = {name: code for name, code in ended.items() if code != 0}

    def _bytes(self) -> Iterable[Layer]:
        for nodes in self._tree:
            total = nodes.total("bytes_up")
            share = round(total / max(self._raw, 1), 4)
            yield Layer(nodes.layer, len(nodes.processes), total, share if self._raw else 0.0)


def _show(line: str, live: Live | None, echo: Echo | None) -> None:
    if live is not None:
        live.console.print(line)
    elif echo is not None:
        echo(line)


async def _all(starting: Iterable[Coroutine[Any, Any, Process]]) -> list[Process]:
    """All of them, or none goes on starting when one has failed: who stops them has to know of each."""
    tasks = [asyncio.create_task(each) for each in starting]
    try:
        return await asyncio.gather(*tasks)
    except BaseException:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise


def _behind(reached: int | None, low: int | None) -> int | None:
    return None if reached is None or low is None else max(reached - low, 0)
