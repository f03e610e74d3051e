"""A limit on what a node takes: what comes too fast waits, and with it whoever sends it."""

from __future__ import annotations

from collections import OrderedDict

from headwater.durations import SECOND
from headwater.machines.messages import Columns, Delivery
from headwater.machines.sizes import rows

Taken = Columns | Delivery
# As many messages wait at most; whoever sent others says them again.
WAITING = 256
# How far it may be behind with what it could have taken, in microseconds.
SLACK = SECOND // 10


def items(message: Taken) -> int:
    """Events of a source, or rows of a batch; a message is one item at least."""
    found = len(message.batch) if isinstance(message, Columns) else rows(message.partial)
    return max(found, 1)


class Pace:
    """So many items a second: one message may go beyond it, and the next one waits for that."""

    def __init__(self, limit: float) -> None:
        self.limit = limit
        # Until when what was taken keeps the node busy, by the caller's clock in microseconds.
        self._busy = 0
        self._waiting: OrderedDict[tuple[str, str], tuple[str, Taken]] = OrderedDict()
        # How many messages had to wait, and were not kept.
        self.held = self.dropped = 0

    def takes(self, sender: str, message: Taken, now: int) -> bool:
        """Whether a message may be taken at once; otherwise it waits here."""
        if self._waiting or self._busy > now:
            place = (sender, message.id)
            self.held += place not in self._waiting
            if place not in self._waiting and len(self._waiting) >= WAITING:
                self.dropped += 1
            else:
                # What is said again takes the place of what was said before.
                self._waiting[place] = (sender, message)
            return False
        self._take(message, now)
        return True

    def due(self, now: int) -> tuple[str, Taken] | None:
        """The next one that waited, once there is time for it."""
        if not self._waiting or self._busy > now:
            return None
        _, found = self._waiting.popitem(last=False)
        self._take(found[1], now)
        return found

    def _take(self, message: Taken, now: int) -> None:
        # What it could have taken a moment ago it may take now: nobody looks all the time.
        self._busy = max(self._busy, now - SLACK) + int(items(message) * SECOND / self.limit)

    @property
    def waiting(self) -> int:
        return len(self._waiting)
