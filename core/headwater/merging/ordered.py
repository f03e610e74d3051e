"""Events in their total order: what cannot be computed from merged partials waits here until the
watermark has passed it, and leaves in the order `(ts, source, seq)`.
"""

from __future__ import annotations

import numpy as np

from headwater.rows import TS_MIN, Rows, SourceOrder, joined

# Pieces below this size are joined before they are handed on.
CRUMB = 1_024


class OrderedEvents:
    """Rows of all sources; `codes` are the keys'.

    A source's rows that rise in time are kept as they came, the few that fall behind apart from them:
    so most of what leaves is views of batches, and only the few are sorted.
    """

    def __init__(self, order: SourceOrder) -> None:
        self._order = order
        # By source: rows that rise, the time that they have reached, and rows that fell behind.
        self._rising: dict[int, list[Rows]] = {}
        self._reached: dict[int, int] = {}
        self._behind: dict[int, list[Rows]] = {}
        self._held = 0
        # How many rows have come since somebody last looked whether they can leave, and since any left.
        self.fresh = self.added = 0

    def __len__(self) -> int:
        return self._held

    def add(self, rows: Rows) -> None:
        """Rows of one source in the order of its numbers."""
        size = len(rows.value)
        if not size:
            return
        self.fresh += size
        self.added += size
        self._held += size
        assert isinstance(rows.source, int)
        source, ts = rows.source, rows.ts
        reached = self._reached.get(source, TS_MIN)
        if rows.in_order and ts.item(0) >= reached:
            self._rising.setdefault(source, []).append(rows)
            self._reached[source] = ts.item(size - 1)
            return
        highest = np.maximum.accumulate(ts)
        if reached > TS_MIN:
            np.maximum(highest, reached, out=highest)
        rises = ts == highest
        self._reached[source] = highest.item(size - 1)
        up, down = np.flatnonzero(rises), np.flatnonzero(~rises)
        if len(up):
            self._rising.setdefault(source, []).append(rows.take(up, in_order=True))
        if len(down):
            self._behind.setdefault(source, []).append(rows.take(down, in_order=False))

    def ready(self, before: int) -> int:
        """How many rows may have a ts below the watermark, at most."""
        ready = sum(len(rows) for waiting in self._behind.values() for rows in waiting)
        for waiting in self._rising.values():
            for rows in waiting:
                if rows.ts.item(0) >= before:
                    break
                ready += len(rows.value)
        return ready

    def release(self, before: int, *, together: bool = False, anyhow: int = 0) -> list[Rows]:
        """Everything with a ts below the watermark, in the total order; `together` in one piece.

        Up to `anyhow` rows may leave in any order: to put them in one costs more than all the rest.
        """
        self.fresh = self.added = 0
        ready: list[Rows] = []
        for waiting in self._rising.values():
            done = 0
            for rows in waiting:
                if rows.ts.item(0) >= before:
                    break
                size = len(rows.value)
                if rows.ts.item(size - 1) < before:
                    ready.append(rows)
                    done += 1
                    continue
                cut = int(rows.ts.searchsorted(before))
                ready.append(rows.cut(0, cut))
                waiting[done] = rows.cut(cut, size)
                break
            del waiting[:done]
        behind = self._release_behind(before) if self._behind else []
        leaving = sum(map(len, ready)) + sum(map(len, behind))
        self._held -= leaving
        if not behind and (len(ready) <= 1 or (not together and len({rows.source for rows in ready}) == 1)):
            # One source's rows, which rise, are handed on as they are, unless they come in crumbs.
            crumbs = len(ready) > 1 and leaving < CRUMB * len(ready)
            return [joined(ready)] if crumbs else ready
        if leaving <= anyhow:
            pieces = ready + behind
            if leaving >= CRUMB * len(pieces):
                return pieces
            mixed = joined(pieces)
            mixed.in_order = False
            return [mixed]
        if len(self._rising) == 1 and ready and behind:
            few = joined(behind)
            # One source's rows come by their numbers: a stable sort by time is the total order.
            few = few.take(np.argsort(few.ts, kind="stable"), in_order=True)
            return [_merged(joined(ready), few)]
        pieces = ready + behind
        return [self._sorted(pieces)] if pieces else []

    def _release_behind(self, before: int) -> list[Rows]:
        ready = []
        for source, waiting in self._behind.items():
            kept = []
            for rows in waiting:
                early = rows.ts < before
                if early.all():
                    ready.append(rows)
                elif early.any():
                    ready.append(rows.take(np.flatnonzero(early), in_order=False))
                    kept.append(rows.take(np.flatnonzero(~early), in_order=False))
                else:
                    kept.append(rows)
            self._behind[source] = kept
        return ready

    def _sorted(self, pieces: list[Rows]) -> Rows:
        rows = joined(pieces)
        source, seq = rows.sources(), rows.numbers()
        order = np.lexsort((seq, self._order.ranks[source], rows.ts))
        return rows.take(order, in_order=True)

    def drain(self) -> list[Rows]:
        """Everything, each source's rows in the order of its numbers, and nothing stays."""
        drained: list[Rows] = []
        for source, rising in self._rising.items():
            rows = rising + self._behind.get(source, [])
            if len(rows) > 1 and self._behind.get(source):
                together = joined(rows)
                drained.append(together.take(np.argsort(together.numbers(), kind="stable"), in_order=False))
            else:
                drained += rows
        self._rising, self._reached, self._behind = {}, {}, {}
        self._held = self.fresh = self.added = 0
        return drained


def _merged(rising: Rows, few: Rows) -> Rows:
    """One source's rising rows and the sorted few that fell behind them, in one order.

    One that fell behind comes after rising ones of the same ts: they were there before it.
    """
    size = len(rising.value) + len(few.value)
    places = rising.ts.searchsorted(few.ts, "right") + np.arange(len(few.value))
    others = np.ones(size, bool)
    others[places] = False
    order = np.empty(size, np.int64)
    order[places] = np.arange(len(rising.value), size)
    order[others] = np.arange(len(rising.value))
    return joined([rising, few]).take(order, in_order=True)
