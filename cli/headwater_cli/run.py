"""`headwater run`: a whole tree as local processes, with generated sources."""

from __future__ import annotations

import asyncio
import json
import shutil
import tempfile
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from math import inf
from pathlib import Path
from time import monotonic
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from headwater.rows import TS_MIN
from headwater.topology import Topology, query_document
from headwater_cli.ahead import Ahead
from headwater_cli.feeds import Feed, Generated, Kept, beat
from headwater_cli.generator import AFTER, SECOND, START, sensors
from headwater_cli.piped import UNNAMED, Piped, expecting
from headwater_cli.processes import Process
from headwater_cli.verify import differing
from headwater_root import resultlines
from headwater_root.sinks.console import readable
from headwater_source import Source
from headwater_source.client import SourceClient
from headwater_source.columns import Events
from headwater_source.origin import directory_name

PATIENCE = 120.0
# How many windows are shown, and how many of those that come at once are printed.
LATEST, ECHOED = 12, 3
Echo = Callable[[str], None]


@dataclass(slots=True)
class Summary:
    """What a run came to; `ok` only if everything adds up."""

    topology: str
    sources: int
    nodes: int
    sent: int = 0
    counted: int = 0
    late: int = 0
    rejected: int = 0
    windows: int = 0
    differing: int | None = None
    seconds: float = 0.0
    events_per_second: float = 0.0
    bytes_up: int = 0
    ok: bool = False


