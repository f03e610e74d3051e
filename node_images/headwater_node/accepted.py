"""Which of the records that come to a child it has read: those are archived, and no others.

Columns wait here until the machine stands behind them. That is mostly in the same step; columns that the
machine cannot read yet come again, and are held once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from headwater.events import Batch
from headwater.machines.lane import cut
from headwater.machines.messages import Columns
from headwater.machines.sizes import of_columns
from headwater.prefix import NO_SKIPS
from headwater.progress import Source

# Bytes of columns that wait, of all sources.
HELD = 64 << 20


@dataclass(frozen=True, slots=True)
class Portion:
    """Records of a source that were read, and how it stood before them."""

    batch: Batch
    opening: str
    site: str
    lateness: int
    # The largest ts of the records before these, if it is known; what the root has raised it to is in it.
    largest: int | None
    # Numbers that were passed over because an operator had said so.
    skips: frozenset[int]


@dataclass(slots=True)
class _Held:
    opening: str
    # Up to where it was given away, and how the source stood there; None as long as that is not known.
    done: int | None = None
    largest: int | None = None
    skips: frozenset[int] = NO_SKIPS
    waiting: deque[Batch] = field(default_factory=deque)


class Accepted:
    """Columns as they came, until they are read."""

    def __init__(self, limit: int = HELD) -> None:
        self.bytes = 0
        # Records that were read, but not held any more.
        self.missed = 0
        self._limit = limit
        self._held: dict[str, _Held] = {}

    def came(self, message: Columns, sources: Mapping[str, Source]) -> None:
        """Columns that the machine gets next."""
        batch, name = message.batch, message.batch.source
        held = self._held.get(name)
        if held is None or held.opening != message.opening:
            if held is not None:
                self._let_go(held, len(held.waiting))
            held = self._held[name] = _Held(message.opening)
        source = sources.get(name)
        if source is not None and not held.waiting:
            # A source that has gone back reads again what is archived already.
            held.done = source.position if held.done is None else max(held.done, source.position)
            held.largest, held.skips = source.largest, source.skips
        reached = _high(held.waiting[-1]) if held.waiting else held.done or 0
        if _high(batch) > reached:
            held.waiting.append(batch)
            self.bytes += of_columns(batch)
            if self.bytes > self._limit:
                self._let_go(held, 1)

    def read(self, sources: Mapping[str, Source]) -> Iterator[Portion]:
        """What was read since the last look."""
        for name in [name for name, held in self._held.items() if held.waiting or name not in sources]:
            held, source = self._held[name], sources.get(name)
            if source is None:
                if not held.waiting:
                    del self._held[name]
            elif source.opening == held.opening:
                yield from self._read(held, source)

    def _read(self, held: _Held, source: Source) -> Iterator[Portion]:
        while held.waiting:
            batch = held.waiting[0]
            low, high = batch.first - 1, min(_high(batch), source.position)
            begin = low if held.done is None else max(low, held.done)
            if high <= begin:
                if source.position < _high(batch):
                    break
                self._let_go(held, 1)
                continue
            if held.done is not None and begin > held.done:
                self.missed += begin - held.done
            part = cut(batch, begin - low, high - low)
            yield Portion(part, held.opening, source.site, source.lateness, held.largest, held.skips)
            held.done = high
            if high == _high(batch):
                self._let_go(held, 1)
        if not held.waiting:
            held.largest, held.skips = source.largest, source.skips

    def _let_go(self, held: _Held, number: int) -> None:
        for _ in range(number):
            self.bytes -= of_columns(held.waiting.popleft())


def _high(batch: Batch) -> int:
    return batch.first - 1 + len(batch)
