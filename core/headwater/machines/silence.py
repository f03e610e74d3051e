"""Of whom a child has heard nothing for long (protocol, rule 14)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator


class Silence:
    """The sources that the log says are read here, and when each was last heard of."""

    def __init__(self, bound: int) -> None:
        """`bound` in microseconds of the caller's clock."""
        self._bound = bound
        self._heard: dict[str, int] = {}

    @property
    def assigned(self) -> Collection[str]:
        return self._heard.keys()

    def assign(self, sources: Iterable[str], now: int) -> None:
        """Read these from now on; the silence of others than before counts from here on."""
        self._heard = {name: self._heard.get(name, now) for name in sources}

    def heard(self, name: str, now: int) -> None:
        if name in self._heard:
            self._heard[name] = now

    def spell(self, name: str, now: int) -> tuple[int, int]:
        """For how long nothing was heard of a source, and how much longer that may last."""
        quiet = now - self._heard.get(name, now)
        return quiet, max(self._bound - quiet, 0)

    def quiet(self, now: int) -> Iterator[str]:
        """Those of whom nothing was heard for long, counted from the start here if they never came."""
        return (name for name, heard in self._heard.items() if now - heard > self._bound)
