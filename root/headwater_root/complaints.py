"""What sources were told that they may not, so that the operator hears of it once."""

from __future__ import annotations

# Of so many sources it is remembered; whoever was forgotten is told of again.
NAMES = 4_096


class Complaints:
    """The last reason, by the source's name: a source that is refused asks again and again, and one that
    means harm does so with ever new openings."""

    def __init__(self, names: int = NAMES) -> None:
        self._names = names
        self._told: dict[str, str] = {}

    def is_news(self, name: str, reason: str) -> bool:
        """Whether this was not the last thing that the source was told."""
        if self._told.get(name) == reason:
            return False
        self._told.pop(name, None)
        if len(self._told) >= self._names:
            del self._told[next(iter(self._told))]
        self._told[name] = reason
        return True

    def settled(self, name: str) -> None:
        """All is well with it again."""
        self._told.pop(name, None)
