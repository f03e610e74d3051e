"""Events of an input through spools into a tree, until the root has settled them."""

from __future__ import annotations

import asyncio
import json
import shlex
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from math import inf
from pathlib import Path
from time import monotonic, time_ns

import numpy as np

from headwater.errors import InvalidSource, Problem
from headwater.events import NO_MARK
from headwater_cli import handshakes
from headwater_cli.ahead import Ahead
from headwater_cli.feeds import beat
from headwater_cli.heartbeats import AFTER
from headwater_source.columns import Events
from headwater_source.keys import MissingKeys, has_key
from headwater_source.origin import directory_name, spools
from headwater_source.readers import BadRecord, Reader
from headwater_source.readers.records import RecordReader
from headwater_source.source import ROWS, SPOOL_BYTES, Source
from headwater_source.spool import Spool
from headwater_wire.credentials import FIELDS, Credentials

# A rate is kept in steps of this many seconds.
STEP = 0.05
# How often somebody who watches is told.
TOLD_SECONDS = 0.5
# So many columns of an input are named in a message.
FIELDS_SHOWN = 20
# How often a source that makes no progress says what it waits for, and how many say so at once.
WAIT_SECONDS, WAITS_SHOWN = 10.0, 3
# How long it is waited for the root to take in a source of which nothing is left to settle.
EMPTY_SECONDS = 5.0
Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Options:
    """How to send; times in microseconds. `file` is an input that can be read again; `resume` sends what the
    spools of `name` and of `others` have left, and makes none."""

    to: str
    name: str | None = None
    others: tuple[str, ...] = ()
    site: str | None = None
    lateness: int | None = None
    spool: Path | None = None
    spool_bytes: int = SPOOL_BYTES
    child: str | None = None
    credentials: Credentials | None = None
    rate: float | None = None
    file: str | None = None
    again: bool = False
    resume: bool = False
    heartbeat: int | None = None
    end: bool = False
    heartbeat_at: int | None = None
    without_keys: bool = False
    timeout: float | None = None


@dataclass(slots=True)
class Summary:
    """What came of it. `sent` and `counted` are of what was accepted now, and of what was `resumed`: what
    the spools that are resumed held at the beginning, not known to be counted. `left` is everything that is
    in the spools and not known to be counted. Counted is here what the root has settled for good, be it in
    windows, late or rejected: a source hears no more. Unless all sources that have something left are
    `connected`, the root has not told yet how much it settled long ago. `fenced` says by name why the root
    takes nothing of a source, `waits` what a source waits for that has made no progress for some seconds,
    `warnings` that its events have no key, where queries compute by one."""

    sources: int = 0
    read: int = 0
    before: int = 0
    resumed: int | None = None
    accepted: int = 0
    heartbeats: int = 0
    sent: int = 0
    counted: int = 0
    left: int = 0
    bad: int = 0
    connected: bool = False
    fenced: dict[str, str] = field(default_factory=dict)
    waits: dict[str, str] = field(default_factory=dict)
    warnings: dict[str, str] = field(default_factory=dict)
    seconds: float = 0.0
    events_per_second: float = 0.0
    problem: str | None = None
    ok: bool = False


@dataclass(slots=True)
class _Open:
    """A source, how many records of the input it has already, its head when it was opened, and behind which
    record stands what it is to send now."""

    source: Source
    before: int
    head: int
    begin: int
    # When it was opened, or last seen to be taken in by the root.
    connected_at: float = field(default_factory=monotonic)


