"""What was of use lately: whatever nobody has renewed for long is forgotten."""

from __future__ import annotations

from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class Recent(Generic[K, V]):
    """A dictionary of what was put or renewed within `memory` microseconds of the caller's clock.

    What is older goes after three times that at the latest, when anything else is put; it costs nothing to
    look for it.
    """

    def __init__(self, memory: int) -> None:
        self._memory = memory
        self._young: dict[K, V] = {}
        self._old: dict[K, V] = {}
        self._turned: int | None = None

    def __len__(self) -> int:
        return len(self._young) + sum(key not in self._young for key in self._old)

    def get(self, key: K) -> V | None:
        found = self._young.get(key)
        return self._old.get(key) if found is None else found

    def put(self, key: K, value: V, now: int) -> None:
        """Keep a value, or renew it."""
        if self._turned is None or now - self._turned >= self._memory:
            # Nothing was put for so long that the young ones are old too.
            late = self._turned is not None and now - self._turned >= 2 * self._memory
            self._old, self._young, self._turned = {} if late else self._young, {}, now
        self._young[key] = value

    def pop(self, key: K) -> V | None:
        old = self._old.pop(key, None)
        return self._young.pop(key, old)
