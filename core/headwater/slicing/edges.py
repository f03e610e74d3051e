"""Where slices are cut: the union of the edges of all windows of a group.

Edges do not depend on the data, so they are laid out ahead, a stretch of time at once.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from headwater.operators import TS_MAX, TS_MIN, Array, Ints

# How many edges are laid out at once, and how many stretches are remembered.
AHEAD = 1_024
REMEMBERED = 64
FAR = 1 << 60


@dataclass(frozen=True, slots=True)
class Periodic:
    """The windows `[offset + k * slide, offset + k * slide + length)` with `begin <= start < end`."""

    length: int
    slide: int
    offset: int
    begin: int = TS_MIN
    end: int = TS_MAX


class Edges:
    """The edges of some periodic windows, and cuts that stand alone."""

    def __init__(self, windows: Iterable[Periodic], cuts: Iterable[int] = ()) -> None:
        listed = tuple(windows)
        cut = {*cuts, *(w.begin for w in listed), *(w.end for w in listed)} - {TS_MIN, TS_MAX}
        self.cuts: Ints = np.array(sorted(cut), np.int64)
        combs = {(w.slide, w.offset % w.slide, w.begin, w.end) for w in listed}
        combs |= {(w.slide, (w.offset + w.length) % w.slide, w.begin, w.end) for w in listed}
        self._slide, self._phase, self._begin, self._end = _without_repeats(sorted(combs))
        rate = float((1.0 / self._slide).sum()) if len(self._slide) else 0.0
        self._stretch = min(max(int(AHEAD / rate), 1), FAR) if rate else 0
        self._laid: dict[int, Ints] = {}
        # The slice that was asked for last.
        self.low, self.high = TS_MAX, TS_MIN

    def _lay(self, stretch: int) -> Ints:
        """All edges of a stretch, one before it and one behind it."""
        if not self._stretch:
            return np.concatenate(([TS_MIN], self.cuts, [TS_MAX]))
        low = stretch * self._stretch
        high = low + self._stretch
        found: list[Array] = [
            self.cuts[np.searchsorted(self.cuts, low) : np.searchsorted(self.cuts, high, "right")]
        ]
        begin, end = np.maximum(self._begin, low), np.minimum(self._end, high)
        first = -((self._phase - begin) // self._slide)
        last = (end - self._phase) // self._slide
        counts = np.maximum(last - first + 1, 0)
        steps = np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts, counts)
        found.append(
            np.repeat(self._phase + first * self._slide, counts) + steps * np.repeat(self._slide, counts)
        )
        # The edges round the stretch: the last at or before it, the first at or behind it.
        before = self._phase + (np.minimum(self._end, low) - self._phase) // self._slide * self._slide
        before = before[before >= self._begin]
        behind = self._phase - (self._phase - np.maximum(self._begin, high)) // self._slide * self._slide
        behind = behind[behind <= self._end]
        place = int(np.searchsorted(self.cuts, low))
        place_behind = int(np.searchsorted(self.cuts, high, "right"))
        outer_low = max([TS_MIN, *before.tolist(), *self.cuts[max(place - 1, 0) : place].tolist()])
        outer_high = min([TS_MAX, *behind.tolist(), *self.cuts[place_behind : place_behind + 1].tolist()])
        found += [np.array([outer_low]), np.array([outer_high])]
        return np.unique(np.concatenate(found))

    def _around(self, ts: int) -> tuple[Ints, int]:
        """The edges round a time, and where their stretch ends."""
        stretch = ts // self._stretch if self._stretch else 0
        edges = self._laid.get(stretch)
        if edges is None:
            if len(self._laid) >= REMEMBERED:
                del self._laid[next(iter(self._laid))]
            edges = self._laid[stretch] = self._lay(stretch)
        return edges, (stretch + 1) * self._stretch if self._stretch else TS_MAX

    def span(self, ts: int) -> tuple[int, int]:
        """The slice `[low, high)` that holds a time."""
        if not self.low <= ts < self.high:
            edges, _ = self._around(ts)
            place = int(np.searchsorted(edges, ts, "right"))
            self.low, self.high = int(edges[place - 1]), int(edges[place])
        return self.low, self.high

    def cut(self, ts: Ints) -> tuple[Ints, Ints]:
        """Cut sorted times at the edges: where each piece begins, and the start of its slice."""
        places: list[Array] = []
        slices: list[Array] = []
        done, size = 0, len(ts)
        while done < size:
            edges, until = self._around(ts.item(done))
            stop = size if ts.item(size - 1) < until else int(np.searchsorted(ts, until))
            first = int(np.searchsorted(edges, ts.item(done), "right")) - 1
            last = int(np.searchsorted(edges, ts.item(stop - 1), "right")) - 1
            inner = edges[first : last + 1]
            bounds = np.empty(len(inner) + 1, np.int64)
            bounds[0], bounds[-1] = done, stop
            np.add(np.searchsorted(ts[done:stop], inner[1:]), done, out=bounds[1:-1])
            held = bounds[1:] > bounds[:-1]
            places.append(bounds[:-1][held])
            slices.append(inner[held])
            done = stop
        if len(places) == 1:
            return places[0], slices[0]
        begins, starts = np.concatenate(places), np.concatenate(slices)
        # A slice that reaches over the end of a stretch was cut there, and is one slice all the same.
        fresh = np.ones(len(starts), bool)
        fresh[1:] = starts[1:] != starts[:-1]
        return begins[fresh], starts[fresh]


def _without_repeats(combs: list[tuple[int, int, int, int]]) -> tuple[Ints, Ints, Ints, Ints]:
    """Combs whose edges no other comb has all of: whole seconds say nothing beside seconds."""
    kept = np.empty((4, len(combs)), np.int64)
    size = 0
    for slide, phase, begin, end in combs:
        finer = (
            (slide % kept[0, :size] == 0)
            & ((phase - kept[1, :size]) % kept[0, :size] == 0)
            & (kept[2, :size] <= begin)
            & (kept[3, :size] >= end)
        )
        if not finer.any():
            kept[:, size] = slide, phase, begin, end
            size += 1
    return kept[0, :size], kept[1, :size], kept[2, :size], kept[3, :size]