class Sending:
    """One input, into one spool and client a source."""

    def __init__(self, options: Options, tell: Tell) -> None:
        self.options, self._tell = options, tell
        self.summary = Summary()
        # The sources that `left` is of.
        self.waiting: list[str] = []
        self._open: dict[str, _Open] = {}
        self._begin = monotonic()
        self._paced = 0
        # The latest time in the input.
        self._latest: int | None = None
        # Whether a record of the input has had a key: then those without one are meant.
        self._has_keys = False
        # What the input calls its columns is known to it once it was looked into.
        self._reader: RecordReader | None = None
        # Whose warning was shown.
        self._warned: set[str] = set()

    async def run(self, reader: Reader | Iterable[Events] | None, watch: Tell | None = None) -> Summary:
        """Send everything of an input, or what the spool holds; `watch` is told of the progress."""
        self._reader = reader if isinstance(reader, RecordReader) else None
        watching = asyncio.create_task(self._watch(watch))
        try:
            bad = await self._read(reader)
            self._end_input(reader, bad)
            if bad is not None:
                self.summary.problem = str(bad)
                self._tell(f"{bad}; nothing from there on was read, everything before is accepted")
            else:
                await self._last_beats()
            await self._flush()
            self.summary.ok = bad is None
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)
            self._sum_up()
            self._show_warnings()
            if not self.summary.ok and self.summary.problem is None:
                self.summary.problem = self._first_problem()
            await asyncio.gather(*(each.source.close() for each in self._open.values()))
        return self.summary

    # Sources

    def _opened(self, name: str, site: str | None = None) -> _Open:
        found = self._open.get(name)
        if found is None:
            options = self.options
            if not name:
                problem = Problem("name", "is missing for records without a source", "give --name NAME")
                raise InvalidSource("the records cannot be sent", [problem])
            source = Source(
                name,
                options.to,
                spool=(options.spool or spools()) / directory_name(name),
                site=site or options.site,
                lateness=options.lateness,
                spool_bytes=options.spool_bytes,
                child=options.child,
                credentials=options.credentials,
                without_keys=options.without_keys,
            )
            if options.resume and not Spool.there(source.directory):
                problem = Problem(
                    "spool",
                    f"there is none in {source.directory}",
                    "give the --name and --spool with which it was sent, or a FILE to send",
                )
                raise InvalidSource(f"nothing of {name!r} can be resumed", [problem])
            source.open()
            head = source.accepted
            begin = source.counted_before if options.resume else head
            before = 0 if options.file is None else source.begin(options.file, again=options.again)
            if before:
                self._tell(
                    f"{name}: {before:,} records of {options.file} were accepted before, none is sent twice"
                )
            source.start()
            found = self._open[name] = _Open(source, before, head, begin)
        elif site and site != found.source.site:
            problem = Problem("site", f"is {site!r}, and was {found.source.site!r}", "give a source one site")
            raise InvalidSource(f"the source {name!r} cannot go on", [problem])
        return found

    # Reading

    async def _read(self, reader: Reader | Iterable[Events] | None) -> BadRecord | None:
        if reader is None:
            for name in (self.options.name or "", *self.options.others):
                self._opened(name)
            if self.options.end:
                await self._find_latest()
            return None
        ahead = Ahead(reader)
        try:
            while (part := await self._next(ahead)) is not None:
                await self._take(part)
        except BadRecord as bad:
            return bad
        finally:
            ahead.close()
        if not self._open and self.options.name:
            # Nothing was read; what the spool has left is sent, and a last heartbeat has somebody to say it.
            self._opened(self.options.name)
        return None

    async def _find_latest(self) -> None:
        """Find the latest event that the spools still have: an earlier process has read the input."""
        for each in self._open.values():
            spool = each.source.spool
            number = spool.base
            # What is settled meanwhile is trimmed.
            while (found := spool.read(max(number, spool.base), ROWS)) is not None:
                number = found.first + len(found) - 1
                is_event = np.ones(len(found), np.bool_) if found.bare is None else ~found.bare
                if found.mark is not None:
                    is_event |= found.mark != NO_MARK
                if is_event.any():
                    latest = int(found.ts[is_event].max())
                    self._latest = latest if self._latest is None else max(self._latest, latest)
                await asyncio.sleep(0)
        if self._latest is None:
            self._tell(
                "the spool holds no event any more that --end could go by, so no heartbeat is sent; give its "
                "time with --heartbeat-at"
            )

    async def _next(self, ahead: Ahead) -> Events | None:
        """The next part; while nothing comes, heartbeats of the clock on the wall."""
        if self.options.heartbeat is None:
            return await ahead.next()
        period = self.options.heartbeat / 1e6
        waiting, timeout = asyncio.ensure_future(ahead.next()), period
        try:
            while True:
                done, _ = await asyncio.wait({waiting}, timeout=timeout)
                if done:
                    return waiting.result()
                # While a part is being parsed it is not known how old its events are.
                missing = period - self._silence
                timeout = period if missing <= 0 else missing
                if missing > 0:
                    continue
                if not self._open and self.options.name and not self._has_source_column:
                    # Windows must close though nothing comes.
                    self._opened(self.options.name)
                for each in self._open.values():
                    await self._beat(each, time_ns() // 1_000)
        finally:
            waiting.cancel()

    @property
    def _silence(self) -> float:
        """For how many seconds the input has given nothing."""
        arrivals = None if self._reader is None else self._reader.arrivals
        # Generated events are always there at once.
        return inf if arrivals is None else arrivals.silence

    @property
    def _has_source_column(self) -> bool:
        """Whether the input says, perhaps before its first record, that records name their sources."""
        reader = self._reader
        return reader is not None and reader.columns.names["source"] in reader.fields

    async def _take(self, part: Events) -> None:
        self.summary.read += len(part)
        if len(part):
            latest = int(part.ts.max())
            self._latest = latest if self._latest is None else max(self._latest, latest)
        self._has_keys = self._has_keys or has_key(part)
        pieces = list(part.by_source(self.options.name or ""))
        # All of them connect at the same time, and wait for the root together.
        for name, events in pieces:
            for site in _sites(events):
                self._opened(name, site)
            await asyncio.sleep(0)
        for name, events in pieces:
            found = self._open[name]
            found.source.without_keys = self._has_keys or self.options.without_keys
            passed = min(found.before, len(events))
            found.before -= passed
            self.summary.before += passed
            if passed < len(events):
                await self._append(found, events.part(slice(passed, None)) if passed else events)

    async def _append(self, found: _Open, events: Events) -> None:
        rate = self.options.rate
        step = len(events) if rate is None else max(round(rate * STEP), 1)
        for low in range(0, len(events), step):
            piece = events if step >= len(events) else events.part(slice(low, low + step))
            try:
                numbers = await found.source.append(piece)
            except MissingKeys as error:
                raise MissingKeys(error.name, error.key_by, self._key_remedy(error.name)) from None
            self._paced += len(numbers)
            if rate is not None:
                await asyncio.sleep(max(self._begin + self._paced / rate - monotonic(), 0))

    def _key_remedy(self, name: str) -> str:
        fields = () if self._reader is None else self._reader.fields
        remedy = f"{key_remedy(fields)}, or give --without-keys if one empty key for all is meant"
        if self._open[name].source.accepted:
            return remedy
        # The root admitted it before it could say that it needs keys.
        retire = shlex.join(
            ["headwater", "source", "retire", *(["--"] if name.startswith("-") else []), name]
        )
        return f"{remedy}. Windows wait for this source until it is idle; to end that now: {retire}"

    def _end_input(self, reader: object, bad: BadRecord | None) -> None:
        """The input is over; where it was bad it may be mended, so it is known by what stands before."""
        if self.options.file is None or reader is None:
            return
        for each in self._open.values():
            mendable = bad is not None and not each.before
            each.source.end(self.options.file, bad.offset if bad is not None and mendable else None)

    # Heartbeats

    async def _last_beats(self) -> None:
        options, at = self.options, self.options.heartbeat_at
        if at is None and options.end and self._latest is not None:
            at = self._latest + AFTER
        if at is not None:
            for each in self._open.values():
                await self._beat(each, at)

    async def _beat(self, found: _Open, ts: int) -> None:
        self.summary.heartbeats += 1
        await found.source.append(beat(ts))

    # Until it is counted

    async def _flush(self) -> None:
        sources, timeout = [each.source for each in self._open.values()], self.options.timeout
        flushing = asyncio.gather(*(each.flush() for each in sources if each.accepted > each.counted))
        # Nothing of these can be lost; a root that can be reached hears of them all the same.
        empty = [each for each in sources if each.accepted <= each.counted]
        greeting = asyncio.gather(*(each.flush() for each in empty))
        patience = EMPTY_SECONDS if timeout is None else min(timeout, EMPTY_SECONDS)
        try:
            await asyncio.gather(asyncio.wait_for(flushing, timeout), _wait_at_most(greeting, patience))
        except TimeoutError:
            self._sum_up()
            for each in self._open.values():
                if not each.source.connected:
                    self._tell_why(each.source)
            raise
        for source in empty:
            if not source.connected:
                self._tell(f"{source.name}: {self._why(source)}; nothing of it is left to send")

    async def _watch(self, watch: Tell | None) -> None:
        said, shown_at = "", -WAIT_SECONDS
        while True:
            await asyncio.sleep(TOLD_SECONDS)
            self._sum_up()
            if watch is not None and progress(self.summary, self.options.to) != said:
                said = progress(self.summary, self.options.to)
                watch(said)
            if self.summary.waits and monotonic() - shown_at >= WAIT_SECONDS:
                shown_at = monotonic()
                self._show_waits()
            self._show_warnings()

    def _show_warnings(self) -> None:
        fresh = [name for name in self.summary.warnings if name not in self._warned]
        for name in fresh[:WAITS_SHOWN]:
            self._tell(f"warning: {name}: {self.summary.warnings[name]}")
        if len(fresh) > WAITS_SHOWN:
            self._tell(f"warning: {len(fresh) - WAITS_SHOWN:,} more sources send events without a key")
        self._warned.update(fresh)

    def _show_waits(self) -> None:
        waits = list(self.summary.waits.items())
        for name, wait in waits[:WAITS_SHOWN]:
            self._tell(f"{name}: {wait}; what is accepted is on disk")
        if len(waits) > WAITS_SHOWN:
            self._tell(f"{len(waits) - WAITS_SHOWN:,} more sources wait")

    def _first_problem(self) -> str | None:
        """Why nothing is sent of a source, and of how many more."""
        away = [each.source for each in self._open.values() if not each.source.connected]
        if not away:
            return None
        more = f" (and {len(away) - 1:,} other sources are not taken in)" if len(away) > 1 else ""
        return f"{away[0].name}: {self._why(away[0])}{more}"

    def _tell_why(self, source: Source) -> None:
        self._tell(f"{source.name}: {self._why(source)}; what is accepted is on disk")

    def _why(self, source: Source) -> str:
        """Why nothing is sent."""
        options = self.options
        if source.fenced is not None:
            # What it says to do is for the root, and this is the address of a child.
            return f"the root says through the child at {options.to}: {source.fenced}"
        why = source.problem or "no answer yet"
        remedy = self._remedy(why)
        return f"{why}, at {options.to}" + (f": {remedy}" if remedy else "")

    def _wait(self, found: _Open) -> str | None:
        """What a source waits for, with the remedy where one is known."""
        source, wait = found.source, found.source.wait
        if source.connected:
            found.connected_at = monotonic()
        away = monotonic() - found.connected_at
        if wait is None and away < EMPTY_SECONDS:
            return None
        if source.fenced is not None:
            return self._why(source)
        if wait is None:
            # It has nothing to send, but windows may wait for it.
            return f"not taken in for {away:.0f} s: {self._why(source)}"
        remedy = self._remedy(source.problem or "")
        return wait + (f": {remedy}" if remedy else "")

    def _remedy(self, problem: str) -> str | None:
        options = self.options
        naming = f"{options.child!r} is what --child says; give the name of the node there"
        if options.child is None:
            naming = "give the name of the node there with --child NAME (in a cluster: TOPOLOGY-ingest)"
        tls = options.credentials is not None
        return handshakes.remedy(problem, tls=tls, option="--to", naming=naming)

    def _sum_up(self) -> None:
        summary, opened = self.summary, self._open.values()
        summary.sources = len(opened)
        reasons = {name: each.source.fenced for name, each in self._open.items()}
        summary.fenced = {name: reason for name, reason in reasons.items() if reason is not None}
        summary.waits = {name: wait for name, each in self._open.items() if (wait := self._wait(each))}
        warnings = {name: each.source.warning for name, each in self._open.items()}
        summary.warnings = {name: warning for name, warning in warnings.items() if warning is not None}
        needed = [each for each in opened if each.source.accepted > each.source.counted] or opened
        summary.connected = bool(opened) and all(each.source.connected for each in needed)
        # By the spools: whoever is interrupted may have accepted records that nobody has counted here yet.
        accepted = sum(each.source.accepted - each.head for each in opened)
        summary.accepted = max(accepted - summary.heartbeats, 0)
        if self.options.resume:
            summary.resumed = sum(each.head - each.begin for each in opened)
        summary.sent = sum(max(each.source.sent - each.begin, 0) for each in opened)
        summary.counted = sum(max(each.source.counted - each.begin, 0) for each in opened)
        left = {name: each.source.accepted - each.source.counted for name, each in self._open.items()}
        summary.left, self.waiting = sum(left.values()), [name for name, count in left.items() if count]
        summary.seconds = round(monotonic() - self._begin, 2)
        given = summary.accepted if summary.resumed is None else summary.sent
        summary.events_per_second = round(given / max(summary.seconds, 0.001), 1)


async def _wait_at_most(work: asyncio.Future[list[None]], seconds: float) -> None:
    with suppress(TimeoutError):
        await asyncio.wait_for(work, seconds)


def key_remedy(fields: Sequence[str]) -> str:
    """How to say which column has the key, with the columns where they are known."""
    listed = ", ".join(map(repr, fields[:FIELDS_SHOWN])) + (", ..." if len(fields) > FIELDS_SHOWN else "")
    columns = f"the columns are {listed}; " if fields else ""
    return f"{columns}say which column has the key with --columns key=NAME"


def _sites(events: Events) -> list[str | None]:
    """The sites that are named, or None alone."""
    if events.site is None:
        return [None]
    codes = np.unique(events.site.codes).tolist()
    return [events.site.names[code] for code in codes if code >= 0] or [None]


def resuming(options: Options, names: Sequence[str]) -> str:
    """The command that sends what the spools of sources have left, as a shell takes it."""
    words = ["headwater", "send", "--resume", "--to", options.to]
    for name in names:
        words += ["--name", name]
    if options.spool is not None:
        words += ["--spool", str(options.spool)]
    if options.spool_bytes != SPOOL_BYTES:
        words += ["--spool-mib", str(options.spool_bytes >> 20)]
    if options.child is not None:
        words += ["--child", options.child]
    if options.credentials is not None:
        for field in FIELDS:
            words += [f"--tls-{field}", str(getattr(options.credentials, field))]
    return shlex.join(words)


def progress(summary: Summary, to: str) -> str:
    """How it stands; what waits is known once the root has told what it has settled."""
    sent = f"not connected to {to} yet"
    if summary.fenced:
        sent = f"nothing is taken of {len(summary.fenced):,} of {summary.sources:,} sources"
    elif summary.connected:
        sent = (
            f"{summary.sent:,} sent, {summary.counted:,} settled by the root, {summary.left:,} waiting, "
            f"{summary.events_per_second:,.0f} events/s"
        )
    if summary.resumed is not None:
        return f"{summary.resumed:,} resumed from the spool, {sent}"
    return f"{summary.read:,} read, {summary.accepted:,} accepted, {sent}"


def as_json(summary: Summary) -> str:
    return json.dumps(asdict(summary))
