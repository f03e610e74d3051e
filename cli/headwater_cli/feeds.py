"""What sources send: generated, or read from somewhere and kept, so that it can be compared afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from math import ceil
from typing import Protocol

import numpy as np

from headwater_cli.generator import KEYS, MARKS, SECOND, START, Columns, Sensor
from headwater_cli.heartbeats import AFTER
from headwater_source.columns import Coded, Events

# How many seconds of a sensor are made before they come again, if it sends once a second.
PERIOD = 10


class Feed(Protocol):
    """One source and all its events, which it gives as often as it is asked."""

    @property
    def name(self) -> str: ...

    @property
    def site(self) -> str: ...

    @property
    def lateness(self) -> int: ...

    def parts(self) -> Iterator[Events]: ...


@dataclass(slots=True)
class Generated:
    """A sensor for some seconds: a part a second, then a heartbeat `after` microseconds behind everything.

    It may be ended before its time, while its parts are given.
    """

    sensor: Sensor
    seconds: int
    after: int = AFTER

    @property
    def name(self) -> str:
        return self.sensor.name

    @property
    def site(self) -> str:
        return self.sensor.site

    @property
    def lateness(self) -> int:
        return self.sensor.lateness

    def parts(self) -> Iterator[Events]:
        for number, second in enumerate(self.sensor.seconds(self.seconds), start=1):
            yield events_of(second)
            if number >= self.seconds:
                break
        yield self._last_beat(self.seconds)

    def _last_beat(self, seconds: int) -> Events:
        return beat(START + (self.sensor.begin + seconds) * SECOND + self.after)


@dataclass(slots=True)
class Repeated(Generated):
    """A sensor whose first seconds come again and again, later each time: made at no cost, so that whoever
    takes them is what is measured."""

    def parts(self) -> Iterator[Events]:
        # So long that a whole number of events comes in it, or enough of them.
        period = PERIOD * max(1, ceil(1 / self.sensor.rate))
        first = [events_of(second) for second in self.sensor.seconds(period)]
        number = 0
        while number < self.seconds:
            part, later = first[number % period], number // period * period * SECOND
            yield Events(part.ts + later, part.value, key=part.key, mark=part.mark)
            number += 1
        yield self._last_beat(number)


@dataclass(slots=True)
class Kept:
    """A source whose events were read, and are kept."""

    name: str
    site: str
    lateness: int
    kept: list[Events] = field(default_factory=list)

    def parts(self) -> Iterator[Events]:
        return iter(self.kept)


@dataclass(frozen=True, slots=True)
class Cut:
    """The first records of a source: those that were read of it."""

    feed: Feed
    records: int

    @property
    def name(self) -> str:
        return self.feed.name

    @property
    def site(self) -> str:
        return self.feed.site

    @property
    def lateness(self) -> int:
        return self.feed.lateness

    def parts(self) -> Iterator[Events]:
        left = self.records
        for part in self.feed.parts():
            if left <= 0:
                return
            yield part if len(part) <= left else part.part(slice(left))
            left -= len(part)


def events_of(second: Columns) -> Events:
    return Events(
        np.array(second.ts, np.int64),
        np.array(second.value, np.float64),
        key=Coded(np.array(second.key, np.int32), KEYS),
        mark=Coded(np.array(second.mark, np.int32), MARKS),
    )


def beat(ts: int) -> Events:
    """A heartbeat."""
    return Events(np.array([ts], np.int64), np.array([np.nan]), np.array([True]))
