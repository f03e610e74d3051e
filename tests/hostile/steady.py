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

import numpy as np

from headwater.machines.source import Settings
from headwater_cli.feeds import beat
from headwater_source.client import SourceClient
from headwater_source.columns import Coded, Events
from headwater_source.spool import Spool
from headwater_wire.credentials import Credentials

NAME, SITE, LATENESS = "steady", "here", 1_000_000
KEYS = ("a", "b", "c")
ROWS = 100
# Behind everything, in microseconds.
LAST = 30_000 * 1_000_000


def part(number: int) -> Events:
    """Events in some disorder, some of them late."""
    rng = np.random.default_rng(number)
    late = np.where(rng.random(ROWS) < 0.1, rng.integers(0, 2 * LATENESS, ROWS), 0)
    ts = (number * ROWS + np.arange(ROWS)) * 1_000 - late
    key = Coded(rng.integers(0, 3, ROWS).astype(np.int32), KEYS)
    return Events(ts, rng.integers(-50, 50, ROWS).astype(float), key=key)


def append(spool: Spool, events: Events) -> None:
    key = events.key
    spool.append(
        events.ts,
        events.value,
        key=None if key is None else key.codes,
        keys=() if key is None else key.names,
        bare=events.bare,
    )


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
                append(spool, part(parts))
                parts += 1
                client.push()
                tell(False)
                await asyncio.sleep(0.05)
            append(spool, beat(LAST))
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
