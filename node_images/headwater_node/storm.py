"""Batches that are made again and again: a tree that works hard and comes to nothing."""

from __future__ import annotations

from collections import deque

# So many in so many microseconds are a storm; it is over when there has been none for as long.
MANY, SPAN = 20, 10_000_000


class Storm:
    """Sees from a count that only grows whether it grows too fast."""

    def __init__(self, many: int = MANY, span: int = SPAN) -> None:
        self._many, self._span = many, span
        self._seen: deque[tuple[int, int]] = deque([(0, 0)])
        self.raging = False

    def look(self, count: int, now: int) -> bool | None:
        """True if a storm begins, False if it ends, None if nothing changes."""
        if count != self._seen[-1][1]:
            self._seen.append((now, count))
        while len(self._seen) > 1 and now - self._seen[1][0] > self._span:
            self._seen.popleft()
        within = count - self._seen[0][1]
        if not self.raging and within >= self._many:
            self.raging = True
            return True
        if self.raging and within == 0:
            self.raging = False
            return False
        return None
