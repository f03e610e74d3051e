"""The sources of a run: their spools and clients, and what they hand over."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil
from pathlib import Path
from time import monotonic, time
from typing import Any

import numpy as np

from headwater.events import Batch
from headwater.prefix import LATE, NO_SKIPS, judge
from headwater.rows import TS_MAX, TS_MIN
from headwater.windows import TS_LIMIT
from headwater_cli.ahead import Ahead
from headwater_cli.feeds import Feed, Generated, beat
from headwater_cli.generator import SECOND
from headwater_cli.inputwarnings import furthest_behind
from headwater_cli.latency import Latency
from headwater_cli.piped import UNNAMED, Piped
from headwater_cli.processes import Process
from headwater_cli.tally import Tally
from headwater_source import Source
from headwater_source.client import SourceClient
from headwater_source.columns import Events
from headwater_source.origin import directory_name

# How often is looked whether a source is still taken, in seconds; from how many sources on less often.
LOOK, MANY = 0.1, 100
# How many times a second a source sends where rates are held against limits: what comes at once has to wait.
PIECES = 10
# How soon a source that sends as fast as it is let looks whether it is let, in seconds.
RUSH = 0.005


@dataclass(frozen=True, slots=True)
class Manner:
    """How sources send: `paced` ones send events as they come, others a second of them at once; `scripted`
    ones come and go while a run goes on; with `rush` they send as fast as they are let."""

    paced: bool = False
    scripted: bool = False
    rush: bool = False


class Senders:
    """All that there are, and were."""

    def __init__(self, directory: Path, latency: Latency, manner: Manner) -> None:
        """Spools are kept in `directory`."""
        self._directory, self._latency, self._manner = directory, latency, manner
        self.feeds: list[Feed] = []
        self.clients: list[SourceClient] = []
        self.tally = Tally()
        # The sources of which the root takes nothing more, and what it has told them.
        self.fenced: dict[str, str] = {}
        # Feeds that go on, by name; of each how many parts it was given; and when the first of them began.
        self.going: dict[str, Generated] = {}
        self._given: dict[str, int] = {}
        self.begun = 0.0
        # How far a late event lay behind an earlier one of its source at most, in microseconds.
        self.furthest_behind = 0
        # What has yet to end before everything is sent.
        self.tasks: set[asyncio.Task[None]] = set()
        # Sources that are generated and not gone for good.
        self._open: set[str] = set()
        # The largest times that they have handed over.
        self._largest: dict[str, int] = {}
        self._closing: list[Callable[[], None]] = []

    # Who sends

    def go(self, feed: Generated, child: Process) -> None:
        self.going[feed.name] = feed
        self.tasks.add(asyncio.create_task(self._feed(feed, child)))

    def pipe(self, piped: Piped, leaves: Sequence[Process]) -> None:
        self.tasks.add(asyncio.create_task(self._pipe(piped, leaves)))

    def given(self, name: str) -> int:
        """How many seconds a source has been given."""
        return self._given.get(name, 0)

    def change(self, rates: Mapping[str, float]) -> None:
        """Have sources send at other rates from their next second on."""
        for name, rate in rates.items():
            feed = self.going.get(name)
            if feed is not None and rate != feed.sensor.latest_rate:
                feed.sensor.changes.append((self.given(name), rate))

    def end(self, feed: Generated) -> None:
        """A source ends with the second that it is in."""
        feed.seconds = min(feed.seconds, self.given(feed.name))

    def finish(self) -> None:
        for feed in self.going.values():
            self.end(feed)

    def staying(self, ending: set[str], moved: Mapping[str, str]) -> bool:
        """Whether sources send to nodes that are to end, or have not turned to where they were moved."""
        open_ = [client for client in self.clients if client.name in self._open]
        uplinks = {client.name: client.exchange.uplink for client in open_}
        return any(
            uplink.parent in ending
            or (name in moved and not (uplink.connected and uplink.parent == moved[name]))
            for name, uplink in uplinks.items()
        )

    async def stop(self) -> None:
        for close in self._closing:
            close()
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        for client in self.clients:
            await client.stop()

    @property
    def bytes_up(self) -> int:
        """Bytes that they have sent to the children."""
        return sum(client.exchange.bytes_up for client in self.clients)

    # What they send

    async def _feed(self, feed: Feed, child: Process) -> None:
        source = self._source(feed, child)
        self._open.add(feed.name)
        try:
            await self._sent(feed, source)
        finally:
            self.going.pop(feed.name, None)
            if self._manner.scripted:
                # It is gone for good, and its child may go too.
                await self._client(feed.name).stop()
                self._open.discard(feed.name)

    async def _sent(self, feed: Feed, source: Source) -> None:
        scripted = self._manner.scripted
        if scripted:
            # What it would have sent before would come at once, and overrun its child.
            while not source.connected and source.fenced is None:
                await asyncio.sleep(self._look)
            if isinstance(feed, Generated) and feed.sensor.begin:
                feed.sensor = replace(feed.sensor, begin=ceil(monotonic() - self.begun))
        begin = monotonic()
        for number, part in enumerate(feed.parts(), start=1):
            self._given[feed.name] = number
            if scripted:
                # Nor does it make up for time that it was late.
                begin = max(begin, monotonic() - number)
            await self._due(source, begin + number - 1)
            # Events that are generated have values: what has none is the heartbeat behind them.
            last = part.bare is not None
            for share, piece in self._pieces(part):
                await asyncio.sleep(max(begin + number - 1 + share - monotonic(), 0))
                await self._give(feed, source, piece, last=last)
            if feed.name in self.fenced:
                return
        await self._unless_fenced(source, self._flushed(source))

    async def _due(self, source: Source, at: float) -> None:
        """A second of events a second: what a sensor does."""
        if not self._manner.rush:
            await asyncio.sleep(max(at - monotonic(), 0))
            return
        # Nor further ahead than that: whoever only fills spools sends nothing meanwhile.
        await asyncio.sleep(0)
        while source.accepted > source.sent and source.fenced is None:
            await asyncio.sleep(RUSH)

    def _pieces(self, part: Events) -> Iterator[tuple[float, Events]]:
        """What is sent at once, and in which share of the second: all of it, or as it comes."""
        if not self._manner.paced or part.bare is not None:
            if len(part):
                yield 0.0, part
            return
        # An event that comes late does so behind the one before it.
        tenths = np.maximum.accumulate(
            (part.ts - part.ts.max(initial=0) // SECOND * SECOND) * PIECES // SECOND
        )
        for tenth in np.unique(tenths):
            yield max(float(tenth) / PIECES, 0.0), part.part(tenths == tenth)

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
                latest = max(latest, int(events.ts.max()))
                if name not in self.fenced:
                    accepted = await self._give(feed, opened[name], events)
                    piped.sent(feed, events.part(slice(accepted)))
        for name, source in opened.items():
            if name not in self.fenced:
                feed, last = piped.feeds[name], beat(latest + piped.closing_span)
                accepted = await self._give(feed, source, last, last=True)
                piped.sent(feed, last.part(slice(accepted)))
        for name, source in opened.items():
            if name not in self.fenced:
                await self._unless_fenced(source, self._flushed(source))

    def _source(self, feed: Feed, child: Process) -> Source:
        source = Source(
            feed.name,
            f"127.0.0.1:{child.port}",
            spool=self._directory / directory_name(feed.name),
            site=feed.site,
            lateness=feed.lateness,
            child=child.name,
            # An input was looked at before the run, as a whole; what is generated has keys.
            without_keys=True,
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
        judged = judge(batch, 0, known, feed.lateness, TS_MAX, NO_SKIPS)
        largest = judged.largest
        if judged.refused.get(LATE):
            self.furthest_behind = max(self.furthest_behind, _furthest_behind(batch, known))
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


def _furthest_behind(batch: Batch, largest: int) -> int:
    """Of the events that are not rejected."""
    counts = np.isfinite(batch.value) | (False if batch.bare is None else batch.bare)
    counts &= np.abs(batch.ts) <= TS_LIMIT
    return furthest_behind(batch.ts[counts], largest)
