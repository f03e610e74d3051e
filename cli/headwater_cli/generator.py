"""Events as sensors would send them: keys, marks, some disorder, some late and some broken ones."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from math import ceil

from headwater.topology import Topology

SECOND = 1_000_000
START = 1_700_000_000 * SECOND
# The machines that readings are of.
KEYS = ("boiler", "capper", "chiller", "conveyor", "filler", "labeller", "mixer", "washer")
MARKS = ("begin", "end")
MARKS_A_SECOND = 6


@dataclass(frozen=True, slots=True)
class Columns:
    """A second of one source."""

    ts: list[int]
    value: list[float]
    key: list[int]
    mark: list[int]


@dataclass(frozen=True, slots=True)
class Sensor:
    name: str
    site: str
    rate: float
    lateness: int
    seed: int
    # How many events it sends at most; None: as many as there is time for.
    limit: int | None = None
    # The second of the run with which it begins.
    begin: int = 0
    # From which of its own seconds on it sends at another rate; it may change while it sends.
    changes: list[tuple[int, float]] = field(default_factory=list)

    def until(self, second: int) -> int:
        """How many events it has sent when so many seconds are over."""
        sent, since, rate = 0.0, 0, self.rate
        for at, other in self.changes:
            if at < second:
                sent, since, rate = sent + rate * (at - since), at, other
        return int(sent + rate * (second - since) + 1e-9)

    @property
    def latest_rate(self) -> float:
        return self.changes[-1][1] if self.changes else self.rate

    def seconds(self, count: int) -> Iterator[Columns]:
        """Its events, a second of event time after another."""
        rng = random.Random(self.seed)
        jobs, left = 0, self.limit
        for second in range(count):
            size = self.until(second + 1) - self.until(second)
            size = size if left is None else min(size, left)
            if left == 0:
                return
            left = None if left is None else left - size
            times = sorted(rng.randrange(SECOND) for _ in range(size))
            columns = Columns([], [], [], [])
            every = max(len(times) // MARKS_A_SECOND, 1)
            for place, offset in enumerate(times):
                ts = START + (self.begin + second) * SECOND + offset
                chance = rng.random()
                if chance < 0.002:
                    ts -= self.lateness + rng.randrange(SECOND)
                elif chance < 0.05:
                    ts -= rng.randrange(self.lateness + 1)
                value = rng.choice((round(rng.gauss(60, 15), 1), float(rng.randrange(100))))
                if rng.random() < 0.0005:
                    value = float("nan")
                columns.ts.append(ts)
                columns.value.append(value)
                columns.key.append(rng.randrange(len(KEYS)))
                columns.mark.append(jobs % 2 if place % every == 0 else -1)
                jobs += place % every == 0
            yield columns


def sensors(topology: Topology) -> list[Sensor]:
    """One for each source that the topology expects."""
    found: list[Sensor] = []
    for kind in topology.sources:
        for _ in range(kind.expected):
            name = f"{kind.name}-{kind.site}-{len(found)}"
            found.append(Sensor(name, kind.site, kind.rate, kind.lateness, len(found)))
    return found


def limited(sensors: Sequence[Sensor], events: int) -> list[Sensor]:
    """The sensors, so that they send that many events together, each by its rate."""
    total = sum(sensor.rate for sensor in sensors)
    found, sent, due = [], 0, 0.0
    for place, sensor in enumerate(sensors, 1):
        due += sensor.rate
        limit = (events if place == len(sensors) else int(events * (due / total))) - sent
        sent += limit
        found.append(replace(sensor, limit=limit))
    return found


def needed(sensors: Sequence[Sensor]) -> int:
    """How many seconds sensors with a limit need, at least one."""
    return max(1, *(_needed(sensor) for sensor in sensors))


def _needed(sensor: Sensor) -> int:
    seconds = ceil((sensor.limit or 0) / sensor.rate)
    # What a float makes of it may be one too few.
    return seconds if sensor.until(seconds) >= (sensor.limit or 0) else seconds + 1
