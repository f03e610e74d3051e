"""What has come from below and cannot be taken yet: its source is not known, or there is no room.

It is kept in its order, up to a bound; what is beyond that is dropped, and comes again.
"""

from __future__ import annotations

from collections.abc import Callable

from headwater.machines.lane import size
from headwater.machines.messages import Columns, Delivery

DELIVERIES = 64


class Waiting:
    """Columns by their source, and batches."""

    def __init__(self, bound: int) -> None:
        """`bound` in bytes of columns."""
        self._bound, self._bytes = bound, 0
        self._columns: dict[str, dict[str, tuple[str, Columns]]] = {}
        self._deliveries: dict[str, tuple[str, Delivery]] = {}

    def has(self, source: str) -> bool:
        return source in self._columns

    def add(self, sender: str, message: Columns | Delivery) -> None:
        """Keep a message, once however often it comes."""
        if isinstance(message, Delivery):
            if len(self._deliveries) < DELIVERIES:
                self._deliveries[message.id] = (sender, message)
            return
        held = self._columns.get(message.batch.source, {})
        taken = size(message.batch)
        if message.id not in held and self._bytes + taken <= self._bound:
            self._columns.setdefault(message.batch.source, held)[message.id] = (sender, message)
            self._bytes += taken

    def take(self, is_known: Callable[[int, str], bool]) -> list[tuple[str, Columns | Delivery]]:
        """What is of sources that are known by now (by lane; -1: in all lanes), in order.

        What still cannot be taken is added again.
        """
        taken: list[tuple[str, Columns | Delivery]] = []
        for source in [source for source in self._columns if is_known(-1, source)]:
            held = self._columns.pop(source).values()
            self._bytes -= sum(size(message.batch) for _, message in held)
            taken += held
        for id, (sender, message) in list(self._deliveries.items()):
            if all(is_known(message.lane, name) for name in message.partial.vector):
                del self._deliveries[id]
                taken.append((sender, message))
        return taken

    def __bool__(self) -> bool:
        return bool(self._columns or self._deliveries)
