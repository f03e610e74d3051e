"""Events in their total order: what cannot be computed from merged partials waits here until the
watermark has passed it, and leaves in the order `(ts, source, seq)`.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from headwater.operators import Rows, SourceOrder


class OrderedEvents:
    """Rows of all sources; `codes` are the keys'."""

    def __init__(self, order: SourceOrder) -> None:
        self._order = order
        self._waiting: list[Rows] = []

    def __len__(self) -> int:
        return sum(map(len, self._waiting))

    def add(self, rows: Rows) -> None:
        """Rows in the order of their source's numbers."""
        if len(rows):
            self._waiting.append(rows)

    def release(self, before: int, *, joined: bool = False) -> Iterator[Rows]:
        """Everything with a ts below the watermark, in the total order; `joined` in one piece."""
        if len(self._waiting) == 1:
            (rows,) = self._waiting
            if rows.in_order and rows.ts.item(len(rows) - 1) < before:
                self._waiting = []
                yield rows
                return
        ready: list[Rows] = []
        waiting: list[Rows] = []
        for rows in self._waiting:
            if rows.in_order:
                cut = (
                    len(rows)
                    if rows.ts.item(len(rows) - 1) < before
                    else int(rows.ts.searchsorted(before))
                )
                if cut:
                    ready.append(rows if cut == len(rows) else rows.cut(0, cut))
                if cut < len(rows):
                    waiting.append(rows if not cut else rows.cut(cut, len(rows)))
            else:
                early = rows.ts < before
                if early.any():
                    ready.append(rows.take(np.flatnonzero(early), in_order=False))
                if not early.all():
                    waiting.append(rows.take(np.flatnonzero(~early), in_order=False))
        self._waiting = waiting
        # Batches of one source that follow each other in time are handed on as they are.
        alone = all(rows.in_order and isinstance(rows.source, int) for rows in ready)
        if (
            (len(ready) <= 1 or not joined)
            and alone
            and all(
                one.source == two.source and one.ts.item(len(one) - 1) <= two.ts.item(0)
                for one, two in pairwise(ready)
            )
        ):
            yield from ready
        elif ready:
            yield self._sorted(ready)

    def _sorted(self, pieces: list[Rows]) -> Rows:
        ts = np.concatenate([rows.ts for rows in pieces])
        value = np.concatenate([rows.value for rows in pieces])
        seq = np.concatenate([rows.numbers() for rows in pieces])
        source = np.concatenate([rows.sources() for rows in pieces])
        order = np.lexsort((seq, self._order.ranks[source], ts))
        codes = None
        if any(rows.codes is not None for rows in pieces):
            # Rows from before anybody asked for keys: whoever asks sees later ones only.
            known = [rows.codes if rows.codes is not None else np.zeros(len(rows), np.int64) for rows in pieces]
            codes = np.concatenate(known)[order]
        return Rows(ts[order], value[order], seq[order], source[order], True, None, codes)

    def drain(self) -> list[Rows]:
        """Everything as it came, and nothing stays."""
        waiting, self._waiting = self._waiting, []
        return waiting
