"""The root without its windows: who is counted up to where, the watermark, and what is decided.

Where many make the windows from one log, somebody has to write that log: whoever does so needs all of a root
but what is heavy. What it has checked and decided, the others replay.
"""

from __future__ import annotations

from headwater.partials import Partial
from headwater.root import Root


class Windowless(Root):
    """A root that merges nothing and closes nothing; partials are checked as by any other."""

    def _merge(self, partial: Partial) -> None:
        """It was checked, and its vector is applied by the caller."""

    def _close_groups(self, watermark: int) -> None:
        for sliced in self._grouping.sliced:
            sliced.pass_by(watermark)
        if self._ending:
            self._forget_ended(watermark)

    def _forget_ended(self, watermark: int) -> None:
        self._grouping.let_go(watermark)
        self._ending = self._grouping.is_ending

    def _collect(self) -> None:
        for marked in self._grouping.marked:
            # The bounds of windows that ended when a source was given up.
            marked.drain()
