"""What is wrong with a message."""

from __future__ import annotations

from headwater.errors import PermanentError


class Malformed(PermanentError):
    """A message that says something impossible: it is refused whole, and nothing has changed."""

    def __init__(self, field: str, message: str, remedy: str) -> None:
        self.field = field
        super().__init__(f"{field}: {message}; {remedy}")


class NoRoom(Malformed):
    """A message that would be right if less of others were under way: it is not taken, and may come again."""


class OtherPrograms(Malformed):
    """Queries that this program cannot compute: it lacks a function of somebody's package, or is older."""
