"""Devices: sources that send at a pace what follows from their numbers alone, until all of it is counted.

    python3 devices.py ADDRESS --count 4 --rate 10 --events 300 --site hall-1 --lateness 1

It runs in a pod, from an archive of the packages that it needs; a test that knows the same numbers knows
every event. It prints a line a second, and ends when the root has counted everything.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from pathlib import Path

import numpy as np

from headwater.machines.source import Settings
from headwater_source.client import SourceClient
from headwater_source.columns import Coded, Events
from headwater_source.spool import Spool

SECOND = 1_000_000
BEGIN = 1_700_000_000 * SECOND
KEYS = ("a", "b", "c")
# Behind everything, so that all windows close.
END = BEGIN + 86_400 * SECOND


def name_of(number: int) -> str:
    return f"device-{number}"


def events_of(number: int, first: int, count: int, rate: float) -> Events:
    """Events of a device from the `first` one on: some a little earlier than those before them, none late."""
    places = np.arange(first, first + count)
    early = np.where(places % 7 == 3, 300_000, 0)
    ts = BEGIN + (places * SECOND / rate).astype(np.int64) + number * 1_001 - early
    value = ((places * 7_919 + number * 104_729) % 1_000).astype(float) / 8
    key = Coded(((places + number) % len(KEYS)).astype(np.int32), KEYS)
    return Events(ts, value, key=key)


def closing() -> Events:
    """A heartbeat behind everything."""
    return Events(np.array([END]), np.array([np.nan]), bare=np.array([True]))


def append(spool: Spool, events: Events) -> None:
    key = events.key
    spool.append(
        events.ts,
        events.value,
        key=None if key is None else key.codes,
        keys=() if key is None else key.names,
        bare=events.bare,
    )


async def _device(number: int, given: argparse.Namespace) -> SourceClient:
    spool = Spool.open(Path(given.directory) / name_of(number), limit_bytes=64 << 20)
    settings = Settings(given.site, int(given.lateness * SECOND))
    client = SourceClient(name_of(number), None, spool, settings)
    client.start(given.address)
    sent, step = 0, max(1, round(given.rate / 4))
    while sent < given.events:
        count = min(step, given.events - sent)
        append(spool, events_of(number, sent, count, given.rate))
        sent += count
        client.push()
        await asyncio.sleep(count / given.rate)
    append(spool, closing())
    client.push()
    return client


async def _told(clients: list[asyncio.Task[SourceClient]]) -> None:
    while True:
        await asyncio.sleep(1)
        ended = [task.result() for task in clients if task.done()]
        counted = sum(client.done for client in ended)
        # Where they were sent to, or still are where they began.
        at = sorted({client.exchange.uplink.address for client in ended})
        told = {"devices": len(clients), "sent": len(ended), "counted": counted, "at": at}
        print(json.dumps(told), flush=True)
        for client in ended:
            if client.failed is not None:
                raise client.failed
        if counted == len(clients):
            return


async def run(given: argparse.Namespace) -> None:
    tasks = []
    for number in range(given.first, given.first + given.count):
        tasks.append(asyncio.create_task(_device(number, given)))
        # Not all at the same moment, as devices do.
        await asyncio.sleep(0.01)
    try:
        await _told(tasks)
    finally:
        for task in tasks:
            if task.done() and task.exception() is None:
                await task.result().stop()
            task.cancel()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("address")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, default=1)
    parser.add_argument("--rate", type=float, default=10.0)
    parser.add_argument("--events", type=int, default=100)
    parser.add_argument("--site", default="hall-1")
    parser.add_argument("--lateness", type=float, default=1.0)
    parser.add_argument("--directory", default="/tmp/spools")
    asyncio.run(run(parser.parse_args()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
