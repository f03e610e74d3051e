"""Sources whose next event lies too far beyond this machine's clock: they wait (protocol, rule 15)."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from headwater.events import Batch
from headwater.progress import Source
from headwater.sources import SourceId
from headwater_wire.offences import Offence, Offences

log = logging.getLogger(__name__)


class Future:
    """How far a child reads, and who waits for that; `bound` in microseconds beyond the clock."""

    def __init__(self, bound: int, offences: Offences) -> None:
        self.bound, self._offences = bound, offences
        self.limit = 0
        # By source: the number of the record that it waits with.
        self.waiting: dict[str, int] = {}

    def until(self, wall: int) -> int:
        """The largest time that is read at this moment."""
        self.limit = wall + self.bound
        return self.limit

    def settle(self, sources: Mapping[str, Source]) -> None:
        """Drop the sources that have left, and those that have gone on: in time, or by a skip."""
        for name, record in list(self.waiting.items()):
            source = sources.get(name)
            if source is None:
                del self.waiting[name]
            elif source.position >= record:
                del self.waiting[name]
                log.info("a source goes on", extra={"source": SourceId.of(name).name})

    def look(self, batch: Batch, sources: Mapping[str, Source]) -> None:
        """See whether a source that has sent a batch has to wait with the rest of it."""
        self.settle(sources)
        source = sources.get(batch.source)
        if source is None:
            return
        place = source.position + 1 - batch.first
        if not 0 <= place < len(batch) or source.name in self.waiting:
            return
        ts = int(batch.ts[place])
        if ts > self.limit:
            self.waiting[source.name] = source.position + 1
            name = SourceId.of(source.name).name
            self._offences.count(Offence.FUTURE, name)
            extra = {
                "source": name,
                "seq": source.position + 1,
                "ts": ts,
                "limit": self.limit,
                "remedy": "set the source's clock, raise `future`, or use headwater source skip",
            }
            log.warning("a source waits: its next event lies too far in the future", extra=extra)
