"""A source for programs: give it events, it keeps them on disk and sends them until they are counted."""

from __future__ import annotations

import asyncio
import logging
import os
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any

from headwater.durations import Duration, microseconds
from headwater.errors import InvalidSource, Problem
from headwater.machines.source import Settings
from headwater.sources import source_name_problem
from headwater.timeunits import TimeUnit
from headwater_source import arguments, keys, origin
from headwater_source.answers import KeyAnswer, find_answer
from headwater_source.client import SourceClient
from headwater_source.columns import Events
from headwater_source.keys import MissingKeys
from headwater_source.origin import Beginning, Origin
from headwater_source.spool import BLOCK_LIMIT, Spool, SpoolFull
from headwater_wire.credentials import Credentials

log = logging.getLogger(__name__)
SPOOL_BYTES = 1 << 30
# At most so many events are made durable by one fsync.
ROWS = 50_000
_PAUSE = 0.02


class Source:
    """A source by its name, as an async context.

        async with Source("boiler-7", "10.0.0.4:7070", lateness="2s") as source:
            await source.send(ts, values, keys=keys)
            await source.flush()

    What `send` has returned from is on disk and will be counted once, whatever crashes. Leaving the context
    does not wait: what is not counted yet stays in the spool, and goes on when the source is opened again.
    """

    def __init__(
        self,
        name: str,
        address: str,
        *,
        spool: str | os.PathLike[str] | None = None,
        site: str | None = None,
        lateness: Duration | None = None,
        spool_bytes: int = SPOOL_BYTES,
        child: str | None = None,
        credentials: Credentials | None = None,
        without_keys: bool = False,
    ) -> None:
        """`address` is that of a child, or of several with commas between them; `spool` a directory of this
        source alone, by default one below the user's state directory. Site and lateness are kept with the
        spool. With credentials the child's certificate has to bear the name `child`, or its address if none
        is given. `without_keys`: accept events without a key although queries compute by one; they count
        under one empty key."""
        problems = []
        if wrong := source_name_problem(name):
            problems.append(Problem("name", *wrong))
        try:
            self._lateness = None if lateness is None else microseconds(lateness)
        except ValueError as error:
            problems.append(Problem("lateness", str(error), "give a duration such as 2s"))
        else:
            if self._lateness is not None and self._lateness < 0:
                problems.append(Problem("lateness", "is negative", "give 0s or more"))
        if not address or not isinstance(address, str):
            problems.append(Problem("address", f"is {address!r}", "give HOST:PORT of a child"))
        if problems:
            raise InvalidSource(f"the source {name!r} cannot be opened", problems)
        self.name, self.address, self._site = name, address, site
        self.directory = Path(spool) if spool else origin.spools() / origin.directory_name(name)
        self._spool_bytes, self._child, self._credentials = spool_bytes, child, credentials
        self.without_keys = self._is_one_key_meant = without_keys
        self._spool: Spool | None = None
        self._client: SourceClient | None = None
        self._origin = Origin(name)
        # Whether the first times were seen to be in their unit.
        self._has_judged_times = False
        # What the root says about keys, as this or another source of the process has heard it.
        self._answer: KeyAnswer | None = None
        # Whether values without a key were accepted before the source was opened, without an answer of the
        # root; whether there are such of whenever; and whether that was logged.
        self._has_inherited = self._has_unkeyed = self._has_logged = False
        # Events of one call have numbers that follow each other.
        self._appending = asyncio.Lock()

    async def __aenter__(self) -> Source:
        self.open()
        self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def open(self) -> None:
        """Open the spool; nothing is sent before `start`."""
        self._spool = Spool.open(self.directory, limit_bytes=self._spool_bytes)
        try:
            found = origin.read(self.directory, self.name)
            if found is None:
                # What a spool holds of which nothing is known was accepted as it came.
                found = Origin(self.name, keys="optional" if self._spool.head else "none")
            settled = found.settled(self._spool.head)
            self._origin = replace(
                settled,
                site=settled.site if self._site is None else self._site,
                lateness=settled.lateness if self._lateness is None else self._lateness,
                unanswered=settled.unanswered and not self._is_one_key_meant,
            )
            self._has_inherited = self._has_unkeyed = self._origin.unanswered
            if self._origin != found or not (self.directory / "origin.json").exists():
                origin.write(self.directory, self._origin)
        except BaseException:
            self._spool.close()
            raise

    def start(self) -> SourceClient:
        """Begin to send."""
        settings = Settings(self._origin.site, self._origin.lateness)
        self._answer = find_answer(self.address)
        self._client = SourceClient(
            self.name, self._child, self.spool, settings, self._credentials, self._answer
        )
        self._client.start(self.address)
        return self._client

    async def close(self) -> None:
        try:
            if self._client is not None:
                await self._client.stop()
                self._note_keys()
                if self.counted != self._origin.counted and self.connected:
                    # Without it more is said to wait than does, and nothing else.
                    with suppress(OSError):
                        self._keep(replace(self._origin, counted=self.counted))
        finally:
            if self._spool is not None:
                self._spool.close()
            self._client = self._answer = None

    # What is known

    @property
    def spool(self) -> Spool:
        if self._spool is None:
            raise InvalidSource(
                f"the source {self.name!r} cannot be used",
                [Problem("source", "is not open", "use it in `async with`")],
            )
        return self._spool

    @property
    def site(self) -> str:
        return self._origin.site

    @property
    def lateness(self) -> int:
        return self._origin.lateness

    @property
    def accepted(self) -> int:
        """Records that are on disk, since the spool was made."""
        return self.spool.head

    @property
    def sent(self) -> int:
        """Up to this number they were sent since it was opened."""
        return 0 if self._client is None else self._client.sent

    @property
    def counted(self) -> int:
        """Of these, how many the root has counted for good."""
        return self.spool.head if self.done else self.spool.counted

    @property
    def counted_before(self) -> int:
        """Up to which number the root is known to have counted them before the source was opened."""
        return min(max(self._origin.counted, self.spool.base), self.spool.head)

    @property
    def done(self) -> bool:
        """Whether the root has counted everything."""
        return self._client is not None and self._client.done

    @property
    def connected(self) -> bool:
        """Whether the root has taken this source in."""
        return self._client is not None and self._client.machine.source is not None

    @property
    def fenced(self) -> str | None:
        """Why the root does not take what it has, if so: nothing is sent until that is over."""
        return None if self._client is None else self._client.machine.fenced

    @property
    def problem(self) -> str | None:
        """Why no child can be reached, if so."""
        return None if self._client is None else self._client.exchange.uplink.problem

    @property
    def wait(self) -> str | None:
        """What it waits for, whom it has tried and what they answered, after 5 s without progress."""
        return None if self._client is None else self._client.wait

    @property
    def warning(self) -> str | None:
        """That queries compute by key, but events without one were accepted and none has had one, or not
        before the source was opened again."""
        if not (self._has_unkeyed and self._key_by):
            return None
        if self._origin.keys == "some":
            return f"{keys.queries_of(self._key_by)}, but {keys.UNANSWERED}" if self._has_inherited else None
        why = f"{keys.queries_of(self._key_by)}, but {keys.EMPTY_KEY}: all of them count under one empty key"
        return f"{why}; what follows without a key is refused" if self._origin.keys == "none" else why

    @property
    def _key_by(self) -> str | None:
        """The column by which queries compute, as the root has told this source, or else another one."""
        if self._heard_key_by is not None:
            return self._heard_key_by
        return None if self._answer is None else self._answer.key_by

    @property
    def _heard_key_by(self) -> str | None:
        return None if self._client is None else self._client.machine.key_by

    # Events

    async def send(
        self,
        ts: Any,
        values: Any = None,
        *,
        keys: Any = None,
        marks: Any = None,
        unit: TimeUnit | None = None,
    ) -> range:
        """Accept events; gives their numbers. While the spool is full it waits.

        `ts` is one time or many: numbers since the epoch, datetimes or ISO 8601 text with a zone, or
        datetime64 in UTC. Numbers are of `unit` (s, ms, us, ns). Without one they are microseconds, and the
        first ones of a source are refused if they look like another unit.
        `values`, `keys` and `marks` are as long, or one for all, or None; within them None is none.
        Where queries compute by key, values without a key are refused as long as no event has had one. Until
        the root has said whether they do, such values wait, at most 5 s since the start of the first source.
        """
        events = arguments.events(
            self.name, ts, values, keys, marks, unit=unit, judge=not self._has_judged_times
        )
        self._has_judged_times = self._has_judged_times or bool(len(events))
        return await self.append(events)

    async def heartbeat(self, ts: Any, *, unit: TimeUnit | None = None) -> range:
        """Nothing will come that is older than that, less the lateness: so windows close."""
        return await self.send(ts, unit=unit)

    async def append(self, events: Events) -> range:
        """Accept columns of events, all of them as this source's."""
        # A block may take half the spool; the rest is for headers.
        limit = min(BLOCK_LIMIT, self.spool.limit_bytes // 4) - 1_024
        self._raise_if_failed()
        async with self._appending:
            await self._check_keys(events)
            first = self.spool.head + 1
            for piece in events.pieces(limit, ROWS):
                await self._append(piece)
                if self._client is not None:
                    self._client.push()
                # What has come from the child is taken in between.
                await asyncio.sleep(0)
            return range(first, self.spool.head + 1)

    async def _check_keys(self, events: Events) -> None:
        """Refuse events without a key where queries compute by one, if no event has ever had one.

        A source that was accepted without keys before such a query was added goes on, with a warning.
        """
        if self._origin.keys == "some":
            return
        if keys.has_key(events):
            self._keep(replace(self._origin, keys="some"))
        elif keys.has_values(events) and not self.without_keys:
            if self._origin.keys == "none":
                await self._wait_for_root()
                if self._key_by:
                    self._note_keys()
                    raise MissingKeys(self.name, self._key_by)
                if self._heard_key_by is None and not self._origin.unanswered:
                    self._keep(replace(self._origin, unanswered=True))
            self._has_unkeyed = True
            self._note_keys()

    async def _wait_for_root(self) -> None:
        """Give the root time to say by which key queries compute; without an answer events are accepted.

        A connection that fails is no answer: it may be there a moment later.
        """
        while not (self._answer is None or self._answer.is_overdue):
            if self.connected or self._key_by is not None:
                return
            await asyncio.sleep(_PAUSE)
            self._raise_if_failed()

    def _note_keys(self) -> None:
        """Remember that no key was needed, so that a query that is added later does not stop this source."""
        found = self._origin
        if self._heard_key_by == "":
            is_first = self._has_unkeyed and found.keys == "none"
            found = replace(found, keys="optional" if is_first else found.keys, unanswered=False)
        elif self._heard_key_by and self.done:
            # Everything is counted, and the warning is out.
            found = replace(found, unanswered=False)
        if found != self._origin:
            self._keep(found)
        if self.warning is not None and not self._has_logged:
            self._has_logged = True
            log.warning("events without a key", extra={"source": self.name, "problem": self.warning})

    async def _append(self, piece: Events) -> None:
        key, mark = piece.key, piece.mark
        while True:
            try:
                self.spool.append(
                    piece.ts,
                    piece.value,
                    key=None if key is None else key.codes,
                    keys=() if key is None else key.names,
                    mark=None if mark is None else mark.codes,
                    marks=() if mark is None else mark.names,
                    bare=piece.bare,
                )
                return
            except SpoolFull:
                # Whoever reads waits, until the root has counted more; it never will if sending has failed.
                self._raise_if_failed()
                await asyncio.sleep(_PAUSE)

    async def flush(self) -> None:
        """Wait until the root has counted everything for good; bound it with `asyncio.timeout`."""
        while not self.done:
            self._raise_if_failed()
            await asyncio.sleep(_PAUSE)
        self._note_keys()

    def _raise_if_failed(self) -> None:
        if self._client is not None and self._client.failed is not None:
            raise self._client.failed

    # Inputs

    def begin(self, path: str | os.PathLike[str], *, again: bool = False) -> int:
        """Records that follow are those of this file; gives how many of it were accepted before.

        The caller leaves these out. `again`: what was accepted before does not count.
        """
        beginning = Beginning.of(path)
        if beginning is None:
            return 0
        known = None if again else self._origin.known(path)
        accepted = 0 if known is None else known.accepted
        self._keep(self._origin.begun(beginning, self.spool.head, accepted))
        return accepted

    def end(self, path: str | os.PathLike[str], offset: int | None = None) -> None:
        """What follows is of no input. `offset`: behind it something is wrong, and may be mended."""
        if not self._origin.inputs or self._origin.inputs[-1].head is None:
            return
        found = self._origin if offset is None else self._origin.shortened(path, offset)
        self._keep(found.settled(self.spool.head))

    def _keep(self, found: Origin) -> None:
        origin.write(self.directory, found)
        self._origin = found
