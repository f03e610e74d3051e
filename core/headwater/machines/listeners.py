"""Who wants to hear what the root has counted, and what they have been told."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from headwater.machines.messages import Probe, Stream
from headwater.machines.recent import Recent


@dataclass(slots=True)
class _Listener:
    stream: Stream
    interest: tuple[str, ...] = ()
    told: dict[str, int] = field(default_factory=dict)


class Listeners:
    """By name: the stream on which somebody below was last heard, and their sources."""

    def __init__(self, memory: int) -> None:
        """Whoever has not asked for `memory` microseconds is forgotten."""
        self._listeners: Recent[str, _Listener] = Recent(memory)

    def __len__(self) -> int:
        return len(self._listeners)

    def news(
        self, sender: str, probe: Probe, counted: Callable[[str], int | None], now: int
    ) -> dict[str, int]:
        """What somebody who asks has not been told yet; all of it, unless the question is brief."""
        held = self._listeners.get(sender)
        if held is None or held.stream != probe.stream:
            held = _Listener(probe.stream)
        self._listeners.put(sender, held, now)
        if not probe.brief:
            held.interest, held.told = probe.interest, {}
        return self._fresh(held, held.interest, counted)

    def all_news(
        self, names: Iterable[str], counted: Callable[[str], int | None]
    ) -> Iterable[tuple[str, Stream, Mapping[str, int]]]:
        """For each who has one of these sources alone: what is new."""
        for name in names:
            held = self._listeners.get(name)
            if held is not None and (fresh := self._fresh(held, held.interest, counted)):
                yield name, held.stream, fresh

    @staticmethod
    def _fresh(held: _Listener, names: Iterable[str], counted: Callable[[str], int | None]) -> dict[str, int]:
        fresh = {}
        for name in names:
            position = counted(name)
            if position is not None and position != held.told.get(name):
                fresh[name] = held.told[name] = position
        return fresh
