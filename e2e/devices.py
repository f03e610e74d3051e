"""Devices: sources that send at a pace what follows from their numbers alone, until all of it is counted.

    python3 devices.py ADDRESS --count 4 --rate 10 --events 300 --site hall-1 --lateness 1

It runs in a pod, from an archive of the packages that it needs; a test that knows the same numbers knows
every event. Without --events they send until there is a file `enough` in their directory. It prints a line a
second, with how many events each device has sent and how many of them the root has counted, and ends when the
root has counted everything.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from dataclasses import dataclass
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
DIRECTORY = "/tmp/spools"
# In their directory: whoever makes it has seen enough.
ENOUGH = "enough"


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


@dataclass(slots=True, eq=False)
class Device:
    number: int
    client: SourceClient
    spool: Spool
    sent: int = 0

    async def send(self, rate: float, events: int | None, enough: Path) -> None:
        begin, step = time.monotonic(), max(1, round(rate / 4))
        while not enough.exists() if events is None else self.sent < events:
            # By the clock: whoever was held up makes up for it.
            count = max(step, int((time.monotonic() - begin) * rate) - self.sent)
            if events is not None:
                count = min(count, events - self.sent)
            append(self.spool, events_of(self.number, self.sent, count, rate))
            self.sent += count
            self.client.push()
            await asyncio.sleep(max(0.0, begin + self.sent / rate - time.monotonic()))
        append(self.spool, closing())
        self.client.push()


def _device(number: int, given: argparse.Namespace) -> Device:
    spool = Spool.open(Path(given.directory) / name_of(number), limit_bytes=64 << 20)
    settings = Settings(given.site, int(given.lateness * SECOND))
    client = SourceClient(name_of(number), None, spool, settings)
    client.start(given.address)
    return Device(number, client, spool)


async def _report(devices: dict[Device, asyncio.Task[None]], interval: float) -> None:
    while True:
        await asyncio.sleep(interval)
        for device, task in devices.items():
            if task.done():
                task.result()
            if device.client.failed is not None:
                raise device.client.failed
        ended = [device for device, task in devices.items() if task.done()]
        counted = sum(device.client.done for device in ended)
        told = {
            "devices": len(devices),
            "sent": len(ended),
            "counted": counted,
            "events": [device.sent for device in devices],
            "settled": [device.spool.counted for device in devices],
            "waits": sorted({device.client.wait or "" for device in devices} - {""}),
            # Where they were sent to, or still are where they began.
            "at": sorted({device.client.exchange.uplink.address for device in ended}),
        }
        print(json.dumps(told), flush=True)
        if counted == len(devices):
            return


async def run(given: argparse.Namespace) -> None:
    devices: dict[Device, asyncio.Task[None]] = {}
    enough = Path(given.directory) / ENOUGH
    for number in range(given.first, given.first + given.count):
        device = _device(number, given)
        devices[device] = asyncio.create_task(device.send(given.rate, given.events, enough))
        # Not all at the same moment, as devices do.
        await asyncio.sleep(0.01)
    try:
        await _report(devices, given.report_every)
    finally:
        for device, task in devices.items():
            task.cancel()
            await device.client.stop()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("address")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, default=1)
    parser.add_argument("--rate", type=float, default=10.0)
    parser.add_argument("--events", type=int, default=None, help="of each; until it is enough")
    parser.add_argument("--site", default="hall-1")
    parser.add_argument("--lateness", type=float, default=1.0)
    parser.add_argument("--directory", default=DIRECTORY)
    parser.add_argument("--report-every", type=float, default=1.0, help="seconds between two lines")
    asyncio.run(run(parser.parse_args()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
