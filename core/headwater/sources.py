"""Who a source is: a name and an incarnation.

Inside the engine a source is one string whose bytes have the order of sources: name first, then
incarnation (semantics, "Events"). A name holds no NUL, which sorts before everything else.
"""

from __future__ import annotations

from typing import NamedTuple

_APART = "\0"
NAME_LIMIT = 253


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


def source_problem(name: object) -> tuple[str, str] | None:
    """What is wrong with the name of a source, and the remedy."""
    if not isinstance(name, str) or not name:
        return f"is {name!r}", "give the name of the source"
    if not name.isprintable():
        return (
            f"is {name!r}, with a character that does not print",
            "use letters, digits and signs that print",
        )
    if (size := len(name.encode())) > NAME_LIMIT:
        return f"is {size} bytes long", f"keep names of sources within {NAME_LIMIT} bytes of UTF-8"
    return None
