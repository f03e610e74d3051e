"""A lane at the root: its windows, and the decisions that it takes later (protocol, rule 14)."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import takewhile

from headwater.machines.messages import Barrier, Standing
from headwater.machines.records import Idled, Opened, Resumed, Retired, Skipped
from headwater.prefix import Prefix
from headwater.root import Root


@dataclass(frozen=True, slots=True)
class Later:
    """A decision of lane 0 at a number that another lane has not come to."""

    number: int
    body: Opened | Idled | Resumed | Skipped | Retired
    floor: int | None


class RootLane:
    """The windows of one lane, and where it stands with its sources."""

    def __init__(self, engine: Root) -> None:
        self.engine = engine
        self.later: dict[str, list[Later]] = {}
        # Where batches that wait to be made durable leave their sources.
        self.ahead: dict[str, Prefix] = {}

    def take(self, source: str, decided: Later) -> None:
        self.later.setdefault(source, []).append(decided)
        self.settle(source)

    def settle(self, source: str) -> None:
        """Take what was decided at the number where the source stands."""
        waiting = self.later.get(source, [])
        at = self.engine.sources[source].position
        due = list(takewhile(lambda decided: decided.number == at, waiting))
        if len(due) == 1:
            self._decide(source, due[0])
        elif due:
            # As one: between two the watermark could pass what the last one lets the source still say.
            with self.engine.deciding():
                for decided in due:
                    self._decide(source, decided)
        del waiting[: len(due)]
        if not waiting:
            self.later.pop(source, None)

    def _decide(self, source: str, decided: Later) -> None:
        if isinstance(decided.body, Opened):
            self.engine.reopen(source, decided.body.opening, decided.body.upto)
        elif isinstance(decided.body, Idled):
            self.engine.idle(source)
        elif isinstance(decided.body, Resumed):
            self.engine.resume(source, floor=decided.floor)
        elif isinstance(decided.body, Retired):
            self.engine.retire(source)
        else:
            self.engine.skip(source, decided.body.seq)

    def give_up(self, source: str) -> None:
        """Retire it at its own number: what this lane has not heard of by then, it never will."""
        self.later.pop(source, None)
        self.engine.retire(source)

    def is_gone(self, name: str) -> bool:
        """Whether nothing of a source fits any more, or ever did."""
        source = self.engine.sources.get(name)
        return source is None or source.retired

    def prefix(self, name: str) -> Prefix:
        """Where the lane stands with a source, with what waits to be made durable."""
        return self.ahead.get(name) or self.engine.sources[name].prefix

    def fits(self, name: str, low: Prefix) -> bool:
        """Whether what begins at a prefix of a source follows here (rule 6)."""
        return self.prefix(name) == low

    def parts(self, name: str, low: int, high: int) -> bool:
        """Whether the prefix of a source changes between two numbers: no batch goes across."""
        later = self.later.get(name)
        return later is not None and low < later[0].number < high

    def barrier(self, name: str, opening: str) -> Barrier | None:
        """What lies ahead of a source whose spool has this opening now."""
        later = self.later.get(name)
        return Barrier(later[0].number, opening) if later else None

    def standing(self, name: str, opening: str) -> Standing:
        source = self.engine.sources[name]
        return Standing(self.prefix(name), source.lateness, source.site, self.barrier(name, opening))
