"""What has come from below and cannot be taken yet: its source is not known, or there is no room.

It is kept in its order, up to a bound and for some time; what is beyond that is dropped, and comes again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

from headwater.machines.messages import Columns, Delivery
from headwater.machines.sizes import of_columns, of_partial

# How many batches wait at most, and how many messages with columns of one sender.
DELIVERIES, OF_ONE = 64, 16


class _Columns(NamedTuple):
    sender: str
    message: Columns
    came: int


class _Delivery(NamedTuple):
    sender: str
    message: Delivery
    came: int
    bytes: int


class Waiting:
    """Columns by their source, and batches."""

    def __init__(self, bound: int, memory: int) -> None:
        """`bound` in bytes, of columns and of batches; nothing waits longer than `memory` microseconds."""
        self._bound, self._bytes, self._memory = bound, 0, memory
        self._batch_bytes = 0
        self._of: Counter[str] = Counter()
        self._columns: dict[str, dict[str, _Columns]] = {}
        self._deliveries: dict[str, _Delivery] = {}

    def has(self, source: str) -> bool:
        return source in self._columns

    def add(self, sender: str, message: Columns | Delivery, now: int) -> None:
        """Keep a message, once however often it comes."""
        if isinstance(message, Delivery):
            self._add_delivery(sender, message, now)
            return
        held = self._columns.get(message.batch.source, {})
        taken = of_columns(message.batch)
        fits = self._bytes + taken <= self._bound and self._of[sender] < OF_ONE
        if message.id not in held and fits:
            self._columns.setdefault(message.batch.source, held)[message.id] = _Columns(sender, message, now)
            self._bytes += taken
            self._of[sender] += 1

    def _add_delivery(self, sender: str, message: Delivery, now: int) -> None:
        before = self._deliveries.get(message.id)
        if before is not None:
            # It may come again on another stream, on which it is to be answered.
            self._deliveries[message.id] = _Delivery(sender, message, before.came, before.bytes)
            return
        taken = of_partial(message.partial)
        # One alone waits however large it is.
        fits = not self._deliveries or self._batch_bytes + taken <= self._bound
        if fits and len(self._deliveries) < DELIVERIES:
            self._deliveries[message.id] = _Delivery(sender, message, now, taken)
            self._batch_bytes += taken

    def take(self, is_known: Callable[[int, str], bool]) -> list[tuple[str, Columns | Delivery]]:
        """What is of sources that are known by now (by lane; -1: in all lanes), in order.

        What still cannot be taken is added again.
        """
        taken: list[tuple[str, Columns | Delivery]] = []
        for source in [source for source in self._columns if is_known(-1, source)]:
            taken += [(held.sender, held.message) for held in self._drop(source)]
        for id, held in list(self._deliveries.items()):
            if all(is_known(held.message.lane, name) for name in held.message.partial.vector):
                self._drop_delivery(id)
                taken.append((held.sender, held.message))
        return taken

    def _drop(self, source: str) -> list[_Columns]:
        held = list(self._columns.pop(source).values())
        self._bytes -= sum(of_columns(each.message.batch) for each in held)
        self._of -= Counter(each.sender for each in held)
        return held

    def _drop_delivery(self, id: str) -> None:
        self._batch_bytes -= self._deliveries.pop(id).bytes

    def forget(self, now: int) -> None:
        """Drop what has waited for too long: nobody may ever know its source, and others need the room."""
        for source, held in list(self._columns.items()):
            if any(now - each.came > self._memory for each in held.values()):
                self._drop(source)
        for id, each in list(self._deliveries.items()):
            if now - each.came > self._memory:
                self._drop_delivery(id)

    def __bool__(self) -> bool:
        return bool(self._columns or self._deliveries)
