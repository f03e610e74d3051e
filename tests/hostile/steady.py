"""A source that behaves, as a process: it sends on and on until SIGTERM, then waits until all is counted.

It writes how far it is to a file; what it sends follows from the number of parts alone.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from pathlib import Path

from headwater.machines.source import Settings
from headwater_cli.feeds import beat
from headwater_source.client import SourceClient
from headwater_source.columns import Events
from headwater_source.spool import Spool
from headwater_wire.credentials import Credentials
from tests import spools

NAME, SITE, LATENESS = "steady", "here", spools.LATENESS
ROWS = 100
# Behind everything, in microseconds.
LAST = 30_000 * 1_000_000


def part(number: int) -> Events:
    return spools.disordered(number, number * ROWS, ROWS)


async def run(directory: Path, to: str, child: str, credentials: Credentials | None) -> None:
    stopping = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)
    parts = 0

    def tell(done: bool) -> None:
        said = json.dumps({"parts": parts, "counted": spool.counted, "done": done})
        written = directory / "progress.tmp"
        written.write_text(said)
        os.replace(written, directory / "progress")

    with Spool.open(directory / "spool", limit_bytes=64 << 20) as spool:
        client = SourceClient(NAME, child, spool, Settings(SITE, LATENESS, rows=500), credentials)
        client.start(to)
        try:
            while not stopping.is_set():
                spools.append(spool, part(parts))
                parts += 1
                client.push()
                tell(False)
                await asyncio.sleep(0.05)
            spools.append(spool, beat(LAST))
            while not client.done:
                client.push()
                await asyncio.sleep(0.05)
            tell(True)
        finally:
            await client.stop()


def main() -> None:
    directory, to, child, *tls = sys.argv[1:]
    print(json.dumps({"port": 0}), flush=True)
    asyncio.run(run(Path(directory), to, child, Credentials(*map(Path, tls)) if tls else None))


if __name__ == "__main__":
    main()
