"""Where slices are cut: the union of the edges of all windows of a group.

Edges do not depend on the data, so they are laid out ahead, a stretch of time at once.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from headwater.rows import TS_MAX, TS_MIN, Array, Ints

# How many edges are laid out at once, and how many stretches are remembered.
AHEAD = 128
REMEMBERED = 4
FAR = 1 << 60
FEW = 4


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
        # One comb that stands at all times: its edges need no putting together.
        self._even: tuple[int, int] | None = None
        if len(self._slide) == 1 and not cut:
            self._even = (int(self._slide[0]), int(self._phase[0]))
        rate = float((1.0 / self._slide).sum()) if len(self._slide) else 0.0
        self._stretch = min(max(int(AHEAD / rate), 1), FAR) if rate else 0
        # Laid-out edges by the number of their stretch: as an array, and as a list to look one up in.
        self._laid: dict[int, tuple[Ints, list[int]]] = {}
        # The slice that was asked for last.
        self.low, self.high = TS_MAX, TS_MIN

    def _lay(self, stretch: int) -> Ints:
        """All edges of a stretch, one before it and one behind it."""
        if not self._stretch:
            return np.concatenate(([TS_MIN], self.cuts, [TS_MAX]))
        low = stretch * self._stretch
        high = low + self._stretch
        if self._even is not None:
            slide, phase = self._even
            return np.arange(low - (low - phase) % slide, high + (phase - high) % slide + 1, slide)
        found: list[Array] = [self.cuts[self.cuts.searchsorted(low) : self.cuts.searchsorted(high, "right")]]
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
        place = int(self.cuts.searchsorted(low))
        place_behind = int(self.cuts.searchsorted(high, "right"))
        outer_low = max([TS_MIN, *before.tolist(), *self.cuts[max(place - 1, 0) : place].tolist()])
        outer_high = min([TS_MAX, *behind.tolist(), *self.cuts[place_behind : place_behind + 1].tolist()])
        found += [np.array([outer_low]), np.array([outer_high])]
        return np.unique(np.concatenate(found))

    def _around(self, ts: int) -> tuple[Ints, list[int], int]:
        """The edges round a time, and where their stretch ends."""
        stretch = ts // self._stretch if self._stretch else 0
        laid = self._laid.get(stretch)
        if laid is None:
            if len(self._laid) >= REMEMBERED:
                del self._laid[next(iter(self._laid))]
            edges = self._lay(stretch)
            laid = self._laid[stretch] = (edges, edges.tolist())
        return *laid, (stretch + 1) * self._stretch if self._stretch else TS_MAX

    def span(self, ts: int) -> tuple[int, int]:
        """The slice `[low, high)` that holds a time."""
        if not self.low <= ts < self.high:
            _, edges, _ = self._around(ts)
            place = bisect_right(edges, ts)
            self.low, self.high = edges[place - 1], edges[place]
        return self.low, self.high

    def spans(self, low: int, high: int) -> list[tuple[int, int]] | None:
        """The slices that hold `[low, high]`, if they are few."""
        found = [self.span(low)]
        while found[-1][1] <= high:
            if len(found) == FEW:
                return None
            found.append(self.span(found[-1][1]))
        return found

    def cut(self, ts: Ints) -> tuple[Ints, Ints]:
        """Cut sorted times at the edges: where each piece begins, and the start of its slice."""
        places: list[Array] = []
        slices: list[Array] = []
        done, size = 0, len(ts)
        last = ts.item(size - 1)
        while done < size:
            first = ts.item(done)
            edges, listed, until = self._around(first)
            stop = size if last < until else int(ts.searchsorted(until))
            upto = bisect_right(listed, last if stop == size else until - 1)
            inner = edges[bisect_right(listed, first) - 1 : upto]
            begins = ts.searchsorted(inner)
            begins[0] = done
            # A slice is held if the next one begins later; the last one is held by what ends it.
            held = begins[1:] > begins[:-1]
            if np.count_nonzero(held) < len(held) or begins.item(len(begins) - 1) == stop:
                kept = np.append(held, begins[-1] < stop)
                begins, inner = begins[kept], inner[kept]
            if stop == size and not done:
                return begins, inner
            places.append(begins)
            slices.append(inner)
            done = stop
        begins, starts = np.concatenate(places), np.concatenate(slices)
        # A slice that reaches over the end of a stretch was cut there, and is one slice all the same.
        fresh = np.ones(len(starts), bool)
        fresh[1:] = starts[1:] != starts[:-1]
        return begins[fresh], starts[fresh]


def _without_repeats(combs: list[tuple[int, int, int, int]]) -> tuple[Ints, Ints, Ints, Ints]:
    """Combs whose edges no other comb has all of: whole seconds say nothing beside seconds."""
    kept = np.empty((4, len(combs)), np.int64)
    size = 0
    # The shortest slides repeat most of the others: they are asked first, without an array.
    first: list[tuple[int, int, int, int]] = []
    for slide, phase, begin, end in combs:
        if any(slide % s == 0 and (phase - p) % s == 0 and b <= begin and e >= end for s, p, b, e in first):
            continue
        finer = (
            (slide % kept[0, :size] == 0)
            & ((phase - kept[1, :size]) % kept[0, :size] == 0)
            & (kept[2, :size] <= begin)
            & (kept[3, :size] >= end)
        )
        if not finer.any():
            kept[:, size] = slide, phase, begin, end
            size += 1
            if size <= FEW:
                first.append((slide, phase, begin, end))
    return kept[0, :size], kept[1, :size], kept[2, :size], kept[3, :size]
