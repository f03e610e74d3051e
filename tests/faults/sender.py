"""A source as a program: `python -m tests.faults.sender NAME ADDRESS DIRECTORY START SPOOL_BYTES`.

It appends to its spool at the rate that it is asked for, and goes on where the spool ends when it is started
again. Asked to end it says a last heartbeat, waits until everything is counted, and ends with code 0.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from time import monotonic

from headwater_source import Source
from headwater_wire import failpoints, logs
from tests.faults import load
from tests.faults.load import CHUNK, LATENESS, Desk

TELL = 0.05
# What is made up for after a wait, in seconds: not all of it, or every wait would end in a burst.
BEHIND = 0.5


async def send(name: str, address: str, directory: Path, start: int, spool_bytes: int) -> None:
    desk = Desk(directory)
    async with Source(
        name, address, spool=directory / "spool", site="here", lateness=LATENESS, spool_bytes=spool_bytes
    ) as source:
        telling = asyncio.create_task(_tell(source, desk))
        if desk.count is None:
            await _live(source, desk, start)
        count = desk.count
        assert count is not None
        if source.accepted == count:
            await source.heartbeat(load.last_beat(start, count))
        await source.flush()
        telling.cancel()
        await asyncio.gather(telling, return_exceptions=True)
        desk.tell(source.accepted, source.counted)


async def _live(source: Source, desk: Desk, start: int) -> None:
    due = monotonic()
    while True:
        rate, end = desk.asked
        if end:
            desk.close(source.accepted)
            return
        await source.append(load.events(source.name, start, source.accepted + 1, CHUNK))
        due = max(due + CHUNK / rate, monotonic() - BEHIND)
        await asyncio.sleep(max(due - monotonic(), 0))


async def _tell(source: Source, desk: Desk) -> None:
    while True:
        desk.tell(source.accepted, source.counted)
        await asyncio.sleep(TELL)


def main() -> None:
    logs.configure("sender", os.environ)
    failpoints.arm(os.environ)
    name, address, directory, start, spool_bytes = sys.argv[1:]
    asyncio.run(send(name, address, Path(directory), int(start), int(spool_bytes)))


if __name__ == "__main__":
    main()
