"""The terms of a root: each opening of its log begins one, and draws a name for it (protocol, rule 17)."""

from __future__ import annotations

from headwater.errors import PermanentError
from headwater.machines.messages import NOTHING_HEARD, Echo
from headwater.machines.records import Began


class BehindTheTree(PermanentError):
    """The tree knows more than this root has in its log: the log was lost or is an older copy (rule 17)."""


class Terms:
    """Changed by records of the log alone."""

    def __init__(self) -> None:
        # Of each term by its name: which it is, and the position with which the next one began.
        self._terms: dict[str, tuple[int, int | None]] = {}
        self._present = NOTHING_HEARD

    def began(self, body: Began, position: int) -> None:
        for name, (term, end) in self._terms.items():
            if end is None and term < body.term:
                self._terms[name] = (term, position)
        self._terms[body.name] = (body.term, None)
        self._present = Echo(body.term, body.name, position)

    @property
    def number(self) -> int:
        return self._present.term

    def at(self, position: int) -> Echo:
        """What those below are to echo."""
        return self._present._replace(position=position)

    def knows(self, echo: Echo, position: int) -> bool:
        """Whether the log, which ends at a position, has what somebody has heard of."""
        if echo == NOTHING_HEARD:
            return True
        if echo.name not in self._terms:
            return False
        _, end = self._terms[echo.name]
        return echo.position <= (position if end is None else end)
