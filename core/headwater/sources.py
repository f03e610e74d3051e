"""Who a source is: a name and an incarnation.

Inside the engine a source is one string whose bytes have the order of sources: name first, then
incarnation (semantics, "Events"). A name holds no NUL, which sorts before everything else.
"""

from __future__ import annotations

import re
from typing import NamedTuple
from unicodedata import category

# In bytes of UTF-8.
NAME_LIMIT = 253
# Of so many openings of its spool that nobody confirmed a source tells, the latest ones.
EARLIER = 32
_APART = "\0"
_NUMBERED = re.compile(r".*#[0-9]+", re.DOTALL)


def source_name_problem(name: object) -> tuple[str, str] | None:
    """What is wrong with the name of a source, and the remedy."""
    if not isinstance(name, str):
        return f"is {name!r}", "give the name of the source"
    size = len(name.encode("utf-8", "surrogatepass"))
    if not 0 < size <= NAME_LIMIT:
        return f"has {size} bytes", f"give 1 to {NAME_LIMIT} bytes of UTF-8"
    if any(category(character) in ("Cc", "Cs") for character in name):
        return f"is {name!r}, with control characters", "give a name that can be printed"
    return None


class SourceId(NamedTuple):
    """`str(SourceId(...))` is the engine's name for it; incarnation 0 is a plain name."""

    name: str
    incarnation: int = 0

    @classmethod
    def of(cls, text: str) -> SourceId:
        name, apart, incarnation = text.rpartition(_APART)
        if apart and incarnation.isascii() and incarnation.isdigit():
            return cls(name, int(incarnation))
        return cls(text)

    def __str__(self) -> str:
        return f"{self.name}{_APART}{self.incarnation:010d}" if self.incarnation else self.name

    @property
    def label(self) -> str:
        """The source for people: `name`, or `name#2` from the second incarnation on.

        No two incarnations have the same one: a first incarnation whose name itself ends like that has its
        number too (`pump#2#1`). A plain name stays as it is.
        """
        if not self.incarnation or (self.incarnation == 1 and not _NUMBERED.fullmatch(self.name)):
            return self.name
        return f"{self.name}#{self.incarnation}"
