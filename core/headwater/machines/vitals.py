"""Signs of life of nodes at the root: when each was last heard, its rate, and what it says of its sources.

All of it is of this process alone: nothing here is logged, and no decision about results depends on it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from headwater.machines.messages import Register
from headwater.machines.stalls import Stall

# Over how long a rate is measured at least, and how old a report of a child may be, in microseconds.
SPAN, FRESH = 5_000_000, 10_000_000
# A time that is reported anew and differs by less is taken for the same one: messages do not arrive evenly.
JITTER = 2_000_000


@dataclass(frozen=True, slots=True)
class Report:
    """A stall as a child has reported it, at `at`; the times are of the root's clock."""

    stall: Stall
    at: int
    # When the source was last heard, and when it is declared idle if it stays silent.
    since: int
    idle_at: int | None


@dataclass(slots=True)
class Rate:
    """Items a second, over spans of at least `SPAN`, by a count that never falls within one process."""

    value: float | None = None
    _at: int | None = None
    _items: int = 0

    def measure(self, items: int, now: int) -> None:
        if self._at is None or items < self._items:
            # Another process, or the first time.
            self._at, self._items, self.value = now, items, None
        elif now - self._at >= SPAN:
            self.value = (items - self._items) * 1e6 / (now - self._at)
            self._at, self._items = now, items


@dataclass(slots=True)
class _Node:
    heard: int
    rate: Rate = field(default_factory=Rate)
    reports: dict[str, Report] = field(default_factory=dict)


class Vitals:
    """By the names of nodes."""

    def __init__(self) -> None:
        self._nodes: dict[str, _Node] = {}

    def hear(self, node: str, now: int) -> None:
        """A member has said something."""
        found = self._nodes.get(node)
        if found is None:
            self._nodes[node] = _Node(now)
        else:
            found.heard = now

    def take(self, message: Register, now: int) -> None:
        """Take what a node says of itself."""
        self.hear(message.node, now)
        node = self._nodes[message.node]
        if message.items or node.rate.value is not None:
            # Nodes of earlier releases do not say how many they take.
            node.rate.measure(message.items, now)
        node.reports = {
            stall.source: _report(stall, node.reports.get(stall.source), now) for stall in message.stalls
        }

    def heard(self, node: str) -> int | None:
        """When a node was last heard; None: not by this process."""
        found = self._nodes.get(node)
        return None if found is None else found.heard

    def rate(self, node: str) -> float | None:
        """Items a second that a node takes, as measured; None: not known yet."""
        found = self._nodes.get(node)
        return None if found is None else found.rate.value

    def report(self, node: str, source: str, now: int) -> Report | None:
        """What a child said of a source last, unless that is old."""
        found = self._nodes.get(node)
        report = None if found is None else found.reports.get(source)
        return report if report is not None and now - report.at <= FRESH else None


def _report(stall: Stall, before: Report | None, now: int) -> Report:
    since = now - stall.quiet
    idle_at = None if stall.idle_in is None else now + stall.idle_in
    if before is not None:
        if abs(before.since - since) < JITTER:
            since = before.since
        if idle_at is not None and before.idle_at is not None and abs(before.idle_at - idle_at) < JITTER:
            idle_at = before.idle_at
    return Report(stall, now, since, idle_at)
