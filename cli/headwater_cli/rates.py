"""How fast figures rise, of late."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

# Seconds that a rate is taken over.
RECENT = 2.0


class Rates:
    """Figures that rise, as they were said from time to time."""

    def __init__(self, recent: float = RECENT) -> None:
        self._recent = recent
        self._said: deque[tuple[float, Mapping[str, Any]]] = deque()

    def take(self, at: float, figures: Mapping[str, Any]) -> None:
        self._said.append((at, figures))
        while len(self._said) > 2 and self._said[1][0] <= at - self._recent:
            self._said.popleft()

    @property
    def full(self) -> bool:
        """Whether as much time is known as a rate is taken over."""
        return len(self._said) > 1 and self._said[-1][0] - self._said[0][0] >= self._recent - 1

    @property
    def since(self) -> float:
        """From when on what a rate is taken of was said."""
        return self._said[0][0] if self._said else 0.0

    def rate(self, name: str) -> float:
        """How much a figure rises a second."""
        if len(self._said) < 2:
            return 0.0
        (begin, first), (end, last) = self._said[0], self._said[-1]
        return float(max(last.get(name, 0) - first.get(name, 0), 0) / max(end - begin, 0.001))
