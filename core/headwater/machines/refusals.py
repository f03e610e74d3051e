"""Batches that no sound node makes: they are counted, answered by nobody, and told of once."""

from __future__ import annotations

from headwater.errors import InvalidPartial

# Of so many senders it is remembered what was wrong.
SENDERS = 256


class Refusals:
    """Whoever sends such a thing is broken or means harm: an answer would only make it send again."""

    def __init__(self) -> None:
        self.count = 0
        self._told: dict[str, None] = {}
        self._news: list[tuple[str, str]] = []

    def add(self, sender: str, error: InvalidPartial) -> None:
        self.count += 1
        if sender not in self._told:
            while len(self._told) >= SENDERS:
                del self._told[next(iter(self._told))]
            self._told[sender] = None
            self._news.append((sender, str(error)))

    def news(self) -> list[tuple[str, str]]:
        """Senders that were not told of yet, and what was wrong."""
        news, self._news = self._news, []
        return news
