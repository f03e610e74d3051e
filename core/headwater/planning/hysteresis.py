"""Wider at once, narrower only when it has held for a while: what comes and goes moves nothing."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence


class Hysteresis:
    """Remembers which widths were needed; times are microseconds of any clock that does not go back."""

    def __init__(self, scale_down_after: int) -> None:
        self.scale_down_after = scale_down_after
        self._needed: deque[tuple[int, tuple[int, ...]]] = deque()
        self._since: int | None = None

    def widths(self, now: int, needed: Sequence[int], current: Sequence[int]) -> list[int]:
        """The widths to have. Less than now only where less was needed all the while."""
        if self._since is None:
            self._since = now
        self._needed.append((now, tuple(needed)))
        # What was needed last before the stretch began held when it began.
        while len(self._needed) > 1 and self._needed[1][0] <= now - self.scale_down_after:
            self._needed.popleft()
        wanted = [widths for _, widths in self._needed]
        if now - self._since < self.scale_down_after:
            # It is not known for long enough.
            wanted.append(tuple(current))
        return largest(wanted)


def largest(trees: Sequence[Sequence[int]]) -> list[int]:
    """A tree with as many layers as the tallest, each as wide as the widest; the last one is the root."""
    height = max(map(len, trees))
    # The root of a lower tree stands in for the layers that it does not have.
    padded = [[*widths, *[1] * (height - len(widths))] for widths in trees]
    return [max(layer) for layer in zip(*padded, strict=True)]
