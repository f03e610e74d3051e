"""Records that a node has read, over all sources that it knows or has known."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from headwater.ledger import Account
from headwater.prefix import LATE
from headwater.progress import Source

# Records that an operator has said are to be passed over.
SKIPPED = "skipped"


class Tally:
    """Adds up accounts, which go with their sources: a total never falls when one leaves."""

    def __init__(self) -> None:
        self.read = 0
        self.late = 0
        # By reason.
        self.rejected: dict[str, int] = {}
        self._seen: dict[str, Account] = {}

    def look(self, sources: Mapping[str, Source]) -> list[tuple[str, str, int]]:
        """Take what has come in since the last look; an account that has not changed costs a comparison.

        Gives which sources had records rejected: source, reason and how many.
        """
        news: list[tuple[str, str, int]] = []
        for name in [name for name in self._seen if name not in sources]:
            del self._seen[name]
        for name, source in sources.items():
            account, before = source.account, self._seen.get(name)
            if account is before:
                continue
            self._seen[name] = account
            if before is None or account.accepted < before.accepted:
                # It is there for the first time, or again after it had left.
                before = Account()
            news += [(name, *each) for each in self._add(account, before)]
        return news

    def _add(self, account: Account, before: Account) -> Iterator[tuple[str, int]]:
        self.read += account.accepted - before.accepted
        self.late += account.late - before.late
        for reason, count in account.refused.items():
            if reason != LATE:
                more = count - before.refused.get(reason, 0)
                self.rejected[reason] = self.rejected.get(reason, 0) + more
                if more > 0 and reason != SKIPPED:
                    yield reason, more