class Run:
    """One run: processes, sources, and what they came to."""

    def __init__(
        self,
        topology: Topology,
        document: dict[str, Any],
        children: int,
        layers: Sequence[int],
        seconds: int,
        piped: Piped | None = None,
    ) -> None:
        """`piped` are sources that are read from somewhere, instead of generated ones."""
        if piped is not None:
            topology, document = expecting(topology, document, piped.expected)
        self.topology, self.document, self.seconds = topology, document, seconds
        self.children, self.layers = children, list(layers)
        self.directory = Path(tempfile.mkdtemp(prefix="headwater-"))
        self.processes: list[Process] = []
        self.piped = piped
        self.feeds: list[Feed] = []
        if piped is None:
            self.feeds = [Generated(sensor, seconds) for sensor in sensors(topology)]
        self.clients: list[SourceClient] = []
        self.records: dict[str, int] = {}
        self.summary = Summary(topology.name, len(self.feeds), 0)
        # The last windows that were seen, and the file that they came in.
        self._latest: deque[str] = deque(maxlen=LATEST)
        self._seen = ""

    async def run(self, *, verify: bool, live: Live | None = None, echo: Echo | None = None) -> Summary:
        """`live` shows the tree; without a screen `echo` takes some of the windows as they come."""
        begin = monotonic()
        try:
            leaves = await self._start()
            self.summary.nodes = len(self.processes)
            feeding = [
                asyncio.create_task(self._feed(feed, leaves[n % len(leaves)]))
                for n, feed in enumerate(self.feeds)
            ]
            if self.piped is not None:
                feeding.append(asyncio.create_task(self._pipe(self.piped, leaves)))
            await self._until_counted(feeding, live, echo)
            self.summary.seconds = round(monotonic() - begin, 2)
        finally:
            await self._stop()
        self._sum_up()
        if verify:
            self.summary.differing = self._differing()
        self.summary.ok = (self.summary.differing == 0 or not verify) and (
            self.summary.sent == self.summary.counted + self.summary.late + self.summary.rejected
        )
        return self.summary

    def clean(self) -> None:
        shutil.rmtree(self.directory, ignore_errors=True)

    # Processes

    async def _start(self) -> Sequence[Process]:
        """The root, layers from the top down, children last; gives the children."""
        manifest = self.directory / "topology.json"
        manifest.write_text(json.dumps(self.document))
        root = Process(
            "root",
            [
                "-m",
                "headwater_root",
                "--topology",
                str(manifest),
                "--directory",
                str(self.directory / "root"),
                "--status",
            ],
        )
        await self._begin(root)
        above: Sequence[Process] = [root]
        for number, width in enumerate([*reversed(self.layers), self.children]):
            role = "child" if number == len(self.layers) else "intermediate"
            layer = len(self.layers) + 1 - number
            above = await asyncio.gather(
                *(self._node(f"l{layer}-{n}", role, above[n % len(above)]) for n in range(width))
            )
        return above

    async def _node(self, name: str, role: str, parent: Process) -> Process:
        given = {
            "name": name,
            "role": role,
            "listen": "127.0.0.1:0",
            "parent": parent.name,
            "parent_address": f"127.0.0.1:{parent.port}",
            "queries": [query_document(query) for query in self.topology.queries],
            "flush_interval": self.topology.flush_interval / SECOND,
        }
        path = self.directory / f"{name}.json"
        path.write_text(json.dumps(given))
        process = Process(name, ["-m", "headwater_node", "--config", str(path)])
        await self._begin(process)
        return process

    async def _begin(self, process: Process) -> None:
        self.processes.append(process)
        await process.start()

    async def _stop(self) -> None:
        for client in self.clients:
            await client.stop()
        # From the edge to the root: what a node still holds, its parent takes.
        for process in reversed(self.processes):
            await process.stop()

    # Sources

    async def _feed(self, feed: Feed, child: Process) -> None:
        source = self._source(feed, child)
        begin = monotonic()
        for number, part in enumerate(feed.parts(), start=1):
            # A second of events a second: what a sensor does.
            await asyncio.sleep(max(begin + number - 1 - monotonic(), 0))
            await source.append(part)
            self.records[feed.name] = source.accepted
        await source.flush()

    async def _pipe(self, piped: Piped, leaves: Sequence[Process]) -> None:
        """Events as fast as they come, and behind all of them a heartbeat of every source."""
        opened: dict[str, Source] = {}
        latest = TS_MIN
        ahead = Ahead(piped)
        while (part := await ahead.next()) is not None:
            for name, events in part.by_source(UNNAMED):
                feed = piped.feed(name, None if events.site is None else events.site.at(0))
                if name not in opened:
                    opened[name] = self._source(feed, leaves[len(opened) % len(leaves)])
                    self.feeds.append(feed)
                    self.summary.sources = len(self.feeds)
                latest = max(latest, int(events.ts.max()))
                await self._piped(piped, feed, opened[name], events)
        for name, source in opened.items():
            await self._piped(piped, piped.feeds[name], source, beat(latest + AFTER))
        for source in opened.values():
            await source.flush()

    async def _piped(self, piped: Piped, feed: Kept, source: Source, events: Events) -> None:
        await source.append(events)
        piped.sent(feed, events)
        self.records[feed.name] = source.accepted

    def _differing(self) -> int | None:
        """None if there is too much to compare."""
        if self.piped is not None and not self.piped.verifiable:
            return None
        return differing(self.topology, self.directory, self.feeds)

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
            for process in self.processes:
                if process.ended is not None:
                    raise RuntimeError(f"{process.name} ended with code {process.ended}")
            if monotonic() > until:
                raise RuntimeError("not everything was counted in time")
            found = self._look()
            if live is not None:
                live.update(self.picture())
            elif found and echo is not None:
                for line in list(self._latest)[-min(found, ECHOED) :]:
                    echo(line)

    def _look(self) -> int:
        """See which windows have come out since the last look, and how many; another process writes them."""
        outbox = self.directory / "root" / "outbox"
        fresh = (path.name for path in outbox.glob("*-*") if path.suffix == "" and path.name > self._seen)
        names, found = sorted(fresh), 0
        for name in names:
            for row in resultlines.decode((outbox / name).read_bytes()):
                self._latest.append(readable(row))
                found += 1
        self._seen = names[-1] if names else self._seen
        return found

    # What is shown

    @property
    def root(self) -> Process:
        return self.processes[0]

    def picture(self) -> Group:
        """The tree as it is, and the windows that came out last."""
        return Group(self._layers(), Text("\n".join(self._latest), no_wrap=True, overflow="ellipsis"))

    def _layers(self) -> Table:
        table = Table(title=f"headwater: {self.topology.name}", title_justify="left")
        for column in ("layer", "nodes", "sources", "events", "watermark", "windows"):
            table.add_column(column, justify="left" if column == "layer" else "right")
        said = self.root.last
        watermark = said.get("watermark")
        behind = "" if watermark is None else f"{(watermark - START) / SECOND:,.1f} s"
        table.add_row("sources", "", str(len(self.clients)), f"{sum(self.records.values()):,}", "", "")
        table.add_row("children", str(self.children), "", "", "", "")
        for number, width in enumerate(self.layers, start=2):
            table.add_row(f"layer {number}", str(width), "", "", "", "")
        table.add_row(
            "root",
            "1",
            str(said.get("sources", 0)),
            f"{said.get('accepted', 0):,}",
            behind,
            f"{said.get('windows', 0):,}",
        )
        return table

    def _sum_up(self) -> None:
        said, summary = self.root.last, self.summary
        summary.sent = sum(self.records.values())
        summary.counted, summary.late = said.get("counted", 0), said.get("late", 0)
        summary.rejected, summary.windows = said.get("rejected", 0), said.get("windows", 0)
        summary.events_per_second = round(summary.sent / max(summary.seconds, 0.001), 1)
        summary.bytes_up = sum(
            process.last.get("bytes_up", 0) for process in self.processes if process.name.startswith("l")
        )


def told(summary: Summary, console: Console) -> None:
    """The closing lines."""
    console.print(
        f"{summary.sent:,} events sent: {summary.counted:,} counted, {summary.late:,} late, "
        f"{summary.rejected:,} rejected; {summary.windows:,} windows in {summary.seconds:.1f} s "
        f"({summary.events_per_second:,.0f} events/s) through {summary.nodes} processes"
    )
    if summary.differing is not None:
        equal = "every window equals the oracle" if not summary.differing else ""
        console.print(equal or f"[bold red]{summary.differing:,} windows differ from the oracle")


def as_json(summary: Summary) -> str:
    return json.dumps(asdict(summary))
