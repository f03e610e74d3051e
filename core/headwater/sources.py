"""Who a source is: a name and an incarnation.

Inside the engine a source is one string whose bytes have the order of sources: name first, then
incarnation (semantics, "Events"). A name holds no NUL, which sorts before everything else.
"""

from __future__ import annotations

from typing import NamedTuple

_APART = "\0"


class SourceId(NamedTuple):
    """`str(SourceId(...))` is the engine's name for it; incarnation 0 is a plain name."""

    name: str
    incarnation: int = 0

    @classmethod
    def of(cls, text: str) -> SourceId:
        name, _, incarnation = text.partition(_APART)
        return cls(name, int(incarnation or 0))

    def __str__(self) -> str:
        return f"{self.name}{_APART}{self.incarnation:010d}" if self.incarnation else self.name
