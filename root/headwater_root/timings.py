"""How long something has taken, each time: counts by upper bound, as Prometheus has them."""

from __future__ import annotations

from bisect import bisect_left

# In seconds: from a fast disk's fsync to one that is in trouble.
BOUNDS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)


class Timings:
    """A histogram of seconds."""

    def __init__(self) -> None:
        self.total = 0.0
        self._counts = [0] * (len(BOUNDS) + 1)

    def add(self, seconds: float) -> None:
        self._counts[bisect_left(BOUNDS, seconds)] += 1
        self.total += seconds

    @property
    def buckets(self) -> list[tuple[str, float]]:
        """For each bound how many took at most so long."""
        found, sum_ = [], 0
        for bound, count in zip((*map(str, BOUNDS), "+Inf"), self._counts, strict=True):
            sum_ += count
            found.append((bound, float(sum_)))
        return found
